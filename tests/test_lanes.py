"""The lanes of `make test`: which tests are in which, what is reported, and that a lane that hangs is ended."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.programs import killed_after
from tools import lanes
from tools.lanes import Lane, all_lanes, fast_lanes, run_all

ROOT = Path(__file__).parent.parent


def lane(name: str, code: str, *, limit_s: float = 30.0, alone: bool = False) -> Lane:
    """Return a lane that runs Python code."""
    return Lane(name=name, argv=(sys.executable, "-X", "faulthandler", "-c", code), limit_s=limit_s, alone=alone)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "REPORT_S", 0.5)


@pytest.fixture(autouse=True)
def _interruptible() -> Iterator[None]:
    """Restore what `lanes.main` sets, since pytest in the background of a shell ignores SIGINT, as would the lanes."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def holds(one: Lane, path: Path) -> bool:
    """Whether a lane runs the tests of a file."""
    paths = [Path(word) for word in one.argv if word.startswith("tests")]
    ignored = [Path(word.removeprefix("--ignore=")) for word in one.argv if word.startswith("--ignore=")]
    return any(map(path.is_relative_to, paths)) and not any(map(path.is_relative_to, ignored))


def test_every_test_file_is_in_one_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    files = sorted(Path("tests").rglob("test_*.py"))

    counts_by_file = {path: sum(holds(one, path) for one in all_lanes()) for path in files}

    assert len(files) > 100
    assert {path for path, count in counts_by_file.items() if count != 1} == set()


def test_every_path_of_a_lane_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)

    paths = {word.removeprefix("--ignore=") for one in all_lanes() for word in one.argv if "tests" in word}

    assert {path for path in paths if not Path(path).exists()} == set()


def test_fast_lanes_are_those_without_slurm_or_packages() -> None:
    words = {one.name: one.argv for one in fast_lanes()}

    assert list(words) == ["others", "edges", "simulator", "uncovered", "tools"]
    assert not any(word.startswith("--cov") for argv in words.values() for word in argv)
    assert not any(holds(one, Path(path)) for one in fast_lanes() for path in ("tests/live/x.py", *lanes.PACKAGES))


def test_make_combines_the_coverage_of_every_lane_that_measures_it() -> None:
    combined = re.search(r"coverage combine .*addprefix \.coverage\.,([a-z ]+)\)", (ROOT / "Makefile").read_text())

    assert combined is not None
    assert combined[1].split() == [one.name for one in all_lanes() if one.covered]


