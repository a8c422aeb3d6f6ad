"""What adversaries can reach: the bound on added delay holds, and gaming the lifts gains little."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from advisor.apply.applier import Applier
from advisor.apply.memory_journal import MemoryJournal
from advisor.domain.lease import Ending, Lease
from advisor.domain.units import HOUR_S, MINUTE_S
from advisor.settings import Fairness, Limits, PlanningSettings
from advisor.sim.cluster import Cluster, NodeGroup, SlurmParameters, parse_cluster
from advisor.sim.policies.advised import AdvisedSlurm, no_forecasts
from advisor.sim.run_outcome import Run
from advisor.sim.runner import simulate
from advisor.sim.simulated_policy import Problem, SimulationOptions
from advisor.sim.slurm.slurm_cluster import SimulatedSlurm
from advisor.sim.study.cell import perturbed
from advisor.sim.traces.trace import Trace
from tests.sim.building import make_trace, run_of

BOUND_S, EVERY_S = 1200.0, 30.0
LONG_S = 20_000.0
CLUSTER = Cluster(
    nodes=(NodeGroup(count=4, gpus=4),),
    # A job that arrives stands behind all others, so that none slips between a lowered job and its own place.
    slurm=SlurmParameters(
        priority_weight_fairshare=0.0,
        priority_weight_age=1e7,
        priority_calc_period_s=EVERY_S,
        bf_window_s=4 * LONG_S,
        max_switch_wait_s=3600.0,
    ),
)
OPTIONS = SimulationOptions(
    execution="ideal",
    # Gangs are so sensitive to their place that they wait for it.
    planning=PlanningSettings(
        min_saving_s=1.0, leaf_inflation=4.0, spine_inflation=8.0, node_timer_s=60.0, leaf_timer_s=60.0
    ),
    # No job is lifted but one that is late: the bound is on what its own changes cost a job.
    limits=Limits(min_job_age_s=0.0, cooldown_s=60.0, max_added_delay_s=BOUND_S, fairness="user"),
    advise_every_s=EVERY_S,
)


@dataclass(frozen=True, kw_only=True)
class Advised(AdvisedSlurm):
    """Advised Slurm that keeps its journal for the test to read."""

    journals: list[MemoryJournal] = field(default_factory=list)

    def advisor(self, problem: Problem) -> tuple[Applier, SimulatedSlurm]:
        applier, cluster = AdvisedSlurm.advisor(self, problem)
        assert isinstance(applier.journal, MemoryJournal)
        self.journals.append(applier.journal)
        return applier, cluster


def delaying(jobs: Sequence[dict[str, Any]]) -> tuple[list[Lease], dict[int, float]]:
    """Run a trace, and return the changes that can have delayed their jobs, and when the jobs started."""
    policy = Advised(name="advised", summary="", forecaster=no_forecasts)
    run = simulate(make_trace(sorted(jobs, key=lambda job: job["submit_time"])), CLUSTER, policy, options=OPTIONS)
    (journal,) = policy.journals
    starts = {job_id: float(row["start_time"]) for job_id, row in enumerate(run.outcomes, start=1)}
    leases = [lease for lease in (*journal.closed(list(starts)), *journal.leases()) if lease.added_delay_s > 0.0]
    return [lease for lease in leases if lease.ending is not Ending.NOT_APPLIED], starts


def queue(seed: int) -> list[dict[str, Any]]:
    """Jobs of two users that keep a small cluster full for hours; a third user submits nothing."""
    rng = np.random.default_rng(seed)
    jobs = []
    for submit_time in np.sort(rng.uniform(0.0, 4000.0, 60)).tolist():
        limit_s = float(rng.choice([120.0, 300.0, 600.0, 900.0]))
        jobs.append(
            {
                "submit_time": submit_time,
                "gpus": int(rng.choice([1, 2, 4, 8])),
                "run_time_s": limit_s * float(rng.uniform(0.1, 1.0)),
                "time_limit_s": limit_s,
                "nodes_max": 4,
                "user": str(rng.choice(["ann", "bob"])),
            }
        )
    return jobs


def attacked(jobs: list[dict[str, Any]], gpus: int, most: int) -> Iterator[tuple[list[Lease], dict[int, float]]]:
    """Run again and again, each time with one more long job, submitted right after the next change."""
    last = -1.0
    for _ in range(most):
        leases, starts = delaying(jobs)
        yield leases, starts
        following = min((lease.applied_time for lease in leases if lease.applied_time > last), default=None)
        if following is None:
            return
        last = following
        attack = {"submit_time": following + 1.0, "gpus": gpus, "run_time_s": LONG_S, "time_limit_s": LONG_S}
        jobs = [*jobs, {**attack, "user": "cy"}]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_no_changed_job_starts_later_than_the_bound_after_its_planned_start(seed: int) -> None:
    touched = 0

    for leases, starts in attacked(queue(seed), 1, 6):
        touched += len(leases)
        late = [starts[lease.job_id] - due_start(lease) for lease in leases]
        assert max(late, default=0.0) <= BOUND_S

    assert touched > 0


def due_start(lease: Lease) -> float:
    """Return when a job was to start as submitted: by time limits as planned, or later if it could not have."""
    return max(instant for instant in (lease.planned_start, lease.would_start_time, 0.0) if instant is not None)


TWO_GPUS = "nodes=1,gpus=2"
CYCLE_S = 60.0
BOUND_S = 1200.0
# slurmctld starts jobs at its next pass.
PASS_S = 61.0
USERS = ("full", "long", "short", "other")
WEIGHED = SimulationOptions(
    execution="ideal",
    planning=PlanningSettings(priority_decades=0.0, lift_places=3),
    limits=Limits(max_lateness_s=BOUND_S, max_lateness_ratio=0.5, min_job_age_s=0.0),
    advise_every_s=CYCLE_S,
)


@st.composite
def attacks(draw: st.DrawFn) -> Trace:
    """Draw long jobs of one user, and short ones of others that keep coming for hours."""
    full: list[dict[str, Any]] = [{"user": "full", "run_time_s": 1000.0, "time_limit_s": 1200.0} for _ in range(2)]
    long: list[dict[str, Any]] = [
        {"user": "long", "submit_time": 10.0 + number, "run_time_s": 5000.0, "time_limit_s": 6000.0}
        for number in range(draw(st.integers(1, 3)))
    ]
    short = [
        {
            "user": draw(st.sampled_from(["short", "other"])),
            "submit_time": 20.0 + number * draw(st.sampled_from([100.0, 150.0, 200.0])),
            "run_time_s": draw(st.sampled_from([200.0, 400.0])),
            "time_limit_s": 600.0,
        }
        for number in range(draw(st.integers(10, 60)))
    ]
    rows = sorted([*full, *long, *short], key=lambda job: float(job.get("submit_time", 0.0)))
    return make_trace([{"gpus": 1, **row} for row in rows], users=USERS)


def due_s(plain: Run) -> np.ndarray:
    """Return when each job is overdue, `(n_jobs,)`."""
    start_time, submit_time = plain.outcomes["start_time"], plain.trace.jobs["submit_time"]
    return np.asarray(start_time + np.maximum(BOUND_S, 0.5 * (start_time - submit_time)))


@pytest.mark.slow
@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(trace=attacks())
def test_only_overdue_jobs_start_before_an_overdue_one(trace: Trace) -> None:
    plain, advised = (run_of(trace, TWO_GPUS, policy, WEIGHED) for policy in ("slurm", "lift"))
    due, start_time = due_s(plain), advised.outcomes["start_time"]

    for row in np.flatnonzero(start_time > due + CYCLE_S + PASS_S).tolist():
        since_then = (start_time > due[row] + CYCLE_S + PASS_S) & (start_time < start_time[row])
        assert (start_time[since_then] > due[since_then]).all()


def test_bound_shortens_the_longest_delay() -> None:
    long = {"user": "long", "submit_time": 10.0, "gpus": 1, "run_time_s": 5000.0, "time_limit_s": 6000.0}
    short = [
        {"user": "short", "submit_time": 20.0 + 150.0 * n, "gpus": 1, "run_time_s": 400.0, "time_limit_s": 600.0}
        for n in range(80)
    ]
    full = {"user": "full", "gpus": 1, "run_time_s": 1000.0, "time_limit_s": 1200.0}
    trace = make_trace([full, full, long, *short], users=USERS)
    loose = replace(WEIGHED, limits=replace(WEIGHED.limits, max_lateness_s=1e9))

    plain, unbounded, bounded = (
        run_of(trace, TWO_GPUS, policy, options).outcomes["start_time"][2]
        for policy, options in (("slurm", WEIGHED), ("lift", loose), ("lift", WEIGHED))
    )

    assert unbounded > plain + 2 * BOUND_S
    # Once it is overdue it waits for a GPU, the longest job of which takes 600 s, and for the next cycle.
    assert bounded <= plain + BOUND_S + 600.0 + CYCLE_S + PASS_S


ONE_NODE: Final = parse_cluster("nodes=1,gpus=4")
CPUS_PER_GPU: Final = 16
FIVE: Final = ("ann", "bob", "cy", "dan", "eve")
ACCOUNTS: Final = 10
PARTS: Final = 8
COPIES: Final = 2
# Percentage points of the time until the work of a user is done.
MOST_BEYOND_PLAIN: Final = 25.0

Jobs = NDArray[np.void]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Submissions:
    """A trace in which one user may play; `piece` is the row of each job in the honest one, `(n_jobs,)`."""

    trace: Trace
    piece: NDArray[np.intp]
    submit_time: Floats  # of the pieces

    def done_s(self, end_time: Floats) -> Floats:
        """Return the time from the submission of each piece of work to the end of its last part, `(n_pieces,)`."""
        last = np.full(len(self.submit_time), -np.inf)
        np.maximum.at(last, self.piece, end_time)
        return np.asarray(last - self.submit_time)


def saturated() -> Trace:
    """Return two days of jobs of five users for more GPUs than there are, with limits two to five times too long."""
    rng = np.random.default_rng(5)
    count = 150
    run_time_s = np.round(np.clip(HOUR_S * np.exp(rng.normal(0.0, 1.0, count)), 300.0, 12 * HOUR_S))
    limit_s = np.ceil(run_time_s * rng.uniform(2.0, 5.0, count) / HOUR_S) * HOUR_S
    submit_time = np.sort(rng.uniform(0.0, 48 * HOUR_S, count))
    trace = make_trace(
        [
            {
                "submit_time": float(submit_time[row]),
                "run_time_s": float(run_time_s[row]),
                "time_limit_s": float(limit_s[row]),
                "gpus": int(rng.choice((1, 2, 4), p=(0.6, 0.3, 0.1))),
                "user": FIVE[int(rng.integers(len(FIVE)))],
            }
            for row in range(count)
        ],
        users=FIVE,
    )
    trace.jobs["account"] = trace.jobs["user"] % ACCOUNTS
    return replace(trace, accounts=tuple(f"account{number}" for number in range(ACCOUNTS)))


def split(own: Jobs) -> tuple[Jobs, NDArray[np.intp]]:
    """Submit each long job as eight side by side, of the same width; return the jobs and the row of each one's job."""
    count = np.where(own["time_limit_s"] > HOUR_S, PARTS, 1)
    row = np.repeat(np.arange(len(own)), count)
    jobs = own[row]
    jobs["run_time_s"] /= count[row]
    jobs["time_limit_s"] = np.ceil(jobs["time_limit_s"] / count[row] / MINUTE_S) * MINUTE_S
    return jobs, row


