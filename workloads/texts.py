"""English prompts of a wanted length: an instruction, then plain sentences of background until the length is reached.

Lengths are estimates of 4 characters per token, the usual rule for English; the served model's own tokenizer counts
differently, and a report gives its count (usage.prompt_tokens).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from toolkit.core.classify import tokens_in
from toolkit.core.seed import Seeds

if TYPE_CHECKING:
    import numpy as np

CHARACTERS_PER_TOKEN = 4
LONGEST_SENTENCE_TOKENS = 32
SHORTEST_SENTENCE_TOKENS = 10
BLOCK_TOKENS = 512  # of Mooncake's traces

TEXT_ASKS = (
    "Summarise the notes below in two sentences.",
    "Write a short reply to the message below.",
    "List the three most important points of this report.",
    "Explain the following situation to a new colleague.",
    "What should be done first, and why?",
)
IMAGE_ASKS = (
    "What is in this image?",
    "Describe the picture in one short sentence.",
    "Which colours stand out here?",
    "Is anybody in this photo?",
    "Where could this have been taken?",
)
IMAGES_ASKS = (
    "Compare these images and say what changed between them.",
    "Which of these pictures fits the description below best?",
    "Describe each image in turn, then what they have in common.",
    "Put these images in the order in which they were taken.",
)
REPLIES = (
    "Here is what I can tell.",
    "In short:",
    "That depends on a few things.",
    "Let me go through it step by step.",
)

_WHO = (
    "The warehouse team",
    "A customer",
    "Our supplier",
    "The night shift",
    "The clinic",
    "A neighbour",
    "The driver",
    "The museum",
)
_DID = ("reported", "checked", "photographed", "repaired", "returned", "counted", "asked about", "moved")
_WHAT = (
    "a damaged parcel",
    "the old pump",
    "two blue chairs",
    "the front door",
    "an invoice",
    "the garden wall",
    "a glass bottle",
    "the spare battery",
)
_WHEN = (
    "on Monday",
    "before noon",
    "during the storm",
    "last week",
    "after the inspection",
    "at the end of March",
    "twice",
)
_THEN = ("and the cause is still not known.", "and nobody was hurt.", "so the delivery was late.", "but the label was missing.", "which saved an hour.", "and wrote a short note about it.")  # fmt: skip
_WORDS = (_WHO, _DID, _WHAT, _WHEN, _THEN)


def estimate_tokens(text: str) -> int:
    """Tokens by the rule of thumb above, at least 1."""
    return max(1, -(-len(text) // CHARACTERS_PER_TOKEN))


def class_tokens(tokens: int) -> int:
    """What the class rule counts for a text of that many estimated tokens: it takes three bytes for a token."""
    return tokens_in(tokens * CHARACTERS_PER_TOKEN)


def compose_text(asks: Sequence[str], tokens: int, rng: "np.random.Generator") -> str:
    """A prompt of about `tokens` estimated tokens (never over, but for an instruction that is longer alone)."""
    parts = [asks[int(rng.integers(len(asks)))]]
    left = tokens * CHARACTERS_PER_TOKEN - len(parts[0])
    for picks in rng.integers(
        0, 1 << 30, size=(tokens // SHORTEST_SENTENCE_TOKENS + 1, len(_WORDS))
    ).tolist():
        sentence = " ".join(words[pick % len(words)] for words, pick in zip(_WORDS, picks, strict=True))
        left -= 1 + len(sentence)
        if left < 0:
            break
        parts.append(sentence)
    return " ".join(parts)


def compose_blocks(blocks: Sequence[int], tokens: int, seeds: Seeds) -> str:
    """A prompt whose every block of 512 tokens is told by its id: prompts that share ids share a prefix of their text."""
    text = "".join(
        compose_text(_WHO, BLOCK_TOKENS, seeds.rng(f"block/{block}")).ljust(
            BLOCK_TOKENS * CHARACTERS_PER_TOKEN
        )
        for block in blocks
    )
    return text[: max(1, tokens) * CHARACTERS_PER_TOKEN]
