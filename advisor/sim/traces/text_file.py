"""Text files of traces: plain or gzip by what they hold, written whole or not at all; `-` is the standard stream."""

import errno
import gzip
import io
import sys
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final, TextIO

from advisor.errors import TraceError
from advisor.files import STANDARD_STREAM, opened, writing

# In characters, unpacked. The largest published traces have 2 GiB, in lines of some hundred characters.
MOST_TEXT: Final = 4 << 30
MOST_AT_ONCE: Final = 1 << 30
LONGEST_LINE: Final = 1 << 22

_GZIP_MAGIC = b"\x1f\x8b"


@contextmanager
def opened_text(path: Path) -> Iterator[TextIO]:
    """Open a text file for reading, unpacked; bytes that are no UTF-8 survive as lone surrogates.

    Raises `TraceError` for a file that is not there, not readable, damaged or larger than a trace is, also while the
    block reads from it.
    """
    try:
        raw = sys.stdin.buffer if path == STANDARD_STREAM else opened(path)
        try:
            packed = raw.peek(2)[:2] == _GZIP_MAGIC if isinstance(raw, io.BufferedReader) else False
            content: IO[bytes] | gzip.GzipFile = gzip.GzipFile(fileobj=raw) if packed else raw
            # Spreadsheets put a byte order mark in front.
            text = _BoundedText(content, encoding="utf-8-sig", errors="surrogateescape", newline="")
            try:
                yield text
            finally:
                text.detach()
        finally:
            if path != STANDARD_STREAM:
                raw.close()
    except FileNotFoundError as err:
        raise TraceError(f"{path}: no such file: check the path") from err
    except (EOFError, zlib.error, gzip.BadGzipFile) as err:
        raise TraceError(f"{path}: damaged gzip file ({err}): copy it again") from err
    except OSError as err:
        raise TraceError(f"{path}: cannot be read: {err.strerror or err}") from err


def write_text(path: Path, pieces: Iterable[str]) -> None:
    """Write pieces of text to a file, gzip where its name ends in .gz, equal bytes for equal text.

    A plain file appears whole or not at all and only its owner can read it, for it holds users' names. A closed pipe
    stays a `BrokenPipeError`; whatever else goes wrong is a `TraceError`.
    """
    try:
        with writing(path) as stream:
            _write(stream, pieces, packed=path.suffix == ".gz")
    except BrokenPipeError:
        raise
    except OSError as err:
        raise TraceError(f"{path}: cannot be written: {err.strerror or err}") from err
    except UnicodeEncodeError as err:
        raise TraceError(f"{path}: cannot be written: a name is not Unicode: {err.object[:40]!a}") from err


class _BoundedText(io.TextIOWrapper):
    """Text whose size is bounded while it is read: a few kilobytes can unpack to more than memory holds."""

    _length = 0

    def __next__(self) -> str:  # type: ignore[override]
        line = self.readline(LONGEST_LINE)
        if not line:
            raise StopIteration
        self._length += len(line)
        _check(len(line) < LONGEST_LINE and self._length <= MOST_TEXT)
        return line

    def read(self, size: int | None = -1, /) -> str:
        if size is not None and size >= 0:
            return super().read(size)
        text = super().read(MOST_AT_ONCE + 1)
        _check(len(text) <= MOST_AT_ONCE)
        return text


def _check(fits: bool) -> None:
    if not fits:
        raise OSError(errno.EFBIG, "it unpacks to more than a trace has, in one line or in all")


def _write(stream: IO[bytes], pieces: Iterable[str], *, packed: bool) -> None:
    encoded = (piece.encode("utf-8", "surrogateescape") for piece in pieces)
    if packed:
        with gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=stream, mtime=0) as pack:
            pack.writelines(encoded)
    else:
        stream.writelines(encoded)
