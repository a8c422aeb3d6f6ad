"""Logs are one line for each event, whatever the values hold, and every library's events are among them."""

import io
import json
import logging
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import structlog

from advisor.site import logs
from advisor.site.logs import configure_logs

HOSTILE = "a\nb\x1b[31mc\x00d\u2028e\u202ef\x85g\x7fh\ud800i"


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


class Full(io.StringIO):
    """A stream on a full disk."""

    tried = 0

    def write(self, text: str) -> int:  # noqa: ARG002  (the base class's)
        if self.closed:
            raise ValueError("closed")
        self.tried += 1
        raise OSError(28, "No space left on device")


@contextmanager
def caused_by(cause: Exception) -> Iterator[None]:
    """Name the cause of what is raised in a block."""
    try:
        yield
    except ValueError as err:
        raise err from cause


def raised(text: str) -> None:
    raise ValueError(text)


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    """Leave the logging of other tests as it was."""
    root, level = logging.getLogger(), logging.getLogger().level
    handlers, talkative = root.handlers, logging.getLogger("apscheduler").level
    yield
    logging.captureWarnings(capture=False)
    root.handlers, root.level = handlers, level
    logging.getLogger("apscheduler").setLevel(talkative)
    structlog.reset_defaults()


def lines_of(stream: io.StringIO) -> list[str]:
    return stream.getvalue().splitlines()


@pytest.mark.parametrize("layout", ["auto", "logfmt", "json"])
@pytest.mark.parametrize("kind", [io.StringIO, Terminal], ids=["file", "terminal"])
def test_hostile_values_stay_on_one_line_and_drive_no_terminal(layout: logs.Layout, kind: type[io.StringIO]) -> None:
    stream = kind()

    configure_logs("info", layout, stream=stream, environ={}).info(HOSTILE, job_name=HOSTILE, **{HOSTILE: 1})

    text = stream.getvalue()
    assert text.endswith("\n")
    assert text[:-1].isprintable()
    assert len(lines_of(stream)) == 1


def test_logfmt_quotes_what_would_be_read_as_two_fields() -> None:
    stream = io.StringIO()
    log = configure_logs("info", "logfmt", stream=stream, environ={})

    log.info("change applied", name='x" level=error', empty="", path="a\\b", number=1.5, none=None)

    fields = lines_of(stream)[0].partition(" ")[2]
    assert fields == (
        r'level=info event="change applied" name="x\" level=error" empty="" path="a\\b" number=1.5 none=None'
    )


def test_json_keeps_numbers_and_gives_the_text_back() -> None:
    stream = io.StringIO()
    log = configure_logs("info", "json", stream=stream, environ={})

    log.warning("x", name="a\nb\x1b", count=2, share=0.5, on=True, far=float("inf"), none=None, path=Path("/a"))

    told = json.loads(lines_of(stream)[0])
    assert told.pop("time").endswith("Z")
    assert told == {
        "level": "warning",
        "event": "x",
        "name": "a\nb\x1b",
        "count": 2,
        "share": 0.5,
        "on": True,
        "far": "inf",
        "none": None,
        "path": "/a",
    }


def test_a_terminal_shows_the_time_of_day_and_the_event_first() -> None:
    stream = Terminal()

    configure_logs("info", "auto", stream=stream, environ={}).info("started", pid=7)

    assert lines_of(stream)[0][8:] == " info    started pid=7"


@pytest.mark.parametrize(
    ("level", "priority"), [("debug", 7), ("info", 6), ("warning", 4), ("error", 3), ("critical", 2)]
)
def test_journald_gets_priorities_and_no_time(level: str, priority: int, tmp_path: Path) -> None:
    with (tmp_path / "stream").open("w+") as stream:
        found = os.fstat(stream.fileno())
        log = configure_logs("debug", stream=stream, environ={"JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino}"})

        getattr(log, level)("started")

        stream.seek(0)
        assert stream.read() == f"<{priority}>level={level} event=started\n"


@pytest.mark.parametrize("named", ["", "1:2", "nonsense"])
def test_another_stream_than_journalds_gets_the_time(named: str, tmp_path: Path) -> None:
    with (tmp_path / "stream").open("w+") as stream:
        configure_logs(stream=stream, environ={"JOURNAL_STREAM": named}).info("started")

        stream.seek(0)
        assert stream.read().startswith("time=")


def test_long_values_are_cut() -> None:
    stream = io.StringIO()

    configure_logs(stream=stream, environ={}).info("x", name="y" * 100_000)

    assert len(stream.getvalue()) < 1200


