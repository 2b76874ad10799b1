"""Say what installing torch is about to download, when that is a CUDA build this machine cannot use.

torch_download.py REPORT      REPORT is the file of `pip install --dry-run --report`
"""

import json
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Download:
    """One file that pip would fetch."""

    name: str
    version: str
    url: str


def downloads(report: dict[str, object]) -> tuple[Download, ...]:
    """The files named by a pip installation report."""
    items = report["install"]
    assert isinstance(items, list)
    return tuple(
        Download(item["metadata"]["name"], item["metadata"]["version"], item["download_info"]["url"])
        for item in items
    )


def is_cuda(files: Iterable[Download]) -> bool:
    """Whether they make a CUDA torch: it brings NVIDIA's libraries, or says so in its local version."""
    return any(
        file.name.lower().startswith(("nvidia-", "cuda-")) or (file.name == "torch" and "+cu" in file.version)
        for file in files
    )


def size_bytes(url: str) -> int:
    """Size of what a URL leads to, by its Content-Length or on the disk; 0 when it is not told."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme == "file":
        return Path(urllib.parse.unquote(parts.path)).stat().st_size
    request = urllib.request.Request(url, method="HEAD")  # noqa: S310 (pip resolved this URL and is about to fetch it)
    with urllib.request.urlopen(request, timeout=20) as answer:  # noqa: S310
        return int(answer.headers.get("Content-Length") or 0)


def warning(total_bytes: int, count: int) -> str:
    """What to tell before a CUDA torch is fetched for a machine that has no GPU."""
    return (
        f"pip will fetch a CUDA build of torch: {total_bytes / 1e9:.1f} GB in {count} files, of no use without a GPU.\n"
        "It works, it is only large. To avoid it: stop here, set TORCH_INDEX to the URL of PyTorch's CPU wheel index\n"
        "(pytorch.org, 'Get Started' shows it) and run the same command again."
    )


def main(path: str) -> None:
    files = downloads(json.loads(Path(path).read_text(encoding="utf-8")))
    if is_cuda(files):
        try:
            total = sum(size_bytes(file.url) for file in files)
        except OSError as error:
            print(f"(the size of the download is not known: {error})")
            total = 0
        print(warning(total, len(files)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
