"""The store as four blocking steps: look, put, see that it is whole, delete.

Blocking on purpose: obstore's asyncio calls end on threads of its own, which abort the process when they answer while the
interpreter goes down. Here Python threads of ours wait, outside the interpreter lock.
"""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from serving.storage.entries import FOLDERS, Entry
from serving.storage.target import brief
from toolkit.core.errors import ToolkitError

if TYPE_CHECKING:
    from obstore.store import ObjectStore

PAGE = 1000
"""Objects of one listing step, and of one deletion where the store can delete many at once."""

FILE_MODE, FOLDER_MODE = 0o600, 0o700
"""In a store that is a folder: users' images are their owner's alone."""


class StoreFault(ToolkitError):
    """The store did not do what was asked: not reached, refused, or not whole; `kind` tells one cause from another."""

    def __init__(self, message: str, kind: str) -> None:
        super().__init__(message)
        self.kind = kind


class Remote:
    """One store. Safe to use from several threads."""

    def __init__(self, store: "ObjectStore", retention_days: float = 0) -> None:
        self._store = store
        self._retention_s = retention_days * 86_400
        prefix: Path | None = getattr(store, "prefix", None) if type(store).__name__ == "LocalStore" else None
        self._folder = prefix  # of a store that is a folder

    def upload(self, entry: Entry, path: Path, wall: float) -> Literal["uploaded", "exists"]:
        """Put the file's bytes under the entry's key, and see that they are there. Raises StoreFault, FileNotFoundError."""
        import obstore

        if entry.kind == "image" and self._there(entry, wall):
            return "exists"
        path.stat()  # a file that is gone is told from a store's "not found"
        with _faults(f"PUT {entry.key}"):
            self._private_folders(entry.key)
            attributes = {"Content-Type": entry.content_type} if self._folder is None else None
            # In one piece: an object is there whole or not at all, and no parts are left behind.
            obstore.put(self._store, entry.key, path, attributes=attributes, use_multipart=False)
            if self._folder is not None:
                (self._folder / entry.key).chmod(FILE_MODE)
            size = obstore.head(self._store, entry.key)["size"]
        if size != entry.size:
            raise StoreFault(f"PUT {entry.key}: {entry.size} bytes were sent, {size} are there", "size")
        return "uploaded"

    def reach(self) -> None:
        """Raises StoreFault where the store cannot be reached or refuses us."""
        import obstore

        with _faults("LIST"):
            next(iter(obstore.list(self._store, FOLDERS["image"])), None)

    def pages(self) -> Iterator[list[tuple[str, float]]]:
        """Keys under our folders, each with its Unix time of writing, a page at a time. Raises StoreFault."""
        import obstore

        for folder in FOLDERS.values():
            with _faults(f"LIST {folder}"):
                for page in obstore.list(self._store, folder, chunk_size=PAGE):
                    yield [(found["path"], found["last_modified"].timestamp()) for found in page]

    def delete(self, keys: Sequence[str]) -> None:
        """Raises StoreFault. What is gone already is no fault."""
        import obstore

        with _faults("DELETE"):
            try:
                obstore.delete(self._store, keys)
            except FileNotFoundError:  # another gateway was first; some stores stop at that
                for key in keys:
                    with contextlib.suppress(FileNotFoundError):
                        obstore.delete(self._store, key)

    def _private_folders(self, key: str) -> None:
        """Whatever the umask: the library makes folders and files that everybody may read."""
        if self._folder is not None:
            for folder in reversed([self._folder / below for below in Path(key).parents][:-1]):
                folder.mkdir(FOLDER_MODE, exist_ok=True)
                with contextlib.suppress(PermissionError):  # somebody else's: the file is closed all the same
                    folder.chmod(FOLDER_MODE)

    def _there(self, entry: Entry, wall: float) -> bool:
        """Whether the image is in the store and will stay a good while: it is written anew after half its retention."""
        import obstore

        with _faults(f"HEAD {entry.key}"):
            try:
                found = obstore.head(self._store, entry.key)
            except FileNotFoundError:
                return False
        age_s = wall - found["last_modified"].timestamp()
        return found["size"] == entry.size and (not self._retention_s or age_s < self._retention_s / 2)


@contextlib.contextmanager
def _faults(doing: str) -> Iterator[None]:
    from obstore.exceptions import BaseError

    try:
        yield
    except (BaseError, OSError, ValueError, NotImplementedError) as error:
        raise StoreFault(f"{doing}: {brief(error)}", type(error).__name__) from error