def split_over_accounts(own: Jobs) -> tuple[Jobs, NDArray[np.intp]]:
    """Split, and take four accounts in turn."""
    jobs, row = split(own)
    jobs["account"] = (jobs["account"] + np.arange(len(jobs)) % 4) % ACCOUNTS
    return jobs, row


def one_gpu_of_a_whole_node(own: Jobs) -> tuple[Jobs, NDArray[np.intp]]:
    """Ask for one GPU and a node of one's own, where a job fills the node."""
    jobs, fills = own.copy(), own["gpus"] == ONE_NODE.gpus
    _ask_for_one_gpu(jobs, fills)
    jobs["nodes_min"] = jobs["nodes_max"] = np.where(fills, 1, 0)
    jobs["exclusive"] = fills
    return jobs, np.arange(len(own))


def one_gpu_and_the_cpus_of_all(own: Jobs) -> tuple[Jobs, NDArray[np.intp]]:
    """Ask for one GPU and for the CPUs of all that are used, where a job uses several."""
    jobs, several = own.copy(), own["gpus"] > 1
    _ask_for_one_gpu(jobs, several)
    jobs["cpus"] = np.where(several, CPUS_PER_GPU * own["gpus"], own["cpus"])
    return jobs, np.arange(len(own))


def _ask_for_one_gpu(jobs: Jobs, which: NDArray[np.bool_]) -> None:
    for name in ("gpus", "gpus_min", "gpus_max"):
        jobs[name] = np.where(which, 1, jobs[name])


