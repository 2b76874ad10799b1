"""Why an address cannot be bound, with what to do about it."""

import errno
import socket

from toolkit.core.errors import EnvironmentFault


def socket_for(host: str) -> socket.socket:
    """A TCP socket of the address family that `host` is bound with. Not bound yet."""
    return socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)


def unbindable(host: str, port: int, error: OSError) -> EnvironmentFault:
    """The fault that bind() has met at that address."""
    if isinstance(error, socket.gaierror):
        return EnvironmentFault(
            f"The host {host!r} cannot be resolved ({error.strerror}). Name an address of this machine: 127.0.0.1, or"
            " 0.0.0.0 for all."
        )
    if error.errno == errno.EADDRNOTAVAIL:
        return EnvironmentFault(
            f"{host} is no address of this machine. Name one that is (`ip address` lists them): 127.0.0.1, or 0.0.0.0 for all."
        )
    if error.errno == errno.EACCES:
        return EnvironmentFault(
            f"{host}:{port} cannot be bound ({error.strerror}): ports below 1024 are for root. Choose another with --port."
        )
    return EnvironmentFault(
        f"{host}:{port} cannot be bound ({error.strerror}). Is a service running there already? "
        "Stop it, or choose another with --port (0: a free one)."
    )
