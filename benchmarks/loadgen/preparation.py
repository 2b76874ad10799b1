"""What a profile costs before its window opens: CPU seconds per megapixel, beside Pillow's bare encoding, and memory.

    python benchmarks/loadgen/preparation.py [PROFILE ...] [--rate R] [--duration S] [--max-gb G]

Each profile is composed and prepared in a process of its own, as `toolkit bench` does it. Bare encoding: the pictures
of the same plan, a sample of them, decoded and encoded again with nothing else; the part that no synthesis can save.
"""

import argparse
import io
import json
import random
import subprocess
import sys
import time
from pathlib import Path

SAMPLE = 60  # pictures encoded bare


def main() -> int:
    """Print one row per profile."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("profiles", nargs="*", default=["smoke", "mixed", "soak"])
    parser.add_argument("--rate", type=float)
    parser.add_argument("--duration", type=float)
    parser.add_argument("--max-gb", type=float, default=8.0)
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(measure(asked.profiles[0], asked)))
        return 0
    print(
        "| profile | requests | pictures | megapixels | bodies MB | CPU s | wall s | CPU ms/MP | bare ms/MP | ratio | in file MB | own memory MB |\n"
        + "|---" * 12
        + "|"
    )
    for profile in asked.profiles:
        command = [sys.executable, __file__, profile, "--one", "--max-gb", str(asked.max_gb)]
        for option in ("rate", "duration"):
            if (value := getattr(asked, option)) is not None:
                command += [f"--{option}", str(value)]
        row = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
        print("| " + " | ".join([profile, *(f"{value:.4g}" for value in row)]) + " |", flush=True)
    return 0


def measure(profile: str, asked: argparse.Namespace) -> list[float]:
    """The numbers of one row."""
    from workloads.compose import compose
    from workloads.prepare import prepare
    from workloads.profile import load_profile

    overrides = {"rate": asked.rate, "duration_s": asked.duration}
    cpu, wall = time.process_time(), time.perf_counter()
    plan = compose(load_profile(profile, {k: v for k, v in overrides.items() if v is not None}))
    prepared = prepare(plan, "model", {}, int(asked.max_gb * 1e9))
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    pictures = {image for request in plan.requests for image in request.images}
    megapixels = sum(image.width * image.height for image in pictures) / 1e6
    filed = sum(len(item.body) for item in prepared if isinstance(item.body, memoryview))
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    own = int(status["RssAnon"].split()[0]) / 1e3
    bare = bare_encoding(sorted(pictures, key=repr))
    return [
        len(plan.requests),
        len(pictures),
        megapixels,
        sum(len(item.body) for item in prepared) / 1e6,
        cpu,
        wall,
        cpu / megapixels * 1e3,
        bare * 1e3,
        cpu / megapixels / bare,
        filed / 1e6,
        own,
    ]


def bare_encoding(pictures: list[object]) -> float:
    """CPU seconds per megapixel of Pillow's JPEG encoder on these pictures."""
    from PIL import Image

    from workloads.images import encode

    cpu = megapixels = 0.0
    for recipe in random.Random(1).sample(pictures, min(SAMPLE, len(pictures))):
        image = Image.open(io.BytesIO(encode(recipe)))  # type: ignore[arg-type]
        image.draft("YCbCr", image.size)  # as ours go in: without a change of colours
        image.load()
        before = time.process_time()
        image.save(io.BytesIO(), "JPEG", quality=85)
        cpu += time.process_time() - before
        megapixels += image.width * image.height / 1e6
    return cpu / megapixels


if __name__ == "__main__":
    sys.exit(main())
