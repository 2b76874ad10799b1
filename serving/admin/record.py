"""The changes on disk: one JSON line each, only ever added to, on the disk before a change is made.

A line that is not whole was never made (kill -9, a full disk in mid-write) and is cut off.
"""

import errno
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from serving.admin.ledger import Change
from toolkit.core.errors import EnvironmentFault, ToolkitError

log = logging.getLogger("toolkit.admin")

CHANGES_FILE = "changes.jsonl"


class NotRecorded(ToolkitError):
    """The disk did not take it, so nothing was changed."""

    default_code = "change_not_recorded"


class Record:
    """changes.jsonl in a run folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> list[Change]:
        """All changes, oldest first. Raises EnvironmentFault when the file is there and cannot be read."""
        try:
            with self.path.open("r+b") as file:
                data = file.read()
                whole = data.rfind(b"\n") + 1
                file.truncate(whole)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise EnvironmentFault(f"{self.path} cannot be read ({error.strerror}).") from error
        changes = []
        for number, line in enumerate(data[:whole].splitlines(), start=1):
            try:
                changes.append(Change.from_dict(orjson.loads(line)))
            except (TypeError, ValueError):
                log.error("%s: line %d is no change and was left out", self.path, number)
        return changes

    def append(self, record: Mapping[str, Any]) -> None:
        """Blocks until the disk has it. Raises NotRecorded."""
        line = orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE)
        try:
            file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            try:
                start = os.fstat(file).st_size
                try:
                    if os.write(file, line) < len(line):
                        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                    os.fsync(file)
                except OSError:
                    os.ftruncate(file, start)
                    raise
            finally:
                os.close(file)
        except OSError as error:
            raise NotRecorded(
                f"{self.path}: the change could not be written down ({error.strerror}); nothing was changed."
            ) from error
