"""Doors: keys that the gateway does not have, addresses that everybody reaches."""

import re
from collections.abc import Iterator
from urllib.parse import urlsplit

from serving.check.facts import Facts
from serving.check.fix import Drop, Set
from serving.check.reach import reached
from serving.check.rule import Needs, Rule, Severity, Source, Trouble

VERSION = re.compile(r"/v\d")
KEY, ADMIN_KEY = "--api-key", "--admin-api-key"


def _key(facts: Facts) -> Iterator[Trouble]:
    for engine in facts.real:
        if engine.has(KEY):
            yield Trouble(engine.name, f"{KEY}, which the gateway does not have", Drop((KEY,)))


def _admin_key(facts: Facts) -> Iterator[Trouble]:
    for engine in facts.real:
        if engine.has(ADMIN_KEY):
            yield Trouble(engine.name, f"{ADMIN_KEY}, which the gateway does not have", Drop((ADMIN_KEY,)))


def _engines(facts: Facts) -> Iterator[Trouble]:
    host = facts.config.engine.host
    if facts.real and reached(host):
        told = f"{host}: whoever reaches the engines reaches them without key or limit"
        yield Trouble("engine.host", told, Set("engine.host", "127.0.0.1"))


def _gateway(facts: Facts) -> Iterator[Trouble]:
    gateway = facts.config.gateway
    if reached(gateway.host) and not gateway.api_keys_file:
        told = f"{gateway.host}: whoever reaches the gateway may use it"
        yield Trouble("gateway.host", told, Set("gateway.api_keys_file", "keys.toml"))


def _versionless(facts: Facts) -> Iterator[Trouble]:
    url = facts.config.fallback.url
    if url and not VERSION.search(urlsplit(url).path):
        told = f"{url}: it is asked at {url}/chat/completions"
        yield Trouble("fallback.url", told, Set("fallback.url", f"{url}/v1"))


RULES = (
    Rule(
        "engine-key",
        Severity.ERROR,
        "an API key on engines behind the gateway",
        "The gateway has no key for engines: each of its requests is a 401. Keep strangers out by the network instead.",
        (Source("srt/utils/auth.py:148", "if api_key:"),),
        _key,
        flags=(KEY,),
        needs=Needs.ENGINES,
    ),
    Rule(
        "engine-admin-key",
        Severity.WARNING,
        "an admin API key on engines behind the gateway",
        "Each /abort_request of the gateway is a 401: engines go on with what nobody waits for, just when they are late.",
        (
            Source("srt/utils/auth.py:134", "if admin_api_key:"),
            Source("srt/entrypoints/http_server.py:1722", "AuthLevel.ADMIN_OPTIONAL"),
        ),
        _admin_key,
        flags=(ADMIN_KEY,),
        needs=Needs.ENGINES,
    ),
    Rule(
        "engines-open",
        Severity.WARNING,
        "engines on an address that others reach",
        "SGLang reads local files for an image URL of file:// or a bare path, and obeys /abort_request and /flush_cache."
        " Engines on several machines need it: keep them in a network of their own.",
        (Source("srt/utils/common.py:2185", "def get_image_bytes"),),
        _engines,
        needs=Needs.ENGINES,
    ),
    Rule(
        "gateway-open",
        Severity.WARNING,
        "a gateway on an address that others reach, without keys",
        'Nobody is asked who they are. Write that file first, a line for each who may: `alice = "at least 16 random characters"`, as of'
        " `openssl rand -hex 24`; its owner alone should read it. TLS is a proxy's in front.",
        (Source("README.md"),),
        _gateway,
    ),
    Rule(
        "fallback-path",
        Severity.WARNING,
        "a fallback's URL without version",
        "OpenAI-compatible endpoints answer below /v1. Elsewhere it is a 404, which nobody sees but the log: the request ends in the"
        " error that it was to be spared.",
        (Source("serving/fallback_config.py"),),
        _versionless,
    ),
)
