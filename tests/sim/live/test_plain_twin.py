"""Plain Slurm beside an advised cluster: what would have started when, on a simulated Slurm where that is known."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from advisor.domain.actions import SetNice
from advisor.domain.forecast import Forecasts, Interval, JobForecast, RunTime
from advisor.domain.job import ArrayRecord, Job
from advisor.domain.lease import intended
from advisor.domain.snapshot import Snapshot
from advisor.domain.standings import standings_of
from advisor.sim.cluster import Cluster, NodeGroup, SlurmParameters
from advisor.sim.live.plain_twin import PlainTwin
from advisor.sim.live.resumed_arrays import Periods
from advisor.sim.live.submitted_jobs import LeasesUndone, without_leases
from advisor.sim.live.wait_sums import PlainStarts, model_error_s, stretch_of
from advisor.sim.slurm.slurm_builder import build_slurm
from advisor.sim.slurm.slurm_cluster import SimulatedSlurm
from advisor.sim.slurm.slurmctld import run_slurm
from advisor.sim.state import ENDED, State
from advisor.sim.traces.trace import Trace
from tests.builders import TAKEN_AT, make_job, make_node, make_snapshot
from tests.sim.building import make_state
from tests.sim.runs import random_trace

SLURM = SlurmParameters(priority_weight_fairshare=0.0, priority_weight_job_size=500.0)
CLUSTER = Cluster(nodes=(NodeGroup(count=4, gpus=8, leaf=2),), slurm=SLURM)
ANCHOR = 3000.0
STEP_S = 60.0
Policy = Callable[[SimulatedSlurm, Snapshot], None]


def leave_alone(_: SimulatedSlurm, __: Snapshot) -> None:
    """Advise nothing."""


def lift_small(cluster: SimulatedSlurm, snapshot: Snapshot) -> None:
    """Lift the jobs of one GPU."""
    for job in snapshot.pending:
        if job.gang.gpu_count == 1 and job.nice == 0:
            cluster.apply(SetNice(job_id=job.job_id, before=0, after=-50_000))


def as_submitted(job: Job) -> Job:
    return SetNice(job_id=job.job_id, before=job.nice, after=0).applied_to(job)


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """A simulated run, the snapshots of it from the anchor on, and the periods at the anchor."""

    trace: Trace
    state: State
    snapshots: Sequence[Snapshot]
    periods: Periods

    @property
    def run_s_by_job(self) -> dict[int, float]:
        jobs = self.trace.jobs
        return dict(zip(jobs["job_id"].tolist(), jobs["run_time_s"].tolist(), strict=True))

    def true_starts(self, job_ids: NDArray[np.int64]) -> NDArray[np.float64]:
        return np.array(self.state.jobs["start_time"][job_ids - 1])


def play(trace: Trace, policy: Policy = leave_alone) -> Played:
    """Run to the end, with a snapshot every minute."""
    state = make_state(trace, CLUSTER, ideal=True)
    state.rules["limits_bind"] = 1
    slurm = build_slurm(state, trace, CLUSTER)
    cluster = SimulatedSlurm(trace, CLUSTER, state, slurm)
    run_slurm(state, slurm, ANCHOR)
    periods, snapshots = Periods.of(slurm), list[Snapshot]()
    while not (state.jobs["phase"] == ENDED).all():
        snapshots.append(cluster.snapshot())
        policy(cluster, snapshots[-1])
        run_slurm(state, slurm, cluster.now + STEP_S)
    snapshots.append(cluster.snapshot())
    return Played(trace=trace, state=state, snapshots=snapshots, periods=periods)


@cache
def played(seed: int, policy: Policy = leave_alone) -> Played:
    """Run a queue under a policy; tests share the run and change nothing in it."""
    return play(queue(seed), policy)


def observed(run: Played) -> PlainTwin:
    twin = PlainTwin(run.snapshots[0], as_submitted, parameters=SLURM)
    for snapshot in run.snapshots[1:]:
        twin.observe(snapshot)
    return twin


def queue(seed: int) -> Trace:
    """Jobs that run for minutes at least, so that each of them is in a snapshot."""
    trace = random_trace(200, seed=seed)
    rows = trace.jobs
    rows["run_time_s"] = np.maximum(rows["run_time_s"], 2 * STEP_S)
    rows["time_limit_s"] = np.maximum(rows["time_limit_s"], rows["run_time_s"])
    return trace


@pytest.mark.slow
@pytest.mark.parametrize("policy", [leave_alone, lift_small])
@pytest.mark.parametrize("seed", [0, 1])
def test_starts_are_those_of_a_cluster_without_advice(seed: int, policy: Policy) -> None:
    plain, run = played(seed), played(seed, policy)

    starts = observed(run).starts(draws=1, periods=run.periods, run_s_by_job=run.run_s_by_job)

    assert len(starts.job_ids) > 100
    assert starts.was_submitted_later.sum() > 50
    np.testing.assert_array_equal(starts.plain_start_time[0], plain.true_starts(starts.job_ids))
    np.testing.assert_array_equal(starts.real_start_time, run.true_starts(starts.job_ids))
    was_changed = not np.array_equal(starts.plain_start_time[0], starts.real_start_time)
    assert was_changed == (policy is lift_small)
    assert starts.unknown_ratio == 0.0


@pytest.mark.slow
def test_without_advice_the_interval_holds_no_difference() -> None:
    run = played(2)

    total = standings_of([stretch_of(observed(run).starts(draws=8, run_s_by_job=run.run_s_by_job))]).total

    assert total is not None
    difference_s = total.difference_s
    assert difference_s.low < 0.0 < difference_s.high
    assert difference_s.high - difference_s.low < 0.3 * total.plain_s.median


# One node of 8 GPUs, which a job holds until 100 s after the anchor; the clock of these snapshots begins there.
def held(**fields: Any) -> Job:
    return make_job(1, gpus=8, running_on=["n01"], started_ago_s=100.0, time_limit_s=1000.0, **fields)


def waiting(job_id: int, gpus: int = 8, after_s: float = 0.0, **fields: Any) -> Job:
    return make_job(
        job_id, gpus=gpus, submit_time=TAKEN_AT + after_s, time_limit_s=fields.pop("time_limit_s", 600.0), **fields
    )


def started(job: Job, after_s: float, gpus: int = 8) -> Job:
    """A job that began to run on the node after the anchor."""
    running = make_job(
        job.job_id, gpus=gpus, running_on=["n01"], submit_time=job.submit_time, time_limit_s=job.time_limit_s
    )
    return replace(running, start_time=TAKEN_AT + after_s, end_time=None, array=job.array)


def seen(after_s: float, *jobs: Job, **fields: Any) -> Snapshot:
    nodes = (make_node("n01", 8, 8 if any(not job.is_pending for job in jobs) else 0),)
    return make_snapshot(taken_at=TAKEN_AT + after_s, jobs=jobs, nodes=fields.pop("nodes", nodes), **fields)


def twin_of(*snapshots: Snapshot) -> PlainTwin:
    twin = PlainTwin(snapshots[0])
    for snapshot in snapshots[1:]:
        twin.observe(snapshot)
    return twin


def waits_s(starts: PlainStarts) -> dict[int, float]:
    """Return the wait of each job, from the anchor on, in the mean over the draws."""
    return dict(
        zip(starts.job_ids.tolist(), (starts.plain_start_time - TAKEN_AT).mean(axis=0).round().tolist(), strict=True)
    )


def test_end_between_two_snapshots_is_drawn_between_them() -> None:
    starts = twin_of(
        seen(0, held(), waiting(2)), seen(100, held(), waiting(2)), seen(160, started(waiting(2), 159.0))
    ).starts(draws=50)

    begun = starts.plain_start_time[:, 0] - TAKEN_AT
    assert begun.min() >= 99.0
    assert begun.max() <= 192.0
    assert begun.std() > 5.0
    assert starts.real_start_time.tolist() == [TAKEN_AT + 159.0]


def test_job_that_still_runs_takes_what_is_left_of_its_forecast() -> None:
    run_time = RunTime(interval_s=Interval(low=450.0, median=500.0, high=550.0), mean_s=500.0)
    twin = twin_of(seen(0, held(), waiting(2)), seen(200, held(), waiting(2)))

    known = twin.starts(Forecasts(by_job={1: JobForecast(run_time=run_time)}), draws=50, horizon_s=2000.0)
    unknown = twin.starts(draws=4, horizon_s=2000.0)

    # It began 100 s before the anchor, and its limit is 1000 s.
    assert 330.0 < waits_s(known)[2] < 500.0
    assert 900.0 <= waits_s(unknown)[2] < 970.0


def test_tasks_that_are_split_off_an_array_are_no_new_jobs() -> None:
    array = waiting(2, 4, array=ArrayRecord(array_job_id=2, waiting="0-2"))
    left = replace(array, array=ArrayRecord(array_job_id=2, waiting="2"))
    tasks = [started(replace(array, job_id=number, array=ArrayRecord(array_job_id=2, task_id=number - 3)), 105.0, 4)
             for number in (3, 4)]  # fmt: skip

    starts = twin_of(
        seen(0, held(), array), seen(100, held(), array), seen(110, left, *tasks), seen(200, left, *tasks)
    ).starts(draws=2)

    assert starts.job_ids.tolist() == [2, 2, 2]
    assert starts.real_start_time[:2].tolist() == [TAKEN_AT + 105.0] * 2
    assert np.isnan(starts.real_start_time[2])


def test_anchor_can_be_an_empty_cluster() -> None:
    job = waiting(2, after_s=5.0)
    empty = twin_of(seen(0))
    later = twin_of(seen(0), seen(60, started(job, 6.0)))

    assert empty.starts(draws=2).job_ids.tolist() == []
    assert waits_s(later.starts(draws=20))[2] == pytest.approx(6.0, abs=2.0)


def test_later_array_has_a_row_for_each_task() -> None:
    array = waiting(2, 4, after_s=50.0, array=ArrayRecord(array_job_id=2, waiting="0-2"))

    starts = twin_of(seen(0, held()), seen(60, held(), array)).starts(draws=1)

    assert starts.job_ids.tolist() == [2, 2, 2]
    assert starts.was_submitted_later.all()


def test_cancelled_job_is_not_compared_and_lets_others_pass() -> None:
    run_time = RunTime(interval_s=Interval(low=450.0, median=500.0, high=550.0), mean_s=500.0)
    both = (waiting(2), waiting(3))

    starts = twin_of(seen(0, held(), *both), seen(100, held(), *both), seen(160, started(waiting(3), 150))).starts(
        Forecasts(by_job={3: JobForecast(run_time=run_time)}), draws=1, horizon_s=600.0
    )

    assert starts.job_ids.tolist() == [3]
    assert waits_s(starts)[3] < 230.0
    assert "1 jobs left the queue without being seen to run, and are not compared" in starts.left_out
    assert starts.unknown_ratio == pytest.approx(1 / 2)


def test_what_could_not_be_read_is_stated_and_widens_the_interval() -> None:
    queue_of_four = [waiting(number) for number in (2, 3, 4, 5)]
    whole = twin_of(seen(0, held(), *queue_of_four), seen(600, held(), *queue_of_four)).starts(draws=4)
    cut = replace(seen(600, held(), *queue_of_four, unread=("squeue failed",)), unread_jobs=(9,))
    partial = twin_of(seen(0, held(), *queue_of_four), cut).starts(draws=4)

    narrow, wide = (stretch_of(starts).total for starts in (whole, partial))

    assert {"1 jobs could not be read", "squeue failed"} <= set(partial.left_out)
    assert partial.unknown_ratio == pytest.approx(1 / 5)
    assert wide.less_s > narrow.less_s + 4 * 50.0


@pytest.mark.parametrize(("reason", "unknown_ratio"), [("Dependency", 0.0), ("QOSMaxGRESPerUser", 1.0)])
def test_job_that_a_limit_held_back_is_not_known_one_that_waited_for_another_is(
    reason: str, unknown_ratio: float
) -> None:
    job = waiting(2, gpus=4, after_s=10.0, eligible_time=TAKEN_AT + 300.0)
    run_time = RunTime(interval_s=Interval(low=450.0, median=500.0, high=550.0), mean_s=500.0)

    starts = twin_of(seen(0), seen(60, replace(job, reason=reason)), seen(320, started(job, 300.0, 4))).starts(
        Forecasts(by_job={2: JobForecast(run_time=run_time)}), draws=1
    )

    assert starts.unknown_ratio == unknown_ratio
    assert starts.wait_begin_time.tolist() == [TAKEN_AT + 300.0]


FITS: dict[str, Any] = {"reason": "Resources", "start_time": TAKEN_AT + 3000.0}
DISPUTED = "1 jobs changed while they waited, or waited where they fit, and are not compared"


@pytest.mark.parametrize(
    "after",
    [
        pytest.param(waiting(2, gpus=1), id="shrank"),
        pytest.param(replace(waiting(2), time_limit_s=60.0), id="a shorter limit"),
        pytest.param(replace(waiting(2), partitions=("other",)), id="another partition"),
        pytest.param(replace(waiting(2), nice=100), id="another nice"),
        pytest.param(replace(waiting(2), gang=replace(waiting(2).gang, required_nodes=("n01",))), id="a named node"),
    ],
)
def test_job_whose_request_changed_while_it_waited_is_in_nobodys_account(after: Job) -> None:
    starts = twin_of(
        seen(0, held(), waiting(2), waiting(3)),
        seen(100, held(), after, waiting(3)),
        seen(160, held(), waiting(2), waiting(3)),
    ).starts(draws=1)

    assert starts.job_ids.tolist() == [3]
    assert DISPUTED in starts.left_out
    assert starts.disputed == (2,)


def test_changes_of_ours_are_no_changes_of_the_user() -> None:
    lifted, undo = replace(waiting(2), nice=-50), LeasesUndone()
    undo.learn([intended(SetNice(job_id=2, before=0, after=-50), TAKEN_AT)])
    # A lift at the submission is known as one of ours only a round later.
    twin = PlainTwin(seen(0, held(), lifted), LeasesUndone())
    late = PlainTwin(seen(0, held(), lifted), late_undo := LeasesUndone())
    late_undo.learn([intended(SetNice(job_id=2, before=0, after=-50), TAKEN_AT)])
    ours = PlainTwin(seen(0, held(), waiting(2)), undo)
    for each, after in ((twin, lifted), (late, lifted), (ours, lifted), (late, waiting(2)), (ours, waiting(2))):
        each.observe(seen(each.submitted.longest_gap_s + 60, held(), after))

    assert [each.starts(draws=1).job_ids.tolist() for each in (twin, late, ours)] == [[2], [2], [2]]


def test_most_nodes_that_slurm_estimates_are_no_change() -> None:
    open_gang = replace(waiting(2).gang, nodes_open=True, nodes_max=4)
    first = replace(waiting(2), gang=open_gang)
    later = replace(first, gang=replace(open_gang, nodes_max=2))

    assert twin_of(seen(0, held(), first), seen(60, held(), later)).starts(draws=1).job_ids.tolist() == [2]


def test_task_of_an_array_that_shrank_takes_the_array_out_of_the_account() -> None:
    array = waiting(2, gpus=8, after_s=10.0, array=ArrayRecord(array_job_id=2, waiting="0-3"))
    split = waiting(5, gpus=1, after_s=10.0, array=ArrayRecord(array_job_id=2, task_id=3))

    starts = twin_of(seen(0, held()), seen(60, held(), array), seen(120, held(), array, split)).starts(draws=1)

    assert starts.job_ids.tolist() == []


def idle(after_s: float, *jobs: Job) -> Snapshot:
    """A snapshot in which the node has room."""
    return seen(after_s, *jobs, nodes=(make_node("n01", 8, 0),))


def test_job_that_waits_though_it_fits_is_in_nobodys_account_from_a_minute_on() -> None:
    cunning, other = waiting(2, gpus=4, **FITS), waiting(3, after_s=1.0, reason="Priority")
    first = (seen(0, held(), cunning, other), idle(200, cunning, other))

    at_once = twin_of(*first).starts(draws=1)
    soon = twin_of(*first, idle(250, cunning, other), seen(255, held(), cunning, other), idle(270, cunning, other))
    long = twin_of(*first, idle(230, cunning, other), idle(260, cunning, other))

    assert at_once.job_ids.tolist() == soon.starts(draws=1).job_ids.tolist() == [2, 3]
    assert long.starts(draws=1).job_ids.tolist() == [3]
    assert DISPUTED in long.starts(draws=1).left_out


def test_anchor_that_moves_forgives_nothing() -> None:
    twin = twin_of(seen(0, held(), waiting(2), waiting(3)), seen(100, held(), waiting(2, gpus=1), waiting(3)))
    before, carried = twin.submitted, twin.starts(draws=1, run_s_by_job={2: 10.0, 3: 10.0}).carried

    twin.move_anchor(seen(160, held(), waiting(2, gpus=1), waiting(3)))
    twin.carry_over(carried, before)
    twin.observe(seen(300, held(), waiting(2, gpus=1), waiting(3)))

    assert 2 not in {stay.job_id for queue in carried for stay in queue}
    assert twin.starts(draws=1).job_ids.tolist() == [3]


@pytest.mark.parametrize("way", ["hidden", "held back", "requeued", "not counted"])
def test_job_that_can_have_waited_for_something_unknown_is_in_doubt(way: str) -> None:
    plain, changed = waiting(2), waiting(2)
    anchor = seen(0, held(), plain)
    if way == "not counted":
        plain = changed = replace(plain, gang=replace(plain.gang, uncounted=("--contiguous",)))
    if way == "held back":
        changed = replace(plain, reason="QOSMaxGRESPerUser")
    before = [seen(0, held(), plain), seen(30, started(plain, 20.0))] if way == "requeued" else [seen(0, held(), plain)]
    after = replace(seen(60, held(), changed), hides_bars=way == "hidden")

    assert twin_of(*before, after, seen(90, held(), plain)).starts(draws=1).in_doubt.tolist() == [True]
    assert twin_of(anchor, seen(90, held(), waiting(2))).starts(draws=1).in_doubt.tolist() == [False]


def test_node_that_returns_takes_jobs_of_plain_slurm_again() -> None:
    def at(after_s: float, *flags: str) -> Snapshot:
        nodes = (make_node("n01", 8, 8), make_node("n02", 8, 0, flags=flags))
        return seen(after_s, held(), waiting(2), nodes=nodes)

    returned = twin_of(at(0, "DRAIN"), at(60, "DRAIN"), at(120), at(180)).starts(draws=4)
    drained = twin_of(at(0, "DRAIN"), at(60, "DRAIN"), at(120, "DRAIN"), at(180, "DRAIN")).starts(draws=4)

    # It returned after the snapshot at 60 s.
    start_s = returned.plain_start_time - TAKEN_AT
    assert np.all((start_s >= 60.0) & (start_s < 120.0))
    assert not any("nodes stopped" in text for text in returned.left_out)
    assert not np.isfinite(drained.plain_start_time).any()


def test_node_that_stands_aside_in_one_snapshot_changes_nothing() -> None:
    aside = (make_node("n01", 8, 0, state="ALLOCATED", flags=("COMPLETING",)),)

    starts = twin_of(seen(0, held()), seen(60, held(), nodes=aside), seen(120, held(), waiting(2))).starts(draws=1)

    assert starts.unknown_ratio == 0.0 and not any("nodes stopped" in text for text in starts.left_out)


def test_node_that_fails_is_stated() -> None:
    down = (make_node("n01", 8, 0, state="DOWN"),)

    starts = twin_of(seen(0, held(), waiting(2)), seen(60, waiting(2), nodes=down)).starts(draws=1)

    assert "1 nodes stopped taking jobs, came or went: jobs that ran there may have ended by that" in starts.left_out
    assert starts.unknown_ratio == 1.0


def test_anchor_moves_when_there_are_too_many_jobs() -> None:
    twin = PlainTwin(seen(0, held(), waiting(2)), most_jobs=2)

    twin.observe(seen(60, held(), waiting(2), waiting(3, after_s=50.0)))

    assert twin.anchor.taken_at == TAKEN_AT + 60
    assert twin.starts(draws=1).job_ids.tolist() == [2, 3]


def made_starts(plain: Sequence[Sequence[float]], real: Sequence[float], *, unknown_ratio: float = 0.0) -> PlainStarts:
    count = len(real)
    return PlainStarts(
        in_doubt=np.zeros(len(real), dtype=np.bool_),
        anchor_time=0.0,
        until=1000.0,
        job_ids=np.arange(count, dtype=np.int64),
        users=("ann", "bob")[:count],
        accounts=("lab", "lab")[:count],
        was_submitted_later=np.zeros(count, dtype=np.bool_),
        wait_begin_time=np.zeros(count),
        plain_start_time=np.array(plain),
        real_start_time=np.array(real),
        unknown_ratio=unknown_ratio,
        left_out=(),
    )


def test_model_errs_by_more_for_a_few_jobs_than_for_many() -> None:
    # 3 s and 3 % of the wait, more for two jobs than for many.
    assert model_error_s(650.0, 2) == pytest.approx(22.5 * (1.0 + 1.45 / np.sqrt(2)))
    assert model_error_s(100.0, 10**9) == pytest.approx(6.0, rel=1e-3)


def test_changes_of_leases_are_taken_back_while_the_job_holds_them() -> None:
    job = waiting(2, nice=10, priority=990)
    change = SetNice(job_id=2, before=10, after=200)
    lease, changed = intended(change, TAKEN_AT), change.applied_to(job)

    assert without_leases(changed, [lease]) == job
    assert without_leases(job, [lease]) == job
    users_own = replace(job, nice=300, priority=700)
    assert without_leases(users_own, [lease]) == users_own


def test_priority_that_the_formula_does_not_explain_stays_with_a_large_nice() -> None:
    # Slurm counts a factor of 10000 points that the model does not know.
    first = waiting(2, nice=3000, priority=7000)
    second = waiting(3, nice=0, priority=6000)
    third = waiting(4, after_s=10.0, nice=3500, priority=6500)

    starts = twin_of(seen(0, held(), first, second), seen(20, held(), first, second, third)).starts(
        draws=1, horizon_s=5000.0
    )

    waits = waits_s(starts)
    assert waits[2] < waits[4] < waits[3]
