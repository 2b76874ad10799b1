"""What HTTP allows to be remembered of a URL."""

import pytest

from serving.access.cache import ENTRY_BYTES
from serving.access.pages import LONGEST_S, Pages, Terms, terms_of

NO = Terms(store=False, lifetime_s=0.0, etag="")


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, Terms(True, 0.0, "")),
        ({"cache-control": "max-age=60"}, Terms(True, 60.0, "")),
        ({"cache-control": "Public, MAX-AGE=60", "age": "20"}, Terms(True, 40.0, "")),
        ({"cache-control": "max-age=60", "age": "90"}, Terms(True, 0.0, "")),
        ({"cache-control": "max-age=60, s-maxage=5"}, Terms(True, 5.0, "")),
        ({"cache-control": 'max-age="60"'}, Terms(True, 60.0, "")),
        ({"cache-control": "max-age=5, max-age=60"}, Terms(True, 5.0, "")),
        ({"cache-control": "max-age=31536000, immutable"}, Terms(True, LONGEST_S, "")),
        ({"cache-control": "max-age=" + "9" * 5000}, Terms(True, 0.0, "")),
        ({"cache-control": "max-age=-1"}, Terms(True, 0.0, "")),
        ({"cache-control": "max-age=\u0663"}, Terms(True, 0.0, "")),
        ({"cache-control": "no-cache, max-age=60", "etag": '"a"'}, Terms(True, 0.0, '"a"')),
        ({"etag": 'W/"a"'}, Terms(True, 0.0, 'W/"a"')),
        ({"etag": "a"}, Terms(True, 0.0, "")),
        ({"etag": '"\u00e9"'}, Terms(True, 0.0, "")),
        ({"etag": '"' + "a" * 1000 + '"'}, Terms(True, 0.0, "")),
        ({"cache-control": "max-age=60", "vary": "*", "etag": '"a"'}, Terms(True, 0.0, "")),
        ({"cache-control": "no-store, max-age=60", "etag": '"a"'}, NO),
        ({"cache-control": "max-age=60, Private", "etag": '"a"'}, NO),
        ({"cache-control": 'private="x", max-age=60'}, NO),
    ],
)
def test_terms(headers: dict[str, str], expected: Terms) -> None:
    """Strict where in doubt: nothing is kept longer than the server said, nothing private at all."""
    assert terms_of(headers) == expected


def test_pages_are_bounded_and_found_only_with_what_they_lead_to() -> None:
    """A page whose picture is gone is none; a stale one without an ETag is none either."""
    pages = Pages(3 * ENTRY_BYTES)
    pages.keep("http://a/", b"1", Terms(True, 10.0, ""), asked_at=5.0)
    pages.keep("http://b/", b"2", Terms(True, 0.0, '"tag"'), asked_at=5.0)

    assert pages.find("http://a/", lambda _: False, 14.0) is None
    assert pages.find("http://a/", lambda _: True, 14.0).digest == b"1"
    assert pages.find("http://a/", lambda _: True, 15.0) is None
    assert pages.find("http://b/", lambda _: True, 99.0).etag == '"tag"'
    for name in "cdefg":
        pages.keep(f"http://{name}/", b"3", Terms(True, 10.0, ""), asked_at=5.0)
        assert pages.size_bytes <= 3 * ENTRY_BYTES
    assert len(pages) == 2


def test_a_later_answer_replaces_what_was_known() -> None:
    """One that forbids it ends it."""
    pages = Pages(3 * ENTRY_BYTES)
    pages.keep("http://a/", b"1", Terms(True, 10.0, ""), asked_at=0.0)
    pages.keep("http://a/", b"1", NO, asked_at=1.0)

    assert pages.find("http://a/", lambda _: True, 2.0) is None
    assert len(pages) == 0
