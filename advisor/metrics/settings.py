"""Where the daemon tells its metrics and its health."""

import ipaddress
import re
from dataclasses import dataclass
from typing import Annotated, Final

_UNIX: Final = "unix:"
# The kernel takes no longer path of a socket.
_LONGEST_PATH: Final = 107
_PORT: Final = re.compile(r"(?P<host>[^:]+|\[[^\]]+\]):(?P<port>[0-9]{1,5})")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopbackAddress:
    """A port that only this machine reaches."""

    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SocketFile:
    """A Unix socket."""

    path: str


Address = LoopbackAddress | SocketFile


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointSettings:
    """Where metrics and health are told; anybody who reaches the place may read them, and nobody can write there."""

    listen: Annotated[
        str, 'loopback address with a port, or "unix:" and the path of a socket, for /metrics and /healthz; "" for none'
    ] = "127.0.0.1:9341"

    def __post_init__(self) -> None:
        address_of(self.listen)


def address_of(listen: str) -> Address | None:
    """Read `metrics.listen`; None for nowhere. Raises `ValueError` for what is neither loopback nor a path."""
    if not listen:
        return None
    if listen.startswith(_UNIX):
        path = listen.removeprefix(_UNIX)
        if not path.startswith("/") or "\0" in path or len(path.encode()) > _LONGEST_PATH:
            raise ValueError(f'listen must be "unix:" and an absolute path of at most {_LONGEST_PATH} bytes')
        return SocketFile(path=path)
    found = _PORT.fullmatch(listen)
    host = found["host"].strip("[]") if found else ""
    if found is None or not _is_loopback(host) or int(found["port"]) > 65_535:
        raise ValueError(
            'listen must be a loopback address with a port, such as "127.0.0.1:9341" or "[::1]:9341", or "unix:/path"'
        )
    return LoopbackAddress(host=host, port=int(found["port"]))


def _is_loopback(host: str) -> bool:
    """Whether a host is a number that only this machine reaches; names are not looked up."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
