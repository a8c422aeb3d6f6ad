"""Plain Slurm beside the cluster: the process that runs it, when it runs, when the anchor moves, and what fails."""

import json
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from advisor.daemon.service import Service
from advisor.daemon.twin_keeper import DEADLINE_S, TwinKeeper, run_in_child
from advisor.domain.forecast import NO_FORECASTS
from advisor.domain.gang import GpuCount
from advisor.domain.job import Allocation, JobState
from advisor.domain.snapshot import Snapshot
from advisor.domain.standings import Stretch
from advisor.domain.units import DAY_S
from advisor.errors import SlurmError
from advisor.journal import SqliteJournal
from advisor.sim.live.carried_jobs import PlainStay
from advisor.sim.live.twin_child import TwinAnswer
from advisor.site.site_gate import RoundDeadline
from tests.builders import TAKEN_AT, make_job, make_snapshot, make_stretch
from tests.daemon.rounds import Site
from tests.programs import wait_until_gone

HOSTILE = "al\nice\x1b[2J'; DROP TABLE standings"
INTERVAL_S = 600.0


def seen(after_s: float, *users: str) -> Snapshot:
    """A full node, and one job of each user that waits for it."""
    held = make_job(1, gpus=8, running_on=["n01"], started_ago_s=100.0 + after_s, time_limit_s=50_000.0)
    jobs = [make_job(number, gpus=8, user=user, priority=100) for number, user in enumerate(users, start=2)]
    return replace(make_snapshot(jobs=[held, *jobs]), taken_at=TAKEN_AT + after_s)


class Clocked:
    """A keeper whose clock and runs are the test's."""

    def __init__(self, answer: Callable[[bytes], bytes]) -> None:
        self.now = 0.0
        self.tasks = 0
        self._answer = answer
        self.keeper = TwinKeeper(self._run, lambda: self.now)

    def _run(self, task: bytes) -> bytes:
        self.tasks += 1
        return self._answer(task)

    def see(self, snapshot: Snapshot) -> list[Stretch]:
        """Let time pass, observe a snapshot, and wait for the run."""
        self.now += INTERVAL_S
        self.keeper.observe(snapshot, (), NO_FORECASTS, interval_s=INTERVAL_S)
        if self.keeper._worker is not None:
            ended(self.keeper)
        return list(self.keeper.finished())

    @property
    def anchored_at(self) -> float:
        """When the anchor was taken, counted from the first snapshot."""
        assert self.keeper._twin is not None
        return self.keeper._twin.anchor.taken_at - TAKEN_AT


def ended(keeper: TwinKeeper) -> None:
    """Wait for the run of a keeper."""
    assert keeper._worker is not None
    keeper._worker.join(100.0)


def as_json(stretch: Stretch) -> bytes:
    return json.dumps(asdict(TwinAnswer(stretch=stretch, queues=((),)))).encode()


def in_time(task: bytes) -> bytes:
    return run_in_child(task, RoundDeadline(), limit_s=90.0)


def test_child_returns_the_waits_of_users_of_any_name() -> None:
    twin = Clocked(in_time)
    twin.see(seen(0.0, "ann", HOSTILE))

    (stretch,) = twin.see(seen(600.0, "ann", HOSTILE, "bob"))

    assert (stretch.anchor_time, stretch.until) == (TAKEN_AT, TAKEN_AT + 600.0)
    assert set(stretch.by_user) == {"ann", HOSTILE, "bob"}
    assert stretch.by_user[HOSTILE].waited_s == 600.0
    assert twin.keeper.fault == ""


def test_cluster_without_gpus_is_a_fault_in_plain_words() -> None:
    twin = Clocked(in_time)
    without = replace(seen(0.0), nodes=(), jobs=())
    twin.see(without)

    found = twin.see(replace(without, taken_at=TAKEN_AT + 600.0))

    assert found == []
    assert "GPU" in twin.keeper.fault and "Traceback" not in twin.keeper.fault


