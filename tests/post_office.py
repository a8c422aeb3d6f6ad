"""A real mail server, programs that hand mails to it as `sendmail` does, and a real web server."""

import json
import sys
import threading
import time
from asyncio import Server
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, Envelope, Session

# What a sendmail does: its recipients are arguments after --, and it speaks SMTP with the server.
_SENDMAIL = """#!{python}
import smtplib, sys
arguments = sys.argv[1:]
sender, recipients = arguments[arguments.index("-f") + 1], arguments[arguments.index("--") + 1 :]
try:
    with smtplib.SMTP("127.0.0.1", {port}, timeout=10) as server:
        server.sendmail(sender, recipients, sys.stdin.buffer.read().replace(b"\\n", b"\\r\\n"))
except (OSError, smtplib.SMTPException) as err:
    sys.exit(f"sendmail: {{err}}")
"""


@dataclass
class PostOffice:
    """A mail server on loopback, and what it received; it refuses recipients named in `unknown`."""

    port: int = 0
    envelopes: list[Envelope] = field(default_factory=list)
    unknown: frozenset[str] = frozenset()

    async def handle_RCPT(  # noqa: N802  (the library's)
        self, _server: SMTP, _session: Session, envelope: Envelope, address: str, _options: list[str]
    ) -> str:
        if address in self.unknown:
            return "550 no such user"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, _server: SMTP, _session: Session, envelope: Envelope) -> str:  # noqa: N802
        self.envelopes.append(envelope)
        return "250 OK"

    @property
    def mails(self) -> list[EmailMessage]:
        """The mails that came."""
        return [message_from_bytes(bytes(envelope.content or b""), policy=default) for envelope in self.envelopes]  # type: ignore[arg-type]

    def sendmail(self, folder: Path) -> Path:
        """Write a program that hands mails to this server."""
        return _program(folder / "sendmail", _SENDMAIL.format(python=sys.executable, port=self.port))

    def msmtp(self, folder: Path, program: Path) -> Path:
        """Write a program that hands mails to this server by msmtp."""
        settings = folder / "msmtprc"
        settings.write_text(f"account default\nhost 127.0.0.1\nport {self.port}\nallow_from_override on\n")
        settings.chmod(0o600)
        return _program(folder / "msmtp", f'#!/bin/sh\nexec {program} -C {settings} "$@"\n')


class _AnyPort(Controller):
    """Listens on a free port, and knows which."""

    def _trigger_server(self) -> None:
        assert isinstance(self.server, Server)
        self.port = self.server.sockets[0].getsockname()[1]
        super()._trigger_server()  # type: ignore[no-untyped-call]


@contextmanager
def post_office() -> Iterator[PostOffice]:
    """Run a mail server while the block runs."""
    office = PostOffice()
    controller = _AnyPort(office, hostname="127.0.0.1", port=0, enable_SMTPUTF8=True)
    controller.start()
    try:
        office.port = controller.port
        yield office
    finally:
        controller.stop()


@dataclass
class Hook:
    """A web server on loopback that answers posts as it is told, and what it received."""

    url: str = ""
    documents: list[dict[str, Any]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    answer: Callable[[BaseHTTPRequestHandler], None] = lambda handler: answered(handler, 200)


def answered(handler: BaseHTTPRequestHandler, status: int, location: str = "") -> None:
    """Answer a request with a status."""
    handler.send_response(status)
    if location:
        handler.send_header("Location", location)
    handler.send_header("Content-Length", "0")
    handler.end_headers()


def dripping(handler: BaseHTTPRequestHandler, *, until: threading.Event) -> None:
    """Answer a byte now and then, so that no single read takes long."""
    handler.wfile.write(b"HTTP/1.0 200 OK\r\nX-Slow: ")
    while not until.wait(0.2):
        try:
            handler.wfile.write(b"a")
            handler.wfile.flush()
        except OSError:
            return


@contextmanager
def web_server() -> Iterator[Hook]:
    """Run a web server while the block runs."""
    hook = Hook()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            hook.paths.append(self.path)
            hook.documents.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            hook.answer(self)

        def do_GET(self) -> None:
            hook.paths.append(f"GET {self.path}")
            answered(self, 200)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    hook.url = f"http://127.0.0.1:{server.server_address[1]}/hook/secret-token"
    try:
        yield hook
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def eventually(holds: Callable[[], object], *, within_s: float = 20.0) -> None:
    """Wait until something holds; fail if it does not in time."""
    until = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.02)


def _program(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o700)
    return path


__all__ = ["Hook", "PostOffice", "answered", "dripping", "eventually", "post_office", "web_server"]
