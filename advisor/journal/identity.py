"""Recognises the files of a journal: whether those at its path are the ones that were used last, and as they were."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class FileState:
    """One file; `changed_time_ns` is when its content or its name was last changed, which no program can set."""

    device: int
    inode: int
    size: int
    changed_time_ns: int

    def is_file(self, other: "FileState | None") -> bool:
        """Return whether another state is of the same file."""
        return other is not None and (self.device, self.inode) == (other.device, other.inode)


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalFiles:
    """The file of a journal and its write-ahead log; None for one that is not there."""

    database: FileState | None
    log: FileState | None

    def is_same(self, other: "JournalFiles") -> bool:
        """Return whether every file that is there is the same one in `other`."""
        pairs = ((self.database, other.database), (self.log, other.log))
        return all(mine is None or mine.is_file(theirs) for mine, theirs in pairs)


def files_of(path: Path) -> JournalFiles:
    """Return the files of a journal as they are now; raises `OSError` if they cannot be looked at."""
    return JournalFiles(database=_state(path), log=_state(path.with_name(f"{path.name}-wal")))


def _state(path: Path) -> FileState | None:
    try:
        seen = path.stat()
    except FileNotFoundError:
        return None
    return FileState(device=seen.st_dev, inode=seen.st_ino, size=seen.st_size, changed_time_ns=seen.st_ctime_ns)
