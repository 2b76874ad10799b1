"""What a storage section means is told before anything is asked of a store, and no secret is shown anywhere."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import obstore
import pytest

from serving.config import ServeConfig
from serving.launcher import gateway_member
from serving.storage.remote import Remote, StoreFault
from serving.storage.target import brief, target
from serving.storage_config import StorageConfig
from serving.supervisor import MIN_GRACE_S, STOP_TOTAL_S
from serving.topology import plan
from toolkit.core.config import load
from toolkit.core.errors import EnvironmentFault, UsageFault

KEYS = {"AWS_ACCESS_KEY_ID": "AKIA1", "AWS_SECRET_ACCESS_KEY": "hush-hush"}


def storage(url: str, **fields: Any) -> StorageConfig:
    return StorageConfig(url=url, images=True, **fields)


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> Callable[[Mapping[str, str]], None]:
    """Without credentials until it is called with some."""
    for name in list(os.environ):
        if name.startswith(("AWS_", "GOOGLE_", "AZURE_")):
            monkeypatch.delenv(name)

    def put(variables: Mapping[str, str]) -> None:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    return put


Environment = Callable[[Mapping[str, str]], None]


def test_nothing_is_stored_unless_a_store_is_named() -> None:
    assert target(StorageConfig()) is None
    assert not StorageConfig().images
    assert not StorageConfig().results


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("memory:///", "begins with file:///absolute/path, s3://, gs:// or az://, not 'memory'"),
        ("bucket/prefix", "not with a bare path"),
        ("ftp://host/x", "not 'ftp'"),
        ("https://bucket.s3.amazonaws.com", "not 'https'"),
        ("s3://", "names no bucket"),
        ("file://runs/kept", "file:///absolute/path"),
        ("s3://b/p?sig=x", "a query"),
        ("s3://[", "url is none"),
        ("gs://bucket", "region is for s3://"),
    ],
)
def test_a_wrong_url_is_refused_in_one_line(url: str, says: str) -> None:
    with pytest.raises(UsageFault) as failure:
        load(ServeConfig, None, (), {"storage": {"url": url, "images": True, "region": "r"}})

    assert says in failure.value.message
    assert failure.value.message.splitlines()[1].startswith("  storage: ")


def test_a_secret_in_the_url_is_refused_and_not_repeated() -> None:
    with pytest.raises(UsageFault) as failure:
        load(ServeConfig, None, (), {"storage": {"url": "s3://AKIA1:hush-hush@b", "images": True}})

    assert "credentials" in failure.value.message
    assert "hush" not in failure.value.message


@pytest.mark.parametrize("fields", [{"images": True}, {"url": "s3://b"}])
def test_half_a_section_is_a_mistake(fields: dict[str, Any]) -> None:
    with pytest.raises(UsageFault, match=r"storage: (images and results need a url|url is set, and neither)"):
        load(ServeConfig, None, (), {"storage": fields})


@pytest.mark.parametrize(
    ("url", "variables", "fields", "says"),
    [
        ("s3://b", {"AWS_ACCESS_KEY_ID": "AKIA1"}, {}, "AWS_SECRET_ACCESS_KEY is not"),
        ("s3://b", {"AWS_SECRET_ACCESS_KEY": "hush-hush"}, {}, "AWS_ACCESS_KEY_ID is not"),
        (
            "s3://b",
            {},
            {"endpoint": "http://127.0.0.1:1"},
            "needs AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
        ),
        ("s3://b", {"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}, {}, "needs AWS_ACCESS_KEY_ID"),
        (
            "s3://b",
            {**KEYS, "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:2"},
            {"endpoint": "http://127.0.0.1:1"},
            "would win over it",
        ),
        ("gs://b", {"GOOGLE_APPLICATION_CREDENTIALS": "/nowhere.json"}, {}, "names no file: /nowhere.json"),
        ("az://c", {}, {}, "AZURE_STORAGE_ACCOUNT_NAME"),
    ],
)
def test_credentials_that_miss_a_part_are_told_at_once(
    url: str, variables: dict[str, str], fields: dict[str, Any], says: str, environment: Environment
) -> None:
    environment(variables)

    with pytest.raises(UsageFault) as failure:
        target(storage(url, **fields))

    assert says in failure.value.message
    assert "hush" not in failure.value.message


def test_an_instance_role_needs_no_credentials_here() -> None:
    found = target(storage("s3://b/p"))

    assert found is not None
    assert type(found.open()).__name__ == "S3Store"


@pytest.mark.parametrize(
    ("url", "variables", "kind", "prefix"),
    [
        ("s3://bucket/a/b", KEYS, "S3Store", "a/b"),
        ("gs://bucket/a", {"GOOGLE_BEARER_TOKEN": "hush-hush"}, "GCSStore", "a"),
        (
            "az://container/a",
            {"AZURE_STORAGE_ACCOUNT_NAME": "acct", "AZURE_STORAGE_SAS_TOKEN": "sv=1&sig=hush-hush"},
            "AzureStore",
            "a",
        ),
    ],
)
def test_each_provider_is_opened_with_the_environments_credentials_and_shows_none(
    url: str, variables: dict[str, str], kind: str, prefix: str, environment: Environment
) -> None:
    environment(variables)
    found = target(storage(url, endpoint="http://127.0.0.1:1", timeout_s=2))

    assert found is not None
    store: Any = found.open()
    assert (type(store).__name__, str(store.prefix)) == (kind, prefix)
    with pytest.raises(StoreFault) as failure:
        Remote(store).reach()
    assert "hush" not in repr(found) + repr(store) + failure.value.message + found.place
    assert "127.0.0.1:1" in found.place


def test_credentials_may_lie_in_a_file_that_the_configuration_only_names(tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    file.write_text("".join(f'{name} = "{value}"\n' for name, value in KEYS.items()))
    config = storage("s3://b", credentials_file=str(file), endpoint="http://127.0.0.1:1")

    found = target(config)

    assert found is not None
    assert found.options["AWS_SECRET_ACCESS_KEY"] == "hush-hush"
    assert "hush" not in repr(found) + config.model_dump_json() + found.place


@pytest.mark.parametrize("line", ['PASSWORD = "hush-hush"', "AWS_ACCESS_KEY_ID = 3"])
def test_a_line_in_that_file_that_means_nothing_is_refused_without_its_value(
    tmp_path: Path, line: str
) -> None:
    file = tmp_path / "keys.toml"
    file.write_text(line)

    with pytest.raises(UsageFault) as failure:
        target(storage("s3://b", credentials_file=str(file)))

    assert 'AWS_NAME = "value"' in failure.value.message
    assert "hush" not in failure.value.message


def test_an_option_that_the_library_does_not_know_is_a_usage_fault(tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    file.write_text('AWS_FROBNICATE = "hush-hush"')
    found = target(storage("s3://b", credentials_file=str(file)))

    assert found is not None
    with pytest.raises(UsageFault, match=r"(?i)frobnicate") as failure:
        found.open()
    assert "hush" not in failure.value.message


def test_a_local_folder_is_made_and_one_that_cannot_be_is_told(tmp_path: Path) -> None:
    made = target(storage(f"file://{tmp_path}/a%20b/c"))
    assert made is not None
    made.open()
    assert (tmp_path / "a b" / "c").is_dir()

    (tmp_path / "file").write_bytes(b"")
    wrong = target(storage(f"file://{tmp_path}/file"))
    assert wrong is not None
    with pytest.raises(EnvironmentFault, match=r"storage\.url: .*file cannot be"):
        wrong.open()


def test_a_mistake_is_told_before_anything_is_started(environment: Environment) -> None:
    environment({"AWS_ACCESS_KEY_ID": "AKIA1"})
    config = ServeConfig.model_validate(
        {
            "engine": {"kind": "simulated"},
            "gateway": {"port": 0},
            "storage": {"url": "s3://b", "images": True},
        }
    )

    with pytest.raises(UsageFault, match="AWS_SECRET_ACCESS_KEY is not"):
        plan(config)
    assert plan(config, dry=True).config.storage.url == "s3://b"


def test_a_stopping_gateway_has_time_for_its_uploads(tmp_path: Path) -> None:
    def grace_s(**fields: Any) -> float:
        config = ServeConfig.model_validate({"storage": fields})
        return gateway_member(config, tmp_path, "http://127.0.0.1:1").command.grace_s

    assert grace_s(url="file:///x", images=True, drain_timeout_s=1) - grace_s() == 1
    assert grace_s(url="file:///x", images=True, drain_timeout_s=99) < STOP_TOTAL_S - MIN_GRACE_S


def test_a_message_is_one_line_with_its_cause_and_without_a_signature() -> None:
    error = obstore.exceptions.GenericError(
        'PUT https://a.blob/c/k?sv=1&sig=hush-hush in 3 ms - failed.\n\nDebug source: message: "Connection refused"'
    )

    assert brief(error) == "PUT https://a.blob/c/k in 3 ms - failed. (Connection refused)"
