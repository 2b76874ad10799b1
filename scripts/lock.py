"""Write requirements/toolkit.txt, fast.txt, locust.txt and dev.txt: what this environment holds, split by who needs it.

`make lock` runs it in .venv, after pyproject.toml was changed and what it names was installed there.
"""

import tomllib
from collections.abc import Iterable
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
HEADER = (
    "# {purpose}\n# Written by `make lock` from pyproject.toml and the installed environment: do not edit.\n"
)


def closure(wanted: Iterable[str]) -> set[str]:
    """Every distribution that these requirements need here, themselves included.

    Raises importlib.metadata.PackageNotFoundError for one that is not installed.
    """
    found: set[tuple[str, str]] = set()
    todo = [(Requirement(text), "") for text in wanted]
    while todo:
        requirement, asked_by_extra = todo.pop()
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": asked_by_extra}):
            continue
        for extra in ("", *requirement.extras):
            node = (canonicalize_name(requirement.name), extra)
            if node not in found:
                found.add(node)
                needs = distribution(requirement.name).requires or ()
                todo += [(Requirement(text), extra) for text in needs]
    return {name for name, _ in found}


def pins(names: Iterable[str]) -> str:
    return "".join(f"{name}=={distribution(name).version}\n" for name in sorted(names))


def main() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    runtime = closure(project["project"]["dependencies"])
    extras = project["project"]["optional-dependencies"]
    fast, locust = (closure(extras[name]) - runtime for name in ("fast", "locust"))
    dev = closure(project["dependency-groups"]["dev"]) - runtime - fast - locust
    for name, purpose, names in (
        ("toolkit", "What the toolkit runs with, exactly.", runtime),
        ("fast", "What decodes and scales images faster, beside toolkit.txt, exactly.", fast),
        ("locust", "What the locust shell needs beside toolkit.txt, exactly.", locust),
        ("dev", "What its tests and checks need beside toolkit.txt and locust.txt, exactly.", dev),
    ):
        path = ROOT / "requirements" / f"{name}.txt"
        path.write_text(HEADER.format(purpose=purpose) + pins(names), encoding="utf-8")
        print(f"{path.relative_to(ROOT)}: {len(names)} packages")


if __name__ == "__main__":
    main()
