"""The front that people write first: every image decoded in full by Pillow on asyncio's default threads, resized, made a PNG.

    python benchmarks/access/proof_naive.py RUN_DIR PORT

Speaks to the pair of that run folder as our gateway does (the same dispatcher), so that the images are the difference.
"""

import asyncio
import base64
import io
import random
import sys
import warnings
from pathlib import Path
from typing import Any

import orjson
import uvicorn
import uvloop
from PIL import Image

from serving.access.grid import grid_for
from serving.attempt import Limits, Pair, Progress
from serving.dispatch import Dispatcher
from serving.engine_body import EngineBody, Rendezvous
from serving.service import Service
from toolkit.core.clock import SystemClock
from toolkit.core.errors import ToolkitError
from toolkit.core.http.client import HttpClient

ANSWER_S = 300.0


def prepared(url: str, grid: Any) -> str:
    """What the web's examples do: open, convert, resize, save."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow only warns of 169 megapixels, and people ignore it
        image = Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2]))).convert("RGB")
    image = image.resize(grid.target_size(*image.size), Image.Resampling.BICUBIC)
    out = io.BytesIO()
    image.save(out, "PNG")
    return "data:image/png;base64," + base64.b64encode(out.getvalue()).decode("ascii")


class Front:
    """An ASGI application with one path."""

    def __init__(self, service: Service) -> None:
        self.grid = grid_for(service.config.model, Path(service.model_path))
        self.pair = Pair(service.prefills[0], service.decodes[0])
        self.clock = SystemClock()
        self.dispatcher = Dispatcher(HttpClient(), self.clock, Rendezvous(random.Random()))

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        assert scope["type"] == "http"
        body, more = bytearray(), True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        started = False

        async def forward(piece: bytes) -> None:
            nonlocal started
            if not started:
                started = True
                await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": piece, "more_body": True})

        try:
            document = orjson.loads(body)
            for message in document["messages"]:
                for part in message["content"] if isinstance(message["content"], list) else ():
                    if part["type"] == "image_url":
                        url = part["image_url"]["url"]
                        part["image_url"]["url"] = await asyncio.to_thread(prepared, url, self.grid)
            limits = Limits(self.clock.monotonic() + ANSWER_S, ANSWER_S, ANSWER_S)
            composed = EngineBody(orjson.dumps(document)[:-1])
            await self.dispatcher.stream(self.pair, composed, limits, Progress(), forward)
        except Exception as error:  # whatever it is becomes a 500, as it would
            if not started:
                started = True
                status = error.status if isinstance(error, ToolkitError) else 500
                await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b""})


def main() -> int:
    """Serves until it is told to end."""
    run_dir, port = Path(sys.argv[1]), int(sys.argv[2])
    front = Front(Service.read(run_dir))
    config = uvicorn.Config(
        front, host="127.0.0.1", port=port, http="httptools", lifespan="off", log_level="warning"
    )
    uvloop.run(uvicorn.Server(config).serve())
    return 0


if __name__ == "__main__":
    sys.exit(main())
