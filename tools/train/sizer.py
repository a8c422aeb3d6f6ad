"""Sizes elastic jobs on the arrays of a simulation, window by window as the planner does on snapshots."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from advisor.domain.actions import limit_factor
from advisor.domain.forecast import NO_FORECAST, Forecasts, JobForecast
from advisor.domain.job import Job
from advisor.domain.site import Partition, longest_limit_s
from advisor.features.nodes import UNTYPED
from advisor.features.policy import best_of
from advisor.features.queue import ANY_TYPE
from advisor.features.steps import (
    PRICE,
    WINDOW,
    Choose,
    Reals,
    Scaling,
    Steps,
    Supply,
    Window,
    climb,
    cost_saved,
    elastic_jobs,
    near,
    supply_of,
)
from advisor.planning.beliefs import Beliefs
from advisor.planning.elastic import scaling_of
from advisor.planning.sizing import needed_limit_s, options
from advisor.predict.queue_speeds import PlacementIndex, QueueSpeeds
from advisor.predict.throughput import ThroughputForecaster
from advisor.settings import Limits, PlanningSettings
from advisor.sim.policies.known_forecaster import KnownForecaster
from advisor.sim.policies.learning import opened
from advisor.sim.policies.mover import Mover, pools_of
from advisor.sim.simulated_policy import Problem
from advisor.sim.slurm.slurm_cluster import SimulatedSlurm
from advisor.sim.slurm.slurmctld import ask_for_pass
from advisor.sim.state import NONE, State

# A step is scored from its own numbers and those of the pool, `(..., 2, n_jobs)`; one of 0 or below is not taken.
StepScorer = Callable[[Steps, Supply], Reals]


def as_asked(steps: Steps, _supply: Supply) -> Reals:
    """Give every job the size that it asks for."""
    return np.where(steps.columns[..., 3] < 0.0, 1.0, 0.0)


def by_gain(steps: Steps, _supply: Supply) -> Reals:
    """Return the run time that each added GPU saves, in seconds: the marginal gain of Optimus."""
    return np.asarray((steps.run_s - steps.run_after_s) / np.maximum(steps.gpus_after - steps.gpus, 1.0))


def by_price(steps: Steps, supply: Supply) -> Reals:
    """Return the share of its cost that a step saves, by the rule `price`."""
    crowd = PRICE * (supply.waiting / supply.capacity)[..., None, None]
    return cost_saved(steps.run_s, steps.run_after_s, crowd * steps.gpus, crowd * steps.gpus_after)


# From a pending job to what is forecast of its speeds.
SpeedOf = Callable[[Job], JobForecast]


@dataclass(slots=True, kw_only=True)
class Sizer:
    """Sizes the pending elastic jobs whose turn is near; a job that it resized keeps its size.

    `speed_of` forecasts the speeds of a job, and `knows_run_s` says whether run times are forecast.
    """

    cluster: SimulatedSlurm
    mover: Mover
    pool_nodes: NDArray[np.int8]  # (n_pools, n_nodes)
    partitions: Mapping[str, Partition]
    settings: PlanningSettings
    limits: Limits
    speed_of: SpeedOf
    knows_run_s: bool
    choose: Choose
    _scaling: dict[int, Scaling | None] = field(default_factory=dict)

    def cycle(self, state: State, now: float) -> None:
        """Size the jobs of each window, and let slurmctld look at the queue."""
        if not state.tally["pending"][0]:
            return
        written = False
        for window in self.windows(state, now):
            written |= self.write(state, window, climb(window.jobs, window.supply, self.choose))
        if written:
            ask_for_pass(self.mover.slurm, now)

    def windows(self, state: State, now: float) -> Iterator[Window]:
        """Yield the windows of all pools."""
        self.cluster.state = state
        rows = self.mover.rows(state)
        jobs, nodes, slurm = state.jobs, state.nodes, self.mover.slurm
        elastic = rows[(jobs["gpus_min"][rows] < jobs["gpus_max"][rows]) & (jobs["resizes"][rows] == 0)]
        if not len(elastic):
            return
        of_jobs = columns_by_code(self.cluster.gpu_types)[1]
        rows = self.startable(state, rows)
        gpus = jobs["gpus"][rows].astype(np.float64)
        node_gpus = int(nodes["gpus"].max(initial=1))
        groups = zip(self.mover.pool[elastic].tolist(), of_jobs[jobs["gpu_type"][elastic]].tolist(), strict=True)
        for pool, gpu_type in sorted(set(groups)):
            rivals, supply = self.supply(state, rows, pool, gpu_type)
            idle, capacity = float(supply.idle), float(supply.capacity)
            soon = rows[rivals][: near(gpus[rivals], idle, capacity)]
            soon = soon[of_jobs[jobs["gpu_type"][soon]] == gpu_type]
            sized = [row for row in soon.tolist() if self._is_sized(state, row, now, node_gpus)]
            for first in range(0, len(sized), WINDOW):
                of_window = np.array(sized[first : first + WINDOW], np.intp)
                self.mover.run_times.update(state, of_window, now)
                tables = [self._scaling[row] for row in of_window.tolist()]
                elastic_table = elastic_jobs(
                    [table for table in tables if table is not None],
                    asked=jobs["gpus"][of_window].astype(np.float64),
                    run_s=self.mover.run_times.run_s[of_window],
                    run_is_forecast=np.full(len(of_window), self.knows_run_s),
                    limit_s=jobs["limit_s"][of_window],
                    wait_s=now - slurm.eligible_time[of_window],
                    limit_ratio=self.limits.max_limit_ratio,
                )
                yield Window(rows=of_window, jobs=elastic_table, supply=supply)

    def startable(self, state: State, rows: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return the pending jobs that the nodes in service could take, all of them idle."""
        jobs, nodes = state.jobs, state.nodes
        of_nodes, of_jobs = columns_by_code(self.cluster.gpu_types)
        in_service = np.bincount(of_nodes[nodes["gpu_type"]], weights=nodes["gpus"] * (nodes["is_up"] == 1))
        largest = np.append(in_service, in_service.sum())  # by type, the last for any
        return np.asarray(rows[jobs["gpus"][rows] <= largest[of_jobs[jobs["gpu_type"][rows]]]])

    def supply(
        self, state: State, rows: NDArray[np.intp], pool: int, gpu_type: int
    ) -> tuple[NDArray[np.bool_], Supply]:
        """Mark those of the pending `rows` that want GPUs of a pool and a type, and return the supply of these."""
        jobs, nodes = state.jobs, state.nodes
        of_nodes, of_jobs = columns_by_code(self.cluster.gpu_types)
        types, is_any = of_jobs[jobs["gpu_type"][rows]], gpu_type == ANY_TYPE
        rivals = (self.mover.pool[rows] == pool) & (is_any | (types == gpu_type) | (types == ANY_TYPE))
        served = (nodes["is_up"] == 1) & (self.pool_nodes[pool] == 1)
        served &= is_any | (of_nodes[nodes["gpu_type"]] == gpu_type)
        return rivals, supply_of(
            capacity=float(nodes["gpus"][served].sum()),
            idle=float(nodes["gpus_free"][served].sum()),
            wanted=float(jobs["gpus"][rows][rivals].sum()),
            waiting=float(np.count_nonzero(rivals)),
            node_gpus=float(nodes["gpus"].max(initial=1)),
        )

    def write(self, state: State, window: Window, rung: NDArray[np.intp]) -> bool:
        """Give the jobs of a window their sizes, and smaller ones a longer limit; return whether any is changed.

        As in a plan, a job keeps its size where its limit cannot be raised as far as a smaller one needs, or where a
        smaller one has too few GPUs for its nodes.
        """
        sizes = np.take_along_axis(window.jobs.sizes, rung[:, None], axis=1)[:, 0].astype(np.int32)
        speeds = np.take_along_axis(window.jobs.speed, rung[:, None], axis=1)[:, 0]
        written = 0
        for row, size, speed in zip(window.rows.tolist(), sizes.tolist(), speeds.tolist(), strict=True):
            job = state.jobs[row]
            limit_s = self._limit_s(state, row, size, speed)
            if size == job["gpus"] or limit_s is None or size < job["nodes_min"]:
                continue
            job["gpus"], job["limit_s"], job["shape"] = size, limit_s, NONE
            job["resizes"] += 1
            written += 1
        state.tally["changes"] += written
        return written > 0

    def _limit_s(self, state: State, row: int, size: int, speed: float) -> float | None:
        """Return the time limit of a job at a size; None if it cannot be raised as far as that needs."""
        limit_s = float(state.jobs["limit_s"][row])
        asked = int(state.jobs["gpus"][row])
        if size >= asked:
            return limit_s
        longest_s = longest_limit_s(self.cluster.job(row).partitions, self.partitions)
        factor = limit_factor(asked, size, 1.0 / speed)
        return needed_limit_s(limit_s, factor, ratio=self.limits.max_limit_ratio, longest_s=longest_s)

    def _is_sized(self, state: State, row: int, now: float, node_gpus: int) -> bool:
        """Return whether a job is to be sized; works out its speeds when it is first seen."""
        job_row = state.jobs[row]
        is_old = now - job_row["submit_time"] >= self.limits.min_job_age_s
        if job_row["gpus_min"] >= job_row["gpus_max"] or job_row["resizes"] or not is_old:
            return False
        if row not in self._scaling:
            self._scaling[row] = self._scaling_of(row, node_gpus)
        return self._scaling[row] is not None

    def _scaling_of(self, row: int, node_gpus: int) -> Scaling | None:
        """Return the sizes and speeds of a job; None if it has no other size."""
        job = self.cluster.job(row)
        if len(options(job)) < 2:
            return None
        beliefs = Beliefs(forecasts=Forecasts(by_job={job.job_id: self.speed_of(job)}), settings=self.settings)
        return scaling_of(job, node_gpus, beliefs)


