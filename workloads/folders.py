"""Run folders: what is written into them is whole, and they do not fill the disk: the newest are kept, within a number and a size.

Only what `toolkit bench` made is ever deleted: a folder that bears its mark and holds nothing but its files. One file
that a person put there keeps the whole folder.
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from toolkit.core.errors import UsageFault

MARK = ".toolkit-bench"
SAMPLES_FILE = "samples.jsonl"
OWN_FILES = frozenset(
    {
        MARK,
        "plan.json",
        "profile.toml",
        SAMPLES_FILE,
        "metrics.jsonl",
        "report.json",
        "report.md",
    }
)
PATTERN = "bench-*"


@dataclass(frozen=True, slots=True)
class Quota:
    """The most that is kept. The newest folder is kept in any case."""

    folders: int = 50
    size_bytes: int = 5_000_000_000


@dataclass(frozen=True, slots=True)
class RunFolder:
    """One folder that may be deleted. made_at: Unix seconds."""

    path: Path
    made_at: float
    size_bytes: int


def mark(folder: Path) -> None:
    """Say that this folder was made by a run."""
    (folder / MARK).touch()


def put(folder: Path, pages: Mapping[str, str]) -> None:
    """Files by name, each whole or not at all: a reader may come at any time, and so may the end."""
    for name, text in pages.items():
        new = folder / f".{name}.new"
        new.write_text(text, encoding="utf-8")
        new.replace(folder / name)


def begin(folder: Path, profile_toml: str, plan_json: bytes) -> None:
    """Make a run's folder and write down what is asked.

    Raises UsageFault when it holds a run already, or cannot be written.
    """
    try:
        made = not folder.exists()
        folder.mkdir(parents=True, exist_ok=True)
        if made:
            mark(folder)
        (folder / SAMPLES_FILE).open("xb").close()  # of two runs that begin at once, one has it
    except FileExistsError:
        what = "holds a run already" if folder.is_dir() else "is no folder"
        raise UsageFault(f"{folder} {what}: name another folder with --out.") from None
    except OSError as error:
        raise _unwritable(folder, error) from error
    try:
        (folder / "plan.json").write_bytes(plan_json)
        (folder / "profile.toml").write_text(profile_toml, encoding="utf-8")
    except OSError as error:
        release(folder)
        raise _unwritable(folder, error) from error


def _unwritable(folder: Path, error: OSError) -> UsageFault:
    return UsageFault(f"{folder} cannot be written ({error.strerror}): name another with --out.")


@contextmanager
def released_unused(folder: Path) -> Iterator[None]:
    """A run that fails before its first record gives its folder back: it may be named again."""
    try:
        yield
    except BaseException:
        release(folder)
        raise


def release(folder: Path) -> None:
    """Give a folder back whose run has no record."""
    with contextlib.suppress(OSError):
        samples = folder / SAMPLES_FILE
        if not samples.stat().st_size:
            samples.unlink()


def own_folders(runs_dir: Path) -> tuple[RunFolder, ...]:
    """The run folders that may be deleted, newest first."""
    found = [own for path in runs_dir.glob(PATTERN) if (own := _own(path)) is not None]
    return tuple(sorted(found, key=lambda folder: (folder.made_at, folder.path.name), reverse=True))


def surplus(folders: Iterable[RunFolder], quota: Quota) -> tuple[RunFolder, ...]:
    """Which of the folders, newest first, pass the quota. Pure."""
    over: list[RunFolder] = []
    total_bytes = 0
    for kept, folder in enumerate(folders):
        total_bytes += folder.size_bytes
        if kept and (over or kept >= quota.folders or total_bytes > quota.size_bytes):
            over.append(folder)  # and all that are older
    return tuple(over)


def rotate(runs_dir: Path, quota: Quota) -> tuple[Path, ...]:
    """Delete what passes the quota; the folders that are gone. A folder that resists is left."""
    gone: list[Path] = []
    for folder in surplus(own_folders(runs_dir), quota):
        with contextlib.suppress(OSError):
            for name in OWN_FILES - {MARK}:
                (folder.path / name).unlink(missing_ok=True)
            (folder.path / MARK).unlink(missing_ok=True)  # last: a deletion that broke off is taken up again
            folder.path.rmdir()  # refuses when a file appeared meanwhile
            gone.append(folder.path)
    return tuple(gone)


def _own(path: Path) -> RunFolder | None:
    try:
        if path.is_symlink() or not path.is_dir():
            return None
        entries = list(path.iterdir())
        if not any(entry.name == MARK for entry in entries):
            return None
        if any(e.name not in OWN_FILES or e.is_symlink() or not e.is_file() for e in entries):
            return None
        stats = [entry.stat() for entry in entries]
    except OSError:
        return None
    made_at = next(stat.st_mtime for entry, stat in zip(entries, stats, strict=True) if entry.name == MARK)
    return RunFolder(path, made_at, sum(stat.st_size for stat in stats))
