"""The view of a cluster: what it sums up, what it was planned from, how users gained, and when it is read again."""

import shutil
import threading
from pathlib import Path

import pytest

from advisor.config import Config
from advisor.cycle import Cycle, CycleRecord
from advisor.domain.forecast import NO_FORECASTS, Forecasts, Interval, JobForecast
from advisor.domain.memory import Memory
from advisor.domain.snapshot import Snapshot
from advisor.domain.units import DAY_S, HOUR_S
from advisor.errors import AdvisorError
from advisor.journal import opened
from advisor.watch.cluster_view import cluster_view, waiting_gpu_jobs
from advisor.watch.daemon_state import read_gains
from advisor.watch.planned import Planned, Remembered, plan_now, plan_with, remembered_by
from advisor.watch.reading import Reading, demo_path, open_queue
from advisor.watch.viewer import Viewer
from tests.builders import TAKEN_AT, make_cluster, make_gang, make_job, make_stretch
from tests.made_rounds import change, lease, step

WAITS_LONG = make_job(1, priority=10, gang=make_gang(16), user="ann")
SMALL = make_job(2, priority=20, gang=make_gang(2), user="bob")


def test_line_is_slurms_order_with_starts_advice_and_changes() -> None:
    held = lease(job_id=2)
    record = step(jobs=[WAITS_LONG, SMALL], judged=[change(job_id=1)]).record
    planned = Planned(record=record, memory=Memory(leases=(held,)))
    starts = Forecasts(by_job={1: JobForecast(start_s=Interval(low=60.0, median=120.0, high=600.0))})

    view = cluster_view(planned, starts, source="file", cluster=None, daemon=None)

    first, second = view.line
    assert [first.job_id, second.job_id] == [2, 1]
    assert (first.place, first.in_effect, first.start) == (1, (str(held.lever),), None)
    assert second.start == Interval(low=TAKEN_AT + 60.0, median=TAKEN_AT + 120.0, high=TAKEN_AT + 600.0)
    assert [str(kind) for kind in second.advice] == [row.kind for row in view.advice]
    assert (second.gpus, second.gpu_type, second.user) == (16, "", "ann")
    assert [(row.job_id, row.lever) for row in view.in_effect] == [(2, str(held.lever))]


def test_nodes_show_their_leaf_and_what_is_in_use() -> None:
    cluster = make_cluster([make_job(3, gpus=8, running_on=["n1"])], leaves={"leaf1": ("n1", "n2")})
    record = CycleRecord(snapshot=cluster, forecasts=NO_FORECASTS, judged=(), left_alone={})

    view = cluster_view(
        Planned(record=record, memory=record.memory), NO_FORECASTS, source="file", cluster=None, daemon=None
    )

    assert [(use.name, use.leaf, use.gpus, use.in_use) for use in view.nodes] == [
        ("n1", "leaf1", 8, 8),
        ("n2", "leaf1", 8, 0),
    ]


def test_demo_has_a_view_with_the_advice_of_recommend_by_gain() -> None:
    reading = Reading(demo=True)
    config = reading.load_config()
    snapshot = open_queue(reading, config).snapshot()
    planned = plan_now(reading, config, None, snapshot)

    view = cluster_view(planned, planned.record.forecasts, source="demo", cluster=None, daemon=None)

    gains = [row.expected.jct_saved_expected_s for row in view.advice]
    assert gains == sorted(gains, reverse=True)
    assert {row.job_id for row in view.advice} == {change.job_id for change in planned.record.recommendations}
    assert {job.job_id for job in view.line} == set(waiting_gpu_jobs(snapshot))


DEMO = Reading(demo=True)


@pytest.fixture(scope="module")
def seen() -> Snapshot:
    """The demo."""
    return open_queue(DEMO, Config()).snapshot()


def test_of_a_file_nothing_is_remembered_and_nothing_is_missing(seen: Snapshot) -> None:
    remembered = remembered_by(DEMO, Config(), None, seen, Cycle())

    assert (remembered.note, remembered.is_broken) == ("", False)
    assert remembered.journal.leases() == ()


