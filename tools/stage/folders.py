"""Folders that have the same name on the host and in a root filesystem, removed at the latest by a later cluster."""

import fcntl
import shutil
import tempfile
from pathlib import Path
from typing import IO

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
