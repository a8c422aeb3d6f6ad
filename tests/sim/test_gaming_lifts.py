"""What one user gains by gaming the lifts, beyond what plain Slurm gives for the same submissions."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

import numpy as np
import pytest
from numpy.typing import NDArray

from advisor.domain.units import HOUR_S, MINUTE_S
from advisor.settings import Fairness, Limits
from advisor.sim.cluster import parse_cluster
from advisor.sim.runner import SimulationOptions, simulate
from advisor.sim.study.perturbation import perturbed
from advisor.sim.traces.trace import Trace
from tests.sim.building import make_trace

ONE_NODE: Final = parse_cluster("nodes=1,gpus=4")
CPUS_PER_GPU: Final = 16
USERS: Final = ("ann", "bob", "cy", "dan", "eve")
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
                "user": USERS[int(rng.integers(len(USERS)))],
            }
            for row in range(count)
        ],
        users=USERS,
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
