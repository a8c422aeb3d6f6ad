"""Episodes on the model of slurmctld, many side by side: a policy sizes the elastic jobs whose turn is near.

The tables, steps and columns are those of `advisor.features.steps`, as the planner fills them from a snapshot. Sizes,
run times, loads and clusters of the workloads are ours. Those of `TRAINING` are wide, so that the published traces lie
inside, though none of these is among them; those of `SHIFTED` lie outside of them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.domain.units import DAY_S, HOUR_S, MINUTE_S
from advisor.features.steps import OPTION_COLUMNS, RUNGS, ElasticJobs, Steps, Supply, Window, next_steps
from advisor.sim.cluster import Cluster, parse_cluster
from advisor.sim.policies.lifted import by_limits, by_run_times
from advisor.sim.policies.mover import Mover, RunTimes
from advisor.sim.profiles import load_profiles
from advisor.sim.queueing import DONE, FULL
from advisor.sim.runner import simulate
from advisor.sim.simulated_policy import Problem, SimulationOptions, Stopwatch, leave_out
from advisor.sim.slurm.slurm_builder import build_slurm
from advisor.sim.slurm.slurm_cluster import SimulatedSlurm
from advisor.sim.slurm.slurm_state import Slurm
from advisor.sim.slurm.slurmctld import pick_now, run_slurm
from advisor.sim.state import State, build_state, with_room
from advisor.sim.study.cell import drawn
from advisor.sim.traces.sampling import OPEN
from advisor.sim.traces.trace import TRACE_DTYPE, Trace
from tools.train.parted_cluster import completion_times
from tools.train.sizer import Sizer, Sizes, SpeedOf, StepScorer, speeds_by_rule, true_speeds
from tools.train.slots import Bools, Floats32, Integers, SlotStep

LEAF_NODES: Final = 8
SIZES: Final = (1, 2, 4, 8, 16, 32, 64)
SHORTEST_S, LONGEST_S = MINUTE_S, 10 * DAY_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranges:
    """What workloads are drawn from; two numbers are the ends of a range.

    Half of the jobs of several GPUs declare a range of sizes, as where policies are judged. Seeds take the ranges of
    `load_ratios` in turn. `size_shares` are those of `SIZES`.
    """

    jobs: int = 300
    elastic_share: float = 0.5
    nodes: tuple[int, int] = (2, 24)
    gpus_per_node: tuple[int, ...] = (4, 8)
    load_ratios: tuple[tuple[float, float], ...] = ((0.6, 1.4),)
    size_shares: tuple[float, ...] = (0.42, 0.12, 0.15, 0.18, 0.08, 0.04, 0.01)
    median_run_s: tuple[float, float] = (10 * MINUTE_S, 3 * HOUR_S)
    run_spread: tuple[float, float] = (1.0, 2.2)  # standard deviation of the logarithm
    burst: tuple[int, int] = (1, 12)  # jobs that come at once


TRAINING: Final = Ranges()
# Clusters larger than any in training, loads below and above those there, and larger jobs.
SHIFTED: Final = Ranges(
    jobs=600,
    nodes=(32, 64),
    load_ratios=((0.3, 0.6), (1.4, 2.0)),
    size_shares=(0.25, 0.10, 0.15, 0.25, 0.13, 0.09, 0.03),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeWorkload:
    """A trace whose columns are all drawn, and its cluster."""

    trace: Trace
    cluster: Cluster


def workload(seed: int, ranges: Ranges | None = None) -> SizeWorkload:
    """Return the workload of a seed, from the ranges of training unless others are given."""
    ranges = ranges or TRAINING
    count = ranges.jobs
    rng = np.random.default_rng([seed, 18])
    nodes = int(np.exp(rng.uniform(*np.log(ranges.nodes))))
    gpus_per_node = int(rng.choice(ranges.gpus_per_node))
    total = nodes * gpus_per_node
    run_s = rng.uniform(*np.log(ranges.median_run_s)) + rng.uniform(*ranges.run_spread) * rng.standard_normal(count)
    run_time_s = np.clip(np.exp(run_s), SHORTEST_S, LONGEST_S).round()
    gpus = np.minimum(rng.choice(SIZES, count, p=ranges.size_shares), max(1, total // 2))
    load_ratio = rng.uniform(*ranges.load_ratios[seed % len(ranges.load_ratios)])
    period_s = float((run_time_s * gpus).sum()) / total / load_ratio
    burst = int(rng.integers(*ranges.burst, endpoint=True))
    gaps = rng.exponential(size=-(-count // burst)).repeat(burst)[:count]
    gaps[np.arange(count) % burst > 0] = 0.0
    submit_time = np.floor(gaps.cumsum() / gaps.sum() * period_s)
    jobs = np.zeros(count, TRACE_DTYPE)
    jobs["job_id"] = np.arange(1, count + 1)
    jobs["submit_time"], jobs["run_time_s"] = submit_time - submit_time[0], run_time_s
    jobs["gpus"] = jobs["gpus_min"] = jobs["gpus_max"] = gpus
    jobs["time_limit_s"] = np.inf
    jobs["gpu_type"] = jobs["model"] = -1
    jobs["recorded_start_time"] = np.nan
    cluster = parse_cluster(f"nodes={nodes},gpus={gpus_per_node},leaf={LEAF_NODES}")
    trace = Trace(name=f"drawn {seed}", jobs=jobs)
    return SizeWorkload(trace=drawn(trace, cluster, seed, replace(OPEN, elastic=ranges.elastic_share)), cluster=cluster)


Knowledge = tuple[Callable[[Problem, Slurm], RunTimes], Callable[[Problem, SimulatedSlurm], SpeedOf], bool]
# What a site can know: limits and a rule, or forecasts that are right. Each episode draws one.
KNOWLEDGE: Final[Sequence[Knowledge]] = ((by_limits, speeds_by_rule, False), (by_run_times, true_speeds, True))
# Time between two cycles: longer than a site's, for there is seldom a job to size.
EVERY_S: Final = 1200.0
# Later jobs of a larger window are not sized in training.
PLACES: Final = 16


class Episode:
    """One workload under lifts, which pauses whenever elastic jobs are to be sized."""

    def __init__(self, seed: int) -> None:
        """Begin the workload of a seed."""
        drawn = workload(seed)
        options = SimulationOptions(advise_every_s=EVERY_S)
        state = build_state(drawn.trace, drawn.cluster, load_profiles(), ideal=False, loses_work=True)
        rng = np.random.default_rng(seed)
        problem = Problem(
            trace=drawn.trace,
            cluster=drawn.cluster,
            state=state,
            options=options,
            rng=rng,
            tell=lambda _share: None,
            watch=Stopwatch(),
            plain_outcomes=lambda: simulate(drawn.trace, drawn.cluster, "slurm", seed=seed, options=options).outcomes,
        )
        self.slurm = build_slurm(state, drawn.trace, drawn.cluster)
        leave_out(state, lambda row: pick_now(state, self.slurm, row, np.inf))
        run_times, speeds, knows_run_s = KNOWLEDGE[int(rng.integers(len(KNOWLEDGE)))]
        self.mover = Mover(problem, self.slurm, run_times(problem, self.slurm))
        sizes = Sizes(speeds=speeds, choose=_no_choice, knows_run_s=knows_run_s)
        self.sizer: Sizer = sizes.sizer(problem, self.mover)
        self.state: State = state
        self.unit_s = float(state.jobs["work_s"].mean()) * len(state.jobs)
        run_slurm(state, self.slurm, -1.0)

    @property
    def jct_s(self) -> NDArray[np.float64]:
        """The completion times of the jobs so far, `(n_jobs,)`."""
        return completion_times(self.state)

    def advance(self) -> list[Window]:
        """Run up to the next cycle with jobs to size; return their windows, none where all jobs have ended."""
        while True:
            cycle_time = (self.state.tally["now"][0] // EVERY_S + 1.0) * EVERY_S
            stopped = run_slurm(self.state, self.slurm, cycle_time)
            if stopped == DONE:
                return []
            if stopped == FULL:
                self.state = with_room(self.state)
            elif self.state.tally["pending"][0]:
                self.mover.cycle(self.state, cycle_time)
                windows = [window for window in self.sizer.windows(self.state, cycle_time) if _has_steps(window)]
                if windows:
                    return windows


class SlurmEnv:
    """`n` clusters; the actions are a step of one option each, and stop, which is the last.

    An observation is `(2 * PLACES, n_columns)`: the next steps of a window, those of a job side by side, zeros where a
    step is not legal. The reward of a slot is what it adds to the mean job completion time, negative, in units of the
    mean run time of the episode.
    """

    def __init__(self, n: int) -> None:
        """Make the arrays; `reset` begins the episodes."""
        self.n, self.n_actions = n, 2 * PLACES + 1
        self.episodes: list[Episode | None] = [None] * n
        self._windows: list[list[Window]] = [[] for _ in range(n)]
        self._booked_s = np.zeros(n)
        self.jobs = ElasticJobs(
            sizes=np.ones((n, PLACES, RUNGS)),
            speed=np.ones((n, PLACES, RUNGS)),
            asked=np.ones((n, PLACES)),
            first=np.zeros((n, PLACES), np.intp),
            run_s=np.full((n, PLACES), 60.0),
            wait_s=np.zeros((n, PLACES)),
            run_is_forecast=np.zeros((n, PLACES), np.bool_),
            speed_is_forecast=np.zeros((n, PLACES), np.bool_),
            is_there=np.zeros((n, PLACES), np.bool_),
        )
        self.supply = Supply(**{field.name: np.ones(n) for field in fields(Supply)})
        self.rung = np.zeros((n, PLACES), np.intp)

    @property
    def shape(self) -> tuple[int, ...]:
        """The options of a window and their columns."""
        return 2 * PLACES, len(OPTION_COLUMNS)

    def __getstate__(self) -> dict[str, int]:
        """Keep the number of episodes alone: a run begins them again where it goes on."""
        return {"n": self.n}

    def __setstate__(self, state: dict[str, int]) -> None:
        self.__init__(state["n"])  # type: ignore[misc]

    def reset(self, seeds: Sequence[int], rows: Integers | None = None) -> None:
        """Begin the episodes of some seeds, in these rows or in all."""
        for row, seed in zip(range(self.n) if rows is None else rows.tolist(), seeds, strict=True):
            self._begin(row, seed)
        self._look()

    def observe(self) -> Floats32:
        """Return the observations."""
        return self._observation

    def mask(self) -> Bools:
        """Return the legal actions `(n, n_actions)`."""
        return self._mask

    def step(self, action: Integers) -> SlotStep:
        """Take one action in each episode; stop, or no legal step left, ends a window, and the last one the slot."""
        place, kind = np.divmod(action, 2)
        stop = action == self.n_actions - 1
        rows = np.flatnonzero(~stop)
        self.rung[rows, place[rows]] = self.steps.rung[rows, kind[rows], place[rows]]
        self._look()
        reward, done = np.zeros(self.n, np.float32), np.zeros(self.n, np.bool_)
        ended = np.zeros(self.n, np.bool_)
        for row in np.flatnonzero(stop | ~self._mask[:, :-1].any(axis=1)).tolist():
            ended[row], reward[row], done[row] = self._close(row)
        if ended.any() or stop.any():
            self._look()
        none = np.zeros((self.n, 1), np.float32)
        return SlotStep(slot_ended=ended, reward=reward, done=done, touched=np.zeros(self.n, np.int64), gained=none)

    def _begin(self, row: int, seed: int) -> None:
        """Begin an episode; one without jobs to size is followed by the next seed."""
        for following in range(seed, seed + 1000):
            episode = Episode(following)
            windows = episode.advance()
            if windows:
                break
        self.episodes[row], self._windows[row] = episode, windows
        self._booked_s[row] = float(episode.jct_s.sum())
        self._show(row)

    def _close(self, row: int) -> tuple[bool, float, bool]:
        """Write the sizes of a window; return whether the slot ended, its reward, and whether the episode is over."""
        episode, windows = self.episodes[row], self._windows[row]
        if episode is None or not windows:
            return False, 0.0, True
        window = windows.pop(0)
        count = min(len(window.rows), PLACES)
        rung = window.jobs.first.copy()
        rung[:count] = self.rung[row, :count]
        episode.sizer.write(episode.state, window, rung)
        if windows:
            self._show(row)
            return False, 0.0, False
        self._windows[row] = episode.advance()
        sum_s = float(episode.jct_s.sum())
        reward = (self._booked_s[row] - sum_s) / episode.unit_s
        self._booked_s[row] = sum_s
        if self._windows[row]:
            self._show(row)
        else:
            self.jobs.is_there[row] = False
        return True, reward, not self._windows[row]

    def _show(self, row: int) -> None:
        """Fill the tables of a row with its first window."""
        window = self._windows[row][0]
        count = min(len(window.rows), PLACES)
        for field in fields(ElasticJobs):
            getattr(self.jobs, field.name)[row, :count] = getattr(window.jobs, field.name)[:count]
        self.jobs.is_there[row, count:] = False
        for field in fields(Supply):
            getattr(self.supply, field.name)[row] = getattr(window.supply, field.name)
        self.rung[row] = self.jobs.first[row]

    def _look(self) -> None:
        """Work out the next steps."""
        self.steps: Steps = next_steps(self.jobs, self.supply, self.rung)
        legal = np.swapaxes(self.steps.is_legal, 1, 2).reshape(self.n, -1)
        columns = np.swapaxes(self.steps.columns, 1, 2).reshape(self.n, *self.shape)
        self._observation = np.where(legal[..., None], columns, 0.0).astype(np.float32)
        self._mask = np.concatenate([legal, np.ones((self.n, 1), np.bool_)], axis=1)


class ByRule:
    """A teacher that takes the legal step with the highest score above 0."""

    def __init__(self, scorer: StepScorer) -> None:
        """Take a scorer of `tools.train.sizer`."""
        self.scorer = scorer

    def __call__(self, env: "SlurmEnv") -> Integers:
        """Return one action for each episode."""
        scores = np.where(env.steps.is_legal, self.scorer(env.steps, env.supply), 0.0)
        flat = np.swapaxes(scores, 1, 2).reshape(env.n, -1)
        best = flat.argmax(axis=1)
        return np.asarray(np.where(flat[np.arange(env.n), best] > 0.0, best, env.n_actions - 1))


def _no_choice(_steps: Steps, _supply: Supply) -> int | None:
    return None


def _has_steps(window: Window) -> bool:
    return bool(next_steps(window.jobs, window.supply, window.jobs.first).is_legal.any())
