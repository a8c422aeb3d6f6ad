"""Blocks of TCP ports that no other test cluster on this machine uses."""

import fcntl
import socket
from typing import IO

from tools.stage.folders import PARENT, PREFIX
from tools.stage.live_slurm_error import LiveSlurmError

# Below the range from which the kernel hands out ports for outgoing connections.
FIRST_PORT, LAST_PORT = 18000, 32000
# Ports are reserved by this many at once.
STEP = 32


class PortBlock:
    """Consecutive free ports, reserved by file locks until released or until this process ends."""

    def __init__(self, count: int) -> None:
        self._held: list[IO[str]] = []
        for start in range(FIRST_PORT, LAST_PORT, STEP):
            lock = _reserve(start)
            if lock is None:
                self.release()
                continue
            self._held.append(lock)
            if len(self._held) * STEP >= count:
                first_port = start + STEP - len(self._held) * STEP
                self.ports = range(first_port, first_port + count)
                return
        self.release()
        raise LiveSlurmError(f"no {count} consecutive free ports between {FIRST_PORT} and {LAST_PORT}")

    def release(self) -> None:
        """Give the ports back."""
        for lock in self._held:
            lock.close()
        self._held.clear()


def _reserve(start: int) -> IO[str] | None:
    """Lock the ports from `start` on; None if another cluster has them or a program listens on one."""
    folder = PARENT / f"{PREFIX}ports"
    folder.mkdir(exist_ok=True)
    lock = (folder / str(start)).open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for port in range(start, start + STEP):
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(("127.0.0.1", port))
    except OSError:
        lock.close()
        return None
    return lock
