"""Snapshot files: one cluster at one instant as versioned JSON, plain or gzip.

A snapshot file can come from another site, another release or a broken copy. Every field is checked, and every error is
one line that says what to do.
"""

import gzip
import sys
import zlib
from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import replace
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import IO, Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, ValidationError
from pydantic_core import CoreSchema, ErrorDetails, PydanticSerializationError
from pydantic_core.core_schema import no_info_after_validator_function

from advisor import __version__
from advisor.domain.snapshot import Snapshot
from advisor.errors import SnapshotFileError
from advisor.files import STANDARD_STREAM, check_json, opened, writing
from advisor.text import named

FORMAT_VERSION: Final = 1
SIZE_LIMIT_BYTES = 1 << 30

_CHUNK_BYTES = 1 << 20
_GZIP_MAGIC = b"\x1f\x8b"
_LONGEST_NAME = 40
_TAKE_ANOTHER = "write one with `sadvise snapshot`"
# The fields of a job in which many are equal.
_SHARED = ("gang", "hints")


class _QuickCheck:
    """Ends the check of a sequence at its first bad item, so that a million of them cost no more than one.

    Jobs share equal requests and hints, as those of other readers do.
    """

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return the schema of a value in which every sequence is checked in this way."""
        schema = handler(source)
        _check_quickly(schema, handler)
        return schema


def _check_quickly(schema: Any, handler: GetCoreSchemaHandler) -> None:
    if isinstance(schema, list):
        for part in schema:
            _check_quickly(part, handler)
    elif isinstance(schema, dict):
        if schema.get("type") == "definition-ref":
            _check_quickly(handler.resolve_ref_schema(schema), handler)
            return
        if schema.get("type") == "tuple":
            schema["fail_fast"] = True
        for part in schema.values():
            _check_quickly(part, handler)
        if schema.get("name") in _SHARED and schema.get("type") == "dataclass-field":
            checked = schema["schema"] if schema["schema"]["type"] == "default" else schema
            checked["schema"] = no_info_after_validator_function(_shared, checked["schema"])


@lru_cache(4096)
def _shared(value: Hashable) -> Hashable:
    return value


class SnapshotFile(BaseModel):
    """A snapshot as it stands in a file; docs/snapshot.schema.json is made from this model."""

    model_config = ConfigDict(
        strict=True,
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
        # What is written is checked as strictly as what is read, so that every written file can be read.
        revalidate_instances="always",
        defer_build=True,
    )

    format: Literal["sadvise.snapshot"] = "sadvise.snapshot"
    version: Literal[1] = FORMAT_VERSION
    tool_version: str
    snapshot: Annotated[Snapshot, _QuickCheck()]


class _Header(BaseModel):
    """The part of a snapshot file that every version has."""

    format: str = ""
    version: int = 0
    tool_version: str = "?"


class SnapshotFileSource:
    """A cluster that is read from a snapshot file, the shipped demonstration included."""

    def __init__(self, path: Path, *, name: str = "file") -> None:
        self._path = path
        self._name = name

    @property
    def name(self) -> str:
        """The reader's name, file or demo."""
        return self._name

    def snapshot(self) -> Snapshot:
        """Read the file."""
        return read_snapshot(self._path)


def read_snapshot(path: Path, *, limit_bytes: int = SIZE_LIMIT_BYTES) -> Snapshot:
    """Read a snapshot file, gzip or plain by what it holds; `-` is standard input.

    Raises `SnapshotFileError` for whatever is not a whole, valid snapshot of this format and version.
    """
    try:
        content = _content(path, limit_bytes)
    except FileNotFoundError as err:
        raise SnapshotFileError(f"{path}: no such file: check the path, or {_TAKE_ANOTHER}") from err
    except (EOFError, zlib.error, gzip.BadGzipFile) as err:
        raise SnapshotFileError(f"{path}: damaged gzip file ({err}): copy it again, or {_TAKE_ANOTHER}") from err
    except OSError as err:
        raise SnapshotFileError(f"{path}: cannot be read: {err.strerror}") from err
    if not content or content.isspace():
        raise SnapshotFileError(f"{path}: is empty: {_TAKE_ANOTHER}")
    if b"\0" in content[:_CHUNK_BYTES]:
        raise SnapshotFileError(f"{path}: holds binary data, not a snapshot: {_TAKE_ANOTHER}")
    try:
        check_json(content)
    except ValueError as err:
        raise SnapshotFileError(f"{path}: is nested too deeply for a snapshot: {_TAKE_ANOTHER}") from err
    try:
        snapshot = SnapshotFile.model_validate_json(content).snapshot
    except ValidationError as err:
        raise SnapshotFileError(f"{path}: {_complaint(content, err)}") from err
    twice = _named_twice(snapshot)
    if twice is not None:
        raise SnapshotFileError(f"{path}: {twice} stands twice: {_TAKE_ANOTHER}")
    return snapshot


