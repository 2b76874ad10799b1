"""From a connection to a parsed request: the body is read within its bounds, and its memory held before it is taken."""

import asyncio

from serving import chat
from serving.access.room import Held
from serving.config import BODY_COPIES, GatewayConfig
from serving.exchange import Exchange
from serving.lifted import lighten
from serving.recording import Recording
from serving.spending import Spending
from toolkit.core.clock import Clock
from toolkit.core.errors import Busy, InvalidRequest, TooLarge
from toolkit.core.sample import WorkloadClass

FREE_BODY_BYTES = 256_000
"""A body up to this size is read whatever else is in memory: text never waits behind images. The seats bound it."""


class Intake:
    """Reads and parses the bodies of one gateway."""

    def __init__(
        self, config: GatewayConfig, vocabulary: int | None, clock: Clock, spending: Spending
    ) -> None:
        """vocabulary: the model's size, where known."""
        self._config = config
        self._vocabulary = vocabulary
        self._clock = clock
        self._spending = spending

    async def request(self, exchange: Exchange, recording: Recording, room: Held) -> chat.ChatRequest:
        """Raises InvalidRequest, TooLarge, Busy, OutOfTime and ClientGone."""
        config = self._config
        body = await self._read(exchange, recording, room)
        light = lighten(body)
        if len(light.text) <= config.max_text_bytes and light.values_bytes > FREE_BODY_BYTES:
            await self.room(room, BODY_COPIES * len(body) + light.values_bytes, recording)
        request = chat.parse(light, self._vocabulary, config.allowed_fields, config.max_text_bytes)
        recording.stream, recording.choices = request.stream, request.choices
        recording.workload_class = provisional_class(request)
        return request

    async def room(self, room: Held, size_bytes: int, recording: Recording) -> None:
        """Waits for room as long as the request's budget lets it. Raises Busy."""
        try:
            async with asyncio.timeout(self._spending.left_s(recording, "body")):
                await room.reach(size_bytes)
        except TimeoutError:
            raise no_room(recording.promise.budget_s) from None

    async def _read(self, exchange: Exchange, recording: Recording, room: Held) -> bytearray:
        """The body; what is larger than a text waits on the socket until there is room for all of it. That wait is not
        the client's fault, so it counts for the TTFT budget and not for the upload's time."""
        config, clock = self._config, self._clock
        declared = exchange.head.header("content-length")
        size = int(declared) if declared is not None and declared.isdigit() else None
        if size is not None and size > config.max_body_bytes:
            raise TooLarge(f"The body has {declared} bytes; the limit is {config.max_body_bytes}.")
        most = BODY_COPIES * (config.max_body_bytes if size is None else size)
        pieces = bytearray()
        try:
            async with (
                asyncio.timeout(self._spending.left_s(recording, "body")) as budget,
                asyncio.timeout(config.body_timeout_s) as upload,
            ):
                async for piece in exchange.body():
                    pieces += piece
                    if len(pieces) > config.max_body_bytes:
                        raise TooLarge(f"The body passes the limit of {config.max_body_bytes} bytes.")
                    since = clock.monotonic()
                    await room.reach(most if BODY_COPIES * len(pieces) > FREE_BODY_BYTES else 0)
                    upload.reschedule((upload.when() or 0.0) + clock.monotonic() - since)
        except TimeoutError:
            if room.waiting:
                raise no_room(recording.promise.budget_s) from None
            if budget.expired():
                raise self._spending.out(recording, "body") from None
            raise InvalidRequest(
                f"The body did not arrive within {config.body_timeout_s:.0f} s.", code="body_timeout"
            ) from None
        recording.body_read = clock.monotonic()
        return pieces


def no_room(budget_s: float) -> Busy:
    """The 429 of a request whose body found no room in memory in time."""
    return Busy(
        f"The gateway's memory for request bodies was taken by others for {budget_s:.1f} s; send smaller images,"
        " or fewer at a time.",
        retry_after_s=min(30.0, max(1.0, budget_s)),
    )


def provisional_class(request: chat.ChatRequest) -> WorkloadClass:
    """The class as far as it shows before any image was looked at."""
    if not request.images:
        return WorkloadClass.TEXT_ONLY
    return WorkloadClass.IMAGE_SHORT if len(request.images) == 1 else WorkloadClass.MULTI_IMAGE_LONG