STRATEGIES: Final[Mapping[str, Callable[[Jobs], tuple[Jobs, NDArray[np.intp]]]]] = {
    "split": split,
    "accounts": split_over_accounts,
    "exclusive": one_gpu_of_a_whole_node,
    "cpus": one_gpu_and_the_cpus_of_all,
}


def honest(trace: Trace) -> Submissions:
    return Submissions(trace=trace, piece=np.arange(len(trace)), submit_time=trace.jobs["submit_time"].copy())


def submitted(trace: Trace, user: int, strategy: str) -> Submissions:
    """Return a trace in which a user submits by a strategy."""
    is_own = trace.jobs["user"] == user
    own, others = np.flatnonzero(is_own), np.flatnonzero(~is_own)
    jobs, row = STRATEGIES[strategy](trace.jobs[own])
    jobs["job_id"] = np.arange(len(jobs)) + trace.jobs["job_id"].max() + 1
    rows, piece = np.concatenate([trace.jobs[others], jobs]), np.concatenate([others, own[row]])
    order = np.lexsort((rows["job_id"], rows["submit_time"]))
    return replace(honest(trace), trace=replace(trace, jobs=rows[order]), piece=piece[order])


@cache
def mean_s(copy: int, user: int, strategy: str | None, fairness: Fairness | None) -> float:
    """Return the mean time until a piece of work of a user is done, under lifts at a fairness or under plain Slurm."""
    trace = perturbed(saturated(), copy, 0).trace
    game = submitted(trace, user, strategy) if strategy else honest(trace)
    limits = Limits(fairness=fairness) if fairness else Limits()
    options = SimulationOptions(execution="ideal", limits=limits, advise_every_s=1800.0)
    outcomes = simulate(game.trace, ONE_NODE, "lift" if fairness else "slurm", options=options).outcomes
    return float(np.nanmean(game.done_s(outcomes["end_time"])[trace.jobs["user"] == user]))


