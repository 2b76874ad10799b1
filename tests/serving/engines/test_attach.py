"""URLs of engines that run already."""

import pytest

from serving.config import EngineConfig
from serving.engines.attach import endpoints
from toolkit.core.errors import UsageFault


def attached(prefill: str, decode: str = "http://d:30002") -> EngineConfig:
    return EngineConfig(attach_prefill=(prefill,), attach_decode=(decode,))


def test_a_url_names_host_and_ports() -> None:
    """SGLang's own bootstrap port is assumed where none is given."""
    first, second, decode = endpoints(
        EngineConfig(
            attach_prefill=("http://p0:30001", "http://10.0.0.7:30001/?bootstrap_port=9100"),
            attach_decode=("http://[fd00::2]:30002",),
        )
    )

    assert (first.name, first.url, first.bootstrap_host, first.bootstrap_port) == (
        "prefill-0",
        "http://p0:30001",
        "p0",
        8998,
    )
    assert (second.url, second.bootstrap_host, second.bootstrap_port) == (
        "http://10.0.0.7:30001",
        "10.0.0.7",
        9100,
    )
    assert (decode.name, decode.role, decode.url, decode.bootstrap_port) == (
        "decode-0",
        "decode",
        "http://[fd00::2]:30002",
        0,
    )


@pytest.mark.parametrize(
    ("prefill", "decode", "says"),
    [
        ("p0:30001", "http://d:1", "write it as http://host:port"),
        ("https://p0:30001", "http://d:1", "write it as http://host:port"),
        ("http://p0", "http://d:1", "write it as http://host:port"),
        ("http://p0:99999", "http://d:1", "write it as http://host:port"),
        ("http://p0:1/v1", "http://d:1", "write it as http://host:port"),
        ("http://p0:1?bootstrap=2", "http://d:1", "only bootstrap_port is understood"),
        ("http://p0:1?bootstrap_port=x", "http://d:1", "must be a port number"),
        ("http://p0:1", "http://d:1?bootstrap_port=2", "takes no query"),
    ],
)
def test_a_url_that_is_none_is_refused(prefill: str, decode: str, says: str) -> None:
    """With what to write instead."""
    with pytest.raises(UsageFault, match=says):
        endpoints(attached(prefill, decode))
