"""Serve metrics and health over HTTP, on loopback or a Unix socket, read only (decision record 0011)."""

import contextlib
import errno
import json
import os
import select
import socket
import stat
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import TCPServer, ThreadingMixIn
from typing import Any, Final, cast

from advisor.errors import ConfigError
from advisor.metrics.observer import CONTENT_TYPE, Metrics
from advisor.settings import LoopbackAddress, SocketFile, address_of
from advisor.site.lease_socket import in_thread

# Requests are a few hundred bytes and answers are ready at once; a client that needs longer is broken or hostile.
SLOWEST_S: Final = 5.0
MOST_CONNECTIONS: Final = 32
# A client has this long to go on before a newer connection may take its place.
SHORTEST_S: Final = 0.2
_LOOK_S: Final = 0.2
_CROWDED_LOOK_S: Final = 0.02
_SOCKET_MODE: Final = 0o660
_JSON: Final = "application/json"
_TEXT: Final = "text/plain; charset=utf-8"


@contextmanager
def served(listen: str, metrics: Metrics) -> Iterator[str]:
    """Serve requests while the block runs; yields the address, "" for none.

    Raises `ConfigError` where the address cannot be bound.
    """
    try:
        address = address_of(listen)
    except ValueError as err:
        raise ConfigError(f"metrics.{err}") from err
    if address is None:
        yield ""
        return
    server = _Server(metrics, address)
    with in_thread(server, "metrics"):
        yield server.place


class _Server(ThreadingMixIn, TCPServer):
    """Listens, and answers each request in a thread of its own.

    Of more than `MOST_CONNECTIONS`, the oldest whose client the server waits for is cut off, once it is `SHORTEST_S`
    old: a client that has sent its request and reads the answer is served, however busy the machine is.
    """

    allow_reuse_address = True
    daemon_threads = True
    # As many clients can connect at once without waiting for one another.
    request_queue_size = 1024
    # A slow client must not keep the daemon from ending.
    block_on_close = False

    def __init__(self, metrics: Metrics, address: LoopbackAddress | SocketFile) -> None:
        """Bind an address; raises `ConfigError` where it cannot be bound."""
        self.metrics = metrics
        self._path: Path | None = None
        self._inode = -1
        self._begun_by_connection: dict[socket.socket, float] = {}
        self._asked: set[socket.socket] = set()
        self._connections = threading.Condition()
        match address:
            case LoopbackAddress(host=host, port=port):
                self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
                bind_to: Any = (host, port)
                name = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            case SocketFile(path=path):
                self.address_family = socket.AF_UNIX
                self._path = Path(path)
                bind_to = path
                name = f"unix:{path}"
                clear_socket(self._path, "metrics.listen")
        try:
            super().__init__(bind_to, _Answer)
            if self._path is not None:
                self._path.chmod(_SOCKET_MODE)
                self._inode = self._path.stat().st_ino
        except OSError as err:
            busy = "another program listens there" if err.errno == errno.EADDRINUSE else err.strerror
            raise ConfigError(
                f"metrics.listen: {name}: {busy}: name another place, or set it to an empty text"
            ) from err
        self.place = name if isinstance(address, SocketFile) else f"{name.rpartition(':')[0]}:{self.server_address[1]}"

    def server_bind(self) -> None:
        """Bind the socket; its file has its mode from the moment it exists."""
        if self._path is not None:
            os.fchmod(self.socket.fileno(), _SOCKET_MODE)
        super().server_bind()

    def server_close(self) -> None:
        """Stop listening, and remove the socket file if it is still ours."""
        super().server_close()
        if self._path is not None:
            remove_own(self._path, self._inode)

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept a connection and note when; where there are too many, one is cut off first."""
        connection, client = super().get_request()
        with self._connections:
            while len(self._begun_by_connection) >= MOST_CONNECTIONS:
                _cut_off(self._idle()[:1])
                self._connections.wait(_CROWDED_LOOK_S)
            self._begun_by_connection[connection] = time.monotonic()
        return connection, client

    def _idle(self) -> list[socket.socket]:
        """Return the connections whose client the server waits for, and those older than `SLOWEST_S`, oldest first."""
        now = time.monotonic()
        waits = select.poll()
        # Input that is not read yet waits for the server, and so does an answer that the client has room for.
        for connection in self._begun_by_connection:
            waits.register(connection, select.POLLOUT if connection in self._asked else select.POLLIN)
        waiting = {descriptor for descriptor, _ in waits.poll(0)}
        return [
            connection
            for connection, begun in self._begun_by_connection.items()
            if now - begun > (SLOWEST_S if connection.fileno() in waiting else SHORTEST_S)
        ]

    def note_request(self, connection: socket.socket) -> None:
        """Note that a whole request has come."""
        with self._connections:
            self._asked.add(connection)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection."""
        with self._connections:
            self._begun_by_connection.pop(request, None)
            self._asked.discard(request)
            self._connections.notify()
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Shut down connections older than `SLOWEST_S`, also of clients that send a byte now and then."""
        now = time.monotonic()
        with self._connections:
            late = [connection for connection, begun in self._begun_by_connection.items() if now - begun > SLOWEST_S]
        _cut_off(late)

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore a client that went away: it harms no other client, and could fill the log."""