@pytest.mark.parametrize(
    ("content", "is_broken", "note"), [(None, False, "no such journal"), (b"no journal at all" * 99, True, "")]
)
def test_journal_that_cannot_be_read_is_a_note(
    content: bytes | None, is_broken: bool, note: str, seen: Snapshot, tmp_path: Path
) -> None:
    path = tmp_path / "journal.sqlite"
    if content is not None:
        path.write_bytes(content)

    remembered = remembered_by(DEMO, Config(), path, seen, Cycle())

    assert remembered.is_broken is is_broken
    assert str(path) in remembered.note and note in remembered.note
    assert remembered.note.endswith("so outstanding changes and observed waits are unknown")


def test_a_plan_leaves_what_is_remembered_as_it_was(seen: Snapshot) -> None:
    remembered = Remembered()

    first, second = (plan_with(Cycle(), seen, remembered) for _ in range(2))

    assert first.record == second.record
    assert first.memory == second.memory


def test_a_plan_about_one_job_agrees_with_the_whole_on_whether_it_is_changed(seen: Snapshot) -> None:
    whole = plan_with(Cycle(), seen, Remembered()).record

    for job in seen.pending_gpu_jobs:
        about = plan_with(Cycle(), seen, Remembered(), about=job).record
        mine = [[change for change in record.judged if change.job_id == job.job_id] for record in (about, whole)]
        assert mine[0] == mine[1]


class Ticks:
    """A monotonic clock that a test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def ticks() -> Ticks:
    return Ticks()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return Path(shutil.copy(demo_path(), tmp_path / "snapshot.json"))


@pytest.fixture
def viewer(file: Path, ticks: Ticks) -> Viewer:
    return Viewer(Reading(snapshot=file), Config(), max_age_s=30.0, monotonic=ticks)


def test_view_is_read_again_once_it_is_old(viewer: Viewer, ticks: Ticks) -> None:
    first = viewer.view()
    ticks.now = 30.0
    assert viewer.view() is first
    ticks.now = 31.0
    assert viewer.view() is not first
    assert viewer.fault == ""


def test_cluster_that_cannot_be_read_keeps_its_view_and_is_asked_no_more_often(
    viewer: Viewer, ticks: Ticks, file: Path
) -> None:
    first = viewer.view()
    text = file.read_text()
    file.unlink()
    ticks.now = 31.0
    assert viewer.view() is first
    assert str(file) in viewer.fault
    file.write_text(text)
    assert viewer.view() is first
    ticks.now = 62.0
    assert viewer.view() is not first
    assert viewer.fault == ""


def test_without_any_view_the_fault_is_raised(viewer: Viewer, file: Path) -> None:
    file.unlink()
    with pytest.raises(AdvisorError, match=r"snapshot\.json"):
        viewer.view()


def test_others_get_the_view_of_before_while_one_reads(viewer: Viewer, ticks: Ticks, file: Path) -> None:
    first = viewer.view()
    ticks.now = 31.0
    seen: list[object] = []
    with viewer._lock:
        reader = threading.Thread(target=lambda: seen.append(viewer.view()))
        reader.start()
        reader.join(10.0)
    assert seen == [first]


def test_days_follow_each_other_and_older_ones_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    with opened(path) as held:
        held.claim("live")
        for anchor_time, waited_s in ((0.0, 60.0), (2.0, 30.0), (2.0 + 1 / 24, 50.0), (4.0, 90.0)):
            held.keep_stretch(make_stretch(anchor_time=TAKEN_AT + anchor_time * DAY_S, waited_s=waited_s))

    gains = read_gains(path, TAKEN_AT + 4.0 * DAY_S + 2.0 * HOUR_S, days=3)

    assert [(gain.standing.jobs, gain.standing.waited_s) for gain in gains.days] == [(2, 80.0), (1, 90.0)]
    assert sorted(gain.day for gain in gains.days) == [gain.day for gain in gains.days]
    assert gains.whole.total is not None and gains.whole.total.waited_s == 170.0


def test_without_runs_of_plain_slurm_the_history_is_empty(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    with opened(path) as held:
        held.claim("live")

    gains = read_gains(path, TAKEN_AT)

    assert gains.days == ()
    assert gains.whole.total is None
