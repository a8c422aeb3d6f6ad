"""Forecasts the speed of jobs on other placements: a scaling law, and a graph that states its error."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from advisor.domain.dataclass import dataclass
from advisor.errors import ModelError
from advisor.features.columns import Columns
from advisor.predict.interference_items import name_key
from advisor.predict.intervals import Intervals
from advisor.predict.onnx_model import Bundle
from advisor.predict.scaling import BEND, FLOOR, LARGEST_DEVIATION, NORMAL, Parts, Vector, Work, computing_of, parts_of
from advisor.predict.throughput_knowledge import Knowledge, parse_knowledge
from advisor.predict.throughput_site import Evidence, SitePoints, no_points, site_laws

KIND = "throughput"
COLUMNS = (
    "log_ratio",  # what the law says of asked over base
    "evidence",  # what is known of the job on this network, as `Evidence` numbers it
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
OUTPUTS = ("log_deviation",)
_LEAST_DEVIATION, _MOST_DEVIATION = 0.01, 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementTable(Columns):
    """Placements of jobs, row by row; all arrays `(n_rows,)`.

    `profile` is a code of the forecaster, -1 where not known; NaN in `local_batch` (samples per GPU)
    means not known. `least` and `most` are the fewest and the most GPUs on a node; without them the GPUs are as even as
    can be.
    """

    profile: NDArray[np.int64]
    gpus: NDArray[np.float64]
    nodes: NDArray[np.float64]
    local_batch: NDArray[np.float64]
    least: NDArray[np.float64] | None = None
    most: NDArray[np.float64] | None = None

    def __post_init__(self) -> None:
        Columns.__post_init__(self)
        if not np.all((self.gpus >= self.nodes) & (self.nodes >= 1) & np.isfinite(self.gpus)):
            raise ValueError("a placement has no node, or more nodes than GPUs")

    def work(self, batch: Vector) -> Work:
        """Return the placements with these batches."""
        gpus, nodes = np.asarray(self.gpus, dtype=np.float64), np.asarray(self.nodes, dtype=np.float64)
        least = np.floor(gpus / nodes) if self.least is None else self.least
        most = np.ceil(gpus / nodes) if self.most is None else self.most
        return Work(gpus=gpus, nodes=nodes, least=least, most=most, batch=batch)


class ThroughputForecaster:
    """Forecasts the speeds of many jobs at once, on the network of a site as far as it is known."""

    def __init__(
        self, knowledge: Knowledge, bundle: Bundle, *, network: str | None = None, points: SitePoints | None = None
    ) -> None:
        """Take what was measured elsewhere, and what is known of this site.

        `network` names the cluster among those measured that is this site, None where none is; `points` are step times
        that jobs showed here. Raises `ModelError` if `network` is none of the clusters.
        """
        keys = {name_key(name): name for name in knowledge.clusters}
        if network is not None and name_key(network) not in keys:
            raise ModelError(f"forecasts.network {network!a} was not measured: name one of {', '.join(keys.values())}")
        self._bundle = bundle
        self.knowledge = knowledge
        self.network = None if network is None else keys[name_key(network)]
        self._tails = (knowledge.clusters[self.network] if self.network else knowledge.pooled).ratios
        self.models, self._laws = site_laws(knowledge, self.network, points or no_points())
        self._codes = {name: code for code, name in enumerate(self.models)}

    def at_site(self, network: str | None, points: SitePoints) -> "ThroughputForecaster":
        """Return the forecaster for a site; raises `ModelError` if `network` was not measured."""
        return ThroughputForecaster(self.knowledge, self._bundle, network=network, points=points)

    @classmethod
    def from_bundle(cls, bundle: Bundle) -> "ThroughputForecaster":
        """Open a throughput model; raises `ModelError` if the bundle is damaged or of another kind."""
        name = f"{bundle.kind} {bundle.version}"
        if bundle.kind != KIND or bundle.columns != COLUMNS or bundle.outputs != OUTPUTS:
            raise ModelError(f"model {name}: it is not a throughput model of this release: fit it again, or roll back")
        return cls(parse_knowledge(bundle.parameters, name), bundle)

    def codes(self, names: Sequence[str | None]) -> NDArray[np.int64]:
        """Return the code of each family or model by its name; letters and digits count; -1 where there is none."""
        code_by_name = {name: self._codes.get(name_key(name), -1) for name in set(names)}
        return np.array([code_by_name[name] for name in names], dtype=np.int64)

    def largest_batches(self, codes: NDArray[np.int64]) -> Vector:
        """Return the largest batch per GPU that was measured of each code, 1 for an unknown one."""
        return np.nan_to_num(self._laws.highest[codes], nan=1.0)

    def evidence(self, codes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return what is known of each code on this network, as `Evidence` numbers it."""
        return self._laws.evidence[codes]

    def relative(self, asked: PlacementTable, base: PlacementTable) -> Intervals:
        """Return the speed at `asked` over that at `base`, the same job row by row, with the interval of the ratio."""
        if len(asked) != len(base) or not np.array_equal(asked.profile, base.profile):
            raise ValueError("asked and base have to be the same jobs, row by row")
        above, below = self._work(asked, base)
        thetas = self._laws.theta[asked.profile]
        parts = parts_of(thetas, above), parts_of(thetas, below)
        samples = np.log(above.gpus * above.batch) - np.log(below.gpus * below.batch)
        by_law = samples - parts[0].total() + parts[1].total()
        evidence = self._laws.evidence[asked.profile]
        rows = columns_of(by_law, evidence, above, below)
        answer = self._bundle.model.run(rows).astype(np.float64)
        is_same = (np.abs(rows[:, 2:]).sum(axis=1) == 0.0) & (np.abs(by_law) < 1e-9)
        deviation = np.exp(np.clip(answer[:, 0], np.log(_LEAST_DEVIATION), np.log(_MOST_DEVIATION)))
        deviation = np.where(is_same, 0.0, deviation)
        known = self._supports(asked, above) & self._supports(base, below)
        down, up = self._unknowns(by_law - samples, parts, (above, below), asked.profile)
        tails = self._tails
        down, up = np.hypot(tails.low * deviation, down), np.hypot(tails.high * deviation, up)
        return Intervals(
            low=np.exp(by_law - down),
            median=np.exp(by_law),
            high=np.exp(by_law + up),
            known=(known & (down + up <= 2.0 * NORMAL * LARGEST_DEVIATION)) | is_same,
        )

    def _work(self, asked: PlacementTable, base: PlacementTable) -> tuple[Work, Work]:
        """Return both placements with batches in units of the reference; 1 for both where one of them is not known."""
        reference = self._laws.reference[asked.profile]
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
        the step of a job that was never seen here shortens with its batch.
        """
        asked, base = parts
        laws = self._laws
        between, inside = NORMAL * laws.doubt[profile], NORMAL * laws.doubt_inside[profile]
        moves = [
            base.total(at * between, at * inside) - asked.total(at * between, at * inside) - by_law for at in (-1, 1)
        ]
        down, up = np.maximum(-np.minimum(*moves), 0.0), np.maximum(np.maximum(*moves), 0.0)
        rows = np.flatnonzero((laws.evidence[profile] == Evidence.NONE) & (works[0].batch != works[1].batch))
        if not len(rows):
            return down, up
        theta, deviation = laws.theta[profile[rows]], self.knowledge.pooled.prior().deviation[FLOOR]
        above, below, bend = works[0].take(rows), works[1].take(rows), np.exp(theta[:, BEND])
        floors = [theta[:, FLOOR] + times * NORMAL * deviation for times in (-1.0, 0.0, 1.0)]
        ratios = [computing_of(floor, bend, below) - computing_of(floor, bend, above) for floor in floors]
        moves = [ratio - ratios[1] for ratio in (ratios[0], ratios[2])]
        down[rows] = np.hypot(down[rows], np.maximum(-np.minimum(*moves), 0.0))
        up[rows] = np.hypot(up[rows], np.maximum(np.maximum(*moves), 0.0))
        return down, up

    def _supports(self, table: PlacementTable, work: Work) -> NDArray[np.bool_]:
        laws, profile = self._laws, table.profile
        inside = (work.gpus <= laws.gpus[profile]) & (work.nodes <= laws.nodes[profile])
        lowest, highest = laws.lowest[profile], laws.highest[profile]
        batch = table.local_batch
        outside = (batch < 0.5 * lowest) | (batch > 2.0 * highest)
        # How much a job loses by spreading is known only as far as its family was seen spread out on this network.
        spread = (work.gpus <= laws.spread_gpus[profile]) & (work.nodes <= laws.spread_nodes[profile])
        spread &= work.most / work.least <= laws.spread_uneven[profile]
        return np.asarray(inside & ~outside & (spread | (work.nodes == 1)), dtype=np.bool_)


def columns_of(by_law: Vector, evidence: NDArray[np.int64], asked: Work, base: Work) -> NDArray[np.float32]:
    """Return the columns of the graph, `(n_rows, 12)`."""
    rows = np.empty((len(by_law), len(COLUMNS)), dtype=np.float32)
    rows[:, 0], rows[:, 1] = by_law, evidence
    rows[:, 2] = np.log2(asked.gpus / base.gpus)
    rows[:, 3] = np.log2(asked.nodes / base.nodes)
    rows[:, 4] = rows[:, 2] - rows[:, 3]
    rows[:, 5] = np.log2(asked.most * base.least / (asked.least * base.most))
    rows[:, 6] = (asked.nodes > 1).astype(np.float32) - (base.nodes > 1)
    rows[:, 7] = np.log2(asked.batch / base.batch)
    rows[:, 8:12] = np.abs(rows[:, [2, 3, 0, 6]])
    return rows
