"""What the service manager hears."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from advisor.daemon.notify import Notifier


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[socket.socket, str]]:
    """A socket that listens as systemd does, and its name."""
    name = str(tmp_path / "notify") if request.param == "path" else f"@sadvise-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(name.replace("@", "\0", 1) if name.startswith("@") else name)
        listening.settimeout(5.0)
        yield listening, name


def test_each_state_is_one_message(manager: tuple[socket.socket, str]) -> None:
    listening, name = manager
    notifier = Notifier({"NOTIFY_SOCKET": name})

    notifier.ready()
    notifier.reloading()
    notifier.alive()
    notifier.status("apply: 3 out\nREADY=1\x1b")
    notifier.stopping()
    heard = [listening.recv(4096).decode() for _ in range(5)]

    assert heard[0] == "READY=1"
    assert heard[1].startswith("RELOADING=1\nMONOTONIC_USEC=") and heard[1].rpartition("=")[2].isdecimal()
    assert heard[2:] == ["WATCHDOG=1", "STATUS=apply: 3 out READY=1 ", "STOPPING=1"]


@pytest.mark.parametrize("environ", [{}, {"NOTIFY_SOCKET": ""}, {"NOTIFY_SOCKET": "/nowhere/notify"}])
def test_nobody_listening_is_no_fault(environ: dict[str, str]) -> None:
    Notifier(environ).ready()


@pytest.mark.parametrize(
    ("environ", "interval_s"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "90000000"}, 90.0),
        ({"WATCHDOG_USEC": "90000000", "WATCHDOG_PID": str(os.getpid())}, 90.0),
        ({"WATCHDOG_USEC": "90000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
    ],
)
def test_watchdog_interval_is_that_of_this_process(environ: dict[str, str], interval_s: float | None) -> None:
    assert Notifier(environ).watchdog_s == interval_s