def test_lanes_that_pass_are_logged_and_those_alone_follow(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = "import os; print('coverage in', os.environ['COVERAGE_FILE'])"

    passed = run_all([lane("last", code, alone=True), lane("one", code), lane("two", code)], tmp_path)

    shown = capsys.readouterr().out
    assert passed
    assert (tmp_path / "two.log").read_text() == "coverage in .coverage.two\n"
    assert all(f"coverage in .coverage.{name}\n" in shown for name in ("one", "two", "last"))
    assert shown.index("lanes: two passed, ") < shown.index("lanes: last started, log ")
    assert shown.endswith("lanes: last passed; one passed; two passed\n")


def test_lane_that_needs_no_slurm_yields_to_those_that_wait_for_it(tmp_path: Path) -> None:
    # The priority is lowered right after the start.
    code = "import os, time; time.sleep(0.5); print(os.getpriority(os.PRIO_PROCESS, 0))"

    run_all([lane("computes", code), replace(lane("waits", code), needs_slurm=True)], tmp_path)

    own = os.getpriority(os.PRIO_PROCESS, 0)
    assert int((tmp_path / "waits.log").read_text()) == own
    assert int((tmp_path / "computes.log").read_text()) == max(own, lanes.COMPUTING_NICE)


def test_a_lane_that_fails_is_named_with_its_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = lane("bad", "print('what went wrong'); raise SystemExit(3)")

    passed = run_all([bad, lane("good", "pass"), lane("last", "pass", alone=True)], tmp_path)

    shown = capsys.readouterr().out
    assert not passed
    assert "what went wrong\n" in shown
    assert shown.endswith("lanes: bad failed, exit status 3; good passed; last not started\n")


def test_lanes_that_still_run_are_named_with_their_last_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reports: list[str] = []
    expected = "still running: slow for 0 min (.... [ 42%])"
    seen = tmp_path / "seen"

    def report(text: str) -> None:
        reports.append(text)
        if text == expected:
            seen.touch()

    monkeypatch.setattr(lanes, "report", report)
    waits = f"while not os.path.exists({str(seen)!r}): time.sleep(0.01)"
    slow = lane("slow", f"import os, time; print('.... [ 42%]', flush=True)\n{waits}")

    run_all([slow, lane("quick", "pass")], tmp_path)

    assert [text for text in reports if "still running" in text][-1] == expected


# Prints a line when it is ready, and one for every signal that does not end it.
HANGS = """
import signal, time
for number in ({}):
    signal.signal(number, lambda *_: print("still here", flush=True))
print("ready", flush=True)
time.sleep(100)
"""


def clock_of_lines(log: Path) -> SimpleNamespace:
    """Return a module `time` in which four seconds pass with every line of a log, however busy the machine is."""

    def monotonic() -> float:
        return 4.0 * len(log.read_text().splitlines()) if log.exists() else 0.0

    return SimpleNamespace(monotonic=monotonic, sleep=time.sleep, strftime=time.strftime)


@pytest.mark.parametrize(
    ("code", "sent"),
    [
        (HANGS.format(""), ["SIGINT"]),
        (HANGS.format("signal.SIGINT,"), ["SIGINT", "SIGABRT"]),
        (HANGS.format("signal.SIGINT, signal.SIGABRT"), ["SIGINT", "SIGABRT", "SIGKILL"]),
    ],
    ids=["at the first signal", "with its stacks", "at the last"],
)
def test_a_lane_that_hangs_is_ended_and_named(
    code: str, sent: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "time", clock_of_lines(tmp_path / "stuck.log"))
    monkeypatch.setattr(lanes, "GRACE_S", 4.0)
    begun = time.monotonic()
    passed = run_all([lane("stuck", code, limit_s=3.0), lane("good", "pass")], tmp_path)
    took_s = time.monotonic() - begun

    shown = capsys.readouterr().out
    assert not passed and took_s < 60.0
    assert re.findall(r"lanes: stuck exceeded its limit of 3 s: sending (\w+)", shown) == sent
    assert shown.endswith("lanes: stuck failed, exceeded its limit of 3 s; good passed\n")
    # Python's own traceback for SIGINT, and that of faulthandler for SIGABRT.
    assert "most recent call" in shown or sent[-1] == "SIGKILL"


def test_what_a_lane_leaves_behind_ends_with_it(tmp_path: Path) -> None:
    child = tmp_path / "pid"
    code = f"import subprocess; print(subprocess.Popen(['sleep', '60']).pid, file=open({str(child)!r}, 'w'))"

    run_all([lane("untidy", code)], tmp_path)

    assert has_ended(int(child.read_text()))


def test_lanes_end_with_the_program(tmp_path: Path) -> None:
    code = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
    outer = (
        "import sys; from tools import lanes; code = sys.argv.pop(); lanes.REPORT_S = 0.1; "
        "lanes.all_lanes = lambda: [lanes.Lane(name='one', argv=(sys.executable, '-c', code))]; sys.exit(lanes.main())"
    )
    argv = [sys.executable, "-c", outer, "--logs", str(tmp_path), code]

    with killed_after(subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True)) as program:
        assert program.stdout is not None
        reports = (re.search(r"still running.*\((\d+)\)", line) for line in program.stdout)
        pid = next(int(report[1]) for report in reports if report)
        program.send_signal(signal.SIGTERM)
        status = program.wait(40.0)

    assert status == 128 + signal.SIGTERM
    assert has_ended(pid)


def has_ended(pid: int) -> bool:
    """Whether a process is gone, or only waits to be reaped."""
    for _ in range(400):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    return False
