"""Blocks of TCP ports that no other test cluster on this machine uses."""

import fcntl
import socket
import tempfile
from pathlib import Path
from typing import IO

from tools.live_slurm.errors import LiveSlurmError

# Below the range from which the kernel hands out ports for outgoing connections.
FIRST_PORT, LAST_PORT = 18000, 32000


class PortBlock:
    """Consecutive free ports, reserved by a file lock until released or until this process ends."""

    def __init__(self, count: int) -> None:
        folder = Path(tempfile.gettempdir()) / "sadvise-slurm-ports"
        folder.mkdir(exist_ok=True)
        step = 32
        held: list[IO[str]] = []
        for start in range(FIRST_PORT, LAST_PORT, step):
            lock = (folder / str(start)).open("w")
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                free = all(_is_free(port) for port in range(start, start + step))
            except OSError:
                free = False
            if not free:
                lock.close()
                _close(held)
                continue
            held.append(lock)
            if len(held) * step >= count:
                self._held = held
                first = start + step - len(held) * step
                self.ports = range(first, first + count)
                return
        _close(held)
        raise LiveSlurmError(f"no {count} consecutive free ports between {FIRST_PORT} and {LAST_PORT}")

    def release(self) -> None:
        """Give the ports back."""
        _close(self._held)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _close(locks: list[IO[str]]) -> None:
    for lock in locks:
        lock.close()
    locks.clear()
