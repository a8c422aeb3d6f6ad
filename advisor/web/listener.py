"""Serves the application with waitress, on loopback or a Unix socket."""

import logging
import os
import signal
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final

from flask import Flask
from waitress.channel import HTTPChannel
from waitress.server import create_server

from advisor.errors import ConfigError
from advisor.settings import LoopbackAddress, SocketFile, WebSettings, address_of
from advisor.site.endpoint import clear_socket, remove_own
from advisor.web.defence import LARGEST_FORM_BYTES

# Limits of waitress: a browser keeps six connections, and a proxy as many as it likes.
_LIMITS: Final[dict[str, Any]] = {
    "threads": 4,
    "connection_limit": 200,
    "channel_timeout": 30,
    "cleanup_interval": 5,
    "max_request_header_size": 16_384,
    "max_request_body_size": LARGEST_FORM_BYTES,
    "channel_request_lookahead": 0,
    "clear_untrusted_proxy_headers": True,
    "ident": "sadvise",
}
# Of more connections on which nothing is served, the oldest of the source with the most of them is closed.
MOST_WAITING: Final = 100
# Time for a whole request from the connection or the last answer on, and for a whole answer to be taken.
LONGEST_WAIT_S: Final = 30.0
_SOCKET_MODE: Final = 0o660
_BACKLOG: Final = 128


def serve_until_stopped(app: Flask, settings: WebSettings, ready: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT; `ready` is given the address as soon as it is bound.

    Raises `ConfigError` where the address cannot be bound.
    """
    with bound(settings) as (listening, place):
        server = server_of(app, listening, settings)

        def stop(_number: int, _frame: FrameType | None) -> None:
            raise SystemExit(0)

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, stop)
        logging.getLogger("waitress").setLevel(logging.WARNING)
        ready(place)
        try:
            server.run()
        finally:
            server.close()


def server_of(app: Flask, listening: socket.socket, settings: WebSettings) -> Any:
    """Return a server of waitress on a bound socket, with the limits of the web view."""
    server = create_server(app, sockets=[listening], url_prefix=settings.prefix, **_LIMITS)
    server.channel_class = _Connection
    return server


class _Connection(HTTPChannel):  # type: ignore[misc]  # waitress has no types
    """A connection that gives way to newer ones while nothing is served on it, however it drips."""

    def __init__(self, server: Any, sock: socket.socket, addr: Any, adj: Any, map: Any = None) -> None:  # noqa: A002
        """Take a connection that was accepted, and close the one that has to give way."""
        super().__init__(server, sock, addr, adj, map=map)
        self.waits_since = time.monotonic()
        self._give_way([other for other in server.active_channels.values() if not other.is_served])

    @staticmethod
    def _give_way(waiting: "Sequence[_Connection]") -> None:
        if len(waiting) <= MOST_WAITING:
            return
        held_by_source = Counter(other.source for other in waiting)
        oldest = min(waiting, key=lambda other: (-held_by_source[other.source], other.waits_since))
        oldest.will_close = True

    @property
    def source(self) -> str:
        """The address that the connection comes from; all of a socket file come from one."""
        return str(self.addr[0])

    @property
    def is_served(self) -> bool:
        """Whether a request of this connection is answered now, or the connection is about to be closed."""
        return bool(self.requests or self.will_close)

    def service(self) -> None:
        """Answer the requests that have come in whole; time counts from then on."""
        super().service()
        self.waits_since = time.monotonic()

    def readable(self) -> bool:
        """Return whether more can be read; a connection that takes too long is closed."""
        if not self.is_served and time.monotonic() - self.waits_since > LONGEST_WAIT_S:
            self.will_close = True
        return bool(super().readable())


@contextmanager
def bound(settings: WebSettings) -> Iterator[tuple[socket.socket, str]]:
    """Bind the address of the settings while the block runs; yields the socket and the address for people."""
    match address_of(settings.listen):
        case LoopbackAddress(host=host, port=port):
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            with socket.socket(family, socket.SOCK_STREAM) as listening:
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                _bind(listening, (host, port), settings.listen)
                name = f"[{host}]" if ":" in host else host
                yield listening, f"http://{name}:{listening.getsockname()[1]}{settings.prefix}/"
        case SocketFile(path=path):
            clear_socket(Path(path), "web.listen")
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
                # The file has its mode from the moment it exists: who can connect is who the proxy is.
                os.fchmod(listening.fileno(), _SOCKET_MODE)
                _bind(listening, path, settings.listen)
                inode = Path(path).stat().st_ino
                Path(path).chmod(_SOCKET_MODE)
                try:
                    yield listening, settings.listen
                finally:
                    remove_own(Path(path), inode)
        case None:
            raise ConfigError("web.listen is empty: name an address")


def _bind(listening: socket.socket, address: Any, listen: str) -> None:
    try:
        listening.bind(address)
        listening.listen(_BACKLOG)
    except OSError as err:
        raise ConfigError(f"web.listen: {listen}: {err.strerror}: name another address, or stop what uses it") from err
