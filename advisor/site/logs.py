"""Write the events of the daemon to stderr, one line each, whatever the values hold."""

import contextlib
import logging
import math
import os
import select
import sys
import threading
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, TextIO

import structlog
from structlog.typing import EventDict, Processor

from advisor.text import escaped

Level = Literal["debug", "info", "warning", "error"]
Layout = Literal["auto", "logfmt", "json"]

# As syslog counts; journald reads the number at the start of a line.
_PRIORITIES: Final[Mapping[str, int]] = {"debug": 7, "info": 6, "warning": 4, "error": 3, "critical": 2}
# Libraries can log at levels of their own between these.
_LEVELS: Final = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL)
# Longer values are cut, since journald splits lines that are too long.
_LONGEST_VALUE: Final = 1000
_MOST_FRAMES: Final = 12
# How long a stream that takes nothing is waited for; the lines after that are left out until it takes more.
_PATIENCE_S: Final = 1.0
# A pipe that takes anything takes a page, and a character has four bytes or fewer.
_PIECE: Final = select.PIPE_BUF // 4
# These libraries log every job that they run, which is wanted at level debug only.
_TALKATIVE: Final = ("apscheduler",)


def configure_logs(
    level: Level = "info",
    layout: Layout = "auto",
    *,
    stream: TextIO | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Any:
    """Send every event of this process to stderr, also from loggers of the standard library; return the log.

    "auto" means readable lines on a terminal and logfmt elsewhere. Under journald a line begins with its priority in
    place of the time, which journald knows itself.
    """
    out = sys.stderr if stream is None else stream
    journald = _is_journal(out, environ)
    least = logging.getLevelNamesMapping()[level.upper()]
    lines = _Lines(out)
    structlog.configure(
        processors=[
            structlog.stdlib.add_log_level,
            *([] if journald else [structlog.processors.TimeStamper(fmt="iso", utc=True, key="time")]),
            _with_exception,
            _in_order,
            *_renderers(layout, terminal=out.isatty()),
            *([_with_priority] if journald else []),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(least),
        logger_factory=lambda *_: lines,
        cache_logger_on_first_use=False,
    )
    root = logging.getLogger()
    root.handlers = [_Forwarder()]
    root.setLevel(least)
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(least if level == "debug" else max(least, logging.WARNING))
    logging.captureWarnings(capture=True)
    return structlog.get_logger()


class _Lines:
    """Writes lines to a stream, each at once and whole, and leaves out what the stream does not take."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self._is_stuck = False
        self._is_cut = False

    def msg(self, line: str) -> None:
        """Write a line; the methods named after levels are aliases of this one."""
        # There is no other place to report that the log cannot be written, and the daemon must go on.
        with self._lock, contextlib.suppress(OSError, ValueError):
            text = f"\n{line}\n" if self._is_cut else f"{line}\n"
            for start in range(0, len(text), _PIECE):
                self._is_stuck = not _takes_more(self._stream, 0.0 if self._is_stuck else _PATIENCE_S)
                self._is_cut = self._is_stuck and (self._is_cut or start > 0)
                if self._is_stuck:
                    return
                self._stream.write(text[start : start + _PIECE])
                self._stream.flush()

    debug = info = warning = error = critical = exception = log = msg


def _takes_more(stream: TextIO, wait_s: float) -> bool:
    """Return whether a stream takes more without blocking, now or within a time."""
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError):  # no file stands behind it
        return True
    return bool(select.select([], [descriptor], [], wait_s)[1])


class _Forwarder(logging.Handler):
    """Logs the records of libraries as events."""

    def emit(self, record: logging.LogRecord) -> None:
        """Log a record as an event, under the name of its logger."""
        try:
            text = record.getMessage()
        except (TypeError, ValueError) as err:  # the library's own mistake, which must not cost us the record
            text = f"{record.msg} ({err})"
        known = max((number for number in _LEVELS if number <= record.levelno), default=logging.DEBUG)
        structlog.get_logger().log(known, text, logger=record.name, exc_info=record.exc_info)


def _is_journal(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Return whether journald reads a stream; child processes inherit the variable, so it alone is no proof."""
    named = environ.get("JOURNAL_STREAM", "")
    try:
        status = os.fstat(stream.fileno())
    except (OSError, ValueError):  # no file stands behind it
        return False
    return named == f"{status.st_dev}:{status.st_ino}"


def _with_exception(_log: object, _method: str, event: EventDict) -> EventDict:
    """Replace an exception by two fields: its causes, and the calls it passed through, innermost last."""
    given = event.pop("exc_info", None)
    current = sys.exc_info() if given is True else given
    error = current[1] if isinstance(current, tuple) else current
    if isinstance(error, BaseException):
        event["exception"] = _chain(error)
        event["where"] = _frames(error.__traceback__)
    return event


def _chain(error: BaseException) -> str:
    links = [f"{type(error).__name__}: {error}"]
    cause = error.__cause__
    while cause is not None and len(links) < _MOST_FRAMES:
        links.append(f"{type(cause).__name__}: {cause}")
        cause = cause.__cause__
    return " from ".join(links)


def _frames(trace: TracebackType | None) -> str:
    frames = []
    while trace is not None:
        code = trace.tb_frame.f_code
        frames.append(f"{Path(code.co_filename).name}:{trace.tb_lineno} {code.co_name}")
        trace = trace.tb_next
    return " > ".join(frames[-_MOST_FRAMES:])


def _in_order(_log: object, _method: str, event: EventDict) -> EventDict:
    """Move the fields that every line has to the front."""
    first = {name: event.pop(name) for name in ("time", "level", "event") if name in event}
    return {**first, **event}


def _renderers(layout: Layout, *, terminal: bool) -> Sequence[Processor]:
    """Return the processors that make one line of an event."""
    if layout == "json":  # which escapes all that is not plain ASCII
        return _as_json_values, structlog.processors.JSONRenderer()
    return (_readable if layout == "auto" and terminal else _logfmt,)


def _as_json_values(_log: object, _method: str, event: EventDict) -> EventDict:
    """Keep booleans, integers and finite floats; convert all other values to text."""
    return {
        str(name): value
        if isinstance(value, bool | int | None) or (isinstance(value, float) and math.isfinite(value))
        else _text(value)
        for name, value in event.items()
    }


def _logfmt(_log: object, _method: str, event: EventDict) -> str:
    """Return name=value pairs; structlog's renderer escapes no other control character than a newline."""
    return " ".join(_field(name, value) for name, value in event.items())


def _readable(_log: object, _method: str, event: EventDict) -> str:
    """Return the local time of day, the level, the event and its fields."""
    time, level, message = str(event.pop("time", "")), event.pop("level", ""), event.pop("event", "")
    shown = f"{datetime.fromisoformat(time).astimezone():%H:%M:%S} " if time else ""
    return " ".join([f"{shown}{level:<7} {escaped(_text(message))}", *(_field(*field) for field in event.items())])


def _with_priority(_log: object, method: str, line: Any) -> str:
    """Prefix a line with the priority that journald reads."""
    return f"<{_PRIORITIES.get(method, 5)}>{line}"


def _field(name: object, value: object) -> str:
    text = _text(value)
    if not text or not text.isprintable() or any(char in ' ="\\' for char in text):
        quoted = text.replace("\\", "\\\\").replace('"', '\\"')
        text = f'"{escaped(quoted)}"'
    # Names are ours, but for what a library passes on.
    return f"{escaped(str(name)).replace(' ', '_')}={text}"


def _text(value: object) -> str:
    text = f"{value:.10g}" if isinstance(value, float) else str(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."
