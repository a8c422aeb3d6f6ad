"""The endpoint serves metrics and health in time to every client that reaches it, and accepts nothing."""

import http.client
import json
import os
import selectors
import socket
import stat
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import cast

import pytest
from prometheus_client.parser import text_string_to_metric_families

from advisor.clock import ManualClock
from advisor.errors import ConfigError
from advisor.metrics.observer import Metrics
from advisor.site import endpoint
from advisor.site.endpoint import MOST_CONNECTIONS, served
from tests.made_rounds import ROUND_S, make_round, step
from tests.promtool import promtool

__all__ = ["promtool"]

# A busy machine answers late.
ANSWER_S = 60.0


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def metrics(clock: ManualClock) -> Metrics:
    return Metrics(version="1.2.3", interval_s=ROUND_S, monotonic=clock.now)


@pytest.fixture
def place(metrics: Metrics) -> Iterator[str]:
    with served("127.0.0.1:0", metrics) as where:
        yield where


def ask(place: str, path: str, method: str = "GET") -> tuple[http.client.HTTPResponse, bytes]:
    """Send a request over TCP."""
    connection = http.client.HTTPConnection(place, timeout=ANSWER_S)
    connection.request(method, path)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer, body


def connected(place: str) -> socket.socket:
    """Open a connection over TCP or a socket file."""
    if place.startswith("unix:"):
        client = socket.socket(socket.AF_UNIX)
        client.settimeout(ANSWER_S)
        client.connect(place.removeprefix("unix:"))
        return client
    host, _, port = place.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=ANSWER_S)


def said_to(place: str, request: bytes) -> bytes:
    """Send raw bytes and return all that comes back."""
    with connected(place) as client:
        client.sendall(request)
        client.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: client.recv(65536), b""))


def test_a_scrape_gives_what_prometheus_reads(place: str, metrics: Metrics) -> None:
    metrics.observe(make_round(step()))

    answer, body = ask(place, "/metrics")

    names = {family.name for family in text_string_to_metric_families(body.decode())}
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert {"sadvise_cycles", "sadvise_cycle_duration_seconds"} <= names
    assert not any(name.startswith(("python_", "process_")) for name in names)


@pytest.mark.needs("promtool")
def test_promtool_finds_no_fault_with_a_scrape(place: str, metrics: Metrics, promtool: str) -> None:
    metrics.observe(make_round(step()))
    _, body = ask(place, "/metrics")

    checked = subprocess.run(
        [promtool, "check", "metrics"], input=body, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )

    assert (checked.returncode, checked.stdout.decode()) == (0, "")


def test_health_is_told_as_json(place: str, metrics: Metrics, clock: ManualClock) -> None:
    metrics.observe(make_round(step(), held_to={"paused": "by root"}))
    clock.time_s = 12.34

    answer, body = ask(place, "/healthz")

    assert (answer.status, answer.headers["Content-Type"]) == (200, "application/json")
    assert json.loads(body) == {
        "status": "ok",
        "last_cycle_age_s": 12.3,
        "mode": "apply",
        "paused": True,
        "breakers": [],
        "reader": "text",
        "fault": "",
        "held_to": {"paused": "by root"},
        "on_probation": {},
        "overdue": 0,
    }


def test_health_fails_when_no_cycle_has_been_good_lately(place: str, metrics: Metrics, clock: ManualClock) -> None:
    metrics.observe(make_round(step()))
    clock.time_s = 3 * ROUND_S + 1
    metrics.observe(make_round())

    answer, body = ask(place, "/healthz")

    assert (answer.status, json.loads(body)["status"]) == (503, "stale")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("HEAD", "/metrics", 200),
        ("HEAD", "/healthz", 200),
        ("GET", "/metrics?name=x", 200),
        ("GET", "/", 404),
        ("GET", "/metrics/", 404),
        ("GET", "/../etc/passwd", 404),
        ("POST", "/metrics", 405),
        ("PUT", "/healthz", 405),
        ("DELETE", "/metrics", 405),
        ("BREW", "/metrics", 405),
    ],
)
def test_only_two_paths_can_be_read_and_none_written(place: str, method: str, path: str, status: int) -> None:
    answer, body = ask(place, path, method)

    assert answer.status == status
    assert (method != "HEAD") or body == b""
    assert answer.headers.get("Allow") == ("GET, HEAD" if status == 405 else None)


