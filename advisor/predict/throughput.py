"""Forecasts the speed of jobs on other placements: a scaling law, and a graph that corrects it and states its error."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from advisor.errors import ModelError
from advisor.predict.bundle import Bundle
from advisor.predict.interference_items import name_key
from advisor.predict.intervals import Intervals
from advisor.predict.scaling import BEND, FLOOR, VOLUME, Parts, Vector, Work, computing_of, parts_of
from advisor.predict.throughput_adapt import NORMAL
from advisor.predict.throughput_knowledge import Knowledge, live_laws, parse_knowledge, tokens

KIND = "throughput"
COLUMNS = (
    "log_ratio",  # what the law says of asked over base
    "is_profiled",
    "log_gpus",
    "log_nodes",
    "log_pack",
    "log_uneven",
    "is_spread",
    "log_batch",  # all of asked less base
    "size_gpus",
    "size_nodes",
    "size_ratio",
    "size_spread",  # their absolute values
)
OUTPUTS = ("log_correction", "log_deviation")
# Links are not measured; this is what the networks in the training data are taken to give to a flow, in the middle.
USUAL_GBPS = 25.0
_LARGEST_DEVIATION = 0.75
_LEAST_DEVIATION, _MOST_DEVIATION = 0.01, 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementTable:
    """Placements of jobs, row by row; all arrays `(n_rows,)`.

    `profile` and `gpu_type` are codes of the forecaster, -1 where not known; `tier` holds values of `LocalityTier`,
    and NaN in `local_batch` (samples per GPU) and `link_gbps` means not known. `least` and `most` are the fewest and
    the most GPUs on a node; without them the GPUs are as even as can be.
    """

    profile: NDArray[np.int64]
    gpu_type: NDArray[np.int64]
    gpus: NDArray[np.float64]
    nodes: NDArray[np.float64]
    tier: NDArray[np.int64]
    local_batch: NDArray[np.float64]
    link_gbps: NDArray[np.float64]
    least: NDArray[np.float64] | None = None
    most: NDArray[np.float64] | None = None

    def __post_init__(self) -> None:
        columns = [getattr(self, column.name) for column in fields(self)]
        if {column.shape for column in columns if column is not None} != {(len(self.gpus),)}:
            raise ValueError("the columns of a placement table differ in length")
        if not np.all((self.gpus >= self.nodes) & (self.nodes >= 1) & np.isfinite(self.gpus)):
            raise ValueError("a placement has no node, or more nodes than GPUs")

    def __len__(self) -> int:
        return len(self.gpus)

    def work(self, batch: Vector) -> Work:
        """Return the placements with these batches."""
        gpus, nodes = np.asarray(self.gpus, dtype=np.float64), np.asarray(self.nodes, dtype=np.float64)
        least = np.floor(gpus / nodes) if self.least is None else self.least
        most = np.ceil(gpus / nodes) if self.most is None else self.most
        return Work(gpus=gpus, nodes=nodes, least=least, most=most, batch=batch)


class ThroughputForecaster:
    """Forecasts the speeds of many jobs at once, on an unknown network."""

    def __init__(self, knowledge: Knowledge, bundle: Bundle) -> None:
        self._bundle = bundle
        self.knowledge = knowledge
        self.models = tuple(sorted({profile.model for profile in knowledge.profiles}))
        self.clusters = tuple(knowledge.clusters)
        self._laws = live_laws(knowledge, self.models)
        # NaN where a model was never measured on a cluster, and for unknown models.
        self._references = _references(knowledge, self.models)
        self._lowest, self._highest = _batches(knowledge, self.models)
        self._speeds = np.array([*(knowledge.speeds.get(name, np.nan) for name in self.clusters), np.nan])

    @classmethod
    def from_bundle(cls, bundle: Bundle) -> "ThroughputForecaster":
        """Open a throughput model; raises `ModelError` if the bundle is damaged or of another kind."""
        name = f"{bundle.kind} {bundle.version}"
        if bundle.kind != KIND or bundle.columns != COLUMNS or bundle.outputs != OUTPUTS:
            raise ModelError(f"model {name}: it is not a throughput model of this release: fit it again, or roll back")
        return cls(parse_knowledge(bundle.parameters, name), bundle)

    def codes(self, names: Sequence[str | None]) -> NDArray[np.int64]:
        """Return the profile of each model by its name; letters and digits count; -1 where there is none."""
        known = {name_key(name): code for code, name in enumerate(self.models)}
        code_by_name = {name: known.get(name_key(name), -1) for name in set(names)}
        return np.array([code_by_name[name] for name in names], dtype=np.int64)

    def largest_batches(self, codes: NDArray[np.int64]) -> Vector:
        """Return the largest batch per GPU that was measured of each profile, 1 for an unknown one."""
        return np.nan_to_num(self._highest[codes], nan=1.0)

    def type_codes(self, names: Sequence[str | None]) -> NDArray[np.int64]:
        """Return the cluster whose name shares a word with a digit, as `a100`, with each GPU type; -1 for none."""
        words = [tokens(cluster) for cluster in self.clusters]
        code_by_name = {
            name: next((code for code, word in enumerate(words) if word & of_name), -1)
            for name, of_name in ((name, tokens(name)) for name in set(names))
        }
        return np.array([code_by_name[name] for name in names], dtype=np.int64)

    def relative(self, asked: PlacementTable, base: PlacementTable) -> Intervals:
        """Return the speed at `asked` over that at `base`, the same job row by row, with the interval of the ratio."""
        if len(asked) != len(base) or not np.array_equal(asked.profile, base.profile):
            raise ValueError("asked and base have to be the same jobs, row by row")
        above, below = self._work(asked, base)
        thetas = self._laws[asked.profile]
        parts = parts_of(_linked(thetas, asked.link_gbps), above), parts_of(_linked(thetas, base.link_gbps), below)
        samples = np.log(above.gpus * above.batch) - np.log(below.gpus * below.batch)
        by_law = samples - parts[0].total() + parts[1].total()
        rows = columns_of(by_law, asked.profile >= 0, above, below)
        answer = self._bundle.model.run(rows).astype(np.float64)
        is_same = (np.abs(rows[:, 2:]).sum(axis=1) == 0.0) & (np.abs(by_law) < 1e-9)
        deviation = np.exp(np.clip(answer[:, 1], np.log(_LEAST_DEVIATION), np.log(_MOST_DEVIATION)))
        deviation = np.where(is_same, 0.0, deviation)
        type_ratio = self._speeds[asked.gpu_type] - self._speeds[base.gpu_type]
        other_type = asked.gpu_type != base.gpu_type
        median = by_law + np.where(is_same, 0.0, np.clip(answer[:, 0], -1.0, 1.0))
        # Where the law sees no gain beyond perfect scaling, its correction must not either.
        median = np.minimum(median, np.where(samples >= 0.0, np.maximum(by_law, samples), np.inf))
        median = np.maximum(median, np.where(samples <= 0.0, np.minimum(by_law, samples), -np.inf))
        median += np.where(other_type, np.nan_to_num(type_ratio), 0.0)
        known = self._supports(asked, above) & self._supports(base, below) & ~(other_type & np.isnan(type_ratio))
        down, up = self._unknowns(by_law - samples, parts, (above, below), asked.profile)
        tails = self.knowledge.ratios
        down, up = np.hypot(tails.low * deviation, down), np.hypot(tails.high * deviation, up)
        return Intervals(
            low=np.exp(median - down),
            median=np.exp(median),
            high=np.exp(median + up),
            known=(known & (down + up <= 2.0 * NORMAL * _LARGEST_DEVIATION)) | (is_same & ~other_type),
        )

    def _work(self, asked: PlacementTable, base: PlacementTable) -> tuple[Work, Work]:
        """Return both placements with batches in units of the reference; 1 for both where one of them is not known."""
        reference = self._references[asked.profile]
        above, below = asked.local_batch / reference, base.local_batch / reference
        # A model without a profile has no reference: its own base stands for it.
        above = np.where(np.isnan(reference), asked.local_batch / base.local_batch, above)
        below = np.where(np.isnan(reference), 1.0, below)
        unknown = ~(np.isfinite(above) & np.isfinite(below) & (above > 0.0) & (below > 0.0))
        return asked.work(np.where(unknown, 1.0, above)), base.work(np.where(unknown, 1.0, below))

    def _unknowns(
        self, by_law: Vector, parts: tuple[Parts, Parts], works: tuple[Work, Work], profile: NDArray[np.int64]
    ) -> tuple[Vector, Vector]:
        """Return how far the log ratio falls and rises, `(n_rows,)` each, over possible networks and jobs.

        The graph knows its errors on the networks that it was fitted on, not on another one; nor does it know how far
        the step of a job that was never measured shortens with its batch.
        """
        asked, base = parts
        deviation = self.knowledge.pooled.deviation
        reach = NORMAL * deviation[VOLUME]
        moves = [base.total(volume) - asked.total(volume) - by_law for volume in (-reach, reach)]
        down, up = np.maximum(-np.minimum(*moves), 0.0), np.maximum(np.maximum(*moves), 0.0)
        rows = np.flatnonzero((profile < 0) & (works[0].batch != works[1].batch))
        if not len(rows):
            return down, up
        theta = self._laws[-1]
        above, below, bend = works[0].take(rows), works[1].take(rows), np.exp(theta[BEND])
        floors = [theta[FLOOR] + times * NORMAL * deviation[FLOOR] for times in (-1.0, 0.0, 1.0)]
        ratios = [computing_of(floor, bend, below) - computing_of(floor, bend, above) for floor in floors]
        moves = [ratio - ratios[1] for ratio in (ratios[0], ratios[2])]
        down[rows] = np.hypot(down[rows], np.maximum(-np.minimum(*moves), 0.0))
        up[rows] = np.hypot(up[rows], np.maximum(np.maximum(*moves), 0.0))
        return down, up

    def _supports(self, table: PlacementTable, work: Work) -> NDArray[np.bool_]:
        pooled = self.knowledge.pooled
        inside = (work.gpus <= pooled.gpus) & (work.nodes <= pooled.nodes)
        lowest, highest = self._lowest[table.profile], self._highest[table.profile]
        batch = table.local_batch
        outside = (batch < 0.5 * lowest) | (batch > 2.0 * highest)
        return np.asarray(inside & ~outside, dtype=np.bool_)


def columns_of(by_law: Vector, is_profiled: NDArray[np.bool_], asked: Work, base: Work) -> NDArray[np.float32]:
    """Return the columns of the graph, `(n_rows, 12)`."""
    rows = np.empty((len(by_law), len(COLUMNS)), dtype=np.float32)
    rows[:, 0], rows[:, 1] = by_law, is_profiled
    rows[:, 2] = np.log2(asked.gpus / base.gpus)
    rows[:, 3] = np.log2(asked.nodes / base.nodes)
    rows[:, 4] = rows[:, 2] - rows[:, 3]
    rows[:, 5] = np.log2(asked.most * base.least / (asked.least * base.most))
    rows[:, 6] = (asked.nodes > 1).astype(np.float32) - (base.nodes > 1)
    rows[:, 7] = np.log2(asked.batch / base.batch)
    rows[:, 8:12] = np.abs(rows[:, [2, 3, 0, 6]])
    return rows


def _linked(thetas: Vector, link_gbps: Vector) -> Vector:
    """Return the laws with the volume taking as long as the link needs for it, where the link is known."""
    known = np.isfinite(link_gbps) & (link_gbps > 0.0)
    if not known.any():
        return thetas
    linked = thetas.copy()
    linked[:, VOLUME] -= np.clip(np.log(np.where(known, link_gbps, USUAL_GBPS) / USUAL_GBPS), -3.0, 3.0)
    return linked


def _references(knowledge: Knowledge, models: Sequence[str]) -> Vector:
    """Return the reference batch of each model, NaN last for an unknown one."""
    first = {profile.model: profile.reference for profile in reversed(knowledge.profiles)}
    return np.array([*(first[name] for name in models), np.nan])


def _batches(knowledge: Knowledge, models: Sequence[str]) -> tuple[Vector, Vector]:
    """Return the smallest and the largest batch measured of each model, NaN last for an unknown one."""
    own = [[profile.batch for profile in knowledge.profiles if profile.model == name] for name in models]
    lowest = [*(min(low for low, _ in ranges) for ranges in own), np.nan]
    return np.array(lowest), np.array([*(max(high for _, high in ranges) for ranges in own), np.nan])
