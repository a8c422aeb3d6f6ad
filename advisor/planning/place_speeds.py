"""Forecasts how fast a pending gang runs on some nodes, by the performance model of a policy that places gangs."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from advisor.domain.job import Job
from advisor.features.nodes import NodeTable, rows_of
from advisor.features.observe.graph import Floats, Residents, Rows
from advisor.features.observe.known_models import KnownModels, SiteSpeeds
from advisor.features.observe.snapshot_graph import residents_of_jobs
from advisor.planning.case import Case


def type_codes(table: NodeTable, models: KnownModels) -> Rows:
    """Return the GPU type of each node by the code that a performance model has for it, that of its most GPUs."""
    if models.speeds is None or not table.gpu_types:
        return np.zeros(len(table.names), np.intp)
    codes = models.speeds.type_codes(table.gpu_types)
    return np.asarray(codes[table.gpus_total.argmax(axis=1)])


@dataclass(frozen=True, kw_only=True)
class PlaceSpeeds:
    """Forecasts speeds on the nodes of one snapshot, beside the gangs that run there then."""

    case: Case
    models: KnownModels
    speeds: SiteSpeeds

    def log_speed(self, job: Job, names: Sequence[str]) -> float | None:
        """Return the logarithm of the speed of a gang on nodes, None where one of them is not known.

        The slowest GPU type and the server with the most interference decide, since a gang waits for its slowest part.
        """
        table = self.case.table
        rows = np.asarray(sorted(rows_of(table, names)), np.intp)
        best = self.case.fitter.fit_in_service(job.gang, job.partitions).best_tier
        if not len(rows) or len(rows) != len(set(names)):
            return None
        model = int(self.models.rows([job.hints.model or ""])[0])
        tier = max(self.case.snapshot.topology.tier_of(names), best)
        beliefs = self.case.beliefs
        inflation = beliefs.inflation(job, tier, best).median / beliefs.inflation(job, best, best).median
        on_place = float(self.speeds.place_weight[model]) * math.log(max(inflation, 1.0))
        beside = float(self._slowed(model)[rows].max()) if len(rows) > 1 else 0.0
        return float(self.speeds.log_speed[model, self._types[rows]].min()) - on_place - math.log1p(beside)

    def _slowed(self, model: int) -> Floats:
        """Return what the running gangs on several nodes add to the run time of a model on each node, `(n_nodes,)`."""
        residents = self._residents
        sends = residents.nodes[residents.gang] > 1
        added = self.speeds.neighbours.added[model, residents.model[residents.gang[sends]]]
        count = len(self.case.table.names)
        return np.bincount(residents.server[sends], added, minlength=count).astype(np.float64)

    @cached_property
    def _types(self) -> Rows:
        return type_codes(self.case.table, self.models)

    @cached_property
    def _residents(self) -> Residents:
        return residents_of_jobs(self.case.snapshot, self.case.table, self.models.rows, lambda _: math.nan)
