"""Cuts a part out of a trace that live clusters can run in minutes: its jobs in compressed time."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.domain.units import HOUR_S, MINUTE_S
from advisor.errors import SimulationError
from advisor.sim.cluster import Cluster
from advisor.sim.study.cell import drawn
from advisor.sim.traces.sampling import REQUESTS
from advisor.sim.traces.trace import TRACE_DTYPE, Trace

# System users that Debian's base files have, in a root file system of any release.
USERS: Final = (
    "games", "man", "lp", "mail", "news", "uucp", "proxy", "www-data", "backup", "list", "irc", "bin", "sys", "daemon",
)  # fmt: skip
PARTITIONS: Final = ("gpu", "short")
# Jobs on one node with limits up to this can go to the partition `short`, and a third of them do.
SHORT_LIMIT_S: Final = 4 * HOUR_S
SHORT_EVERY: Final = 3
# slurmctld takes no shorter limit, and a script lives about this long at least.
LIMIT_STEP_S: Final = MINUTE_S
SHORTEST_RUN_S: Final = 1.0
# What is kept of a job: GPUs alone decide where it fits.
_KEPT: Final = (
    "submit_time", "run_time_s", "gpus", "gpus_min", "gpus_max", "nodes_min", "nodes_max", "time_limit_s", "model",
    "user", "account", "checkpoint_interval_s",
)  # fmt: skip
_TIMES: Final = ("submit_time", "run_time_s", "checkpoint_interval_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Which part of a trace is run, and how fast.

    A run takes jobs in a row from a place that `seed` draws, of those whose time limit is `longest_s` at most and that
    take half of the cluster at most: as many as bring `load` times the GPU-time that the cluster has within `span_s`,
    or `jobs` if that is not 0. Their submissions are moved closer or apart to that load. One second on the live cluster
    stands for `speedup` seconds of the trace. Of the jobs before them, up to `past_jobs` are what accounting holds.
    """

    seed: int
    load: float
    span_s: float
    longest_s: float
    speedup: float
    jobs: int = 0
    requests: str = "usual"
    past_jobs: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceWindow:
    """The jobs of a cut, and those that ended before the first of them was submitted, both in compressed time."""

    trace: Trace
    past: Trace


def window_and_past(trace: Trace, cluster: Cluster, cut: Cut) -> TraceWindow:
    """Return the jobs of a cut and its past, with what the trace lacks drawn; raises `SimulationError`.

    The past ran without a wait, at instants below 0.
    """
    jobs = np.zeros(len(trace), TRACE_DTYPE)
    for name in _KEPT:
        jobs[name] = trace.jobs[name]
    jobs["job_id"] = np.arange(1, len(jobs) + 1)
    jobs["gpu_type"] = -1
    jobs["recorded_start_time"] = np.nan
    bare = Trace(name=trace.name, jobs=jobs, users=trace.users, accounts=trace.accounts, models=trace.models)
    whole = drawn(bare, cluster, cut.seed, REQUESTS[cut.requests])
    rows, before = _rows(whole.jobs, cluster, cut)
    part, past = (replace(whole, jobs=whole.jobs[taken]) for taken in (rows, before))
    past.jobs["submit_time"] -= part.jobs["submit_time"][0]
    part.jobs["submit_time"] = _submit_times(part.jobs, cluster.gpus, cut.load)
    part.jobs["job_id"] = np.arange(1, len(part) + 1)
    code_of = np.minimum(_ranks(part.jobs["user"], len(part.users)), len(USERS) - 1)
    found = (_renamed(_in_partitions(_compressed(taken, cut.speedup), cut), code_of) for taken in (part, past))
    return TraceWindow(trace=next(found), past=next(found))