def columns_by_code(gpu_types: tuple[str, ...]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the columns of a node table that the codes of GPU types stand for: of nodes `(n_codes,)`, and of jobs.

    The latter is `(n_codes + 1,)`: the code of a job that takes any type is -1.
    """
    names = sorted({name or UNTYPED for name in gpu_types})
    of_nodes = [names.index(name or UNTYPED) for name in gpu_types]
    of_jobs = [column if name else ANY_TYPE for name, column in zip(gpu_types, of_nodes, strict=True)]
    return np.array(of_nodes, dtype=np.intp), np.array([*of_jobs, ANY_TYPE], dtype=np.intp)


def by_score(scorer: Callable[[Steps, Supply], NDArray[np.floating]]) -> Choose:
    """Return the choice of the legal step with the highest score above 0."""

    def choose(steps: Steps, supply: Supply) -> int | None:
        return best_of(np.where(steps.is_legal, scorer(steps, supply), 0.0).ravel())

    return choose


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How elastic jobs are sized: what is forecast of their speeds, and how their steps are chosen."""

    speeds: Callable[[Problem, SimulatedSlurm], SpeedOf]
    choose: Choose
    knows_run_s: bool

    def sizer(self, problem: Problem, mover: Mover) -> Sizer:
        """Return what sizes the jobs of a run."""
        cluster = SimulatedSlurm(problem.trace, problem.cluster, problem.state, mover.slurm)
        return Sizer(
            cluster=cluster,
            mover=mover,
            pool_nodes=pools_of(problem, mover.slurm)[2],
            partitions=cluster.snapshot().partitions_by_name,
            settings=problem.options.planning,
            limits=problem.options.limits,
            speed_of=self.speeds(problem, cluster),
            knows_run_s=self.knows_run_s,
            choose=self.choose,
        )


def speeds_by_rule(_problem: Problem, _cluster: SimulatedSlurm) -> SpeedOf:
    """Return no forecasts, so that speeds are those of the settings."""
    return lambda _job: NO_FORECAST


def true_speeds(problem: Problem, cluster: SimulatedSlurm) -> SpeedOf:
    """Return the true speeds, each job alone on its links."""
    return KnownForecaster(cluster, 0.0, problem.rng).forecast


def forecast_speeds(_problem: Problem, cluster: SimulatedSlurm) -> SpeedOf:
    """Return the speeds that the shipped model forecasts for the models that jobs declare."""
    model = QueueSpeeds(ThroughputForecaster.from_bundle(opened("throughput")))
    nodes = PlacementIndex(cluster.snapshot())

    def speed_of(job: Job) -> JobForecast:
        (speeds,) = model.forecast([job], nodes)
        return NO_FORECAST if speeds is None else JobForecast(speed_by_placement=speeds.by_placement)

    return speed_of
