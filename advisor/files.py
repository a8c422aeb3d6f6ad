"""Files that appear whole or not at all, also after a crash, and those of others, read within bounds."""

import errno
import os
import re
import secrets
import stat
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedIOBase, BufferedReader
from itertools import accumulate
from pathlib import Path
from typing import IO, Any, Final

OWNER_ONLY: Final = 0o600
# What everyone can read whatever the umask is, and the folders that lead there.
EVERYONE: Final = 0o644
OWNER_AND_GROUP: Final = 0o640
_FOLDER: Final = 0o755
# Stands for standard input or output on a command line.
STANDARD_STREAM: Final = Path("-")
# What a shell gives a command to read from.
_DESCRIPTORS: Final = ("/dev/fd/", "/dev/stdin", "/proc/self/fd/")
# Brackets of TOML inside of one another, and dots in one line. No file of sadvise has a third of either.
DEEPEST: Final = 32

_NO_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
_JSON_TEXT: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
# A snapshot has one bracket for a dozen bytes.
_FEW_BRACKETS: Final = 10_000
_MOST_BRACKETS: Final = 0.25
_BRACKET: Final = re.compile(r"[\[\]{}]")


@contextmanager
def replacing(path: Path, *, mode: int = OWNER_ONLY) -> Iterator[IO[bytes]]:
    """Open a binary stream whose content replaces the file at `path` once the block ends without an exception.

    The content is on the disk before it gets the name. The file has its mode whatever the umask is. Raises `OSError`.
    """
    temporary = path.with_name(f".sadvise-{secrets.token_hex(8)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with open(descriptor, "wb") as stream:  # noqa: PTH123  (a descriptor)
            os.fchmod(descriptor, mode)
            yield stream
            stream.flush()
            os.fsync(descriptor)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def replace_file(path: Path, content: bytes, *, mode: int = OWNER_ONLY) -> None:
    """Replace the file at `path` by `content`, as `replacing` does."""
    with replacing(path, mode=mode) as stream:
        stream.write(content)


def read_bounded(path: Path, limit_bytes: int) -> bytes:
    """Read a whole file; raises `OSError`, also for one above the limit, of which no more than that is read."""
    with opened(path) as stream:
        return bounded(stream, limit_bytes)


def opened(path: Path) -> BufferedReader:
    """Open a file for reading; raises `OSError`, also for a named pipe, which would be waited for without a word.

    The pipes of a shell, as `<(zcat file.gz)`, have a writer and are read.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    stream = open(descriptor, "rb")  # noqa: PTH123, SIM115  (a descriptor; the caller closes it)
    if stat.S_ISFIFO(os.fstat(descriptor).st_mode) and not str(path).startswith(_DESCRIPTORS):
        stream.close()
        raise OSError(errno.EINVAL, "it is a pipe and no file: give - and its content on standard input")
    os.set_blocking(descriptor, True)
    return stream


def is_closed(path: Path) -> bool:
    """Return whether this user is not permitted to read a file that can be there."""
    try:
        with opened(path):
            return False
    except PermissionError:
        return True
    except OSError:
        return False


def bounded(stream: BufferedIOBase, limit_bytes: int) -> bytes:
    """Return all bytes of a stream; raises `OSError` where there are more than the limit."""
    content = stream.read(limit_bytes + 1)
    if len(content) > limit_bytes:
        raise OSError(errno.EFBIG, f"it is larger than {limit_bytes} bytes")
    return content


def parse_toml(text: str) -> dict[str, Any]:
    """Return the tables of a text; raises `ValueError` where it is no TOML, or nested too deeply.

    Brackets and dots count inside of texts and comments too, so that nothing has to be parsed to count them: the time
    and the stack that the parser needs grow faster than the nesting.
    """
    depths = accumulate(1 if bracket in "[{" else -1 for bracket in _BRACKET.findall(text))
    if max(depths, default=0) > DEEPEST or any(line.count(".") > DEEPEST for line in text.splitlines()):
        raise ValueError(f"nested more than {DEEPEST} deep: write its brackets and dotted keys flat")
    return tomllib.loads(text)


def check_json(content: bytes) -> None:
    """Raise `ValueError` for JSON that is nested too deeply, or is hardly more than brackets.

    A parser needs a hundred bytes and more for each of them. Brackets inside of texts do not count.
    """
    if _is_mostly_brackets(content) and _is_mostly_brackets(_JSON_TEXT.sub(b"", content)):
        raise ValueError(f"nested more than {DEEPEST} deep, or more brackets than content")


def _is_mostly_brackets(content: bytes) -> bool:
    brackets = content.translate(None, delete=_NO_BRACKETS)
    if len(brackets) > _FEW_BRACKETS and len(brackets) > len(content) * _MOST_BRACKETS:
        return True
    # Each turn takes away the innermost of them; those of a file that was cut short have no end.
    for _ in range(DEEPEST):
        brackets, before = brackets.replace(b"[]", b"").replace(b"{}", b""), len(brackets)
        if len(brackets) == before:
            break
    return len(brackets) > DEEPEST


def make_open_folder(folder: Path) -> None:
    """Make a folder, with those above it that are missing, that everyone can enter whatever the umask is."""
    if not folder.is_dir():
        make_open_folder(folder.parent)
        folder.mkdir()
        folder.chmod(_FOLDER)


@contextmanager
def writing(path: Path) -> Iterator[IO[bytes]]:
    """Open a binary stream to what a user names: standard output for `-`, else a file that only its owner can read.

    A plain file is replaced as a whole. Links, pipes and devices are written in place: renaming over one would replace
    it, and following a link by hand would step round the kernel's protection of shared folders. Raises `OSError`.
    """
    if path == STANDARD_STREAM:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
    elif path.is_symlink() or (path.exists() and not path.is_file()):
        with path.open("wb") as stream:
            if path.is_file():
                path.chmod(OWNER_ONLY)
            yield stream
    else:
        with replacing(path) as stream:
            yield stream


def _sync_folder(folder: Path) -> None:
    """Write a folder's entries to the disk, where the folder can be read and its file system knows how."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
