"""Hands a plan's images out by URL, on loopback, in a process of its own: encoding and sending pictures must not take
turns with reading tokens.

GET /REQUEST/NUMBER answers with that image as its recipe says: at once; slow, spread over `slow_s`; broken, half of it
and then the end of the connection; huge, without a length and with zeros behind it up to `huge_bytes`.

    python -m workloads.image_server PLAN SLOW_S HUGE_BYTES     ends when its standard input does
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from toolkit.core.errors import EnvironmentFault, ToolkitError
from toolkit.core.plan import Delivery, ImageRecipe, Plan
from workloads.images import encode, forget_bases
from workloads.media import media_type
from workloads.shape import ImageServer
from workloads.shelf import Shelf

READY = b"ready"
PIECES = 20  # of a slow image
ZEROS = bytes(1 << 20)
STOP_S = 5.0
MAX_HEAD_BYTES = 16_384
IDLE_S = 60.0


@dataclass(frozen=True, slots=True)
class Served:
    """One image as it is handed out."""

    data: bytes | memoryview
    delivery: Delivery


def path_of(request: int, number: int) -> str:
    """Where image `number` of a request is."""
    return f"/{request}/{number}"


def render(plan: Plan) -> dict[str, Served]:
    """Every image of the plan by its path, each recipe encoded once, on all cores."""
    plain = {replace(image, delivery="ok") for request in plan.requests for image in request.images}
    shelf = Shelf()
    made: dict[ImageRecipe, bytes | memoryview] = {}
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for recipe, data in zip(plain, pool.map(encode, plain), strict=True):
            made[recipe] = shelf.put(data)
    shelf.close()
    forget_bases()
    return {
        path_of(request.index, number): Served(made[replace(image, delivery="ok")], image.delivery)
        for request in plan.requests
        for number, image in enumerate(request.images)
    }


class Server:
    """The server of one set of images."""

    def __init__(self, images: Mapping[str, Served], slow_s: float, huge_bytes: int) -> None:
        self._images = images
        self._slow_s = slow_s
        self._huge_bytes = huge_bytes

    async def start(self, port: int) -> asyncio.Server:
        """Listens on loopback; port 0: any. Raises OSError when the port is taken."""
        return await asyncio.start_server(self._connection, "127.0.0.1", port, limit=MAX_HEAD_BYTES)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Whoever went away has no use for an answer, and whoever sends no proper head gets none.
        try:
            # Cancelled: the server closes under a kept-alive connection, which Python 3.11 would print as an error.
            with suppress(
                OSError,
                asyncio.CancelledError,
                asyncio.IncompleteReadError,
                asyncio.LimitOverrunError,
                TimeoutError,
            ):
                while True:
                    async with asyncio.timeout(IDLE_S):
                        head = await reader.readuntil(b"\r\n\r\n")
                    method, _, rest = head.partition(b" ")
                    path = rest.partition(b" ")[0].decode("latin-1")
                    if not await self._answer(method, path, writer):
                        break
        finally:
            writer.close()

    async def _answer(self, method: bytes, path: str, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; whether the connection goes on."""
        image = self._images.get(path)
        if image is None or method not in (b"GET", b"HEAD"):
            status = b"404 Not Found" if image is None else b"405 Method Not Allowed"
            writer.write(b"HTTP/1.1 " + status + b"\r\ncontent-length: 0\r\n\r\n")
            await writer.drain()
            return True
        huge = image.delivery == "huge"
        length = "connection: close" if huge else f"content-length: {len(image.data)}"
        writer.write(
            f"HTTP/1.1 200 OK\r\ncontent-type: {media_type(bytes(image.data[:16]))}\r\n{length}\r\n\r\n".encode()
        )
        if method == b"HEAD":
            await writer.drain()
            return not huge
        if image.delivery == "slow":
            await self._slowly(image.data, writer)
        elif huge:
            await self._hugely(image.data, writer)
        else:
            whole = image.delivery == "ok"
            writer.write(image.data if whole else image.data[: len(image.data) // 2])
        await writer.drain()
        return image.delivery in ("ok", "slow")

    async def _slowly(self, data: bytes | memoryview, writer: asyncio.StreamWriter) -> None:
        step = -(-len(data) // PIECES)
        for begin in range(0, len(data), step):
            await asyncio.sleep(self._slow_s / PIECES)
            writer.write(data[begin : begin + step])
            await writer.drain()

    async def _hugely(self, data: bytes | memoryview, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        left = self._huge_bytes - len(data)
        while left > 0:
            writer.write(ZEROS[:left])
            await writer.drain()
            left -= len(ZEROS)


@contextmanager
def serving_images(plan: Plan, plan_file: Path, settings: ImageServer) -> Iterator[None]:
    """The plan's images are served inside the block; nothing is started for a plan whose images travel inline.

    Blocks until every image is encoded. Raises EnvironmentFault when the server does not start (its port is taken).
    """
    if not plan.images_url:
        yield
        return
    arguments = [str(plan_file), str(settings.slow_s), str(settings.huge_bytes)]
    with subprocess.Popen(
        [sys.executable, "-m", "workloads.image_server", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C is for the run, which ends this when it is over
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            if process.stdout.readline().strip() != READY:
                raise EnvironmentFault(
                    f"the image server did not start at {plan.images_url}: see the line above, or set another "
                    "image_server.port in the profile."
                )
            yield
        finally:
            process.stdin.close()
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()


async def _serve(plan: Plan, slow_s: float, huge_bytes: int) -> None:
    server = await Server(render(plan), slow_s, huge_bytes).start(urlsplit(plan.images_url).port or 0)
    sys.stdout.buffer.write(READY + b"\n")
    sys.stdout.buffer.flush()
    async with server:
        await asyncio.to_thread(sys.stdin.buffer.read)  # until whoever started this closes it, or is gone


def main(arguments: list[str]) -> int:
    """Exit codes: 0 ended, 3 the port is taken or the plan cannot be shown."""
    plan_file, slow_s, huge_bytes = arguments
    try:
        plan = Plan.from_json(Path(plan_file).read_bytes())
        asyncio.run(_serve(plan, float(slow_s), int(huge_bytes)))
    except (OSError, ToolkitError) as error:
        sys.stderr.write(f"image server: {error}\n")
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
