"""Who listens where, by /proc. Other users' processes have no name unless this runs as root."""

import contextlib
from collections.abc import Iterable
from pathlib import Path

LISTEN = "0A"  # include/net/tcp_states.h


def listeners(tables: Iterable[str]) -> dict[int, str]:
    """Port -> socket inode, from the text of /proc/net/tcp and tcp6."""
    found: dict[int, str] = {}
    for table in tables:
        for line in table.splitlines()[1:]:
            fields = line.split()
            if len(fields) > 9 and fields[3] == LISTEN:
                found[int(fields[1].rpartition(":")[2], 16)] = fields[9]
    return found


def listening(proc: Path = Path("/proc")) -> dict[int, str]:
    """Now, on any address, in this network namespace."""
    tables = []
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            tables.append((proc / "net" / name).read_text(encoding="ascii"))
    return listeners(tables)


def holders(inodes: Iterable[str], proc: Path = Path("/proc")) -> dict[str, str]:
    """Socket inode -> `name (pid N)`, of those whose process may be looked at."""
    wanted = {f"socket:[{inode}]": inode for inode in inodes}
    found: dict[str, str] = {}
    if not wanted:
        return found
    for entry in proc.iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            for descriptor in (entry / "fd").iterdir():
                with contextlib.suppress(OSError):
                    inode = wanted.get(str(descriptor.readlink()))
                    if inode is not None:
                        name = (entry / "comm").read_text(encoding="utf-8", errors="replace").strip()
                        found[inode] = f"{name} (pid {entry.name})"
    return found
