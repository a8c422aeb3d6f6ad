"""Reserves for one test cluster a folder and TCP ports that no other one on this machine has.

The folder has the same name on the host and in a root filesystem, and is removed at the latest by a later cluster.
"""

import fcntl
import shutil
import socket
import tempfile
from pathlib import Path
from typing import IO

from tools.stage.roots import LiveSlurmError

# Short, because a socket's path has little room, and the same on the host and in every root filesystem.
PARENT = Path("/tmp")  # noqa: S108 -- mkdtemp chooses the name below it
PREFIX = "sadvise-slurm-"
OWNER = "owner"


class SharedFolder:
    """A folder of one cluster: `path` is its name everywhere, `inner` its real place as the host sees it."""

    def __init__(self, root: Path) -> None:
        _sweep()
        self.inner = Path(tempfile.mkdtemp(prefix=PREFIX, dir=root / PARENT.relative_to("/")))
        # munged and the users of jobs read it.
        self.inner.chmod(0o755)
        self.path = PARENT / self.inner.name
        self._owner = _own(self.inner)
        if root != Path("/"):
            self.path.symlink_to(self.inner)

    def remove(self) -> None:
        """Remove the folder under both its names."""
        _remove(self.path)
        self._owner.close()


def _own(folder: Path) -> IO[str]:
    """Lock a file in the folder for as long as this process lives; it gets its name only once it is locked."""
    handle = (folder / f"{OWNER}.new").open("w")
    fcntl.flock(handle, fcntl.LOCK_EX)
    (folder / f"{OWNER}.new").rename(folder / OWNER)
    return handle


def _sweep() -> None:
    """Remove the folders of clusters whose process was killed."""
    for owner in PARENT.glob(f"{PREFIX}*/{OWNER}"):
        try:
            with owner.open("r") as handle:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(owner.parent)
        except OSError:
            # Somebody holds it, or was quicker.
            continue


def _remove(path: Path) -> None:
    real = path.resolve()
    if path.is_symlink():
        path.unlink()
    shutil.rmtree(real, ignore_errors=True)


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
