"""Fits by how much lifts promise to start jobs sooner, and holds the promises against what came.

    python -m tools.fit_lift_gain [--data DIR]
    python -m tools.fit_lift_gain --live DIR...

The first command simulates parts of traces under plain Slurm and under the policy `rules`, fits the shares of
`advisor/planning/lift_gain.py`, and prints which share of the intervals holds what came: on the parts that were
fitted, and with the shares in force on parts of other traces. The second does the latter on live runs: it plans their
recorded cycles again, so that runs of earlier versions count as well.
"""

import argparse
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.apply.memory_journal import MemoryJournal
from advisor.apply.step import Step
from advisor.domain.actions import Lever
from advisor.domain.plan import Outcome
from advisor.domain.units import HOUR_S, duration
from advisor.errors import AdvisorError, SimulationError
from advisor.planning.lift import StartsNext
from advisor.planning.lift_gain import SHARES, GainShares, Outlook
from advisor.replay.deviations import AsRecorded, cycle_of
from advisor.sim.cluster import Cluster, parse_cluster
from advisor.sim.policies.advised import AdvisedSlurm, follow, no_forecasts
from advisor.sim.run_outcome import Run
from advisor.sim.runner import simulate
from advisor.sim.simulated_policy import Problem, drive
from advisor.sim.state import State
from advisor.sim.traces.trace import Trace
from tools.data.simulated_traces import add_data_option, data_folder, read_workload
from tools.live.compressed_site import BF_WINDOW_S, GPUS_PER_NODE
from tools.live.kept import read_kept
from tools.live.savings import applied_changes
from tools.live.sbatch_options import as_asked
from tools.live.window import Cut, window_of
from tools.pages.page_text import table

Floats = NDArray[np.float64]

# Traces with the nodes of their clusters, and how many times the cluster's GPU-time the jobs of a part bring.
Source = tuple[str, int, float]
FITTED: Final[tuple[Source, ...]] = (
    ("itp 04", 16, 3.0), ("itp 09", 16, 3.0), ("philly 6c71a0", 4, 3.0), ("philly b436b2", 4, 3.0),
    ("graham 1.0", 16, 3.0),
)  # fmt: skip
OTHERS: Final[tuple[Source, ...]] = (
    ("itp 01", 16, 3.0), ("itp 05", 16, 2.0), ("itp 07", 16, 2.0), ("philly 103959", 8, 1.5), ("philly 2869ce", 4, 2.0),
    ("philly ee9e8c", 4, 3.0),
)  # fmt: skip
FITTED_SEEDS: Final = range(11, 15)
OTHER_SEEDS: Final = range(31, 34)
SPAN_S: Final = 6 * HOUR_S
LONGEST_S: Final = 12 * HOUR_S
# The share of intervals that is to hold what came, in the mean over parts, and the quantiles that are tried for it.
HELD: Final = 0.8
LEVELS: Final = (0.10, 0.09, 0.08, 0.07, 0.06, 0.05)
# Of the lifts of a part that are fitted: a few times as many more change nothing.
MOST_LIFTS: Final = 200
# The share of the parts in which passed jobs are later by `LATER_SHARE` at most.
LATER_LEVEL: Final = 0.9
_RULES: Final = AdvisedSlurm(name="rules", summary="", forecaster=no_forecasts)


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedPart:
    """The first lifts of the jobs of one run, and what came of them, `(n_lifts,)` in seconds.

    `later_share` is by how much the jobs that were never lifted started later, as a share of the work that passed them.
    """

    name: str
    losses_s: Floats  # (n_lifts, 2)
    gains_s: Floats  # (n_lifts, 2)
    came_s: Floats
    later_share: float

    def ends_s(self, shares: GainShares) -> tuple[Floats, Floats]:
        """Return the ends of the intervals, each `(n_lifts,)`."""
        low_s = -self.losses_s @ np.array([shares.ahead, shares.advised])
        return low_s, self.gains_s @ np.array([shares.passed, shares.run])

    def mean_s(self, shares: GainShares) -> Floats:
        """Return what lifts should bring on average, `(n_lifts,)`."""
        return shares.mean * self.gains_s[:, 0]

    def outside(self, shares: GainShares) -> tuple[float, float]:
        """Return which shares of the lifts came to less, and to more, than their intervals."""
        low_s, high_s = self.ends_s(shares)
        return float((self.came_s < low_s).mean()), float((self.came_s > high_s).mean())