@pytest.fixture
def hanging(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program in place of nice that leaves its number in a file and never ends."""
    program = tmp_path / "nice"
    program.write_text(f"#!/bin/sh\necho $$ >{tmp_path}/pid.new; mv {tmp_path}/pid.new {tmp_path}/pid; sleep 600\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path / "pid"


def test_child_that_hangs_is_killed_at_its_deadline(hanging: Path) -> None:
    with pytest.raises(SlurmError, match=r"1\.5 s"):
        run_in_child(b"task", RoundDeadline(), limit_s=1.5)

    # Its parent was killed with it, so that it can end a moment later.
    wait_until_gone(int(hanging.read_text()))


def test_child_is_killed_as_the_daemon_stops(hanging: Path) -> None:
    stopping = threading.Event()
    keeper = TwinKeeper(lambda task: run_in_child(task, RoundDeadline(stopping)))
    keeper.observe(seen(0.0, "ann"), (), NO_FORECASTS, interval_s=0.0)
    keeper.observe(seen(60.0, "ann"), (), NO_FORECASTS, interval_s=0.0)
    wait_for(hanging.exists)

    stopping.set()

    ended(keeper)
    wait_until_gone(int(hanging.read_text()))


def wait_for(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + 20.0
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_next_run_waits_for_its_interval_and_for_the_one_before() -> None:
    release = threading.Event()

    def slow(_: bytes) -> bytes:
        release.wait(20.0)
        return as_json(make_stretch())

    twin = Clocked(slow)
    observe = twin.keeper.observe
    observe(seen(0.0), (), NO_FORECASTS, interval_s=INTERVAL_S)
    observe(seen(60.0), (), NO_FORECASTS, interval_s=INTERVAL_S)
    assert twin.tasks == 0
    for step in (1.0, 2.0):
        twin.now = step * INTERVAL_S
        observe(seen(step * INTERVAL_S), (), NO_FORECASTS, interval_s=INTERVAL_S)
    wait_for(lambda: twin.tasks == 1)

    release.set()
    ended(twin.keeper)

    assert len(twin.see(seen(1800.0))) == 2
    assert twin.tasks == 2


def test_runs_take_a_tenth_of_a_core() -> None:
    def long(_: bytes) -> bytes:
        twin.now += 100.0
        return as_json(make_stretch())

    twin = Clocked(long)
    twin.see(seen(0.0))
    twin.see(seen(600.0))

    assert twin.see(seen(1200.0)) != [] and twin.tasks == 2
    assert twin.see(seen(1300.0)) == [] and twin.tasks == 2


@pytest.mark.parametrize(("age_s", "moves"), [(0.5 * DAY_S, False), (1.5 * DAY_S, True)], ids=["young", "old"])
def test_anchor_moves_after_a_day(age_s: float, moves: bool) -> None:
    twin = Clocked(lambda _: as_json(make_stretch()))
    twin.see(seen(0.0))
    twin.see(seen(600.0))

    twin.see(seen(age_s))

    assert twin.anchored_at == (age_s if moves else 0.0)


def test_queue_of_plain_slurm_is_carried_over_to_the_next_anchor() -> None:
    twin = Clocked(in_time)
    # Bob came second and was started first.
    twin.see(seen(0.0, "ann", "bob"))
    held, ann, bob = seen(0.0, "ann", "bob").jobs
    started = replace(
        bob,
        state=JobState.RUNNING,
        allocation=Allocation(nodes=("n02",), gpus=(GpuCount(count=8),)),
        start_time=TAKEN_AT + 600.0,
    )
    moved = replace(seen(1.5 * DAY_S, "ann"), jobs=(held, ann, started))

    (first,) = twin.see(moved)
    (second,) = twin.see(replace(moved, taken_at=moved.taken_at + 3600.0))

    assert twin.keeper._twin is not None and twin.keeper._twin.queues > 1
    assert (second.anchor_time, second.total.jobs) == (first.until, second.total.carried)
    assert twin.keeper.fault == ""


def test_run_that_takes_too_long_moves_the_anchor() -> None:
    def long(_: bytes) -> bytes:
        twin.now += 0.6 * DEADLINE_S
        return as_json(make_stretch())

    twin = Clocked(long)
    twin.see(seen(0.0))
    twin.see(seen(600.0))
    twin.now += 10 * DEADLINE_S

    twin.see(seen(1200.0))

    assert twin.anchored_at == 1200.0


@pytest.mark.parametrize("answer", [b"", b"{}", b"no JSON", b'{"anchor_time": 1e9}'])
def test_nonsense_is_a_fault_and_begins_another_stretch(answer: bytes) -> None:
    twin = Clocked(lambda _: answer)
    twin.see(seen(0.0))

    assert twin.see(seen(600.0)) == []
    assert "not run to its end" in twin.keeper.fault
    twin.see(seen(1200.0))
    assert twin.anchored_at == 1200.0


def test_queue_of_unknown_jobs_is_a_fault_and_no_error() -> None:
    until = TAKEN_AT + 1.5 * DAY_S
    answer = TwinAnswer(stretch=make_stretch(until=until), queues=((PlainStay(job_id=99),),))
    twin = Clocked(lambda _: json.dumps(asdict(answer)).encode())
    twin.see(seen(0.0))

    twin.see(seen(1.5 * DAY_S))
    twin.see(seen(1.5 * DAY_S + 600.0))

    assert "KeyError" in twin.keeper.fault
    assert twin.keeper._twin is None


def with_twin(site: Site, keeper: TwinKeeper, interval_s: float = 60.0) -> Service:
    config = site.service().config
    config = replace(config, daemon=replace(config.daemon, twin_interval_s=interval_s))
    return Service(site.outfit, config, site.clock, site.told.append, twin=keeper)


def test_rounds_go_on_beside_a_child_that_hangs_and_its_fault_is_recorded_once(site: Site, hanging: Path) -> None:
    now = [0.0]

    keeper = TwinKeeper(lambda task: run_in_child(task, RoundDeadline(), limit_s=3.0), lambda: now[0])
    service = with_twin(site, keeper)
    service.round()
    now[0] += 60.0
    begun = time.monotonic()

    during = [service.round(), service.round()]

    assert time.monotonic() - begun < 0.9
    assert all(done.step is not None and done.fault == "" for done in during)
    ended(keeper)
    wait_until_gone(int(hanging.read_text()))
    assert [done.fault for done in (service.round(), service.round())] == ["", ""]
    (row,) = site.audited("plain twin")
    assert "not run to its end" in row["fault"]


def test_stretches_reach_the_journal_and_the_next_plan(site: Site) -> None:
    now = [0.0]
    stretch = make_stretch(user=HOSTILE, waited_s=30.0)
    keeper = TwinKeeper(lambda _: as_json(stretch), lambda: now[0])
    service = with_twin(site, keeper)
    service.round()
    now[0] += 60.0
    service.round()
    ended(keeper)

    service.round()
    done = service.round()

    assert done.step is not None
    assert set(done.step.record.memory.standings.by_user) == {HOSTILE}
    with SqliteJournal.read_only(site.folder / "journal.sqlite") as journal:
        assert journal.standings(0.0) == done.step.record.memory.standings
        assert journal.verify().is_intact


def test_interval_of_zero_runs_nothing(site: Site) -> None:
    keeper = TwinKeeper(in_time)
    service = with_twin(site, keeper, interval_s=0.0)

    service.round()

    assert keeper._twin is None and keeper._worker is None
