"""What the service manager hears."""

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from advisor.daemon.run import Notifier


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


def queue_limit() -> int:
    """Return how many messages the kernel queues for one socket before it takes no more."""
    return int(Path("/proc/sys/net/unix/max_dgram_qlen").read_text())


def waiting(listening: socket.socket) -> list[str]:
    """Read the messages that wait in a socket."""
    messages = []
    listening.setblocking(False)
    while True:
        try:
            messages.append(listening.recv(4096).decode())
        except BlockingIOError:
            return messages


def test_sends_to_a_service_manager_that_does_not_read_return_at_once_and_are_counted(
    manager: tuple[socket.socket, str],
) -> None:
    listening, name = manager
    notifier = Notifier({"NOTIFY_SOCKET": name})
    count = queue_limit() + 50

    begun = time.monotonic()
    for _ in range(count):
        notifier.alive()
    took_s = time.monotonic() - begun

    assert took_s < 5.0
    assert notifier.dropped == count - len(waiting(listening)) >= 49


def test_latest_state_is_kept_until_the_service_manager_takes_it(manager: tuple[socket.socket, str]) -> None:
    listening, name = manager
    notifier = Notifier({"NOTIFY_SOCKET": name})
    while not notifier.dropped:
        notifier.alive()

    notifier.ready()
    notifier.stopping()
    notifier.alive()
    notifier.resend()
    dropped = notifier.dropped
    waiting(listening)
    notifier.resend()
    notifier.resend()
    notifier.alive()

    # Dropped since the queue was full: the first WATCHDOG, the READY that STOPPING replaced, the second WATCHDOG.
    assert dropped == notifier.dropped == 3
    assert waiting(listening) == ["STOPPING=1", "WATCHDOG=1"]


def test_a_state_that_was_not_taken_goes_before_the_next_message(manager: tuple[socket.socket, str]) -> None:
    listening, name = manager
    notifier = Notifier({"NOTIFY_SOCKET": name})
    while not notifier.dropped:
        notifier.alive()
    notifier.ready()

    waiting(listening)
    notifier.status("apply: 3 out")

    assert waiting(listening) == ["READY=1", "STATUS=apply: 3 out"]


@pytest.mark.parametrize(("environ", "dropped"), [({}, 0), ({"NOTIFY_SOCKET": "/nowhere/notify"}, 1)])
def test_only_what_was_addressed_to_a_service_manager_counts_as_dropped(environ: dict[str, str], dropped: int) -> None:
    notifier = Notifier(environ)

    notifier.alive()

    assert notifier.dropped == dropped


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
