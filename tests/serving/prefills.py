"""Prefills with caches in virtual time: the gateway's own pair book over modelled engines."""

import heapq
import random
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count

from serving.engines.simulated.model import H100_LIKE
from serving.instances import Want
from serving.pairs import PairBook
from serving.service import EngineEndpoint

CACHE_TOKENS = 60_000
"""KV of prompts that one prefill keeps: 46 images of one megapixel."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A prompt whose first tokens are those of a thing (an image, a document, a conversation)."""

    at: float
    thing: str
    thing_tokens: int
    own_tokens: int
    keyed: bool = True


@dataclass
class Prefill:
    """Computes one prompt after the other; keeps the things computed last."""

    free_at: float = 0.0
    work_s: float = 0.0
    held: OrderedDict[str, int] = field(default_factory=OrderedDict)

    def compute(self, ask: Ask, now: float) -> tuple[float, int]:
        """When it is done, and the tokens that it did not have to compute."""
        hit = min(self.held.pop(ask.thing, 0), ask.thing_tokens)
        self.held[ask.thing] = ask.thing_tokens
        while sum(self.held.values()) > CACHE_TOKENS:
            self.held.popitem(last=False)
        fresh = ask.thing_tokens - hit
        took = H100_LIKE.prefill_s + H100_LIKE.prefill(fresh + ask.own_tokens, hit) + H100_LIKE.encode(fresh)
        self.free_at = max(now, self.free_at) + took
        self.work_s += took
        return self.free_at, hit


@dataclass(frozen=True, slots=True)
class Result:
    """Of one run: part of the things' tokens that were cached, times to the end of the prefill, most work of one prefill
    beside the mean, by what pairs were chosen."""

    hit_share: float
    waits_s: list[float]
    spread: float
    by: Counter[str]

    def wait_s(self, part: float) -> float:
        return sorted(self.waits_s)[int(part * (len(self.waits_s) - 1))]


def a_book(prefills: int, bound: float | None, by: Counter[str] | None = None) -> PairBook:
    """With one decode; every pair in rotation. by: counts what chose the prefills."""
    engines = [
        EngineEndpoint(name=f"prefill-{n}", role="prefill", url="http://127.0.0.1:1") for n in range(prefills)
    ]
    decode = EngineEndpoint(name="decode-0", role="decode", url="http://127.0.0.1:1")
    counted: Counter[str] = Counter() if by is None else by
    book = PairBook(engines, [decode], None, bound, lambda _, chosen_by: counted.update([chosen_by]))
    for name in book.engines:
        book.engine_seen(name, up=True)
    for pair in book.unproven():
        book.proven(pair)
    return book


def run(
    asks: list[Ask],
    prefills: int,
    bound: float | None,
    looked: Callable[[PairBook, str, int], None] = lambda book, name, tokens: None,
) -> Result:
    """looked: called after each take with the prefill's name and the prompt's tokens."""
    by: Counter[str] = Counter()
    book, engines = a_book(prefills, bound, by), {f"prefill-{n}": Prefill() for n in range(prefills)}
    done: list[tuple[float, int, Callable[[], None]]] = []
    numbers, waits, hits = count(), [], 0
    for ask in asks:
        while done and done[0][0] <= ask.at:
            heapq.heappop(done)[2]()
        tokens = ask.thing_tokens + ask.own_tokens
        want = Want(tokens, 0, key=ask.thing.encode() if ask.keyed else None)
        taken = book.take(ask.at, want=want)
        looked(book, taken.pair.prefill.name, tokens)
        ends, hit = engines[taken.pair.prefill.name].compute(ask, ask.at)
        heapq.heappush(done, (ends, next(numbers), lambda taken=taken: book.give_back(taken)))  # type: ignore[misc]
        waits.append(ends - ask.at)
        hits += hit
    for _, _, end in done:
        end()
    book.check()
    work = [engine.work_s for engine in engines.values()]
    return Result(
        hits / sum(ask.thing_tokens for ask in asks), waits, max(work) / (sum(work) / len(work)), by
    )


def arrivals(source: random.Random, rate: float, seconds: float) -> Iterator[float]:
    at = source.expovariate(rate)
    while at < seconds:
        yield at
        at += source.expovariate(rate)


def images(seed: int, rate: float, seconds: float, different: int) -> list[Ask]:
    """Questions on images of one megapixel, some asked about often (Zipf, exponent 1). different: 0: each once."""
    source = random.Random(seed)
    weights = [1 / rank for rank in range(1, different + 1)]
    asks = []
    for number, at in enumerate(arrivals(source, rate, seconds)):
        which = source.choices(range(different), weights)[0] if different else number
        asks.append(Ask(at, f"image {which}", 1300, source.randint(20, 200)))
    return asks


def conversations(seed: int, rate: float, seconds: float) -> list[Ask]:
    """Six turns each, 8 s apart in the mean; each turn adds 700 tokens to what was said."""
    source = random.Random(seed)
    asks = []
    for number, begun in enumerate(arrivals(source, rate / 6, seconds)):
        at = begun
        for turn in range(6):
            asks.append(Ask(at, f"conversation {number}", 700 * (turn + 1), 50))
            at += 1.0 + source.expovariate(1 / 7)
    return sorted((ask for ask in asks if ask.at < seconds), key=lambda ask: ask.at)


def documents(seed: int, rate: float, seconds: float, different: int) -> list[Ask]:
    """Short questions behind one of so many beginnings of 6,000 tokens."""
    source = random.Random(seed)
    return [
        Ask(at, f"document {source.randrange(different)}", 6000, source.randint(20, 200))
        for at in arrivals(source, rate, seconds)
    ]
