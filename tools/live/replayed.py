"""Runs the jobs of kept clusters in the simulator, on the model of the same cluster and under the same settings."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from advisor.config import load_config
from advisor.sim.simulated_policy import SimulationOptions
from advisor.sim.study.cell import Cell, simulate_drawn
from advisor.sim.study.result import RunResult, result_of
from advisor.sim.study.sweep import run_sweep
from advisor.sim.traces.trace import Trace
from tools.live.compressed_site import GPUS_PER_NODE
from tools.live.kept import METRICS, Kept
from tools.live.trace_jobs import as_asked

# The longest wait is that of a single job, which no model meets.
MODELLED: Final = tuple(metric for metric in METRICS if metric != "max_queueing_delay_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """A live cluster and its jobs in the simulator, both in compressed time."""

    arm: str
    speedup: float
    live: RunResult
    simulated: RunResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Says how close the simulator comes to clusters in one metric, over runs; means are in the time of the trace."""

    arm: str
    policy: str
    metric: str
    runs: int
    live: float
    simulated: float
    percent: float
    worst_percent: float


def options_of(arm: Kept) -> SimulationOptions:
    """Return the settings of the daemon of a cluster; the defaults where there was none."""
    if arm.config is None:
        return SimulationOptions()
    config = load_config(arm.config, {})
    return SimulationOptions(
        planning=config.planning,
        limits=config.guard,
        advise_every_s=float(config.daemon.interval_s),
        twin_every_s=float(config.daemon.twin_interval_s),
        models=config.forecasts.models,
        begins_at=arm.zero_time,
    )


def replayed(arms: Sequence[Kept], *, store: Path | None) -> list[Replayed]:
    """Simulate the jobs of each cluster under the policies that stand for its own."""
    pairs = [(arm, policy) for arm in arms for policy in arm.arm.simulated()]
    cells = [
        Cell(
            trace=begun(arm),
            cluster=arm.cluster,
            policy=policy,
            seed=arm.run.seed,
            options=options_of(arm),
        )
        for arm, policy in pairs
    ]
    results = run_sweep(cells, store=store, simulate=simulate_drawn)
    return [
        Replayed(arm=arm.name, speedup=arm.site.speedup, live=result_of(arm.run), simulated=result)
        for (arm, _), result in zip(pairs, results, strict=True)
    ]


def begun(arm: Kept) -> Trace:
    """Return the jobs of a cluster from when it worked out priorities, as the simulator does first."""
    trace = as_asked(arm.run.trace, GPUS_PER_NODE)
    trace.jobs["submit_time"] += (arm.zero_time - arm.priorities_time) % arm.site.priority_calc_s
    return trace


def agreements(runs: Sequence[Replayed]) -> Iterator[Agreement]:
    """Yield how close each policy comes to each cluster, metric by metric; the change is the mean over runs."""
    for arm, policy in dict.fromkeys((run.arm, run.simulated.summary.policy) for run in runs):
        own = [run for run in runs if (run.arm, run.simulated.summary.policy) == (arm, policy)]
        for metric in MODELLED:
            live, simulated = (
                np.array([_value(run, result, metric) for run, result in pairs])
                for pairs in ([(run, run.live) for run in own], [(run, run.simulated) for run in own])
            )
            # A metric can be 0 on both, as communication is without gangs.
            percents = 100.0 * (np.divide(simulated, live, out=np.ones(len(own)), where=simulated != live) - 1.0)
            yield Agreement(
                arm=arm,
                policy=policy,
                metric=metric,
                runs=len(own),
                live=float(live.mean()),
                simulated=float(simulated.mean()),
                percent=float(percents.mean()),
                worst_percent=float(percents[np.abs(percents).argmax()]),
            )


def _value(run: Replayed, result: RunResult, metric: str) -> float:
    value = float(getattr(result.summary, metric))
    return value * run.speedup if metric.endswith("_s") else value