class _Answer(BaseHTTPRequestHandler):
    """Answers one request."""

    timeout = SLOWEST_S

    def do_GET(self) -> None:
        """Answer with the document at a path."""
        server = cast("_Server", self.server)
        server.note_request(self.connection)
        metrics = server.metrics
        match self.path.partition("?")[0]:
            case "/metrics":
                self._answer(HTTPStatus.OK, CONTENT_TYPE, metrics.exposition())
            case "/healthz":
                report = metrics.health.report()
                status = HTTPStatus.OK if report.is_well else HTTPStatus.SERVICE_UNAVAILABLE
                self._answer(status, _JSON, json.dumps(asdict(report)).encode() + b"\n")
            case _:
                self._answer(HTTPStatus.NOT_FOUND, _TEXT, b"not found: there are /metrics and /healthz\n")

    do_HEAD = do_GET  # noqa: N815  (the base class's)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:  # noqa: ARG002
        """Answer a bad request with a fixed text, which repeats nothing that the client sent."""
        # The base class answers 501 to a method that it finds no handler for.
        status = HTTPStatus.METHOD_NOT_ALLOWED if code == HTTPStatus.NOT_IMPLEMENTED else HTTPStatus(code)
        self._answer(status, _TEXT, f"{status.phrase.lower()}\n".encode())

    def version_string(self) -> str:
        """Return the name of the program, without a version."""
        return "sadvise"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (the base class's)
        """Log no requests: Prometheus asks every few seconds."""

    def _answer(self, status: HTTPStatus, content_type: str, body: bytes) -> None:
        self.close_connection = True
        self.send_response(status)
        if status is HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET, HEAD")
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _cut_off(connections: Iterable[socket.socket]) -> None:
    for connection in connections:
        with contextlib.suppress(OSError):  # gone by itself
            connection.shutdown(socket.SHUT_RDWR)


def clear_socket(path: Path, key: str) -> None:
    """Remove the socket file of an earlier process of this user.

    Raises `ConfigError`, which names the key of the setting, for anything else at the path.
    """
    try:
        status = path.lstat()
    except FileNotFoundError:
        return
    except OSError as err:
        raise ConfigError(f"{key}: {path}: {err.strerror}") from err
    if not stat.S_ISSOCK(status.st_mode) or status.st_uid != os.geteuid():
        raise ConfigError(f"{key}: {path} is there and is no socket of this user: name another path")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
        except OSError as err:
            raise ConfigError(f"{key}: {path}: {err.strerror or err}: name another path") from err
    raise ConfigError(f"{key}: {path}: another program listens there: stop it, or name another path")


def remove_own(path: Path, inode: int) -> None:
    """Remove a socket file if it is still the one with this inode."""
    with contextlib.suppress(FileNotFoundError):
        if path.lstat().st_ino == inode:
            path.unlink()
