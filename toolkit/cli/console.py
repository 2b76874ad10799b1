"""What commands print with, and how a failure ends."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from toolkit.core.errors import EnvironmentFault, ToolkitError, UsageFault

if TYPE_CHECKING:
    from rich.console import Console

RUNS = Path("runs")  # of the folder that a command is started in
FAILED, USAGE, ENVIRONMENT = 1, 2, 3
INTERRUPTED = 130  # what shells report for Ctrl-C


def console(*, stderr: bool = False) -> "Console":
    """rich's console; imported here because it is slow to load and most commands' start does not need it."""
    from rich.console import Console

    return Console(stderr=stderr)


def exit_code(error: ToolkitError) -> int:
    """2: the command line or a file is wrong. 3: this machine lacks something. 1: it was tried and failed."""
    if isinstance(error, UsageFault):
        return USAGE
    return ENVIRONMENT if isinstance(error, EnvironmentFault) else FAILED


def complain(error: ToolkitError) -> None:
    """The message, plainly: it says what to do."""
    sys.stderr.write(f"toolkit: {error.message}\n")
