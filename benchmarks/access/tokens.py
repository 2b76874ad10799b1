"""What counting a prompt costs: CPU per kB of text, by length and kind; and memory, in pieces and in one.

    .venv/bin/python -m benchmarks.access.tokens

The vocabulary (32,000 words) is trained here on Python's own library, with Qwen's word rule and the tests' chat template.
"""

import gc
import multiprocessing
import os
import sysconfig
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"

from tokenizers import AddedToken, Tokenizer, pre_tokenizers, trainers

from serving.tokenizer import pieces, prompt
from serving.tokenizer.prompt import PromptCounter, load
from tests.serving.tokenizer.folders import QWEN_TOKENS, qwen, qwen_tokenizer

LIBRARY = Path(sysconfig.get_paths()["stdlib"])
RESULT = Path(__file__).parents[1] / "results" / "access-tokens.md"
INTRODUCTION = (
    "`.venv/bin/python -m benchmarks.access.tokens`. CPU time, best of three. The vocabulary (32,000 words) is trained on Python's own\n"
    "library, with Qwen's word rule and the tests' chat template; \"the tokenizer alone\" reads the bare text in one piece.\n"
    "Memory: growth of a fresh process. `numbers` is the worst of these texts: nearly every byte is a token."
)
SIZES = (100, 500, 2_000, 8_000, 32_000, 128_000, 1_000_000)


def vocabulary(folder: Path) -> None:
    """Replace the folder's small vocabulary with a usual one."""
    tokenizer = qwen_tokenizer()
    trainer = trainers.BpeTrainer(
        vocab_size=32_000,
        special_tokens=[AddedToken(token, normalized=False, special=True) for token in QWEN_TOKENS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train([str(path) for path in sorted(LIBRARY.glob("*.py"))], trainer)
    tokenizer.save(str(folder / "tokenizer.json"))


def texts() -> dict[str, str]:
    """A megabyte of each kind."""
    source = "".join(path.read_text("utf-8", "replace") for path in sorted(LIBRARY.glob("*.py")))
    prose = "\n".join(line.strip(" #\"'") for line in source.splitlines() if line.count(" ") > 6)
    return {
        "prose": prose[:1_000_000],
        "code": source[:1_000_000],
        "CJK": "请描述这张图片里的港口天气怎么样 " * 60_000,
        "numbers": "\n".join(str(number * 7919) for number in range(200_000))[:1_000_000],
        "one letter": "a " * 500_000,
    }


def asking(text: str) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": text}]}


def cpu_ms(work: Callable[[], object], repeats: int) -> float:
    """Best of three."""
    found = []
    for _ in range(3):
        begun = time.process_time()
        for _ in range(repeats):
            work()
        found.append((time.process_time() - begun) / repeats * 1e3)
    return min(found)


def peak_mb(folder: Path, text: str, whole: bool) -> tuple[float, float]:
    """Growth of a fresh process while it counts, MB; and CPU seconds."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_grown, (folder, text, whole))


def _grown(folder: Path, text: str, whole: bool) -> tuple[float, float]:
    counter = load(folder, "qwen2_5_vl")
    if whole:
        counter._cuts = False
        pieces.WHOLE_CHARS = prompt.WHOLE_CHARS = 1 << 30
        prompt.MOST_CPU_S = 1e9
    counter.count(asking(text[:1000]), 0)
    gc.collect()
    before = _status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak from here on
    begun = time.process_time()
    counter.count(asking(text), 0, 1e9)
    return (_status("VmHWM") - before) / 1e3, time.process_time() - begun


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))


def rows(counter: PromptCounter, tokenizer: Tokenizer) -> list[str]:
    made = [
        "| text | size | tokens | CPU ms | ms per kB | of it the tokenizer alone |",
        "|---|---|---|---|---|---|",
    ]
    for kind, text in texts().items():
        for size in SIZES if kind == "prose" else (2_000, 128_000):
            piece = text.encode()[:size].decode("utf-8", "ignore")
            document = asking(piece)
            repeats = max(1, 40_000 // size)
            ours = cpu_ms(lambda document=document: counter.count(document, 0), repeats)
            bare = cpu_ms(lambda piece=piece: tokenizer.encode(piece), repeats)
            tokens = counter.count(document, 0)
            made.append(
                f"| {kind} | {size:,} B | {tokens:,} | {ours:.2f} | {ours / size * 1e3:.2f} | {min(1.0, bare / ours):.0%} |"
            )
    return made


def main() -> None:
    with tempfile.TemporaryDirectory() as kept:
        folder = qwen(Path(kept) / "model")
        vocabulary(folder)
        counter = load(folder, "qwen2_5_vl")
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        table = rows(counter, tokenizer)
        memory = ["| 1 MB of | in pieces: MB, CPU s | in one: MB, CPU s |", "|---|---|---|"]
        for kind, text in texts().items():
            cut, whole = (
                peak_mb(folder, text.encode()[:1_000_000].decode("utf-8", "ignore"), one)
                for one in (False, True)
            )
            memory.append(f"| {kind} | {cut[0]:.0f}, {cut[1]:.2f} | {whole[0]:.0f}, {whole[1]:.2f} |")
    page = "\n".join(["# What counting a prompt costs", "", INTRODUCTION, "", *table, "", *memory, ""])
    RESULT.write_text(page)
    print(page)


if __name__ == "__main__":
    main()
