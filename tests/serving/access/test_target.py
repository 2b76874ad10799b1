"""Whatever text is sent as a URL: it is refused, or it names one host, the same for every parser."""

import re
from ipaddress import ip_address
from urllib.parse import urlsplit

import httpx
from hypothesis import example, given, settings
from hypothesis import strategies as st

from serving.access.address import is_public
from serving.access.target import Target, UrlRules
from serving.config import AccessConfig
from tests.serving.access.test_address import NOT_PUBLIC
from tests.serving.access.test_fetch import BLOCKED
from toolkit.core.errors import InvalidRequest

RULES = UrlRules(AccessConfig())
BASE = RULES.target("https://photos.example/a/b?c#d")

SCHEMES = [
    "http:",
    "https:",
    "HTTP:",
    "hTTps:",
    "file:",
    "ftp:",
    "data:",
    "gopher:",
    "",
    "javascript:",
    "http+x:",
    "ws:",
]
HOSTS = [
    "photos.example", "PHOTOS.Example", "b\u00fccher.example", "xn--bcher-kva.example", "8.8.8.8", "[2606:4700::1]", "localhost", "a.localhost",
    "127.1", "0x7f.1", "2130706433", "0177.0.0.1", "127.0.0.1", "\u2460\u2461\u2466.0.0.1", "127\u30020\uff0e0\uff611", "a\u00adb.example", "1.2.3.4.5",
    *(f"[{address}]" if ":" in address else address for address in NOT_PUBLIC),
]  # fmt: skip
MARKS = [
    "/",
    "//",
    "\\",
    "@",
    ":",
    "#",
    "?",
    "%",
    "%2f",
    "%40",
    "%00",
    "[",
    "]",
    ".",
    ";",
    "&",
    " ",
    "\t",
    "\r\n",
    "\x00",
    "\u200b",
    "user:pw@",
    ":80",
    ":443",
    ":22",
    ":0",
    ":99999",
]
PIECES = st.one_of(
    st.sampled_from(SCHEMES), st.sampled_from(HOSTS), st.sampled_from(MARKS), st.text(max_size=4)
)
ABSOLUTE = st.tuples(
    st.sampled_from(SCHEMES), st.sampled_from(["//", "/", "", "///"]), st.lists(PIECES, max_size=5)
).map(lambda parts: parts[0] + parts[1] + "".join(parts[2]))
ANYTHING = st.one_of(ABSOLUTE, st.lists(PIECES, max_size=8).map("".join), st.sampled_from(BLOCKED))


def asked_of(target: Target) -> None:
    """What is sent, as other parsers would read it."""
    sent = str(target.url)
    request = httpx.Request("GET", target.url)
    other = urlsplit(sent)

    assert other.scheme in ("http", "https")
    assert (other.hostname, other.username, other.password) == (target.host, None, None)
    assert (other.port or {"http": 80, "https": 443}[other.scheme]) in (80, 443)
    assert request.headers["host"].removesuffix(f":{other.port}").strip("[]") == target.host
    assert re.fullmatch(r"[!-~]+", request.url.raw_path.decode())
    try:
        assert is_public(ip_address(target.host))
    except ValueError:
        assert re.fullmatch(r"([a-z0-9_-]{1,63}\.)*[a-z0-9_-]{1,63}", target.host)
        assert not re.search(r"(^|\.)(localhost|[0-9]+|0x[0-9a-f]*)$", target.host)


@settings(max_examples=400, deadline=None, derandomize=True, database=None)
@given(ANYTHING)
@example("http://photos.example:80@127.0.0.1/")
@example("http://photos.example#@127.0.0.1/")
@example("http://127.0.0.1?@photos.example/")
@example("http://photos.example\\@127.0.0.1/")
@example("https://[::ffff:8.8.8.8]/")
def test_any_text_is_refused_or_names_one_public_host(text: str) -> None:
    """As the first URL, and as where a redirect leads."""
    for parse in (RULES.target, lambda location: RULES.redirected(BASE, location)):
        try:
            target = parse(text)
        except InvalidRequest:
            continue
        asked_of(target)