class NotingJournal(MemoryJournal):
    """A journal that notes the outlook of the first lift of each job."""

    def __init__(self, noted: dict[int, Outlook]) -> None:
        """Note into a mapping from job ids."""
        super().__init__()
        self._noted = noted

    def receipts(self, cycle_id: int, step: Step) -> None:  # noqa: ARG002  (the protocol's)
        """Note the lifts that were applied."""
        applied = {receipt.action.job_id for receipt in step.applied if receipt.outcome is Outcome.APPLIED}
        for change in step.record.recommendations:
            if isinstance(change.facts, StartsNext) and change.job_id in applied:
                self._noted.setdefault(change.job_id, change.facts.outlook)


@dataclass(frozen=True, slots=True, kw_only=True)
class NotedRules:
    """The policy `rules`, whose lifts are noted."""

    noted: dict[int, Outlook] = field(default_factory=dict)
    name: str = "rules"
    summary: str = ""
    requeue_loses_work: bool = True

    def run(self, problem: Problem) -> State:
        """Run the compiled loop from cycle to cycle."""
        applier, cluster = _RULES.advisor(problem)
        applier, every_s = replace(applier, journal=NotingJournal(self.noted)), problem.options.advise_every_s
        return drive(problem, problem.state, lambda state, until: follow(applier, cluster, state, until, every_s))


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the fit and the shares that it holds, or those of live runs; return the exit code."""
    args = _parser().parse_args(arguments)
    try:
        if args.live:
            parts = [part for folder in args.live for part in live_parts(folder)]
            print(shares_table("Live runs, with the shares in force", parts, SHARES))
            return 0
        folder = data_folder(args.data)
        parts = list(simulated_parts(folder, FITTED, FITTED_SEEDS))
        shares, level = fit(parts)
        later = float(np.quantile([part.later_share for part in parts], LATER_LEVEL))
        print(f"{shares}\nquantiles {level:g} and {1 - level:g}; later share {later:.2f}\n")
        print(shares_table("The parts that were fitted", parts, shares))
        others = list(simulated_parts(folder, OTHERS, OTHER_SEEDS))
        print(shares_table("Parts of other traces, with the shares in force", others, SHARES))
    except AdvisorError as err:
        print(f"fit of the gain of lifts: {err}", file=sys.stderr)
        return 1
    return 0


def simulated_parts(folder: Path, sources: Iterable[Source], seeds: Iterable[int]) -> Iterator[FittedPart]:
    """Simulate the parts of traces that seeds draw, those in which a job is lifted."""
    traces: dict[str, Trace] = {}
    for name, nodes, load in sources:
        trace = traces.setdefault(name, traces.get(name) or read_workload(folder, name).trace)
        for seed in seeds:
            part = simulated_part(trace, cluster_of(nodes), seed=seed, load=load)
            print(f"{name}, {load:g} times the cluster, seed {seed}: {len(part.came_s)} lifts", file=sys.stderr)
            if len(part.came_s):
                yield part


def cluster_of(nodes: int) -> Cluster:
    """Return a cluster whose passes consider all jobs of a part."""
    cluster = parse_cluster(f"nodes={nodes},gpus={GPUS_PER_NODE},leaf={nodes // 4}")
    slurm = replace(cluster.slurm, default_queue_depth=1000, bf_max_job_test=1000, bf_window_s=BF_WINDOW_S)
    return replace(cluster, slurm=slurm)


def simulated_part(trace: Trace, cluster: Cluster, *, seed: int, load: float) -> FittedPart:
    """Simulate a part of a trace without advice and with it."""
    cut = Cut(seed=seed, load=load, span_s=SPAN_S, longest_s=LONGEST_S, speedup=1.0)
    jobs = as_asked(window_of(trace, cluster, cut), GPUS_PER_NODE)
    rules = NotedRules()
    plain, advised = (simulate(jobs, cluster, policy, seed=seed) for policy in ("slurm", rules))
    # A job's id is its row, counted from 1.
    outlook_by_row = {job_id - 1: outlook for job_id, outlook in rules.noted.items()}
    return part_of(trace.name, plain, advised, outlook_by_row)


def live_parts(folder: Path) -> Iterator[FittedPart]:
    """Read a live run, and plan again the cycles in which each cluster with a daemon lifted jobs."""
    arms = read_kept(folder)
    plain = next((arm for arm in arms if arm.policy == "none"), None)
    advised = [arm for arm in arms if arm.journal is not None]
    if plain is None or not advised:
        raise SimulationError(f"{folder}: holds no plain cluster, or none with a daemon")
    for arm in advised:
        row_by_id = {job_id: row for row, job_id in enumerate(arm.job_ids.tolist())}
        noted = {} if arm.journal is None else replanned(arm.journal)
        outlooks = {row_by_id[job_id]: outlook for job_id, outlook in noted.items() if job_id in row_by_id}
        if outlooks:
            name = f"{folder.name}, {arm.name}"
            yield part_of(name, plain.run, arm.run, outlooks, speedup=arm.site.speedup)


def replanned(journal: Path) -> dict[int, Outlook]:
    """Map the jobs that a daemon has lifted to the outlook of their first lift, as this version sees it."""
    found: dict[int, Outlook] = {}
    for recorded, applied in applied_changes(journal):
        cycle = replace(cycle_of(recorded), forecaster=AsRecorded(recorded.forecasts))
        for change in cycle.judge(recorded.snapshot, recorded.memory).recommendations:
            if isinstance(change.facts, StartsNext) and (change.job_id, Lever.NICE) in applied:
                found.setdefault(change.job_id, change.facts.outlook)
    return found


def part_of(
    name: str, plain: Run, advised: Run, outlook_by_row: Mapping[int, Outlook], *, speedup: float = 1.0
) -> FittedPart:
    """Pair the starts of the jobs of two runs, those that started in both; their clock runs `speedup` times as fast."""
    came_s = plain.outcomes["start_time"] - advised.outcomes["start_time"]
    rows = [row for row in sorted(outlook_by_row) if np.isfinite(came_s[row])]
    outlooks = [outlook_by_row[row] for row in rows]
    never = np.isfinite(came_s)
    never[list(outlook_by_row)] = False
    passed_s = sum(outlook.jobs_passed * outlook.own_s for outlook in outlooks)
    return FittedPart(
        name=name,
        losses_s=speedup * np.array([outlook.losses_s for outlook in outlooks]).reshape(-1, 2),
        gains_s=speedup * np.array([outlook.gains_s for outlook in outlooks]).reshape(-1, 2),
        came_s=speedup * came_s[rows],
        later_share=float(-came_s[never].sum()) / max(passed_s, 1e-9),
    )


def fit(parts: Sequence[FittedPart]) -> tuple[GainShares, float]:
    """Return the shares at the highest quantile whose intervals hold what came of enough lifts, and that quantile."""
    mean = mean_share(parts)
    for level in LEVELS:
        ahead, advised = quantile_shares([(part.losses_s, -part.came_s) for part in parts], 1.0 - level)
        passed, run = quantile_shares([(part.gains_s, part.came_s) for part in parts], 1.0 - level)
        shares = GainShares(ahead=ahead, advised=advised, passed=passed, run=run, mean=mean)
        if 1.0 - np.mean([sum(part.outside(shares)) for part in parts]) >= HELD:
            break
    return shares, level


def mean_share(parts: Sequence[FittedPart]) -> float:
    """Return the share of the work passed that lifts bring on average, by least squares; every part counts the same.

    With the mean run time of the line as a second column its share comes out as 0.
    """
    unit_s = [max(1.0, float(np.abs(part.came_s).mean())) for part in parts]
    passed, came = (
        np.concatenate([values / unit / np.sqrt(len(values)) for values, unit in zip(columns, unit_s, strict=True)])
        for columns in ([part.gains_s[:, 0] for part in parts], [part.came_s for part in parts])
    )
    return float(passed @ came / max(passed @ passed, 1e-9))


def quantile_shares(samples: Sequence[tuple[Floats, Floats]], quantile: float) -> tuple[float, ...]:
    """Return the weights of the columns `(n_lifts, n_columns)` whose sum is a quantile of the seconds `(n_lifts,)`.

    Every part counts the same, whatever its number of lifts and its times; of many lifts every second or so is taken.
    """
    # Fits the shares offline, and is not installed with the daemon.
    from sklearn.linear_model import QuantileRegressor

    thinned = [
        (columns_s[:: 1 + len(came_s) // MOST_LIFTS], came_s[:: 1 + len(came_s) // MOST_LIFTS])
        for columns_s, came_s in samples
    ]
    unit_s = [max(1.0, float(np.abs(came_s).mean())) for _, came_s in thinned]
    columns, came = (
        np.concatenate([sample[place] / unit for sample, unit in zip(thinned, unit_s, strict=True)]) for place in (0, 1)
    )
    weight = np.concatenate([np.full(len(came_s), 1.0 / len(came_s)) for _, came_s in thinned])
    model = QuantileRegressor(quantile=quantile, alpha=0.0, fit_intercept=False, solver="highs")
    model.fit(columns, came, sample_weight=weight * len(came))
    return tuple(np.maximum(model.coef_, 0.0).tolist())


def shares_table(title: str, parts: Sequence[FittedPart], shares: GainShares) -> str:
    """Return a table of the shares of intervals that held what came, by trace and for all."""
    heads = (
        "",
        "parts:",
        "lifts:",
        "held:",
        "came to less:",
        "came to more:",
        "came, mean:",
        "expected, mean:",
        "promised, mean:",
    )
    rows = [
        _row(name, [part for part in parts if name in ("all", part.name)], shares)
        for name in (*dict.fromkeys(part.name for part in parts), "all")
    ]
    return f"{title}\n\n{table(heads, rows)}\n"


def _row(name: str, parts: Sequence[FittedPart], shares: GainShares) -> tuple[str, ...]:
    lifts = np.array([len(part.came_s) for part in parts])
    less, more = np.average([part.outside(shares) for part in parts], axis=0, weights=lifts)
    came_s = np.concatenate([part.came_s for part in parts])
    low_s, high_s = (np.concatenate([part.ends_s(shares)[end] for part in parts]) for end in (0, 1))
    return (
        name,
        str(len(parts)),
        str(lifts.sum()),
        f"{100 * (1.0 - less - more):.0f} %",
        f"{100 * less:.0f} %",
        f"{100 * more:.0f} %",
        duration(float(came_s.mean())),
        duration(float(np.concatenate([part.mean_s(shares) for part in parts]).mean())),
        f"{duration(float(low_s.mean()))} to {duration(float(high_s.mean()))}",
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.fit_lift_gain", description=(__doc__ or "").partition("\n")[0]
    )
    add_data_option(parser)
    parser.add_argument("--live", type=Path, nargs="+", metavar="DIR", help="what tools.live.twins has left")
    return parser


if __name__ == "__main__":
    sys.exit(main())
