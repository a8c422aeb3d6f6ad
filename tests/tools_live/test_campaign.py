"""Campaigns of live runs, made by a program that only leaves what a run leaves."""

import json
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from advisor.errors import SimulationError
from tools.live.campaign import INTERRUPTED, Processes, main, make
from tools.live.campaign_plan import read_plan, runs_of

FILE = Path(__file__).parents[2] / "tools" / "live" / "campaign.toml"
PLAN = """
summary = "two traces"
seeds = [1, 2]
options = {policy = ["none", "default"], load = 3}
runs.deep = {trace = "itp 04", nodes = 16}
runs.slow = {trace = "philly ee9e8c", seeds = [7]}
"""


class FakeStarter:
    """Leaves a cluster in the folder of a run, but for the runs that are to fail."""

    def __init__(self, *, faulty: Sequence[str] = (), broken: Sequence[str] = ()) -> None:
        self.faulty, self.broken = faulty, broken
        self.commands: list[Sequence[str]] = []
        self.stopped = Event()

    def run(self, command: Sequence[str], log: Path) -> int:
        self.commands.append(command)
        folder = Path(command[-1].removeprefix("--out="))
        folder.mkdir()
        if log.stem in self.broken:
            return 1
        (folder / "none-1.json").write_text(json.dumps({}))
        return int(log.stem in self.faulty)

    def stop(self) -> None:
        self.stopped.set()


class InterruptedStarter(FakeStarter):
    """Is interrupted by the first run; those that began meanwhile go on until they are stopped."""

    def run(self, command: Sequence[str], log: Path) -> int:
        super().run(command, log)
        if len(self.commands) > 1:
            self.stopped.wait()
        raise KeyboardInterrupt


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    """A file of three runs."""
    path = tmp_path / "plan.toml"
    path.write_text(PLAN)
    return path


def test_every_trace_is_run_with_each_of_its_seeds_one_seed_after_the_other(plan: Path) -> None:
    runs = list(runs_of(read_plan(plan), Path("runs")))

    assert [run.folder.name for run in runs] == ["deep-1", "slow-7", "deep-2"]
    assert runs[0].options == (
        "--policy=none", "--policy=default", "--load=3", "--trace=itp 04", "--nodes=16", "--seed=1",
    )  # fmt: skip
    assert runs[1].options[-2:] == ("--trace=philly ee9e8c", "--seed=7")


def test_the_file_of_the_results_plans_seven_seeds_of_four_traces_and_four_runs_of_the_newest_release() -> None:
    runs = list(runs_of(read_plan(FILE), Path("runs")))

    assert len({run.folder for run in runs}) == 28 + 4
    assert len({option for run in runs for option in run.options if option.startswith("--trace=")}) == 4
    assert sum("--release=26.05" in run.options for run in runs) == 4


def test_runs_that_are_there_are_not_made_again(plan: Path, tmp_path: Path) -> None:
    runs, starter = list(runs_of(read_plan(plan), tmp_path / "runs")), FakeStarter()
    (tmp_path / "runs" / "deep-1").mkdir(parents=True)
    (tmp_path / "runs" / "deep-1" / "none-1.json").write_text("{}")

    failed = make(runs, starter, parallel=2, more=["--data=traces"])
    again = make(runs, starter, parallel=2)

    assert failed == again == make(runs, starter, parallel=0) == []
    assert [run.is_there for run in runs] == [True] * 3
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["deep-1", "deep-2", "slow-7"]
    assert sorted(command[-1].rpartition("/")[2] for command in starter.commands) == [
        "deep-2",
        "slow-7",
    ]
    assert all("--data=traces" in command for command in starter.commands)


def test_runs_that_fail_are_named_and_only_those_without_jobs_are_made_again(plan: Path, tmp_path: Path) -> None:
    runs = list(runs_of(read_plan(plan), tmp_path / "runs"))

    failed = make(runs, FakeStarter(faulty=["deep-2"], broken=["slow-7"]), parallel=1)

    assert [message.partition(":")[0] for message in failed] == ["deep-2", "slow-7"]
    assert [run.is_there for run in runs] == [True, False, True]
    assert make(runs, FakeStarter(), parallel=1) == []
    assert runs[1].is_there


def test_what_a_killed_run_left_is_not_touched(plan: Path, tmp_path: Path) -> None:
    runs, starter = list(runs_of(read_plan(plan), tmp_path / "runs"))[:1], FakeStarter()
    left = tmp_path / "runs" / "deep-1"
    left.mkdir(parents=True)

    failed = make(runs, starter, parallel=1)

    assert len(failed) == 1 and str(left) in failed[0]
    assert starter.commands == [] and left.is_dir()


def test_an_interrupt_stops_what_runs_and_begins_nothing_more(plan: Path, tmp_path: Path) -> None:
    runs, starter = list(runs_of(read_plan(plan), tmp_path / "runs")), InterruptedStarter()

    with pytest.raises(KeyboardInterrupt):
        make(runs, starter, parallel=1)

    assert starter.stopped.is_set()
    assert len(starter.commands) < len(runs)


@pytest.fixture(params=[signal.default_int_handler, signal.SIG_IGN], ids=["in the foreground", "in the background"])
def ctrl_c(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run a test as a shell does: one that starts a command in the background lets it ignore SIGINT."""
    before = signal.signal(signal.SIGINT, request.param)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c")
def test_a_process_that_is_stopped_can_end_by_itself(tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    program = f"""
import pathlib, time
try:
    pathlib.Path({str(begun)!r}).touch()
    time.sleep(60)
except KeyboardInterrupt:
    print("ended")
"""
    processes = Processes()
    with ThreadPoolExecutor(1) as pool:
        code = pool.submit(processes.run, [sys.executable, "-c", program], tmp_path / "log")
        while not begun.exists():
            time.sleep(0.01)
        processes.stop()

    assert code.result() == 0
    assert (tmp_path / "log").read_text() == "ended\n"


def test_no_process_begins_after_a_stop(tmp_path: Path) -> None:
    processes = Processes()
    processes.stop()

    assert processes.run([sys.executable, "-c", "print('begun')"], tmp_path / "log") == INTERRUPTED
    assert (tmp_path / "log").read_text() == ""


def test_a_process_leaves_what_it_prints_and_its_exit_code(tmp_path: Path) -> None:
    code = Processes().run([sys.executable, "-c", "print('begun'); raise SystemExit(3)"], tmp_path / "log")

    assert code == 3
    assert (tmp_path / "log").read_text() == "begun\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("summary = ", "not TOML"),
        ('summary = "none"\nseeds = [1]\nruns = {}', "runs: "),
        (PLAN.replace("seeds = [1, 2]", 'seeds = ["first"]'), "seeds.0: "),
        (PLAN.replace("options", "option"), "option: "),
    ],
    ids=["no TOML", "no runs", "no seed", "unknown key"],
)
def test_a_file_that_cannot_be_read_is_refused(text: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(text)

    with pytest.raises(SimulationError, match=says):
        read_plan(path)


def test_a_wrong_number_and_a_missing_file_end_with_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = main([str(tmp_path / "none.toml"), f"--out={tmp_path}"])
    none_at_once = main([str(FILE), f"--out={tmp_path}", "--parallel=-1"])

    assert (missing, none_at_once) == (1, 1)
    assert len(capsys.readouterr().err.splitlines()) == 2
