"""What is wrong with `[shared]` is said where it is read, and its password is shown nowhere."""

import random

import pytest

from serving.config import ServeConfig
from serving.retry_config import RetryConfig
from serving.schedule.admit import Admission
from serving.schedule.retry import Retries
from serving.schedule.shared.configured import negotiator
from serving.schedule.shared.negotiator import Negotiator
from serving.shared_config import SharedConfig
from tests.serving.schedule.shared.mini import DECODE, RULES, WHOLE
from toolkit.core.clock import VirtualClock
from toolkit.core.config import load
from toolkit.core.errors import UsageFault


def made(config: SharedConfig) -> tuple[Admission, Negotiator | None]:
    admission = Admission(RULES)
    retries = Retries(RetryConfig(), random.Random(1))
    found = negotiator(
        config, [DECODE], admission, retries, VirtualClock(), lambda moves: None, lambda keys: None, print
    )
    return admission, found


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("shared.url=http://x", "write it as redis://host"),
        ("shared.url=redis://x?socket_timeout=9", "unknown option 'socket_timeout'"),
        ("shared.ttl_s=0.1", "shared.ttl_s"),
        ("shared.name=a b", "shared.name"),
    ],
)
def test_what_cannot_be_is_refused(setting: str, told: str) -> None:
    with pytest.raises(UsageFault, match=told):
        load(ServeConfig, None, [setting])


def test_a_certificate_that_cannot_be_read_is_a_usage_fault() -> None:
    with pytest.raises(UsageFault, match=r"shared\.url: a certificate file"):
        made(SharedConfig(url="rediss://h/0?ssl_ca_certs=/nowhere/ca.pem"))


def test_the_password_is_not_shown() -> None:
    config = load(ServeConfig, None, ["shared.url=redis://user:secret@h/0"])

    assert "secret" not in repr(config) + config.model_dump_json()


def test_without_a_url_the_pools_are_ours_and_with_one_nothing_is_until_it_is_granted() -> None:
    admission, nobody = made(SharedConfig())
    admission.told("decode-0", WHOLE, 0.0)
    assert nobody is None
    assert admission.leases.pools["decode-0"].free == WHOLE.tokens

    admission, _ = made(SharedConfig(url="redis://h/0"))
    admission.told("decode-0", WHOLE, 0.0)
    assert admission.leases.pools["decode-0"].free == 0
