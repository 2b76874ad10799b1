"""Named API keys: who is asking, without telling by timing how much of a guess was right."""

import hmac
from collections.abc import Mapping
from pathlib import Path

from toolkit.core.config import read_toml
from toolkit.core.errors import Unauthorized, UsageFault

ANONYMOUS = "anonymous"
MIN_KEY_CHARS = 16


class Keys:
    """Names by key. Without any, everyone is anonymous and welcome."""

    def __init__(self, keys: Mapping[str, str]) -> None:
        self._keys = {name: key.encode() for name, key in keys.items()}

    @classmethod
    def load(cls, path: str) -> "Keys":
        """Read `name = "key"` lines. Raises UsageFault for an unreadable file, a short or a doubled key."""
        if not path:
            return cls({})
        if not Path(path).exists():
            raise UsageFault(
                f'{path}: there is no such file. Write it, a line for each who may ask: name = "a key of at least {MIN_KEY_CHARS} characters".'
            )
        found = read_toml(Path(path))
        for name, key in found.items():
            if (
                not isinstance(key, str)
                or len(key) < MIN_KEY_CHARS
                or not (key.isascii() and key.isprintable())
            ):
                raise UsageFault(
                    f"{path}: the key of {name!r} must be a string of at least {MIN_KEY_CHARS} plain ASCII characters."
                )
        if not found:
            raise UsageFault(f'{path}: holds no key; write lines as name = "key".')
        if len(set(found.values())) < len(found):
            raise UsageFault(f"{path}: two names share one key, so nobody could tell them apart.")
        return cls(found)

    def any_key(self) -> str:
        """One of the keys, for the launcher's own first question; empty when none is asked for."""
        return next(iter(self._keys.values()), b"").decode()

    def name_of(self, authorization: str | None) -> str:
        """The tenant of an Authorization header. Raises Unauthorized. Compares with every key, in constant time."""
        if not self._keys:
            return ANONYMOUS
        scheme, _, token = (authorization or "").partition(" ")
        offered = token.strip().encode() if scheme.lower() == "bearer" else b""
        matches = [name for name, key in self._keys.items() if hmac.compare_digest(key, offered)]
        if not matches:
            raise Unauthorized("No valid API key was sent.")
        return matches[0]
