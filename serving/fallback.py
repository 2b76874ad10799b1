"""The fallback endpoint: it gets a client's own request when no pair can answer it in time, and streams its answer.

Bounded like any resource: so many requests there at once, a breaker, the request's own deadline for the first token. What it
usually takes is learned, and a request that it could not answer in time any more is not sent. Nothing of it is tried again.
Of a non-streamed answer no first token is seen, so it may take `answer_timeout_s`, and counts as late when it ends after the budget.
"""

import contextlib
import logging
import re
import secrets
from collections.abc import Iterator
from functools import partial
from urllib.parse import urlsplit

from serving.access.breaker import Breaker, BreakerRule, Pass
from serving.attempt import Limits, Progress
from serving.chat import ChatRequest, dump
from serving.engine_body import with_urls
from serving.fallback_config import FallbackConfig
from serving.legs import Forward, Legs, Posting
from serving.lifted import Lifted
from serving.schedule.learned import Learned
from serving.telemetry import Telemetry
from toolkit.core import names
from toolkit.core.clock import Clock
from toolkit.core.errors import ClientGone, InvalidRequest, OutOfTime, ToolkitError
from toolkit.core.http.request import JSON_HEADERS

log = logging.getLogger("toolkit.gateway")

NAME = "the fallback endpoint"
HOP = "fallback"
RULE = BreakerRule(failures=3, hold_s=1.0, most_hold_s=60.0)
VERSIONED = re.compile(r"/v\d")
SURE = 0.8
"""Part of its usual time that a request must have left to be sent there."""


class Fallback:
    """One gateway's way out. Without a URL it is never taken."""

    def __init__(self, config: FallbackConfig, legs: Legs, clock: Clock, telemetry: Telemetry) -> None:
        """Raises UsageFault for a key file that cannot be read."""
        self._config = config
        if config.url and not VERSIONED.search(urlsplit(config.url).path):
            log.warning(
                "fallback.url: requests will go to %s/chat/completions; as a rule that URL ends with /v1",
                config.url,
            )
        self._legs = legs
        self._clock = clock
        self._telemetry = telemetry
        key = config.key()
        bearer = (("authorization", f"Bearer {key}"),) if key else ()
        self._headers = (*JSON_HEADERS, *bearer)
        self._breaker = Breaker(RULE)
        self._first = Learned(0.1, 0.1)
        self.in_flight = 0

    @property
    def configured(self) -> bool:
        return bool(self._config.url)

    def takes_s(self) -> float:
        """Its usual time to a first token; 0 while none is known."""
        return self._first.read(self._clock.monotonic()) or 0.0

    def enter(self, deadline: float) -> Pass | None:
        """A place, to be handed to `answer` at once; None where it cannot help, which is counted."""
        now = self._clock.monotonic()
        if self.in_flight >= self._config.max_in_flight:
            self._count("full")
        elif now >= deadline or now + SURE * self.takes_s() > deadline:
            self._count("no_time")
        elif (place := self._breaker.enter(now)) is None:
            self._count("failing")
        else:
            return place
        return None

    @contextlib.contextmanager
    def held(self, place: Pass) -> Iterator[None]:
        """The place, given back on every way out, with what came of it."""
        self._move(1)
        now = self._clock.monotonic
        try:
            yield
        except (ClientGone, InvalidRequest) as error:  # not its fault
            self._breaker.left(place)
            self._count("gone" if isinstance(error, ClientGone) else "failed")
            raise
        except ToolkitError as error:
            self._breaker.failed(place, now())
            self._count("late" if isinstance(error, OutOfTime) else "failed")
            raise
        except BaseException:
            self._breaker.left(place)
            self._count("gone")
            raise
        else:
            self._breaker.succeeded(place)
            self._count("answered")
        finally:
            self._move(-1)

    async def stream(
        self, request: ChatRequest, limits: Limits, progress: Progress, forward: Forward
    ) -> None:
        """Its answer through `forward`, nothing before the first content token. Raises the typed error of what ended it."""
        begun = self._clock.monotonic()
        try:
            await self._legs.decode_stream(self._post(request), NAME, limits, progress, forward)
        except OutOfTime as error:
            now = self._clock.monotonic()
            if now - begun > self.takes_s():  # cut short, it tells only that it takes longer
                self._first.add(now - begun, now)
            raise OutOfTime(error.message, hop=HOP) from error
        finally:
            if progress.first_token_at is not None:
                self._first.add(progress.first_token_at - begun, self._clock.monotonic())

    async def whole(self, request: ChatRequest, limits: Limits, progress: Progress) -> bytes:
        """Its answer in one piece, which counts as the first token: nothing else is seen of it."""
        late = Limits(self._clock.monotonic() + self._config.answer_timeout_s, limits.stall_s, limits.whole_s)
        try:
            return await self._legs.decode_whole(self._post(request), None, NAME, late, progress)
        except OutOfTime as error:
            raise OutOfTime(error.message, hop=HOP) from error

    def _post(self, request: ChatRequest) -> Posting:
        return partial(
            self._legs.post, NAME, self._config.url, original(request, self._config.model), self._headers
        )

    def _move(self, by: int) -> None:
        self.in_flight += by
        self._telemetry.gauge(names.FALLBACK_IN_FLIGHT, self.in_flight)

    def _count(self, result: str) -> None:
        self._telemetry.count(names.FALLBACK, result=result)


def original(request: ChatRequest, model: str) -> list[bytes | memoryview]:
    """The client's request as it came, in pieces: its own images, not ours. model: asked for instead, unless empty.

    Raises InvalidRequest for what is nested deeper than it can be written again.
    """
    mark = secrets.token_hex(16)
    urls: list[str] = [
        f"{mark}{place}" if isinstance(slot.url, Lifted) else slot.url
        for place, slot in enumerate(request.images)
    ]
    document = {**request.document, **({"model": model} if model else {})}
    if urls:
        document["messages"] = with_urls(request, urls)
    rest = dump(document)
    pieces: list[bytes | memoryview] = []
    for place, slot in enumerate(request.images):
        if isinstance(slot.url, Lifted):
            before, _, rest = rest.partition(f"{mark}{place}".encode())
            pieces += [before, slot.url[:]]
    return [*pieces, rest]