def test_an_exception_is_two_fields_of_one_line() -> None:
    stream = io.StringIO()
    log = configure_logs("info", "json", stream=stream, environ={})

    try:
        with caused_by(KeyError("a\nb")):
            raised("told\nso")
    except ValueError:
        log.exception("a round failed", job_id=1)

    told = json.loads(lines_of(stream)[0])
    assert told["level"] == "error"
    assert told["exception"] == "ValueError: told\nso from KeyError: 'a\\nb'"
    assert told["where"].startswith("test_logs.py:")
    assert "exc_info" not in told


def test_an_error_given_by_hand_is_told_alike() -> None:
    stream = io.StringIO()
    log = configure_logs("info", "json", stream=stream, environ={})

    log.warning("x", exc_info=ValueError("so"))
    log.warning("y", exc_info=None)

    told = [json.loads(line) for line in lines_of(stream)]
    assert (told[0]["exception"], told[0]["where"]) == ("ValueError: so", "")
    assert "exception" not in told[1]


@pytest.mark.parametrize(("level", "shown"), [("debug", 4), ("info", 3), ("warning", 2), ("error", 1)])
def test_less_severe_events_are_left_out(level: logs.Level, shown: int) -> None:
    stream = io.StringIO()
    log = configure_logs(level, stream=stream, environ={})

    for each in (log.debug, log.info, log.warning, log.error):
        each("x")

    assert len(lines_of(stream)) == shown


def test_a_log_that_is_in_use_takes_a_new_level() -> None:
    stream = io.StringIO()
    log = configure_logs("info", stream=stream, environ={})
    log.info("shown")

    configure_logs("error", stream=stream, environ={})
    log.info("not shown")

    assert len(lines_of(stream)) == 1


def test_what_libraries_log_goes_the_same_way() -> None:
    stream = io.StringIO()
    configure_logs("info", "json", stream=stream, environ={})

    logging.getLogger("somebody").warning("job %s\n", "a\x1b")
    logging.getLogger("somebody").log(25, "100 %")
    logging.getLogger("somebody").warning("two %s %s", *["one"])
    logging.getLogger("somebody").debug("unseen")

    told = [json.loads(line) for line in lines_of(stream)]
    assert [(each["level"], each["logger"]) for each in told] == [
        ("warning", "somebody"),
        ("info", "somebody"),
        ("warning", "somebody"),
    ]
    assert (told[0]["event"], told[1]["event"]) == ("job a\x1b\n", "100 %")
    assert told[2]["event"].startswith("two %s %s (")


def test_an_exception_of_a_library_keeps_its_line_short() -> None:
    stream = io.StringIO()
    configure_logs("info", "logfmt", stream=stream, environ={})

    try:
        raised("a\nb")
    except ValueError:
        logging.getLogger("apscheduler.executors").exception("Job raised an exception")

    assert len(lines_of(stream)) == 1
    assert r'exception="ValueError: a\nb"' in stream.getvalue()


@pytest.mark.parametrize(("level", "shown"), [("debug", 1), ("info", 0), ("error", 0)])
def test_the_scheduler_tells_of_its_jobs_to_whoever_debugs(level: logs.Level, shown: int) -> None:
    stream = io.StringIO()
    configure_logs(level, stream=stream, environ={})

    logging.getLogger("apscheduler.executors.default").info("Running job")

    assert len(lines_of(stream)) == shown


def test_warnings_of_libraries_are_events() -> None:
    stream = io.StringIO()
    configure_logs(stream=stream, environ={})

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(capture=False)
        logging.captureWarnings(capture=True)
        warnings.warn("old\nhabit", UserWarning, stacklevel=1)

    assert len(lines_of(stream)) == 1
    assert "logger=py.warnings" in stream.getvalue()


def test_a_log_that_cannot_be_written_stops_nothing() -> None:
    stream = Full()
    log = configure_logs(stream=stream, environ={})

    log.info("lost")
    stream.close()
    log.info("lost as well")

    assert stream.tried == 1


def test_logs_go_to_stderr_and_nowhere_else() -> None:
    code = (
        "import logging; from advisor.site.logs import configure_logs; "
        "log = configure_logs('info', 'logfmt'); log.info('ours'); logging.getLogger('x').error('theirs')"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == ""
    assert [line.partition("event=")[2] for line in done.stderr.splitlines()] == ["ours", "theirs logger=x"]


def test_stream_that_is_not_read_does_not_block() -> None:
    reading, writing = os.pipe()
    with open(reading, "rb", buffering=0) as reader, open(writing, "w") as stream:  # noqa: PTH123  (descriptors)
        log = configure_logs(layout="logfmt", stream=stream)

        for number in range(2000):
            log.info("not read", number=number, text="x" * 900)
        os.read(reader.fileno(), 1 << 20)
        log.info("read again")

        assert b'event="read again"' in os.read(reader.fileno(), 1 << 16).splitlines()[-1]
