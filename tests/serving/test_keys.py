"""Named API keys."""

import pytest

from serving.keys import Keys
from toolkit.core.errors import Unauthorized, UsageFault


def load(tmp_path, text):
    path = tmp_path / "keys.toml"
    path.write_text(text)
    return Keys.load(str(path))


def test_without_a_file_everyone_is_anonymous():
    """A laptop needs no key."""
    assert Keys.load("").name_of(None) == "anonymous"


@pytest.mark.parametrize(
    "header",
    [None, "", "Bearer", "Bearer ", "Basic 0123456789abcdef", "0123456789abcdef", "Bearer 0123456789abcdeé"],
)
def test_anything_but_a_known_bearer_key_is_refused(tmp_path, header):
    """Also a key under another scheme."""
    keys = load(tmp_path, 'a = "0123456789abcdef"')

    assert keys.name_of("bearer 0123456789abcdef") == "a"
    with pytest.raises(Unauthorized):
        keys.name_of(header)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "holds no key"),
        ('a = "short"', "at least 16"),
        ("a = 5", "at least 16"),
        ('a = "0123456789abcdef"\nb = "0123456789abcdef"', "share one key"),
        ("[a", "not TOML"),
    ],
)
def test_a_bad_key_file_stops_the_start(tmp_path, text, says):
    """An empty file must not open the door."""
    with pytest.raises(UsageFault, match=says):
        load(tmp_path, text)