def write_snapshot(snapshot: Snapshot, path: Path) -> None:
    """Write a snapshot file, gzip where the name ends in .gz; `-` is standard output.

    A plain file is written atomically and readable only by its owner, since it contains users' names. Equal snapshots
    give equal bytes. A closed pipe raises `BrokenPipeError`.
    """
    content = _encoded(snapshot, path)
    if path.suffix == ".gz":
        content = gzip.compress(content, compresslevel=6, mtime=0)
    try:
        with writing(path) as stream:
            stream.write(content)
    except BrokenPipeError:
        raise
    except OSError as err:
        raise SnapshotFileError(f"{path}: cannot be written: {err.strerror}") from err


def _content(path: Path, limit_bytes: int) -> bytes:
    """Return the bytes of a file, unpacked."""
    if path == STANDARD_STREAM:
        content = _limited(sys.stdin.buffer, path, limit_bytes)
    else:
        with opened(path) as stream:
            # Refuses a large file before any of it is in memory.
            _check_size(path, path.stat().st_size, limit_bytes)
            content = _limited(stream, path, limit_bytes)
    if not content.startswith(_GZIP_MAGIC):
        return content
    with gzip.GzipFile(fileobj=BytesIO(content)) as packed:
        return _limited(packed, path, limit_bytes)


def _limited(stream: IO[bytes] | gzip.GzipFile, path: Path, limit_bytes: int) -> bytes:
    content = bytearray()
    while chunk := stream.read(_CHUNK_BYTES):
        content += chunk
        _check_size(path, len(content), limit_bytes)
    return bytes(content)


def _check_size(path: Path, size_bytes: int, limit_bytes: int) -> None:
    if size_bytes > limit_bytes:
        raise SnapshotFileError(f"{path}: is larger than {limit_bytes} bytes, so it is no snapshot: {_TAKE_ANOTHER}")


def _complaint(content: bytes, err: ValidationError) -> str:
    """Say in one line what is wrong with the content."""
    first = err.errors()[0]
    if first["type"] == "json_invalid":
        fault = str(first.get("ctx", {})["error"])
        if fault.startswith("EOF"):
            return f"is cut short ({fault}): copy it again, or {_TAKE_ANOTHER}"
        return f"is not JSON ({fault}): {_TAKE_ANOTHER}"
    try:
        header = _Header.model_validate_json(content)
    except ValidationError:
        header = _Header()
    if header.format != "sadvise.snapshot":
        return f"is JSON but not a snapshot of sadvise: {_TAKE_ANOTHER}"
    version = named(header.tool_version, longest=_LONGEST_NAME)
    if header.version > FORMAT_VERSION:
        return (
            f"written by sadvise {version} with format version {header.version}; "
            f"this sadvise reads {FORMAT_VERSION}: upgrade sadvise"
        )
    writer = "" if header.tool_version == __version__ else f" (written by sadvise {version})"
    return f"{_fault(first)}{writer}: mend it, or {_TAKE_ANOTHER}"


def _fault(error: ErrorDetails) -> str:
    """Name the wrong field by its path, and what is wrong with it."""
    steps = [
        f"[{step}]" if isinstance(step, int) else f".{named(step, longest=_LONGEST_NAME)}" for step in error["loc"]
    ]
    unknown = error["type"] in {"extra_forbidden", "unexpected_keyword_argument"}
    message = "no such field" if unknown else error["msg"].removeprefix("Value error, ")
    return f"{''.join(steps).removeprefix('.')}: {message}"


def _named_twice(snapshot: Snapshot) -> str | None:
    """Name a job, node or partition that stands in the snapshot more than once."""
    names_by_kind: dict[str, Iterable[int | str]] = {
        "job": (job.job_id for job in snapshot.jobs),
        "node": (node.name for node in snapshot.nodes),
        "partition": (partition.name for partition in snapshot.partitions),
    }
    for kind, names in names_by_kind.items():
        name, count = next(iter(Counter(names).most_common(1)), ("", 0))
        if count > 1:
            return f"{kind} {named(str(name), longest=_LONGEST_NAME)}"
    return None


def _encoded(snapshot: Snapshot, path: Path) -> bytes:
    config = replace(
        snapshot.config,
        scheduler_parameters=dict(sorted(snapshot.config.scheduler_parameters.items())),
        priority_weights=dict(sorted(snapshot.config.priority_weights.items())),
    )
    try:
        file = SnapshotFile(tool_version=__version__, snapshot=replace(snapshot, config=config))
        return file.model_dump_json().encode() + b"\n"
    except ValidationError as err:
        fault = _fault(err.errors()[0])
        raise SnapshotFileError(f"{path}: cannot be written: {fault}") from err
    except PydanticSerializationError as err:
        raise SnapshotFileError(f"{path}: cannot be written: a text is not Unicode ({err})") from err