def gain(strategy: str, fairness: Fairness | None, user: int) -> float:
    """Return by how much less time the work of a user takes than if submitted honestly, in percent."""
    changes = [mean_s(copy, user, strategy, fairness) / mean_s(copy, user, None, fairness) for copy in range(COPIES)]
    return 100.0 * (1.0 - float(np.mean(changes)))


def players() -> list[int]:
    """Return the users with the most GPU-time, the median one and the one with the least."""
    jobs = saturated().jobs
    by_work = np.argsort(np.bincount(jobs["user"], jobs["run_time_s"] * jobs["gpus"]))
    return [int(by_work[place]) for place in (-1, len(by_work) // 2, 0)]


def beyond(strategy: str) -> float:
    """Return the mean gain that plain Slurm does not give; users who would lose by it submit honestly."""
    return float(np.mean([gain(strategy, "trade", user) - max(0.0, gain(strategy, None, user)) for user in players()]))


@pytest.mark.parametrize("strategy", ["split", "accounts"])
def test_dividing_work_neither_adds_to_it_nor_takes_from_it(strategy: str) -> None:
    trace = saturated()

    game = submitted(trace, players()[0], strategy)

    jobs, before = game.trace.jobs, trace.jobs
    assert len(jobs) > len(before)
    work_s = np.bincount(game.piece, jobs["run_time_s"] * jobs["gpus"])
    assert np.allclose(work_s, before["run_time_s"] * before["gpus"])
    others = before["user"][game.piece] != players()[0]
    assert np.array_equal(jobs["job_id"][others], before["job_id"][before["user"] != players()[0]])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("strategy", "most"),
    [("split", MOST_BEYOND_PLAIN), ("accounts", MOST_BEYOND_PLAIN), ("exclusive", 5.0), ("cpus", 5.0)],
)
def test_what_gaming_gains_beyond_plain_slurm_is_bounded(strategy: str, most: float) -> None:
    assert beyond(strategy) <= most


@pytest.mark.slow
def test_lifts_by_size_alone_can_be_gamed_more_than_those_that_weigh_users() -> None:
    gains = {
        fairness: np.mean([gain("accounts", fairness, user) for user in players()]) for fairness in ("trade", "site")
    }

    assert gains["site"] > gains["trade"]
