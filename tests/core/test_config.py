"""Configuration says what is wrong, where, and what was meant."""

from typing import get_args

import pytest

from serving.chat import UNSAFE_FIELDS
from serving.config import GatewayConfig, ServeConfig
from toolkit.core.config import load, merge, parse_assignment, set_path
from toolkit.core.errors import UsageFault


def test_an_unknown_key_is_refused_with_the_nearest_name(tmp_path):
    """A typo must not become a default."""
    path = tmp_path / "serve.toml"
    path.write_text("[gateway]\nprot = 9000\n[egnine]\ntp = 2\n")

    with pytest.raises(UsageFault) as refused:
        load(ServeConfig, path)

    assert "gateway.prot: unknown key; did you mean 'port'?" in refused.value.message
    assert "egnine: unknown key; did you mean 'engine'?" in refused.value.message


def test_flags_beat_the_file_and_assignments_beat_flags(tmp_path):
    """Defaults < file < flags < --set."""
    path = tmp_path / "serve.toml"
    path.write_text("[gateway]\nport = 1\nhost = 'a'\n[schedule]\nmax_in_flight = 3\n")

    config = load(ServeConfig, path, ["gateway.port=3"], {"gateway": {"port": 2, "host": "b"}})

    assert (config.gateway.port, config.gateway.host, config.schedule.max_in_flight) == (3, "b", 3)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a.b=3", ("a.b", 3)),
        ("a=true", ("a", True)),
        ("a=tcp", ("a", "tcp")),
        ("a=[1, 2]", ("a", [1, 2])),
        ("a='x=y'", ("a", "x=y")),
    ],
)
def test_assignments_are_toml_values_or_plain_words(text, expected):
    """No quoting is asked for where none is needed."""
    assert parse_assignment(text) == expected


def test_an_assignment_without_a_value_says_how_to_write_it():
    """It names the option."""
    with pytest.raises(UsageFault, match=r"write it as key\.name=value"):
        parse_assignment("gateway.port")


def test_a_file_that_is_not_toml_names_itself_and_the_line(tmp_path):
    """The parser's own position is passed on."""
    path = tmp_path / "serve.toml"
    path.write_text("[gateway\n")

    with pytest.raises(UsageFault, match=r"serve\.toml: not TOML: .*line 1"):
        load(ServeConfig, path)
    with pytest.raises(UsageFault, match="cannot be read"):
        load(ServeConfig, tmp_path / "absent.toml")


def test_merging_changes_neither_side():
    """Configurations are composed, not inherited."""
    base = {"a": {"x": 1, "y": 2}, "b": 1}
    over = {"a": {"x": 5}}

    assert merge(base, over) == {"a": {"x": 5, "y": 2}, "b": 1}
    assert base == {"a": {"x": 1, "y": 2}, "b": 1}
    assert set_path({}, "a.b.c", 1) == {"a": {"b": {"c": 1}}}


def test_rdma_without_a_device_and_half_an_attachment_are_refused():
    """What cannot work is said before anything starts."""
    with pytest.raises(UsageFault, match="rdma"):
        load(ServeConfig, None, ["engine.transfer=rdma"])
    with pytest.raises(UsageFault, match="go together"):
        load(ServeConfig, None, ['engine.attach_prefill=["http://a:1"]'])


@pytest.mark.parametrize(
    ("assignment", "says"),
    [
        ("access.memory_mb=1", "configuration:\n  access.memory_mb = 1 is too little"),
        ("engine.extra_args=3", 'engine.extra_args: should be a list, as ["a", "b"] (got 3)'),
        ("realtime=3", "realtime: should be a table of keys (got 3)"),
        (
            'pools=[{name="words",classes=["text"],share=0}]',
            "pools.0.share: Input should be greater than 0 (got 0).",
        ),
        ('pools=[{name="words",classes=["text"]}]', "multi_image_long: add them to the classes of one."),
        ('gateway.allowed_fields=["stop_regx"]', "should be 'stop_regex' (got 'stop_regx')"),
        ("gateway.host=http://10.0.0.1", "gateway.host: write an address"),
        ("gateway.host=10.0.0.1:80", "gateway.host: write an address"),
        ('gateway.host=""', "gateway.host: write an address"),
        ("gateway.host=10.0.0.", "gateway.host: write an address"),
    ],
)
def test_a_wrong_value_is_told_once_in_the_files_own_words(assignment, says):
    """Not in Python's."""
    with pytest.raises(UsageFault) as refused:
        load(ServeConfig, None, [assignment])

    assert says in refused.value.message


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "::1", "gateway-1.internal", "localhost"])
def test_addresses_and_names_are_hosts(host):
    """Whether they are this machine's is seen when they are bound."""
    assert load(ServeConfig, None, [f"gateway.host={host}"]).gateway.host == host


def test_fields_that_can_be_opened_are_those_that_are_closed():
    """The configuration's list and the gateway's are one."""
    assert set(get_args(get_args(GatewayConfig.model_fields["allowed_fields"].annotation)[0])) == set(
        UNSAFE_FIELDS
    )


def test_every_field_has_a_description():
    """The schema is the documentation."""
    missing = []

    def walk(schema, path):
        for name, field in schema.get("properties", {}).items():
            if not (field.get("description") or "$ref" in field or "allOf" in field):
                missing.append(f"{path}.{name}")

    schema = ServeConfig.model_json_schema()
    for name, definition in schema["$defs"].items():
        walk(definition, name)

    assert missing == []
