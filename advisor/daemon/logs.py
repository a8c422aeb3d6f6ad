"""Logs of the daemon: one event, one line, to stderr, whatever the values hold."""

import contextlib
import json
import logging
import os
import sys
import threading
from collections.abc import Callable, Mapping, MutableMapping
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, TextIO

import structlog
from structlog.typing import EventDict

Level = Literal["debug", "info", "warning", "error"]
Layout = Literal["auto", "logfmt", "json"]

# As syslog counts; journald reads the number at the start of a line.
_PRIORITIES: Final[Mapping[str, int]] = {"debug": 7, "info": 6, "warning": 4, "error": 3, "critical": 2}
# Libraries may log at levels of their own between these.
_LEVELS: Final = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL)
# Longer values are cut: a line must not grow beyond what journald takes as one.
_LONGEST_VALUE: Final = 1000
_MOST_FRAMES: Final = 12
# Libraries tell of every job they run; that is for who asks for it.
_TALKATIVE: Final = ("apscheduler",)


def configure_logs(
    level: Level = "info",
    layout: Layout = "auto",
    *,
    stream: TextIO | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Any:
    """Send every event of this process to stderr, those of the standard library's loggers too; return the log.

    "auto" means readable lines on a terminal and logfmt elsewhere. Under journald a line begins with its priority in
    place of the time, which journald knows itself.
    """
    out = sys.stderr if stream is None else stream
    journald = _is_journal(out, environ)
    least = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(
        processors=[
            structlog.stdlib.add_log_level,
            *([] if journald else [structlog.processors.TimeStamper(fmt="iso", utc=True, key="time")]),
            _with_exception,
            _line_of(layout, journald=journald, terminal=out.isatty()),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(least),
        logger_factory=lambda *_: _Lines(out),
        cache_logger_on_first_use=False,
    )
    root = logging.getLogger()
    root.handlers = [_Forwarder()]
    root.setLevel(least)
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(least if level == "debug" else max(least, logging.WARNING))
    logging.captureWarnings(capture=True)
    return structlog.get_logger()


def escaped(text: str) -> str:
    """Return a text with everything spelled out that ends a line, drives a terminal or reorders what is read."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape", "backslashreplace").decode("ascii")
        for char in text
    )


class _Lines:
    """Writes lines to a stream, each at once and whole."""

    _lock = threading.Lock()

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def msg(self, line: str) -> None:
        """Write a line; the method names of the levels lead here too."""
        # Where the log cannot be written there is no place left to say so, and the daemon must go on.
        with self._lock, contextlib.suppress(OSError, ValueError):
            self._stream.write(f"{line}\n")
            self._stream.flush()

    debug = info = warning = error = critical = exception = log = msg


class _Forwarder(logging.Handler):
    """Hands what libraries log on to where our own events go."""

    def emit(self, record: logging.LogRecord) -> None:
        """Log a record as an event, under the name of its logger."""
        try:
            text = record.getMessage()
        except (TypeError, ValueError) as err:  # the library's own mistake, which must not cost us the record
            text = f"{record.msg} ({err})"
        known = max((number for number in _LEVELS if number <= record.levelno), default=logging.DEBUG)
        structlog.get_logger().log(known, text, logger=record.name, exc_info=record.exc_info)


def _is_journal(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Whether a stream is the one that journald reads; the variable alone is also seen by what a service starts."""
    named = environ.get("JOURNAL_STREAM", "")
    try:
        found = os.fstat(stream.fileno())
    except (OSError, ValueError):  # no file stands behind it
        return False
    return named == f"{found.st_dev}:{found.st_ino}"


def _with_exception(_log: object, _method: str, event: EventDict) -> EventDict:
    """Say in two fields what was raised, and through which calls, the innermost last."""
    told = event.pop("exc_info", None)
    found = sys.exc_info() if told is True else told
    error = found[1] if isinstance(found, tuple) else found
    if isinstance(error, BaseException):
        event["exception"] = _chain(error)
        event["where"] = _frames(error.__traceback__)
    return event


def _chain(error: BaseException) -> str:
    said = [f"{type(error).__name__}: {error}"]
    cause = error.__cause__
    while cause is not None and len(said) < _MOST_FRAMES:
        said.append(f"{type(cause).__name__}: {cause}")
        cause = cause.__cause__
    return " from ".join(said)


def _frames(trace: TracebackType | None) -> str:
    frames = []
    while trace is not None:
        code = trace.tb_frame.f_code
        frames.append(f"{Path(code.co_filename).name}:{trace.tb_lineno} {code.co_name}")
        trace = trace.tb_next
    return " > ".join(frames[-_MOST_FRAMES:])


def _line_of(layout: Layout, *, journald: bool, terminal: bool) -> Callable[[object, str, EventDict], str]:
    """Return what makes a line of an event."""
    write = _json_line if layout == "json" else _readable if layout == "auto" and terminal else _logfmt

    def line(_log: object, _method: str, event: EventDict) -> str:
        if not journald:
            return write(event)
        return f"<{_PRIORITIES.get(str(event['level']), 5)}>{write(event)}"

    return line


def _text(value: object) -> str:
    text = f"{value:.10g}" if isinstance(value, float) else str(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."


def _field(name: object, value: object) -> str:
    text = _text(value)
    if not text or not text.isprintable() or any(char in ' ="\\' for char in text):
        quoted = text.replace("\\", "\\\\").replace('"', '\\"')
        text = f'"{escaped(quoted)}"'
    # Names are ours, but for what a library passes on.
    return f"{escaped(str(name)).replace(' ', '_')}={text}"


def _ordered(event: MutableMapping[str, Any]) -> dict[str, Any]:
    """Put the fields that every line has first."""
    first = {name: event.pop(name) for name in ("time", "level", "event") if name in event}
    return {**first, **event}


def _logfmt(event: MutableMapping[str, Any]) -> str:
    return " ".join(_field(name, value) for name, value in _ordered(event).items())


def _json_line(event: MutableMapping[str, Any]) -> str:
    plain = {
        str(name): value if isinstance(value, bool | int | None) else _number(value)
        for name, value in _ordered(event).items()
    }
    return json.dumps(plain)  # escapes all that is not plain ASCII


def _number(value: object) -> object:
    """Return a finite number as it stands, and all else as text; JSON knows no other numbers."""
    return value if isinstance(value, float) and abs(value) < float("inf") else _text(value)


def _readable(event: MutableMapping[str, Any]) -> str:
    fields = _ordered(event)
    time, level, said = str(fields.pop("time", "")), fields.pop("level", ""), fields.pop("event", "")
    local = datetime.fromisoformat(time).astimezone() if time else None
    shown = f"{local:%H:%M:%S} " if local else ""
    return " ".join(
        [f"{shown}{level:<7} {escaped(_text(said))}", *(_field(name, value) for name, value in fields.items())]
    )
