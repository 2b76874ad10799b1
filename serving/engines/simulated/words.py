"""The answer: words out of a seed, the same on both legs and in every run."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

_WORDS = (
    "the", "a", "picture", "shows", "street", "with", "two", "people", "and", "an", "old", "house", "under", "blue",
    "sky", "near", "water", "where", "small", "boats", "wait", "while", "light", "falls", "on", "stone", "trees", "stand",
    "behind", "it", "far", "away", "mountains", "rise", "in", "evening", "air", "quiet", "red", "roof", "open", "door",
)  # fmt: skip
EOS = 0
"""The token id of the end of an answer, as matched_stop shows it."""
_SHORTEST, _SPREAD = 96, 512


@dataclass(frozen=True, slots=True)
class Answer:
    """What will be said. tokens: how many in all; text: how many characters of them are shown (a stop string is not)."""

    seed: int
    tokens: int
    reason: str
    matched_stop: str | int | None = None
    text: int | None = None

    def shown(self, tokens: int) -> str:
        """The text after so many tokens."""
        return "".join(piece(self.seed, number) for number in range(tokens))[: self.text]

    def delta(self, number: int) -> str:
        """What token `number` (from 1) adds to the text."""
        if self.text is None:
            return piece(self.seed, number - 1)
        return self.shown(number)[len(self.shown(number - 1)) :]


def piece(seed: int, number: int) -> str:
    """Token `number` (from 0) as text, with the space before it."""
    word = _WORDS[_draw(seed, number) % len(_WORDS)]
    return word if number == 0 else f" {word}"


def token_id(text: str) -> int:
    return 1 + _WORDS.index(text.strip())


def logprob(seed: int, number: int) -> float:
    """Made up, always the same for a token, and below zero as it must be."""
    return -0.05 - (_draw(seed, number, "p") % 4000) / 1000


def seed_of(*parts: bytes) -> int:
    digest = hashlib.blake2b(digest_size=8)
    for part in parts:
        digest.update(part)
    return int.from_bytes(digest.digest(), "little")


def answer(
    seed: int, max_tokens: int, stop: Sequence[str] = (), *, ignore_eos: bool = False, own_tokens: int = 0
) -> Answer:
    """As long as max_tokens, its own end (own_tokens; 0: the seed's) and the stop strings let it be."""
    own = max_tokens if ignore_eos else own_tokens or _SHORTEST + _draw(seed, 0, "end") % _SPREAD
    tokens = min(max_tokens, own)
    reason, matched = ("length", None) if tokens == max_tokens else ("stop", EOS)
    if stop:
        text = ""
        for number in range(tokens):
            text += piece(seed, number)
            found = [(at, word) for word in stop if word and (at := text.find(word)) >= 0]
            if found:
                at, word = min(found)
                return Answer(seed, number + 1, "stop", word, at)
    return Answer(seed, tokens, reason, matched)


def _draw(seed: int, number: int, kind: str = "w") -> int:
    return int.from_bytes(
        hashlib.blake2b(f"{seed} {kind} {number}".encode(), digest_size=4).digest(), "little"
    )
