"""Computes what would come of plans, on the model of slurmctld: many plans, each under the same draws."""

import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from queue import SimpleQueue
from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.domain.dataclass import dataclass
from advisor.domain.units import duration
from advisor.errors import SimulationError
from advisor.planning.case import Case
from advisor.planning.rollout import RolloutValues, Scenario
from advisor.sim.live.continuation import Continuation, Workspace
from advisor.sim.live.draws import by_forecasts, uniforms, within_limits
from advisor.sim.live.forecast_paces import Paces
from advisor.sim.live.snapshot_model import model_of

# What numbers are drawn for, beside run times.
_PLACES: Final = 1
# The parts of a horizon after which two runs show how fast the rest goes, and how many times its limit that may take:
# an estimate from so little is off by a factor of two.
_PARTS: Final = (1 / 48, 1 / 24)
_CLEARLY: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmRollout:
    """Roll plans out on the model of slurmctld; equal inputs and seeds give equal values with any number of threads.

    No further jobs arrive. In a pass of backfill the first `places` jobs that wait get a reservation, 0 for as many as
    slurmctld tests: most of the time goes into reservations, and those far down the line hardly change a mean.
    With a `limit_s`, in seconds, a rollout that would clearly take longer ends at its beginning.
    """

    seed: int = 0
    threads: int = 0  # 0: one for each CPU
    places: int = 100
    limit_s: float = 0.0

    def values(
        self, case: Case, plans: Sequence[Scenario], *, horizon_s: float, draws: int, first_draw: int = 0
    ) -> RolloutValues:
        """Simulate every plan under the same draws of run times, from the number `first_draw` on.

        Raises `SimulationError` for a snapshot without anything to simulate, and where it would take too long.
        """
        model = model_of(case.snapshot)
        numbers = range(first_draw, first_draw + draws)
        run_time_s = by_forecasts(
            model,
            case.forecasts,
            uniforms(model, numbers, self.seed),
            used_limit_ratio_low=case.settings.used_limit_ratio_low,
        )
        run_time_s = within_limits(model, run_time_s, horizon_s)
        paces = Paces.of(case, model, uniforms(model, numbers, self.seed, of=_PLACES))
        continuation = Continuation(model, places=self.places, paces=paces)
        if self.limit_s > 0.0:
            expected_s = len(plans) * draws / (self.threads or 1) * _run_s(continuation, run_time_s[0], horizon_s)
            if expected_s > _CLEARLY * self.limit_s:
                raise SimulationError(f"its rollouts would take about {duration(expected_s)}")
        return roll_out(continuation, plans, run_time_s, horizon_s=horizon_s, threads=self.threads)


def _run_s(continuation: Continuation, run_time_s: NDArray[np.float64], horizon_s: float) -> float:
    """Return the CPU time that a run over a horizon is expected to take, by the first parts of it."""
    space, times_s = continuation.workspace(), []
    for part in _PARTS:
        begun_s = time.thread_time()
        continuation.run(space, run_time_s, horizon_s=part * horizon_s)
        times_s.append(time.thread_time() - begun_s)
    pace = max(0.0, times_s[1] - times_s[0]) / (_PARTS[1] - _PARTS[0])
    return times_s[0] + (1.0 - _PARTS[0]) * pace


def roll_out(
    continuation: Continuation,
    plans: Sequence[Scenario],
    run_time_s: NDArray[np.float64],
    *,
    horizon_s: float,
    threads: int = 0,
) -> RolloutValues:
    """Run every plan under every draw of run times, `(n_draws, n_jobs)`."""
    model = continuation.model
    shape = (len(plans), len(run_time_s), continuation.n_jobs)
    start_s, end_s, completion_s = (np.full(shape, np.nan) for _ in range(3))
    spaces: SimpleQueue[Workspace] = SimpleQueue()
    workers = max(1, min(threads or os.cpu_count() or 1, shape[0] * shape[1]))
    for _ in range(workers):
        spaces.put(continuation.workspace())

    def run(place: tuple[int, int]) -> None:
        plan, draw = place
        space = spaces.get()
        course = continuation.run(space, run_time_s[draw], plans[plan], horizon_s=horizon_s, draw=draw)
        spaces.put(space)
        start_s[place] = course.start_time - model.taken_at
        end_s[place] = course.end_time - model.taken_at
        completion_s[place] = course.completion_time - model.taken_at

    with ThreadPoolExecutor(workers) as pool:
        for _ in pool.map(run, product(range(shape[0]), range(shape[1]))):
            pass
    return RolloutValues(
        job_ids=model.trace.jobs["job_id"].copy(),
        gpus=model.trace.jobs["gpus"].astype(np.int64),
        was_pending=np.isnan(model.start_time),
        start_s=start_s,
        end_s=end_s,
        completion_s=completion_s,
        horizon_s=horizon_s,
        left_out=model.left_out,
    )
