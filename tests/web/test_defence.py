"""What the OWASP list asks of a web application that shows other people's text; SECURITY.md names these tests."""

import contextlib
import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from flask.testing import FlaskClient

from advisor.errors import ConfigError
from advisor.settings import WebSettings
from advisor.web import listener
from advisor.web.content import Content
from advisor.web.defence import HEADERS, LARGEST_FORM_BYTES
from advisor.web.listener import bound
from tests.web.conftest import client_of
from tests.web.stage import serving

EVERYWHERE = ("/", "/line", "/api/v1/line", "/static/web.css", "/assets/charts.js", "/nothing", "/api/v1/nothing")


@pytest.mark.parametrize("path", EVERYWHERE)
def test_every_answer_has_the_headers(client: FlaskClient, path: str) -> None:
    answer = client.get(path, buffered=True)

    assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS
    assert not any(name.startswith("Access-Control") for name, _ in answer.headers)
    assert "Set-Cookie" not in answer.headers


def test_policy_allows_nothing_inline(client: FlaskClient) -> None:
    policy = dict(part.strip().split(" ", 1) for part in HEADERS["Content-Security-Policy"].split(";"))

    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == policy["form-action"] == "'self'"
    assert policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert "unsafe" not in HEADERS["Content-Security-Policy"]


@pytest.mark.parametrize("path", ["/", "/line", "/advice", "/gains", "/frontier"])
def test_pages_hold_no_inline_script_or_style(client: FlaskClient, path: str) -> None:
    page = client.get(path).text

    assert page.count("<script") == page.count("<script src=") + page.count('<script type="application/json"')
    assert "<style" not in page and " style=" not in page and " onclick=" not in page


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST:9342", 200),
        ("127.0.0.1:9342", 200),
        ("[::1]:9342", 200),
        ("evil.example", 421),
        ("localhost.evil.example", 421),
        ("localhost@evil.example", 421),
        ("", 421),
    ],
)
def test_only_known_hosts_are_answered(client: FlaskClient, host: str, status: int) -> None:
    assert client.get("/api/v1/status", headers={"Host": host}).status_code == status


def test_site_names_the_host_of_its_proxy(stage_content: Content) -> None:
    stage_content.config = replace(stage_content.config, web=WebSettings(hosts="portal.example.org, other"))
    client = client_of(stage_content)

    answers = [
        client.get("/daemon", headers={"Host": host}).status_code for host in ("portal.example.org", "other:80", "x")
    ]

    assert answers == [200, 200, 421]


@pytest.fixture
def stage_content(content: Content) -> Iterator[Content]:
    before = content.config
    yield content
    content.config = before


@pytest.mark.parametrize(
    "path",
    [
        "/static/../templates/base.html",
        "/static/..%2ftemplates/base.html",
        "/static/%2e%2e/%2e%2e/settings.py",
        "/assets/..%2fassets.py",
        "/assets/README.md",
        "/static//etc/passwd",
        "/jobs/../../etc/passwd",
    ],
)
def test_no_path_leads_out_of_the_folders(client: FlaskClient, path: str) -> None:
    assert client.get(path).status_code in (308, 404)


def test_fault_of_ours_shows_no_trace(content: Content, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_job_id: int) -> None:
        raise ZeroDivisionError("secret")

    monkeypatch.setattr(content, "explained", fail)
    job_id = content.view().line[0].job_id
    answers = [client_of(content).get(f"{prefix}/jobs/{job_id}") for prefix in ("", "/api/v1")]

    assert [answer.status_code for answer in answers] == [500, 500]
    assert not any("secret" in answer.text or "Traceback" in answer.text for answer in answers)


def test_refusals_repeat_nothing_that_was_sent(client: FlaskClient) -> None:
    answers = [
        client.get("/<script>alert(1)</script>"),
        client.get("/", headers={"Host": "<script>alert(1)</script>"}),
        client.get("/line?page=<script>alert(1)</script>&sort=<script>alert(1)</script>"),
    ]

    assert not any("<script>alert" in answer.text for answer in answers)


def ask(address: object, request: bytes) -> bytes:
    """Send bytes and return the whole answer."""
    family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as client:
        client.settimeout(30.0)
        client.connect(address)  # type: ignore[arg-type]
        client.sendall(request)
        answer = b""
        # What the server does not read of a request that is too large ends in a reset.
        with contextlib.suppress(ConnectionResetError):
            while chunk := client.recv(65_536):
                answer += chunk
        return answer


GET = b"GET /api/v1/status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


