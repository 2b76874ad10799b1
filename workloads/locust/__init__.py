"""Locust as the shell around the request core: its web UI, its charts, its distribution; and `LlmUser`, a plain user.

locust runs on gevent, which replaces sockets, threads and selectors of its whole process, and the core runs on uvloop:
the two never share a process.

    toolkit bench       prepares the run and writes its report           (this process has no gevent)
      shell.py          locust: a local runner, a master or a worker     (gevent; started by launch.py)
        core.py         the request core with its share of the plan      (asyncio; started by child.py)

Importing this package imports neither; `LlmUser` and `PlanShape` import locust when they are first named.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from workloads.locust.llm_user import LlmUser
    from workloads.locust.shape import PlanShape

__all__ = ("LlmUser", "PlanShape")


def __getattr__(name: str) -> Any:
    if name == "LlmUser":
        from workloads.locust.llm_user import LlmUser

        return LlmUser
    if name == "PlanShape":
        from workloads.locust.shape import PlanShape

        return PlanShape
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
