"""Show users the leases of jobs over a Unix socket: every connection gets one JSON document, and nothing is read."""

import contextlib
import grp
import os
import pwd
import socket
import stat
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from socketserver import BaseRequestHandler, BaseServer, ThreadingMixIn, UnixStreamServer
from typing import Any, Final, cast

from advisor.errors import JournalError
from advisor.journal.disclosure import Disclosure, disclosure_of

NAME: Final = "leases.sock"
# A document is ready at once, so that a client that takes longer than this is broken or hostile.
SLOWEST_S: Final = 2.0
MOST_CONNECTIONS: Final = 32
MOST_OF_ONE_USER: Final = 4
LARGEST_BYTES: Final = 64 << 20
_LOOK_S: Final = 0.2
_EVERYONE: Final = 0o666
_CREDENTIALS: Final = struct.Struct("3i")


class LeaseWindow:
    """Holds what the last round left, and says how much of it a user sees."""

    def __init__(self) -> None:
        # A disclosure and the documents made of it, replaced together.
        self._made: tuple[Disclosure | None, dict[str | None, bytes]] = (None, {})

    def show(self, disclosure: Disclosure) -> None:
        """Show another disclosure from now on."""
        self._made = disclosure, {}

    def content(self, uid: int) -> bytes:
        """Return the document for a user; empty before the first round.

        Where users do not see each other's jobs, only root, the daemon's own user and the members of its group see
        those of others.
        """
        disclosure, contents = self._made
        if disclosure is None:
            return b""
        user = None if not disclosure.hides_jobs or _is_trusted(uid) else _name_of(uid)
        if user not in contents:
            contents[user] = (disclosure if user is None else disclosure.of(user)).to_json()
        return contents[user]


@contextmanager
def shown(window: LeaseWindow, folder: Path) -> Iterator[str]:
    """Serve a window at `folder` while the block runs; yields why that is not possible, "" if it is.

    The caller holds the lock of the folder, so that a socket there is that of an earlier daemon.
    """
    path = folder / NAME
    try:
        if path.exists() and stat.S_ISSOCK(path.lstat().st_mode):
            path.unlink()
        server = _Server(window, path)
    except OSError as err:
        yield f"{path}: {err.strerror or err}"
        return
    try:
        with in_thread(server, "leases"):
            yield ""
    finally:
        path.unlink(missing_ok=True)


@contextmanager
def in_thread(server: BaseServer, name: str) -> Iterator[None]:
    """Serve in a thread of that name while the block runs."""
    thread = threading.Thread(target=server.serve_forever, args=(_LOOK_S,), name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def asked(folder: Path) -> Disclosure:
    """Ask the daemon at `folder` for the leases that this user sees; raises `JournalError` if none answers."""
    content, until = bytearray(), time.monotonic() + SLOWEST_S
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.settimeout(SLOWEST_S)
            client.connect(str(folder / NAME))
            while chunk := client.recv(1 << 16):
                content += chunk
                if len(content) > LARGEST_BYTES or time.monotonic() > until:
                    raise JournalError(f"{folder / NAME}: the daemon's answer is too long or too slow: try again")
    except OSError as err:
        raise JournalError(f"{folder / NAME}: no daemon answers: {err.strerror or err}") from err
    if not content:
        raise JournalError(f"{folder / NAME}: the daemon has no answer yet: try again after its first round")
    return disclosure_of(bytes(content))


class _Server(ThreadingMixIn, UnixStreamServer):
    """Answers each connection in a thread of its own, a few at a time for each user."""

    daemon_threads = True
    # A slow client must not keep the daemon from ending.
    block_on_close = False

    def __init__(self, window: LeaseWindow, path: Path) -> None:
        """Bind a path; raises `OSError`."""
        self.window = window
        self._uid_by_connection: dict[Any, int] = {}
        self._connections = threading.Lock()
        super().__init__(str(path), _Answer)
        try:
            path.chmod(_EVERYONE)
        except OSError:
            self.server_close()
            raise

    def verify_request(self, request: Any, client_address: Any) -> bool:  # noqa: ARG002  (the base class's)
        """Return whether a connection is within the limits; others are closed."""
        uid = uid_of(request)
        with self._connections:
            of_user = Counter(self._uid_by_connection.values())[uid]
            if len(self._uid_by_connection) >= MOST_CONNECTIONS or of_user >= MOST_OF_ONE_USER:
                return False
            self._uid_by_connection[request] = uid
            return True

    def shutdown_request(self, request: Any) -> None:
        """Close a connection."""
        with self._connections:
            self._uid_by_connection.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a client that went away: it harms no other client, and could fill the log."""


class _Answer(BaseRequestHandler):
    """Answers one connection."""

    def handle(self) -> None:
        """Send the document; the timeout bounds all of it."""
        window = cast("_Server", self.server).window
        self.request.settimeout(SLOWEST_S)
        self.request.sendall(window.content(uid_of(self.request)))


def uid_of(connection: socket.socket) -> int:
    """Return the user at the other end of a Unix socket, as the kernel knows it."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(credentials)[1])


def _is_trusted(uid: int) -> bool:
    """Return whether a user is root, the one who runs this process, or a member of its group."""
    if uid in (0, os.geteuid()):
        return True
    with contextlib.suppress(KeyError):
        return _name_of(uid) in grp.getgrgid(os.getegid()).gr_mem
    return False


def _name_of(uid: int) -> str:
    """Return the name of a user, "" for one who has none and therefore no jobs."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return ""