def test_slow_and_greedy_clients_keep_nobody_out(content: Content) -> None:
    with serving(content, WebSettings(listen="127.0.0.1:0")) as address:
        assert isinstance(address, tuple)
        slow = [socket.create_connection(address[:2]) for _ in range(50)]
        try:
            for client in slow:
                client.sendall(b"GET / HTTP/1.1\r\nHost: local")
            begun = time.monotonic()
            answer = ask(address, GET)
            waited_s = time.monotonic() - begun
            long_head = ask(address, b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 20_000 + b"\r\n\r\n")
            body = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (LARGEST_FORM_BYTES + 1)
            large = ask(address, body + b"x" * (LARGEST_FORM_BYTES + 1))
        finally:
            for client in slow:
                client.close()

    assert answer.startswith(b"HTTP/1.1 200 OK") and b"Server: sadvise" in answer
    assert waited_s < 10.0
    assert long_head[9:12] in (b"431", b"") and large[9:12] in (b"413", b"")


def test_more_dripping_clients_than_connections_shut_nobody_out(content: Content) -> None:
    with serving(content, WebSettings(listen="127.0.0.1:0")) as address, contextlib.ExitStack() as stack:
        assert isinstance(address, tuple)
        slow = [stack.enter_context(socket.create_connection(address[:2])) for _ in range(250)]
        waited_s = []
        for _ in range(3):
            for client in slow:
                # Those that gave way are closed.
                with contextlib.suppress(OSError):
                    client.sendall(b"G")
            begun = time.monotonic()
            assert ask(address, GET).startswith(b"HTTP/1.1 200 OK")
            waited_s.append(time.monotonic() - begun)

    assert max(waited_s) < 5.0


def test_clients_of_another_source_keep_their_connections(content: Content) -> None:
    with serving(content, WebSettings(listen="127.0.0.1:0")) as address, contextlib.ExitStack() as stack:
        assert isinstance(address, tuple)
        other = stack.enter_context(socket.create_connection(address[:2], source_address=("127.0.0.2", 0)))
        other.sendall(GET[:20])
        time.sleep(0.5)
        for _ in range(150):
            stack.enter_context(socket.create_connection(address[:2])).sendall(b"GET ")
        time.sleep(1.0)
        other.sendall(GET[20:])
        other.settimeout(10.0)
        answer = other.recv(1000)

    assert answer.startswith(b"HTTP/1.1 200 OK")


def test_request_that_drips_is_cut_off_at_a_deadline(content: Content, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "LONGEST_WAIT_S", 1.0)
    with serving(content, WebSettings(listen="127.0.0.1:0")) as address:
        assert isinstance(address, tuple)
        with socket.create_connection(address[:2]) as client:
            client.settimeout(0.3)
            begun, answer = time.monotonic(), b"none"
            while answer and time.monotonic() - begun < 20.0:
                try:
                    client.sendall(b"G")
                    answer = client.recv(10)
                except TimeoutError:
                    continue
                except OSError:
                    answer = b""
            cut_off_s = time.monotonic() - begun

    assert 1.0 <= cut_off_s < 10.0


def test_underscores_and_repeated_headers_forge_no_user(content: Content, tmp_path: Path) -> None:
    settings = WebSettings(listen=f"unix:{tmp_path}/web.sock", user_header="X-Remote-User")
    held = content.config
    content.config = replace(held, web=settings)
    try:
        with serving(content, settings) as address:
            heads = [b"X_Remote_User: root", b"X-Remote-User: root\r\nX-Remote-User: ann", b"X-Remote-User: ann"]
            answers = [
                ask(address, b"GET /daemon HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n%s\r\n\r\n" % head)
                for head in heads
            ]
            mode = Path(f"{tmp_path}/web.sock").stat().st_mode & 0o777
    finally:
        content.config = held

    assert [b"signed in as" in answer for answer in answers] == [False, False, True]
    assert mode == 0o660
    assert not (tmp_path / "web.sock").exists()


def test_prefix_is_part_of_every_address(content: Content) -> None:
    with serving(content, WebSettings(listen="127.0.0.1:0", prefix="/sadvise")) as address:
        answer = ask(address, GET.replace(b"/api/v1/status", b"/sadvise/daemon"))

    assert b'href="/sadvise/line"' in answer and b'src="/sadvise/static/web.js' in answer


def test_taken_address_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "web.sock"
    path.write_text("no socket")
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = f"127.0.0.1:{other.getsockname()[1]}"
        with (
            pytest.raises(ConfigError, match=r"web\.listen: .*Address already in use"),
            bound(WebSettings(listen=taken)),
        ):
            pass
    with (
        pytest.raises(ConfigError, match="is there and is no socket of this user"),
        bound(WebSettings(listen=f"unix:{path}")),
    ):
        pass

    assert path.read_text() == "no socket"
