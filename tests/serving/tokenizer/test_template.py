"""A chat template is rendered as transformers renders it, within bounds."""

import jinja2
import pytest

from serving.tokenizer.errors import Uncountable
from serving.tokenizer.template import ChatTemplate

NEVER = float("inf")


def render(source: str, **variables: object) -> str:
    return ChatTemplate(source).render(variables, most_chars=10_000, ends=NEVER)


def test_json_is_written_as_it_is() -> None:
    """jinja2's own filter would escape it for HTML, and transformers does not."""
    assert render("{{ x | tojson }}", x={"b": "<ü>", "a": None}) == '{"b": "<ü>", "a": null}'
    assert render("{{ x | tojson(indent=1) }}", x=[1]) == "[\n 1\n]"


def test_block_lines_leave_nothing_behind() -> None:
    """trim_blocks and lstrip_blocks; break and continue are known."""
    source = "  {% for x in xs %}\n  {% if x == 2 %}{% continue %}{% endif %}\n{{ x }};\n{% endfor %}\nend"

    assert render(source, xs=[1, 2, 3]) == "1;\n3;\nend"


def test_generation_marks_add_nothing() -> None:
    """They say what a model was trained to write."""
    assert render("a{% generation %}{{ 1 + 1 }}{% endgeneration %}b") == "a2b"


def test_a_template_may_refuse() -> None:
    """raise_exception is how templates tell of roles in a wrong order."""
    with pytest.raises(jinja2.TemplateError, match="roles"):
        render("{{ raise_exception('roles must alternate') }}")


@pytest.mark.parametrize(
    "source", ["{{ xs.append(1) }}", "{{ ''.__class__.__mro__ }}", "{{ xs.__init__() }}"]
)
def test_templates_stay_in_their_sandbox(source: str) -> None:
    """They change nothing that they are given, and reach nothing behind it."""
    with pytest.raises(jinja2.TemplateError):
        render(source, xs=[])


def test_a_prompt_is_bounded_in_length_and_time() -> None:
    """The template is the operator's; what it loops over is the client's."""
    template = ChatTemplate("{% for x in xs %}{% for y in xs %}{{ x }}{% endfor %}{% endfor %}")

    with pytest.raises(Uncountable, match="characters"):
        template.render({"xs": ["ab"] * 100}, most_chars=1000, ends=NEVER)
    with pytest.raises(Uncountable, match="took"):
        template.render({"xs": [""] * 100}, most_chars=1000, ends=0.0)


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("{{ messages[0].content }}", "string"),
        ("{% for part in message['content'] %}{% endfor %}", "openai"),
        ("{% for part in msg.content | list %}{% endfor %}", "openai"),
        ("{% for part in m.content[1:] %}{% endfor %}", "openai"),
        ("{% for part in other.content %}{% endfor %}", "string"),
        ("{{ '<|vision_start|>' }}", "openai"),
    ],
)
def test_content_is_a_list_where_the_template_loops_over_it(source: str, kind: str) -> None:
    """SGLang's rule: what it gives the template depends on it."""
    assert ChatTemplate(source).content_format == kind
