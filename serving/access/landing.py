"""An answer's body into memory: within the byte cap, whole pieces only, and when there is room for it.

Room is kept until nobody holds the file any more, while it waits to be decoded too. What finds none stays with its
host, unread. A file of announced length has room for all of it before its first byte. One of unknown length has room
for most images at first, and for the largest only if that is free right then: it would hold what it has while it waits.
"""

import asyncio
import contextlib
from io import BytesIO

import httpx

from serving.access.meter import Meter
from serving.access.room import Held, Room
from toolkit.core import names
from toolkit.core.errors import Busy, InvalidRequest, TooLarge

_UNANNOUNCED_BYTES = 4_000_000
_FREE_CRUMBS = 256
_CRUMB_BYTES = 128  # per piece of a body, on average, from the first _FREE_CRUMBS on


class Place:
    """Room for one file: given back by `release`, or when the last who holds this lets go."""

    def __init__(self, room: Room, meter: Meter) -> None:
        self._room = room
        self._meter = meter
        self._loop = asyncio.get_running_loop()
        self._held: Held | None = Held(room, 0)

    @property
    def waiting(self) -> bool:
        """Whether there was no room, when the wait for it was given up."""
        return self._held is not None and self._held.waiting

    async def reach(self, size_bytes: int) -> None:
        """Waits until there is room for so much in all."""
        assert self._held is not None
        await self._held.reach(size_bytes)
        self._tell()

    def keep(self, size_bytes: int) -> None:
        """Gives back what is above."""
        if self._held is not None:
            self._held.keep(size_bytes)
            self._tell()

    def release(self) -> None:
        """Gives everything back. Idempotent."""
        held, self._held = self._held, None
        if held is not None:
            self._room.leave(held)
            self._tell()

    def __del__(self) -> None:
        if self._held is not None:  # whichever thread it was that let go
            with contextlib.suppress(RuntimeError):  # the loop is closed, and with it all of this over
                self._loop.call_soon_threadsafe(_given_back, self._room, self._meter, self._held)

    def _tell(self) -> None:
        self._meter.gauge(names.IMAGE_DOWNLOAD_HELD, self._room.share.held_bytes)


class Landing:
    """Where bodies come in. room_bytes: for all files by URL that are in memory; most_bytes: for one."""

    def __init__(self, room_bytes: int, most_bytes: int, meter: Meter) -> None:
        self._room = Room(room_bytes)
        self._most_bytes = most_bytes
        self._meter = meter

    def place(self) -> Place:
        return Place(self._room, self._meter)

    async def body(self, response: httpx.Response, place: Place) -> bytes:
        """The whole body. Raises InvalidRequest(image_fetch_failed), TooLarge(image_too_large), Busy(queue_full)."""
        limit = self._most_bytes
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            raise _failed("the URL answered with a content encoding though none was accepted")
        announced = response.headers.get("content-length", "")
        size = int(announced) if announced.isdecimal() else None
        if size is not None and size > limit:
            raise _too_large(f"the URL announces {announced} bytes; the limit is {limit}")
        room_bytes = min(_UNANNOUNCED_BYTES, limit) if size is None else size
        await place.reach(room_bytes)
        body = BytesIO()  # hands over its own bytes at the end: the file is in memory once
        pieces = 0
        try:
            async for piece in response.aiter_raw():
                pieces += 1
                whole = body.tell() + len(piece)
                if whole > limit:
                    raise _too_large(f"the URL sends more than {limit} bytes, the limit")
                if whole > room_bytes:
                    room_bytes = limit
                    await self._reach_now(place, limit)
                body.write(piece)
                if pieces > _FREE_CRUMBS + whole / _CRUMB_BYTES:  # each costs the event loop its time
                    raise _failed("the URL sends its image in crumbs")
        finally:
            self._meter.count(names.IMAGE_DOWNLOAD_BYTES, body.tell())
        if not body.tell():
            raise _failed("the URL answered with an empty body")
        place.keep(body.tell())
        return body.getvalue()

    async def _reach_now(self, place: Place, size_bytes: int) -> None:
        try:
            async with asyncio.timeout(0):
                await place.reach(size_bytes)
        except TimeoutError as error:
            raise no_room() from error


def no_room() -> Busy:
    """Other images took the memory there is."""
    return Busy("other images that are being fetched take the memory there is for them.", retry_after_s=1.0)


def _given_back(room: Room, meter: Meter, held: Held) -> None:
    room.leave(held)
    meter.gauge(names.IMAGE_DOWNLOAD_HELD, room.share.held_bytes)


def _failed(reason: str) -> InvalidRequest:
    return InvalidRequest(f"{reason}.", code="image_fetch_failed")


def _too_large(reason: str) -> TooLarge:
    return TooLarge(f"{reason}.", code="image_too_large")
