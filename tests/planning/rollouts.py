"""A rollout in which every change shifts the completion of all jobs by a known amount."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from advisor.domain.actions import Action
from advisor.planning.case import Case
from advisor.planning.rollout import RolloutValues, Scenario


@dataclass(frozen=True, kw_only=True)
class FakeRollout:
    """Shift the completion of all jobs by `shift_s[action](draw)` for each change; `calls` holds all plans."""

    shift_s: Mapping[Action, Callable[[int], float]]
    calls: list[list[frozenset[Action]]] = field(default_factory=list)

    def values(
        self, case: Case, plans: Sequence[Scenario], *, horizon_s: float, draws: int, first_draw: int = 0
    ) -> RolloutValues:
        self.calls.append([frozenset(timed.action for timed in plan) for plan in plans])
        jobs = case.snapshot.jobs
        start_s = np.zeros((len(plans), draws, len(jobs)))
        for number, plan in enumerate(plans):
            for place, draw in enumerate(range(first_draw, first_draw + draws)):
                shift_s = sum(self.shift_s[timed.action](draw) for timed in plan if timed.action in self.shift_s)
                start_s[number, place] = 5000.0 + 10.0 * np.random.default_rng(draw).random() + shift_s
        completion_s = start_s + 600.0
        return RolloutValues(
            job_ids=np.array([job.job_id for job in jobs]),
            gpus=np.ones(len(jobs), dtype=np.int64),
            was_pending=np.array([job.is_pending for job in jobs]),
            start_s=start_s,
            end_s=completion_s,
            completion_s=completion_s,
            horizon_s=horizon_s,
            left_out=(),
        )
