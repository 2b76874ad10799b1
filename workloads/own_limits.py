"""What the load generator's own process may take."""

import resource
from contextlib import suppress


def allow_files() -> None:
    """As many open files as this process may have: every open request is one, and the usual soft limit is 1024."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
