"""What the chat template is given of a request, as SGLang 0.5.23 gives it (serving_chat.py:2011, protocol.py).

SGLang parses the body into pydantic models and renders what it dumps of them, so a field it does not know is gone, an
absent one is null inside a tool, and a user message has no name. Only bodies that SGLang accepts matter here: for others
there is no count to agree with.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from serving.tokenizer.errors import Uncountable
from serving.tokenizer.template import ContentFormat

Json = Mapping[str, Any]

GENERIC_ROLES = frozenset({"system", "assistant", "tool", "function", "developer", "latest_reminder", "root"})
HOLD_TOOLS = ("root", "system", "developer")
EFFORTS = frozenset({"none", "minimal", "low", "medium", "high", "xhigh", "ultra", "max"})
SCHEMA_TYPES = frozenset({"null", "boolean", "object", "array", "number", "string", "integer"})

RESERVED = frozenset(
    {
        "conversation",
        "tools",
        "documents",
        "chat_template",
        "add_generation_prompt",
        "continue_final_message",
        "tokenize",
        "padding",
        "truncation",
        "max_length",
        "return_tensors",
        "return_dict",
        "return_assistant_tokens_mask",
        "tokenizer_kwargs",
        "messages",
    }
)
"""Names in chat_template_kwargs that transformers' apply_chat_template takes for itself."""


@dataclass(frozen=True, slots=True)
class TemplateInput:
    """Variables of the template, and the beginning of the answer where the client asks to continue it."""

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None
    options: dict[str, Any]
    prefix: str


def template_input(document: Json, content_format: ContentFormat) -> TemplateInput:
    """Raises Uncountable for what SGLang would refuse or change in a way that is not followed here."""
    try:
        messages = [_message(message, content_format) for message in document["messages"]]
        messages, prefix = _last_assistant(messages, bool(document.get("continue_final_message")))
        return TemplateInput(messages, _tools(document), _options(document), prefix)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise Uncountable(f"the engine would refuse the body ({type(error).__name__})") from error


def _message(message: Json, content_format: ContentFormat) -> dict[str, Any]:
    if message["role"] == "user":
        dumped: dict[str, Any] = {"role": "user"}
    else:
        role = message["role"].lower()
        if role not in GENERIC_ROLES:
            raise Uncountable(f"the engine knows no role {role!r:.40}")
        dumped = {"role": role}
        for name in ("tool_call_id", "name", "phase", "reasoning_content"):
            dumped[name] = message.get(name)
        calls, tools = message.get("tool_calls"), message.get("tools")
        dumped["tool_calls"] = None if calls is None else [_call(call, role) for call in calls]
        dumped["tools"] = None if tools is None else [_tool(tool) for tool in tools]
        dumped["prefix"] = message.get("prefix")
    content = message.get("content")
    if not isinstance(content, list):
        order = {"role": dumped.pop("role"), "content": "" if content is None else content}
        return order | {name: value for name, value in dumped.items() if value is not None}
    parts = [_part(part) for part in content]
    kept = {name: value for name, value in dumped.items() if value is not None}
    texts = [part["text"] for part in parts if part["type"] == "text"]
    if content_format == "string" or (dumped["role"] == "tool" and len(texts) == len(parts)):
        return kept | {"content": " ".join(texts)}
    return kept | {"content": parts}


def _part(part: Json) -> dict[str, Any]:
    if part["type"] == "text":
        return {"type": "text", "text": part["text"]}
    return {"type": "image"}


def _call(call: Json, role: str) -> dict[str, Any]:
    function = call["function"]
    arguments = function.get("arguments")
    if role == "assistant" and isinstance(arguments, str):
        arguments = orjson.loads(arguments)
        if not isinstance(arguments, dict):
            raise TypeError("arguments")
    return {
        "id": call.get("id"),
        "index": call.get("index"),
        "type": "function",
        "function": {"name": function.get("name"), "arguments": arguments},
    }


