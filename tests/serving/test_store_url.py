"""Where the shared cache is: wrong URLs are refused with a word, and passwords are never shown."""

import json
import stat
import tomllib

import pytest

from serving.config import AccessConfig, ServeConfig
from serving.service import Service
from serving.store_url import address
from toolkit.cli.toml import to_toml
from toolkit.core.config import load
from toolkit.core.errors import UsageFault

SECRET = "rediss://me:hid/d@en@cache.example:6380/0"
"""Somebody forgot to quote it."""
GOOD = "rediss://me:hidden@cache.example:6380/0"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "redis://127.0.0.1",
        "redis://127.0.0.1:6379/3",
        "redis://[::1]:6379?db=2",
        "redis://:only-a-password@host",
        "rediss://me:p%40ss@host:6380/0?ssl_ca_certs=/etc/ca.pem",
        "unix:///run/valkey/valkey.sock?db=1",
        "unix://me:password@/run/valkey.sock",
    ],
)
def test_urls_that_are_taken(url: str) -> None:
    assert AccessConfig(shared_cache_url=url).shared_cache_url == url


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("127.0.0.1:6379", "write it as redis://"),
        ("http://127.0.0.1:6379", "write it as redis://"),
        ("redis://", "names no host"),
        ("redis:///0", "names no host"),
        ("redis://host:port", "not a URL"),
        ("redis://[::1", "not a URL"),
        ("redis://host/prod", "'prod' is no database number"),
        ("redis://host?db=x", "db must be a number"),
        ("redis://host?socket_timeout=100", "unknown option 'socket_timeout'; known: db"),
        ("rediss://host?ssl_cert_reqs=none", "unknown option 'ssl_cert_reqs'"),
        ("unix://run/valkey.sock", "three slashes"),
        ("unix:///", "three slashes"),
        ("redis://***@host", "masked"),
    ],
)
def test_urls_that_are_not_say_why(url: str, told: str) -> None:
    """Timeouts and retries are ours; a server whose certificate nobody checks is not offered."""
    with pytest.raises(UsageFault) as refused:
        load(ServeConfig, None, [f"access.shared_cache_url={url}"])
    assert "access.shared_cache_url: " in refused.value.message
    assert told in refused.value.message


def test_a_refused_url_is_shown_without_its_password() -> None:
    with pytest.raises(UsageFault) as refused:
        load(ServeConfig, None, [f"access.shared_cache_url={SECRET}"])
    assert "hid" not in refused.value.message
    assert "rediss://***@cache.example:6380/0" in refused.value.message


def test_the_password_is_shown_nowhere() -> None:
    """Not as TOML, JSON, repr or address; and what was shown is refused as a configuration."""
    config = ServeConfig(access=AccessConfig(shared_cache_url=GOOD))
    shown = to_toml(config)

    for text in (shown, config.model_dump_json(), repr(config), str(config.access), address(GOOD)):
        assert "hidden" not in text
    assert tomllib.loads(shown)["access"]["shared_cache_url"] == "rediss://***@cache.example:6380/0"
    with pytest.raises(UsageFault, match="masked"):
        load(ServeConfig, None, overrides=tomllib.loads(shown))


def test_the_gateway_gets_it_whole_in_a_file_that_only_its_owner_reads(tmp_path) -> None:
    """service.json is how the launcher tells its gateway."""
    config = ServeConfig(access=AccessConfig(shared_cache_url=GOOD))
    service = Service(config=config, engines=(), gateway_url="http://x", model_name="m", started_at=0)

    path = service.write(tmp_path)

    assert Service.read(tmp_path).config.access.shared_cache_url == GOOD
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert json.loads(path.read_text())["config"]["access"]["shared_cache_url"] == GOOD


def test_a_service_file_that_cannot_be_read_tells_no_password(tmp_path) -> None:
    """The gateway logs that error."""
    (tmp_path / "service.json").write_text(json.dumps({"config": {"access": {"shared_cache_url": SECRET}}}))

    with pytest.raises(UsageFault) as refused:
        Service.read(tmp_path)
    assert "hid" not in refused.value.message
