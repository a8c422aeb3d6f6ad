"""Tells the service manager how the daemon is: ready, reloading, alive, stopping."""

import contextlib
import os
import socket
import time
from collections.abc import Mapping
from typing import Final

_STATUS_LENGTH: Final = 200


class Notifier:
    """Sends states over the socket that systemd names in NOTIFY_SOCKET; does nothing where there is none."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        """Take the socket and the watchdog's interval from the environment."""
        self._address = environ.get("NOTIFY_SOCKET", "")
        self.watchdog_s = _watchdog_s(environ)

    def ready(self) -> None:
        """Say that the daemon is up, or that a reload is done."""
        self._send("READY=1")

    def reloading(self) -> None:
        """Say that the configuration is being read anew."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        """Say that the daemon ends."""
        self._send("STOPPING=1")

    def alive(self) -> None:
        """Feed the watchdog; only what does the work may call this."""
        self._send("WATCHDOG=1")

    def status(self, text: str) -> None:
        """Say in one line what `systemctl status` shows."""
        shown = "".join(char if char.isprintable() else " " for char in text)[:_STATUS_LENGTH]
        self._send(f"STATUS={shown}")

    def _send(self, state: str) -> None:
        if not self._address:
            return
        # A leading @ stands for the zero byte of an abstract socket.
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        # A service manager that does not listen is no reason to stop advising.
        with (
            contextlib.suppress(OSError),
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as out,
        ):
            out.sendto(state.encode(), address)


def _watchdog_s(environ: Mapping[str, str]) -> float | None:
    """Return the time after which systemd takes silence for death; None where it does not watch this process."""
    pid, interval_us = environ.get("WATCHDOG_PID", ""), environ.get("WATCHDOG_USEC", "")
    if not interval_us.isdecimal() or (pid and pid != str(os.getpid())):
        return None
    return int(interval_us) / 1e6 or None