@pytest.mark.parametrize(
    "request_bytes",
    [b"\x00\x01\x02\r\n\r\n", b"GET\r\n\r\n", b"<script> / HTTP/9\r\n\r\n", b"GET /" + b"a" * 70_000, b"\r\n\r\n", b""],
)
def test_what_is_no_request_is_not_sent_back(place: str, request_bytes: bytes) -> None:
    answer = said_to(place, request_bytes)

    status, _ = ask(place, "/healthz")
    assert b"script" not in answer and b"aaa" not in answer and b"Python" not in answer
    assert status.status == 200


def test_one_who_sends_too_slowly_is_cut_off(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "SLOWEST_S", 0.3)
    with connected(place) as client:
        begun = time.monotonic()
        ended = False
        while not ended and time.monotonic() - begun < ANSWER_S:
            try:
                client.sendall(b"G")
                time.sleep(0.05)
            except OSError:
                ended = True

    assert ended


IDLE = [
    pytest.param(b"", id="silent"),
    pytest.param(b"GET /metrics HTTP/1.1\r\nHo", id="half a request"),
    pytest.param(b"GET /metrics HTTP/1.1\r\n\r\n", id="reads nothing"),
]


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut off no slow client: a scrape on a busy machine is slow, and idle clients stay for as long."""
    monkeypatch.setattr(endpoint, "SLOWEST_S", ANSWER_S)


@pytest.mark.slow
@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("sent", IDLE)
@pytest.mark.parametrize("listen", ["127.0.0.1:0", "unix:{folder}/metrics.sock"], ids=["tcp", "unix"])
def test_idle_clients_cannot_shut_out_a_scrape(sent: bytes, listen: str, tmp_path: Path, metrics: Metrics) -> None:
    threads = threading.active_count()
    with served(listen.format(folder=tmp_path), metrics) as place, ExitStack() as held:
        for _ in range(200):
            client = held.enter_context(connected(place))
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            with suppress(OSError):  # cut off already
                client.sendall(sent)
        scrapes = [said_to(place, b"GET /metrics HTTP/1.0\r\n\r\n") for _ in range(5)]
        # The threads of connections that were cut off end in their own time.
        deadline = time.monotonic() + ANSWER_S
        while threading.active_count() - threads > MOST_CONNECTIONS + 2:
            assert time.monotonic() < deadline
            time.sleep(0.05)

    assert all(scrape.startswith(b"HTTP/1.0 200 OK") and b"sadvise_" in scrape for scrape in scrapes)


@pytest.mark.slow
@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("sent", IDLE)
def test_idle_clients_that_come_back_at_once_cannot_shut_out_a_scrape(sent: bytes, place: str) -> None:
    stop = threading.Event()
    idlers = threading.Thread(target=come_back, args=(place, sent, stop), daemon=True)
    idlers.start()
    time.sleep(1)
    try:
        scrapes = [ask(place, "/metrics")[0].status for _ in range(8)]
    finally:
        stop.set()
        idlers.join()

    assert scrapes == [200] * 8


def come_back(place: str, sent: bytes, stop: threading.Event) -> None:
    """Keep 200 connections that send something and wait; each that is cut off is opened again."""
    clients: set[socket.socket] = set()
    with selectors.DefaultSelector() as cut_off:
        while not stop.is_set():
            while len(clients) < 200:
                client = connected(place)
                clients.add(client)
                cut_off.register(client, selectors.EVENT_READ)
                with suppress(OSError):
                    client.sendall(sent)
            for key, _ in cut_off.select(timeout=0.1):
                client = cast("socket.socket", key.fileobj)
                cut_off.unregister(client)
                clients.discard(client)
                client.close()
        for client in clients:
            client.close()


def test_the_oldest_connection_makes_way_for_one_too_many(place: str) -> None:
    with ExitStack() as held:
        first, *_ = (held.enter_context(connected(place)) for _ in range(MOST_CONNECTIONS + 1))

        assert first.recv(100) == b""
        assert ask(place, "/healthz")[0].status == 200


def test_the_end_does_not_wait_for_a_client(metrics: Metrics) -> None:
    with served("127.0.0.1:0", metrics) as place:
        client = connected(place)
        client.sendall(b"GET /")
        time.sleep(0.3)  # until it is taken in
        begun = time.monotonic()
    took_s = time.monotonic() - begun
    client.close()

    assert took_s < 2
    assert not any(thread.name == "metrics" for thread in threading.enumerate())


def test_nothing_listens_where_nothing_is_asked_for(metrics: Metrics) -> None:
    with served("", metrics) as place:
        threads = [thread.name for thread in threading.enumerate()]

    assert place == ""
    assert "metrics" not in threads


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_a_socket_file_is_open_to_its_group_and_goes_with_the_daemon(
    umask: int, tmp_path: Path, metrics: Metrics
) -> None:
    path = tmp_path / "metrics.sock"
    before = os.umask(umask)

    with served(f"unix:{path}", metrics) as place:
        os.umask(before)
        mode = stat.S_IMODE(path.stat().st_mode)
        answer = said_to(place, b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")

    assert mode == 0o660
    assert answer.startswith(b"HTTP/1.0 200 OK")
    assert not path.exists()


def test_a_socket_file_is_open_to_no_others_from_the_moment_it_is_there(
    tmp_path: Path, metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "metrics.sock"
    monkeypatch.setattr(Path, "chmod", lambda _path, _mode: None)
    before = os.umask(0)

    with served(f"unix:{path}", metrics):
        os.umask(before)
        mode = stat.S_IMODE(path.stat().st_mode)

    assert mode == 0o660


def test_a_socket_that_a_killed_daemon_left_is_replaced(tmp_path: Path, metrics: Metrics) -> None:
    path = tmp_path / "metrics.sock"
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(path))

    with served(f"unix:{path}", metrics) as place:
        answer = said_to(place, b"HEAD /healthz HTTP/1.0\r\n\r\n")

    assert b"200 OK" in answer


def test_a_socket_that_another_serves_is_left_alone(tmp_path: Path, metrics: Metrics) -> None:
    path = tmp_path / "metrics.sock"
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen()

        with pytest.raises(ConfigError, match=r"^metrics\.listen: .*another program listens there"):
            served(f"unix:{path}", metrics).__enter__()

        assert path.is_socket()


def test_a_socket_of_a_server_that_hangs_is_left_alone(tmp_path: Path, metrics: Metrics) -> None:
    path = tmp_path / "metrics.sock"
    with socket.socket(socket.AF_UNIX) as other, ExitStack() as held:
        other.bind(str(path))
        other.listen(0)
        held.enter_context(connected(f"unix:{path}"))

        with pytest.raises(ConfigError, match=r"^metrics\.listen: .*Resource temporarily unavailable"):
            served(f"unix:{path}", metrics).__enter__()

        assert path.is_socket()


def test_a_file_that_is_no_socket_is_left_alone(tmp_path: Path, metrics: Metrics) -> None:
    path = tmp_path / "metrics.sock"
    path.write_text("precious")

    with pytest.raises(ConfigError, match="no socket of this user"):
        served(f"unix:{path}", metrics).__enter__()

    assert path.read_text() == "precious"


def test_a_socket_of_somebody_else_is_left_alone(
    tmp_path: Path, metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "metrics.sock"
    with socket.socket(socket.AF_UNIX) as theirs:
        theirs.bind(str(path))
    monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)

    with pytest.raises(ConfigError, match="no socket of this user"):
        served(f"unix:{path}", metrics).__enter__()

    assert path.is_socket()


def test_a_new_socket_in_our_place_stays(tmp_path: Path, metrics: Metrics) -> None:
    path = tmp_path / "metrics.sock"

    with served(f"unix:{path}", metrics), socket.socket(socket.AF_UNIX) as successor:
        path.rename(tmp_path / "old.sock")
        successor.bind(str(path))

    assert path.is_socket()


@pytest.mark.parametrize(
    ("listen", "why"),
    [
        ("0.0.0.0:1", r"^metrics\.listen must be a loopback address"),
        ("unix:/nowhere/metrics.sock", r"^metrics\.listen: unix:/nowhere/metrics\.sock: No such file"),
        ("unix:/dev/null/metrics.sock", r"^metrics\.listen: /dev/null/metrics\.sock: Not a directory"),
    ],
)
def test_a_place_that_is_not_to_be_had_is_one_line_with_its_key(listen: str, why: str, metrics: Metrics) -> None:
    with pytest.raises(ConfigError, match=why) as raised:
        served(listen, metrics).__enter__()

    assert "\n" not in str(raised.value)


def test_a_port_in_use_is_one_line_with_its_key(place: str, metrics: Metrics) -> None:
    with pytest.raises(ConfigError, match=r"^metrics\.listen: 127\.0\.0\.1:\d+: another program listens there"):
        served(place, metrics).__enter__()


@pytest.mark.needs("IPv6")
def test_ipv6_serves_as_well(metrics: Metrics) -> None:
    with served("[::1]:0", metrics) as place:
        answer, _ = ask(place, "/healthz")

    assert answer.status == 200
