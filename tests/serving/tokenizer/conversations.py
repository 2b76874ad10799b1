"""Chat requests of many shapes, with real (small) images; sizes beside them."""

import base64
import io
import random
from dataclasses import dataclass
from typing import Any

from PIL import Image

Size = tuple[int, int]

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Das Wetter in einer Stadt: жарко, 寒い?",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": ["integer", "null"], "minimum": 1}},
            "required": ["city"],
        },
    },
}
BARE = {"type": "function", "function": {"parameters": {"type": "object"}, "name": "clock", "strict": True}}
CALLS: list[dict[str, Any]] = [
    {"role": "user", "content": "How is it in Oslo?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": "a",
                "type": "function",
                "function": {"name": "weather", "arguments": '{"city": "Oslo",  "days":2}'},
            },
            {"id": "b", "type": "function", "function": {"name": "clock", "arguments": "{}"}},
        ],
    },
    {"role": "tool", "tool_call_id": "a", "content": "rain, 7 °C"},
    {
        "role": "tool",
        "tool_call_id": "b",
        "content": [{"type": "text", "text": "12"}, {"type": "text", "text": "noon"}],
    },
]
ODD = "e\u0301 é \u00a0\u200b  \n\n\t\tif x:\r\n\r\n   y '''’s 1234567 ﬁ 🙂👩‍👩‍👧 नमस्ते שלום \u202e<|im_end|> <|image_pad|> </s>"


@dataclass(frozen=True, slots=True)
class Case:
    """A request as a client would send it."""

    name: str
    document: dict[str, Any]
    images: tuple[Size, ...] = ()


def picture(size: Size) -> dict[str, Any]:
    out = io.BytesIO()
    Image.new("RGB", size, (200, 99, size[0] % 256)).save(out, "PNG")
    return {
        "type": "image_url",
        "image_url": {"url": "data:image/png;base64," + base64.b64encode(out.getvalue()).decode()},
    }


def words(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def asked(*parts: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"role": "user", "content": list(parts)}]


def texts() -> list[Case]:
    """Requests without images."""
    system = {"role": "system", "content": "You are a harbour master."}
    user = {"role": "user", "content": "Describe the harbour at dawn."}
    done = {"role": "assistant", "content": "The harbour"}
    return [
        Case("one message", {"messages": [user]}),
        Case("a system message", {"messages": [system, user]}),
        Case("a system message of parts", {"messages": [{**system, "content": [words("Be brief.")]}, user]}),
        Case("a role in capitals", {"messages": [{**system, "role": "System"}, user]}),
        Case("a name, which is dropped of users", {"messages": [{**user, "name": "ada"}]}),
        Case("a name, which is kept of others", {"messages": [{**system, "name": "ada", "extra": 1}, user]}),
        Case("turns", {"messages": [system, user, done, {"role": "user", "content": "Go on. 请描述"}]}),
        Case("several parts", {"messages": asked(words("One."), words(""), words(" two\n"))}),
        Case("an empty message", {"messages": [{"role": "user", "content": ""}]}),
        Case("odd characters", {"messages": [{"role": "user", "content": ODD}]}),
        Case("a long text", {"messages": [{"role": "user", "content": "The ship sails.\nAnd it rains. " * 900}]}),
        Case("a last answer becomes a question", {"messages": [user, done]}),
        Case("a last answer of parts does not", {"messages": [user, {**done, "content": [words("The")]}]}),
        Case("a last answer to go on with", {"messages": [user, done], "continue_final_message": True}),
        Case("a prefix with space", {"messages": [user, {**done, "content": "\n So"}], "continue_final_message": True}),
        Case("nothing to go on with", {"messages": [user], "continue_final_message": True}),
        Case("tools", {"messages": [system, user], "tools": [WEATHER, BARE]}),
        Case("tools of no use", {"messages": [user], "tools": [WEATHER], "tool_choice": "none"}),
        Case("no tools", {"messages": [user], "tools": []}),
        Case("a named tool", {"messages": [user], "tools": [WEATHER, BARE], "tool_choice": {"type": "function", "function": {"name": "clock"}}}),
        Case("a tool with more fields", {"messages": [user], "tools": [{**BARE, "more": 1, "defer_loading": True}]}),
        Case("calls and results", {"messages": CALLS, "tools": [WEATHER, BARE]}),
        Case("calls without tools", {"messages": [*CALLS, user]}),
        Case("thinking off", {"messages": [user], "chat_template_kwargs": {"enable_thinking": False}}),
        Case("effort", {"messages": [user], "reasoning_effort": "high"}),
        Case("no effort", {"messages": [user], "reasoning_effort": "none"}),
        Case("effort as a number", {"messages": [user], "reasoning": {"effort": 0.5, "enabled": True}}),
        Case("effort for the template", {"messages": [user], "chat_template_kwargs": {"reasoning_effort": "low"}}),
        Case("a schema for the answer", {"messages": [user], "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}}}),
        Case("a role that the template refuses", {"messages": [{"role": "developer", "content": "x"}, user]}),
        Case("a role that nobody knows", {"messages": [{"role": "guest", "content": "x"}]}),
        Case("a last answer alone", {"messages": [done], "continue_final_message": True}),
        Case("arguments that are no JSON", {"messages": [{**CALLS[1], "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}, user]}),
        Case("an option of the library", {"messages": [user], "chat_template_kwargs": {"tokenize": True}}),
    ]  # fmt: skip


def one_image() -> list[Case]:
    """Requests with one image, as every family takes it."""
    return [
        Case("an image", {"messages": asked(picture((336, 336)), words("Describe the picture."))}, ((336, 336),)),
        Case("an image after the text", {"messages": asked(words(ODD[:40]), picture((333, 77)))}, ((333, 77),)),
        Case("an image alone", {"messages": asked(picture((500, 9)))}, ((500, 9),)),
        Case(
            "an image, then an answer to go on with",
            {"messages": [*asked(picture((64, 64))), {"role": "assistant", "content": "I see"}], "continue_final_message": True},
            ((64, 64),),
        ),
        Case("an image and its name in the text", {"messages": asked(picture((80, 80)), words("<image>"))}, ((80, 80),)),
    ]  # fmt: skip


def five_images() -> list[Case]:
    """As LLaVA must be told of several."""
    parts = [{**picture((336, 336)), "modalities": "multi-images"} for _ in range(5)]
    return [Case("five images", {"messages": asked(*parts, words("Compare."))}, ((336, 336),) * 5)]


def images(seed: int, count: int) -> list[Case]:
    """Requests with several images of odd sizes, over several turns, with tools here and there."""
    stream = random.Random(seed)
    made = []
    for number in range(count):
        sizes: list[Size] = []
        messages: list[dict[str, Any]] = []
        for turn in range(stream.randint(1, 3)):
            if turn:
                messages.append({"role": "assistant", "content": stream.choice(["好的。", "A harbour.\n"])})
            parts: list[dict[str, Any]] = []
            for _ in range(stream.randint(0, 3)):
                size = (stream.randint(20, 1400), stream.randint(20, 900))
                sizes.append(size)
                parts.append(picture(size))
                if stream.random() < 0.5:
                    parts.append(words(stream.choice(["and", " \n", "Опишите картинку", "图片。"])))
            parts.append(words("What is in it?"))
            messages.append({"role": "user", "content": parts})
        document: dict[str, Any] = {"messages": messages}
        if stream.random() < 0.3:
            document["tools"] = [WEATHER]
        if stream.random() < 0.3:
            document["chat_template_kwargs"] = {"add_vision_id": True}
        made.append(Case(f"images {number}", document, tuple(sizes)))
    return made
