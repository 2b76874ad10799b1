"""What seals shared values, as a file. Light: the launcher looks at it before anything is started."""

from pathlib import Path

from toolkit.core.errors import UsageFault

LEAST_SECRET_BYTES = 16


def secret_of(path: str) -> bytes:
    """What the file holds, without white space around it; empty where no file is named. Raises UsageFault."""
    if not path:
        return b""
    try:
        secret = Path(path).read_bytes().strip()
    except OSError as error:
        raise UsageFault(
            f"access.shared_cache_key_file: {path} cannot be read ({error.strerror})."
        ) from error
    if len(secret) < LEAST_SECRET_BYTES:
        raise UsageFault(
            f"access.shared_cache_key_file: {path} holds {len(secret)} bytes; {LEAST_SECRET_BYTES} or more are a secret."
        )
    return secret