def _last_assistant(messages: list[dict[str, Any]], resume: bool) -> tuple[list[dict[str, Any]], str]:
    """A last assistant message of plain text begins the answer, or is turned into a user's."""
    last = messages[-1]
    if last["role"] != "assistant" or not isinstance(last["content"], str):
        return messages, ""
    if not resume:
        return [*messages[:-1], {"role": "user", "content": last["content"]}], ""
    if len(messages) == 1:
        raise Uncountable("there is no message before the one to continue")
    return messages[:-1], last["content"]


def _tools(document: Json) -> list[dict[str, Any]] | None:
    given = document.get("tools")
    in_messages = any(
        message["role"].lower() in HOLD_TOOLS and message.get("tools") for message in document["messages"]
    )
    choice = document.get("tool_choice")
    if choice is None:
        choice = "none" if given is None and not in_messages else "auto"
    if choice == "none" or not given:
        return None
    if isinstance(choice, str):
        return [_tool(tool) for tool in given]
    wanted = choice["function"]["name"]
    return [_tool(tool) for tool in given if tool["function"]["name"] == wanted] or None


def _tool(tool: Json) -> dict[str, Any]:
    """Fields in the client's order, then those it left out, as null; `strict` and `defer_loading` only where given."""
    function = dict(tool["function"])
    defer = tool.get("defer_loading")
    if defer is not None and function.get("defer_loading") is None:
        function["defer_loading"] = defer
    _standard_types(function.get("parameters"))
    known = ("description", "name", "parameters", "strict", "defer_loading")
    order = [name for name in tool["function"] if name in known]
    dumped = {name: function.get(name) for name in (*order, *(name for name in known if name not in order))}
    for name in ("strict", "defer_loading"):
        if dumped[name] is None:
            del dumped[name]
    return {"type": tool.get("type", "function"), "function": dumped, "defer_loading": defer}


def _standard_types(schema: object) -> None:
    """SGLang rewrites types that JSON Schema does not know (`varchar`); here such a tool is not counted."""
    if isinstance(schema, list):
        for item in schema:
            _standard_types(item)
    elif isinstance(schema, dict):
        kinds = schema.get("type")
        for kind in kinds if isinstance(kinds, list) else [kinds]:
            if isinstance(kind, str) and kind not in SCHEMA_TYPES:
                raise Uncountable(f"a tool has a type {kind!r:.40}, which the engine rewrites")
        for value in schema.values():
            _standard_types(value)


def _options(document: Json) -> dict[str, Any]:
    given = document.get("chat_template_kwargs")
    options: dict[str, Any] = dict(given) if isinstance(given, dict) else {}
    effort, enabled = _effort(document)
    thinking = True if enabled else None
    if effort is not None:
        thinking = effort != "none"
    if thinking is not None:
        options.setdefault("thinking", thinking)
        options.setdefault("enable_thinking", thinking)
    named = options.pop("reasoning_effort", None)
    effort = effort if named is None else named
    if effort is not None:
        options = {"reasoning_effort": effort, **options}
    _refuse_reserved(options)
    return options


def _effort(document: Json) -> tuple[str | float | None, bool]:
    effort, enabled = document.get("reasoning_effort"), False
    reasoning = document.get("reasoning")
    if isinstance(reasoning, dict):
        said = reasoning.get("effort")
        said = reasoning.get("reasoning_effort") if said is None else said
        effort = effort if said is None else said
        on = reasoning.get("enabled")
        on = reasoning.get("enable", False) if on is None else on
        enabled = on.strip().lower() in {"1", "true", "yes", "y", "on"} if isinstance(on, str) else bool(on)
    return (effort if effort is None or effort in EFFORTS else float(effort)), enabled


def _refuse_reserved(names: Iterable[str]) -> None:
    for name in names:
        if name in RESERVED:
            raise Uncountable(f"chat_template_kwargs holds {name!r}")
