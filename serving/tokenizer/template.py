"""A model's chat template, rendered as transformers renders it, with bounds: the template is the operator's, what goes
into it is the client's."""

import json
import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from serving.tokenizer.errors import Uncountable

ContentFormat = Literal["openai", "string"]


class ChatTemplate:
    """One compiled template. Raises jinja2.TemplateError where `source` is none."""

    def __init__(self, source: str) -> None:
        environment = _environment()
        self._template = environment.from_string(source)
        self.content_format = content_format(source, environment)

    def render(self, variables: Mapping[str, Any], *, most_chars: int, ends: float) -> str:
        """The prompt. Raises what the template raises, and Uncountable past a bound.

        most_chars: longest prompt; ends: on this thread's CPU clock. Both are looked at after each piece of output.
        """
        pieces: list[str] = []
        chars = 0
        for piece in self._template.generate(variables):
            pieces.append(piece)
            chars += len(piece)
            if chars > most_chars:
                raise Uncountable(f"the prompt passes {most_chars} characters")
            if time.thread_time() > ends:
                raise Uncountable("the template took too long")
        return "".join(pieces)


def content_format(source: str, environment: jinja2.Environment) -> ContentFormat:
    """Whether the template takes a message's content as a list of parts, by SGLang 0.5.23's rule
    (jinja_template_utils.py:71): media words, or a loop over message.content."""
    if any(word in source for word in ("image", "audio", "video", "vision")):
        return "openai"
    for loop in environment.parse(source).find_all(nodes.For):
        if any(_is_content_of(loop.iter, name) for name in ("message", "msg", "m")):
            return "openai"
    return "string"


def _is_content_of(node: nodes.Node | None, name: str) -> bool:
    if isinstance(node, nodes.Filter | nodes.Test):
        return _is_content_of(node.node, name)
    if isinstance(node, nodes.Getitem):
        if isinstance(node.arg, nodes.Slice):
            return _is_content_of(node.node, name)
        key = node.arg.value if isinstance(node.arg, nodes.Const) else None
    elif isinstance(node, nodes.Getattr):
        key = node.attr
    else:
        return False
    return key == "content" and isinstance(node.node, nodes.Name) and node.node.name == name


class _Generation(Extension):
    """{% generation %} marks what a model was trained to write; it adds nothing to the text."""

    tags = {"generation"}  # noqa: RUF012 (jinja2 declares it so)

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True)).set_lineno(
            line
        )


def _environment() -> jinja2.Environment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = _now_as
    return environment


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """jinja2's own filter escapes for HTML."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _now_as(form: str) -> str:
    return datetime.now().strftime(form)  # noqa: DTZ005 (the engine writes its local time too)
