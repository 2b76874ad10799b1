"""Several gateways before the same engines: how they share (section `shared`)."""

from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

from serving.check.facts import Facts
from serving.check.fix import Set
from serving.check.reach import reached
from serving.check.rule import Rule, Severity, Source, Trouble
from serving.schedule.shared.footing import CALL, LIFE

LEAST_TTL_S = 2.0
MOST_TTL_S = 15.0
HERE = "this machine"
DECISION = Source("docs/decisions/0029-gateways-share-the-pool.md")


def _open(facts: Facts) -> Iterator[Trouble]:
    url = urlsplit(facts.config.shared.url)
    known = url.password or "ssl_certfile" in parse_qs(url.query)
    if url.hostname and reached(url.hostname) and not known:
        told = (
            f"a server on {url.hostname}, without password: whoever reaches it may give and take every part"
        )
        port, database = url.port or 6379, url.path.strip("/") or "0"
        fix = Set("shared.url", f"{url.scheme}://USER:PASSWORD@{url.hostname}:{port}/{database}")
        yield Trouble("shared.url", told, fix)


def _short(facts: Facts) -> Iterator[Trouble]:
    shared = facts.config.shared
    if shared.url and shared.ttl_s < LEAST_TTL_S:
        life_s = LIFE * shared.ttl_s
        told = f"{shared.ttl_s:g}: a process that stands still for {life_s:.2g} s ends its requests, and the server has {1000 * CALL * life_s:.0f} ms to answer"
        yield Trouble("shared.ttl_s", told, Set("shared.ttl_s", 5.0))


def _long(facts: Facts) -> Iterator[Trouble]:
    shared = facts.config.shared
    if shared.url and shared.ttl_s > MOST_TTL_S:
        told = f"{shared.ttl_s:g}: so long nobody uses what a killed gateway held, and about so long a new server grants nothing"
        yield Trouble("shared.ttl_s", told, Set("shared.ttl_s", 5.0))


def _alone(facts: Facts) -> Iterator[Trouble]:
    shared = facts.config.shared
    if shared.url and not shared.alone:
        told = f"false: when the server is away for {LIFE * shared.ttl_s:.2g} s, every gateway ends its requests and takes none"
        yield Trouble("shared.alone", told, Set("shared.alone", True))


def _spelled(facts: Facts) -> Iterator[Trouble]:
    shared, decodes = facts.config.shared, facts.config.engine.attach_decode
    here = [url for url in decodes if _place(url)[0] == HERE]
    if here and reached(urlsplit(shared.url).hostname or "localhost"):
        told = f"{', '.join(here)}, and gateways on other machines have another URL for that"
        urls = tuple(f"http://ADDRESS:{urlsplit(url).port}" if url in here else url for url in decodes)
        yield Trouble("engine.attach_decode", told, Set("engine.attach_decode", urls))


def _twice(facts: Facts) -> Iterator[Trouble]:
    decodes = facts.config.engine.attach_decode
    once = tuple({_place(url): url for url in reversed(decodes)}.values())[::-1]
    if len(once) < len(decodes):
        told = f"{len(decodes)} URLs of {len(once)} engines: what is named twice counts as two pools"
        yield Trouble("engine.attach_decode", told, Set("engine.attach_decode", once))


def _place(url: str) -> tuple[str, int | None]:
    parts = urlsplit(url)
    host = parts.hostname or ""
    return host if reached(host) else HERE, parts.port


RULES = (
    Rule(
        "ledger-open",
        Severity.WARNING,
        "a shared ledger on another machine, without password",
        "Whoever may write there decides what each gateway may use. Give it a user of its own (docs/operating.md), and rediss://"
        " where others see the network.",
        (DECISION,),
        _open,
    ),
    Rule(
        "ledger-ttl-short",
        Severity.WARNING,
        "a `shared.ttl_s` below 2 s",
        "Busy machines stand still for that long now and then: requests end with 503 `lease_lapsed`, or grants lapse for want of an"
        " answer. It has to be the same at all gateways.",
        (DECISION,),
        _short,
    ),
    Rule(
        "ledger-ttl-long",
        Severity.NOTE,
        "a `shared.ttl_s` above 15 s",
        "What a gateway held that was killed lies idle for that long. It has to be the same at all gateways.",
        (DECISION,),
        _long,
    ),
    Rule(
        "ledger-stops-all",
        Severity.NOTE,
        "gateways that do nothing without the shared ledger",
        "With `shared.alone = false` nothing is given twice even by a gateway that alone is cut off; the price is that the ledger's"
        " outage is everybody's.",
        (DECISION,),
        _alone,
    ),
    Rule(
        "ledger-engine-name",
        Severity.WARNING,
        "an engine by a loopback address beside a ledger on another machine",
        "A pool is known by its engine's URL. A gateway elsewhere has to write another one for this engine, and then each gives out"
        " the whole pool. Write the address that all of them reach, at all of them.",
        (DECISION,),
        _spelled,
    ),
    Rule(
        "decode-twice",
        Severity.ERROR,
        "the same decode attached twice",
        "The gateway would lease its KV pool twice and fill it with twice the requests.",
        (Source("serving/engines/attach.py"),),
        _twice,
    ),
)
