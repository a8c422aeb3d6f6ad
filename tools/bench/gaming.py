"""Measures what one user gains by gaming the lifts, beside what the same user gains by it under plain Slurm.

    python -m tools.bench gaming [--trace FILE --cluster TEXT | --published 'graham 0.9' --data DIR] [--users N]

Several users in turn, from the one with the most GPU-time to the one with the least, submit the same work by each
strategy against honest others. A piece of work is a job as it was submitted; it is done when its last part has ended.
Work is divided without any loss, which a real program does not reach. "gain" is by how much less time the pieces of the
user take from submission to end, in percent of the honest submission under the same policy. "beyond" is that gain less
the gain under plain Slurm, if there is one, in percentage points: its mean over the users, and the "worst", that of the
user who gains most, with standard errors from copies perturbed in time. "others" is the change of the mean JCT of all
other jobs, on average over the users. Without a trace, the demo trace is run on a cluster on which it queues. Where a
trace has fewer than four accounts, its users are dealt to ten.
"""

import argparse
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.errors import SimulationError
from advisor.settings import Limits
from advisor.sim.cluster import Cluster, parse_cluster
from advisor.sim.runner import SimulationOptions, simulate
from advisor.sim.study.perturbation import perturbed
from advisor.sim.traces.trace import Trace
from advisor.sim.traces.trace_file import read_trace
from tools.bench.strategies import STRATEGIES, Submissions, honest, submitted, with_accounts
from tools.data.simulated_traces import add_data_option, data_folder, read_workload

Floats = NDArray[np.float64]

PLAIN: Final = "slurm"
DEFAULT_SETUPS: Final = "trade,site"
DEMO_CLUSTER: Final = "nodes=10,gpus=8"
# Users with fewer jobs show chance.
LEAST_JOBS: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """A simulated policy and its limits."""

    policy: str
    limits: Limits


