"""Counting beside the event loop: small prompts at once, larger ones in a thread, and an estimate where no count can be had."""

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from serving.config import ServeConfig
from serving.tokenizer.errors import Uncountable
from toolkit.core.classify import tokens_in

log = logging.getLogger("toolkit.gateway")

INLINE_BYTES = 1_000
"""Text up to which a prompt is counted on the loop, 1 to 2 ms: a thread would cost as much again."""
SHORT_BYTES = 32_000
"""Text up to which a prompt never waits behind longer ones."""
MOST_BYTES = 2_000_000
"""Text beyond which a prompt is estimated: half a million tokens of prose."""
PART_BYTES = 50
"""What a message or a part counts as, whatever is in it: the template's work on it."""
PATIENCE_SHARE = 0.2
"""Share of what is left of a request's budget that it waits for its count; then it goes on with the estimate."""

PROMPT_FLAGS = frozenset(
    {
        "--chat-template",
        "--hf-chat-template-name",
        "--default-chat-template-kwargs",
        "--tokenizer-path",
        "--tokenizer-mode",
        "--reasoning-parser",
        "--mm-process-config",
        "--allow-auto-truncate",
    }
)
"""SGLang flags that change what it makes of a request; with one of them prompts are estimated."""

Count = Callable[[Mapping[str, Any], int, float], int]
"""Of a document with so many images, within so many seconds of CPU."""


@dataclass(frozen=True, slots=True)
class TextTokens:
    """Prompt tokens but for the image tokens. exact: counted with the model's template and tokenizer."""

    tokens: int
    exact: bool


class TextCounter:
    """Counts the prompts of one gateway, in two threads: one for short texts, one for long ones. `close` ends them."""

    def __init__(self) -> None:
        self._count: Count | None = None
        self._short, self._long = (
            ThreadPoolExecutor(1, thread_name_prefix=name) for name in ("short", "long")
        )

    def use(self, count: Count) -> None:
        """Count with this from now on."""
        self._count = count

    async def load(self, config: ServeConfig, model_path: str, family: str) -> None:
        """Read the model's folder in a thread; until then, and where it cannot be used, prompts are estimated."""
        try:
            if why := uncounted(config, model_path):
                raise Uncountable(why)
            loop = asyncio.get_running_loop()
            self.use(await loop.run_in_executor(self._long, _load, model_path, family))
            log.info("prompt tokens are counted with the files of %s", model_path)
        except Uncountable as error:
            log.info("prompt tokens are estimated: %s", error)
        except (asyncio.CancelledError, KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # a panic inside the library, written in Rust, is no Exception
            log.warning("prompt tokens are estimated: %s: %s", type(error).__name__, error)

    async def of(
        self, document: Mapping[str, Any], images: int, text_bytes: int, left_s: float = 10.0
    ) -> TextTokens:
        """Of a chat request with that much text in it, and that much time until its first token is due. Never raises."""
        try:
            size = text_bytes + PART_BYTES * parts_of(document)
            if self._count is None or size > MOST_BYTES:
                raise Uncountable("too long, or no tokenizer")
            patience_s = max(0.0, left_s) * PATIENCE_SHARE
            if size <= INLINE_BYTES:
                return TextTokens(self._count(document, images, patience_s), exact=True)
            loop, lane = asyncio.get_running_loop(), self._short if size <= SHORT_BYTES else self._long
            async with asyncio.timeout(patience_s):
                tokens = await loop.run_in_executor(lane, self._count, document, images, patience_s)
            return TextTokens(tokens, exact=True)
        except (Uncountable, TimeoutError):
            pass
        except (asyncio.CancelledError, KeyboardInterrupt, SystemExit):
            raise
        except BaseException:
            log.exception("a prompt could not be counted")
        return TextTokens(tokens_in(text_bytes), exact=False)

    def close(self) -> None:
        """Drop what waits; a count that runs ends by itself."""
        for lane in (self._short, self._long):
            lane.shutdown(wait=False, cancel_futures=True)


def parts_of(document: Mapping[str, Any]) -> int:
    """Messages, and parts of messages."""
    contents = [message.get("content") for message in document["messages"]]
    return len(contents) + sum(len(content) for content in contents if isinstance(content, list))


def uncounted(config: ServeConfig, model_path: str) -> str | None:
    """Why this service's prompts cannot be counted, whatever the folder holds."""
    engine = config.engine
    if not model_path:
        return "the model's folder is not on this machine"
    if engine.kind == "simulated":
        return "simulated engines have no tokenizer"
    for argument in (*engine.extra_args, *engine.prefill.extra_args, *engine.decode.extra_args):
        if argument.partition("=")[0] in PROMPT_FLAGS:
            return f"the engines have {argument.partition('=')[0]}"
    return None


def _load(model_path: str, family: str) -> Count:
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # its own threads would take every core
    # Some 20 MB and 0.2 s that a gateway without a tokenizer need not pay.
    from serving.tokenizer.prompt import load

    return load(Path(model_path), family).count
