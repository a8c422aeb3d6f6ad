"""Tells the service manager how the daemon is: ready, reloading, alive, stopping."""

import os
import socket
import threading
import time
from collections.abc import Mapping
from typing import Final

from advisor.text import blanked

_STATUS_LENGTH: Final = 200


class Notifier:
    """Sends states over the socket that systemd names in NOTIFY_SOCKET; does nothing where there is none.

    No method blocks. A message that the service manager does not take at once is dropped and counted. The exception is
    the latest READY, RELOADING or STOPPING: it is kept and sent before the next message, because systemd ends a unit
    that never reports READY.
    """

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        """Take the socket and the watchdog's interval from the environment."""
        self._address = environ.get("NOTIFY_SOCKET", "")
        self.watchdog_s = _watchdog_s(environ)
        # The main thread, the rounds and the heartbeat all send.
        self._lock = threading.Lock()
        self._unsent_state: str | None = None
        self._dropped = 0

    @property
    def dropped(self) -> int:
        """The number of messages that were dropped; the state that is kept for another attempt is not among them."""
        return self._dropped

    def ready(self) -> None:
        """Report that the daemon is up, or that a reload is done."""
        self._send_state("READY=1")

    def reloading(self) -> None:
        """Report that a reload of the configuration begins."""
        self._send_state(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        """Report that the daemon ends."""
        self._send_state("STOPPING=1")

    def alive(self) -> None:
        """Feed the watchdog; called only by the worker that runs the rounds."""
        self._send("WATCHDOG=1")

    def status(self, text: str) -> None:
        """Set the line that `systemctl status` shows."""
        self._send(f"STATUS={blanked(text)[:_STATUS_LENGTH]}")

    def resend(self) -> None:
        """Try to send the kept state, if there is one."""
        with self._lock:
            self._sent_kept_state()

    def _send_state(self, state: str) -> None:
        """Send a state, or keep it in place of an older one."""
        with self._lock:
            if self._unsent_state is not None:
                self._dropped += 1
            self._unsent_state = state
            self._sent_kept_state()

    def _send(self, message: str) -> None:
        """Send a message after the state that is kept; drop it if either does not go out."""
        with self._lock:
            if not (self._sent_kept_state() and self._sent(message)):
                self._dropped += 1

    def _sent_kept_state(self) -> bool:
        """Send the kept state; return whether none is kept now. The caller holds the lock."""
        if self._unsent_state is not None and self._sent(self._unsent_state):
            self._unsent_state = None
        return self._unsent_state is None

    def _sent(self, message: str) -> bool:
        """Send a message without blocking; return whether it went out."""
        if not self._address:
            return True
        # A leading @ stands for the zero byte of an abstract socket.
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as out:
                # The kernel queues net.unix.max_dgram_qlen messages; with more than that a blocking send waits for the
                # reader, and a service manager that does not read is no reason to stop advising.
                out.setblocking(False)
                out.sendto(message.encode(), address)
        except OSError:
            return False
        return True


def _watchdog_s(environ: Mapping[str, str]) -> float | None:
    """Return the watchdog's timeout in seconds; None if systemd does not watch this process."""
    pid, interval_us = environ.get("WATCHDOG_PID", ""), environ.get("WATCHDOG_USEC", "")
    if not interval_us.isdecimal() or (pid and pid != str(os.getpid())):
        return None
    return int(interval_us) / 1e6 or None
