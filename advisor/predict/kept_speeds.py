"""Forecasts the speeds of the jobs of a queue, cycle after cycle; equal requests are forecast once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from advisor.domain.forecast import MOST_RATIO, Interval, Placement
from advisor.domain.job import GpuRange, Job
from advisor.predict.kept_run_times import CHUNK, listed
from advisor.predict.placements import PlacementIndex, candidates
from advisor.predict.throughput import PlacementTable, ThroughputForecaster

# What the speeds of a job depend on: its model and GPU type, the GPUs on the largest node there is for it, the GPUs it
# asks for, and its range.
_Asked = tuple[str | None, str | None, int, int | None, GpuRange | None]


@dataclass(frozen=True, slots=True)
class Speeds:
    """The speeds of a job by placement; `all_known` is False where the model does not know some of them."""

    by_placement: Mapping[Placement, Interval]
    all_known: bool


class KeptSpeeds:
    """The throughput model with its last answers; it holds those of the last queue alone."""

    def __init__(self, model: ThroughputForecaster) -> None:
        """Take a model, without any answers kept."""
        self.model = model
        self._kept: dict[_Asked, Speeds | None] = {}

    def forecast(self, jobs: Sequence[Job], cluster: PlacementIndex) -> list[Speeds | None]:
        """Return the speeds of pending jobs; None where there is no placement to forecast.

        Raises `ModelError` if the model returns invalid values.
        """
        asked: list[_Asked] = []
        for job in jobs:
            gang, hints = job.gang, job.hints
            asked.append((hints.model, gang.gpu_type, cluster.gpus_on_node(job), gang.gpu_count, hints.gpus))
        # A mapping keeps the order in which jobs come, so that equal queues make equal tables.
        distinct, before = dict.fromkeys(asked), self._kept
        self._kept = {key: before[key] for key in distinct if key in before}
        fresh = [key for key in distinct if key not in self._kept]
        for start in range(0, len(fresh), CHUNK):
            self._kept.update(self._relative(fresh[start : start + CHUNK]))
        return [self._kept[key] for key in asked]

    def _relative(self, asked: Sequence[_Asked]) -> dict[_Asked, Speeds | None]:
        places = {key: list(candidates(*key[2:])) for key in asked}
        rows = [(key, place) for key in asked for place in places[key]]
        if not rows:
            return dict.fromkeys(asked)
        profile = self.model.codes([model for (model, *_), _ in rows])
        gpu_type = self.model.type_codes([gpu_type for (_, gpu_type, *_), _ in rows])
        # A job that changes its size keeps its batch as a whole (DL2), which fills its GPUs as it is asked for.
        batch = self.model.largest_batches(profile)
        asked_gpus = np.array([places[key][0].placement.gpus for key, _ in rows], dtype=np.float64)
        tables = []
        for placed in ([place for _, place in rows], [places[key][0] for key, _ in rows]):
            gpus = np.array([candidate.placement.gpus for candidate in placed], dtype=np.float64)
            tables.append(
                PlacementTable(
                    profile=profile,
                    gpu_type=gpu_type,
                    gpus=gpus,
                    nodes=np.array([candidate.nodes for candidate in placed], dtype=np.float64),
                    tier=np.array([candidate.placement.tier for candidate in placed], dtype=np.int64),
                    local_batch=batch * asked_gpus / gpus,
                    link_gbps=np.full(len(rows), np.nan),
                )
            )
        speeds_by_key: dict[_Asked, dict[Placement, Interval]] = {key: {} for key in asked}
        ratios = listed(self.model.relative(*tables), least=1 / MOST_RATIO, most=MOST_RATIO)
        for (key, place), interval in zip(rows, ratios, strict=True):
            if interval is not None:
                speeds_by_key[key][place.placement] = interval
        return {
            key: Speeds(by_placement=speeds, all_known=len(speeds) == len(places[key])) if places[key] else None
            for key, speeds in speeds_by_key.items()
        }