def _rows(jobs: NDArray[np.void], cluster: Cluster, cut: Cut) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the rows of a cut, `(n_jobs,)`, and those of its past, `(n_past,)`.

    To leave out long jobs by their run times would leave those whose limits say little.
    """
    fits = (jobs["gpus"] <= cluster.gpus // 2) & (jobs["nodes_min"] <= len(cluster.node_names) // 2)
    usable = np.flatnonzero((jobs["time_limit_s"] <= cut.longest_s) & (jobs["gpus"] > 0) & fits)
    work_s = np.concatenate([[0.0], np.cumsum(jobs["run_time_s"][usable] * jobs["gpus"][usable])])
    ends = np.searchsorted(work_s, work_s[:-1] + cut.load * cut.span_s * cluster.gpus)
    if cut.jobs:
        ends = np.arange(len(usable)) + cut.jobs
    starts = np.flatnonzero(ends <= len(usable))
    if not len(starts):
        raise SimulationError(
            f"the trace has {len(usable)} jobs with limits of {cut.longest_s / HOUR_S:g} h at most, too few: ask for "
            "fewer, for a shorter span or for a smaller cluster"
        )
    start = int(np.random.default_rng([cut.seed, 19]).choice(starts))
    end_time = jobs["submit_time"][usable[:start]] + jobs["run_time_s"][usable[:start]]
    past = usable[:start][end_time <= jobs["submit_time"][usable[start]]]
    return usable[start : ends[start]], past[max(0, len(past) - cut.past_jobs) :] if cut.past_jobs else past[:0]


def _submit_times(jobs: NDArray[np.void], cluster_gpus: int, load: float) -> NDArray[np.float64]:
    """Return the instants of submission at a load, `(n_jobs,)`, the first at 0."""
    since = jobs["submit_time"] - jobs["submit_time"][0]
    wanted_s = float((jobs["run_time_s"] * jobs["gpus"]).sum()) / cluster_gpus / load
    return np.asarray(since * wanted_s / max(float(since[-1]), 1.0))


def _compressed(trace: Trace, speedup: float) -> Trace:
    """Return a trace whose clock runs `speedup` times as fast; limits are whole minutes, as slurmctld has them."""
    jobs = trace.jobs.copy()
    for name in _TIMES:
        jobs[name] /= speedup
    jobs["run_time_s"] = np.maximum(jobs["run_time_s"], SHORTEST_RUN_S)
    jobs["time_limit_s"] = np.ceil(jobs["time_limit_s"] / speedup / LIMIT_STEP_S) * LIMIT_STEP_S
    return replace(trace, jobs=jobs)


def _in_partitions(trace: Trace, cut: Cut) -> Trace:
    """Return a trace that sends some short jobs on one node to the partition of their own."""
    jobs = trace.jobs.copy()
    is_short = (jobs["time_limit_s"] * cut.speedup <= SHORT_LIMIT_S) & (jobs["nodes_max"] == 1)
    chosen = np.random.default_rng([cut.seed, 20]).integers(SHORT_EVERY, size=len(jobs)) == 0
    jobs["partition"] = PARTITIONS.index("gpu")
    jobs["partition"][is_short & chosen] = PARTITIONS.index("short")
    return replace(trace, jobs=jobs, partitions=PARTITIONS)


def _renamed(trace: Trace, code_of: NDArray[np.intp]) -> Trace:
    """Return a trace whose users are those of the system, by their codes; the one with most jobs in the cut is first.

    Many share the last ones.
    """
    jobs = trace.jobs.copy()
    jobs["user"] = code_of[jobs["user"]]
    return replace(trace, jobs=jobs, users=USERS)


def _ranks(codes: NDArray[np.int32], count: int) -> NDArray[np.intp]:
    """Return the place of each code by how often it occurs, `(count,)`, the most frequent one first."""
    order = np.argsort(-np.bincount(codes, minlength=count), kind="stable")
    ranks = np.empty(count, np.intp)
    ranks[order] = np.arange(count)
    return ranks


def accounts_by_user(trace: Trace) -> Sequence[tuple[str, str]]:
    """Return the accounts and users of the jobs of a trace, each pair once."""
    pairs = np.unique(np.stack([trace.jobs["account"], trace.jobs["user"]], axis=1), axis=0)
    return [(trace.accounts[account], trace.users[user]) for account, user in pairs.tolist()]