SETUPS: Final[Mapping[str, Setup]] = {
    PLAIN: Setup(policy="slurm", limits=Limits()),
    "trade": Setup(policy="lift", limits=Limits(fairness="trade")),
    "site": Setup(policy="lift", limits=Limits(fairness="site")),
    "forecast trade": Setup(policy="lift-forecast", limits=Limits(fairness="trade")),
    "forecast site": Setup(policy="lift-forecast", limits=Limits(fairness="site")),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """The mean time from submission to end of the pieces of work of one user, and the mean JCT of all other jobs."""

    user_s: float
    others_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GamingTask:
    """Simulations of one copy: all strategies of one user under one setup."""

    trace: Trace
    cluster: Cluster
    setup: str
    user: int
    strategies: tuple[str, ...]
    every_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GamingEffect:
    """Says what a strategy changes under a setup, in percent; all arrays `(n_copies, n_users)`."""

    gain: Floats
    others: Floats

    def beyond(self, plain: "GamingEffect") -> Floats:
        """Return the part of the gain that plain Slurm does not give, in percentage points.

        Users who gain nothing by a strategy under plain Slurm submit honestly there, and gain nothing.
        """
        pays = plain.gain.mean(axis=0) > 0.0
        return self.gain - np.where(pays, plain.gain, 0.0)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--trace", type=Path, metavar="FILE", help="trace of sadvise, with --cluster")
    parser.add_argument("--cluster", default=DEMO_CLUSTER, help="cluster in the short form, default %(default)s")
    parser.add_argument("--published", metavar="NAME", help="published trace on its cluster, such as 'graham 0.9'")
    add_data_option(parser)
    parser.add_argument("--first", type=int, default=0, metavar="N", help="only the first jobs of the trace")
    parser.add_argument("--strategies", default=",".join(STRATEGIES), help="default %(default)s")
    parser.add_argument(
        "--setups",
        default=DEFAULT_SETUPS,
        help="fairness, after 'forecast' with learned run times; default %(default)s",
    )
    parser.add_argument("--users", type=int, default=4, help="users that play in turn, default %(default)s")
    parser.add_argument("--seeds", type=int, default=4, help="perturbed copies, 2 or more, default %(default)s")
    parser.add_argument("--every", type=float, default=300.0, help="seconds between cycles, default %(default)g")
    parser.add_argument("--jobs", type=int, default=1, help="processes, default %(default)s")


def run(options: argparse.Namespace) -> int:
    """Simulate and print the table."""
    trace, cluster = _workload(options)
    strategies, setups = tuple(options.strategies.split(",")), tuple(options.setups.split(","))
    users = players(trace, options.users)
    print(
        f"{trace.name}: {len(trace)} jobs on {cluster.gpus} GPUs, {options.seeds} copies, users {_named(trace, users)}"
    )
    for name in strategies:
        print(f"  {name:<10} {STRATEGIES[name].summary}")
    effects = measured(
        trace, cluster, users, strategies, setups, copies=options.seeds, every_s=options.every, processes=options.jobs
    )
    print(
        f"\n{'strategy':<10} {'setup':<14} {'gain %':>8} {'beyond':>7} {'s.e.':>5} "
        f"{'worst':>7} {'s.e.':>5} {'others %':>9}"
    )
    for name in strategies:
        for setup in (PLAIN, *setups):
            figures = _figures(effects[name, setup], effects[name, PLAIN], is_plain=setup == PLAIN)
            print(f"{name:<10} {setup:<14} {figures}")
    return 0


def measured(
    trace: Trace,
    cluster: Cluster,
    users: Sequence[int],
    strategies: Sequence[str],
    setups: Sequence[str],
    *,
    copies: int,
    every_s: float = 300.0,
    processes: int = 1,
) -> Mapping[tuple[str, str], GamingEffect]:
    """Return the effects by strategy and setup, plain Slurm included."""
    if copies < 2 or not len(users):
        raise SimulationError("give two copies or more, and a trace with a user of ten jobs or more")
    setups = (PLAIN, *setups)
    tasks = [
        GamingTask(trace=copy, cluster=cluster, setup=setup, user=user, strategies=tuple(strategies), every_s=every_s)
        for copy in (perturbed(trace, repeat, 0).trace for repeat in range(copies))
        for setup in setups
        for user in users
    ]
    if processes > 1:
        with ProcessPoolExecutor(processes) as pool:
            results = list(pool.map(times_of, tasks))
    else:
        results = list(map(times_of, tasks))
    # (n_copies, n_setups, n_users, 1 + n_strategies), the honest submission first
    shape = (copies, len(setups), len(users), 1 + len(strategies))
    user_s, others_s = (
        np.array([[getattr(times, name) for times in result] for result in results]).reshape(shape)
        for name in ("user_s", "others_s")
    )
    return {
        (strategy, setup): GamingEffect(
            gain=100.0 * (1.0 - user_s[:, row, :, column] / user_s[:, row, :, 0]),
            others=100.0 * (others_s[:, row, :, column] / others_s[:, row, :, 0] - 1.0),
        )
        for row, setup in enumerate(setups)
        for column, strategy in enumerate(strategies, start=1)
    }


def times_of(task: GamingTask) -> list[Times]:
    """Simulate the honest submission of a user, then each strategy."""
    games = (honest(task.trace), *(submitted(task.trace, task.user, name) for name in task.strategies))
    return [_times(game, task) for game in games]


def _times(game: Submissions, task: GamingTask) -> Times:
    """Simulate a submission under the setup of a task."""
    setup = SETUPS[task.setup]
    options = SimulationOptions(execution="ideal", limits=setup.limits, advise_every_s=task.every_s)
    end_time = simulate(game.trace, task.cluster, setup.policy, options=options).outcomes["end_time"]
    done_s = game.done_s(end_time)
    own = task.trace.jobs["user"] == task.user
    return Times(user_s=float(np.nanmean(done_s[own])), others_s=float(np.nanmean(done_s[~own])))


def players(trace: Trace, count: int) -> list[int]:
    """Return the users with `LEAST_JOBS` jobs or more, evenly from the most GPU-time to the least, `count` at most."""
    jobs = trace.jobs
    many = np.flatnonzero(np.bincount(jobs["user"]) >= LEAST_JOBS)
    work = np.bincount(jobs["user"], jobs["run_time_s"] * jobs["gpus"])[many]
    by_work = many[np.argsort(-work, kind="stable")]
    places = np.unique(np.linspace(0, len(many) - 1, min(count, len(many))).round().astype(np.intp))
    return [int(user) for user in by_work[places]]


def _workload(options: argparse.Namespace) -> tuple[Trace, Cluster]:
    if options.published:
        workload = read_workload(data_folder(options.data, holds="traces"), options.published)
        trace, cluster = workload.trace, workload.cluster()
    else:
        trace = read_trace(options.trace or Path(str(files("advisor") / "demo" / "trace.csv")))
        cluster = parse_cluster(options.cluster)
    if options.first:
        trace = replace(trace, jobs=trace.jobs[: options.first])
    return with_accounts(trace), cluster


def _named(trace: Trace, users: Sequence[int]) -> str:
    """Return the users with their jobs and their shares of the GPU-time."""
    jobs = trace.jobs
    work = np.bincount(jobs["user"], jobs["run_time_s"] * jobs["gpus"])
    count = np.bincount(jobs["user"])
    return ", ".join(f"{trace.users[user]} ({count[user]} jobs, {work[user] / work.sum():.1%})" for user in users)


def _figures(effect: GamingEffect, plain: GamingEffect, *, is_plain: bool) -> str:
    if is_plain:
        return f"{effect.gain.mean():>8.1f} {'':>28}{effect.others.mean():>9.2f}"
    beyond = effect.beyond(plain)
    worst = int(beyond.mean(axis=0).argmax())
    mean, one = beyond.mean(axis=1), beyond[:, worst]
    return (
        f"{effect.gain.mean():>8.1f} {mean.mean():>7.1f} {_error(mean):>5.1f} {one.mean():>7.1f} {_error(one):>5.1f} "
        f"{effect.others.mean():>9.2f}"
    )


def _error(values: Floats) -> float:
    """Return the standard error of the mean of some copies."""
    return float(values.std(ddof=1) / np.sqrt(len(values)))
