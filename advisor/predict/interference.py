"""Forecasts how much longer jobs run beside others: inflation from the models of a job and of its neighbours."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from advisor.domain.dataclass import dataclass
from advisor.errors import ModelError
from advisor.features.columns import Columns
from advisor.features.observe.graph import Neighbours
from advisor.features.observe.known_models import NO_MODELS, KnownModels
from advisor.predict.interference_items import ALONE_COLUMNS, Floats, JobPairs, Rows, Shared, alone_columns, name_key
from advisor.predict.interference_section import (
    COLUMNS,
    LEAST_SPEED,
    OF_ONE,
    OUTPUTS,
    Section,
    graph_rows,
    read_parameters,
    section_of,
)
from advisor.predict.intervals import Intervals
from advisor.predict.library import Library
from advisor.predict.onnx_model import Bundle

KIND = "interference"
NO_JOB, UNKNOWN = -2, -1
# Pairs in one call of the graph; more would only take memory.
CHUNK = 8_192
# Two jobs that take turns: the forecast for a way of sharing without measurements.
TURNS = 2.0
_STEPS_OF_BATCH = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class NeighbourTable(Columns):
    """Jobs and their neighbours; `mine`, `gpus`, `nodes`, `batch` and `shared` are `(n,)`, the others `(n, k)`.

    Models are `InterferenceForecaster.codes`, -1 where unknown; -2 in `other` means no neighbour. `batch`, samples
    per step on one GPU, is NaN where not known, `shared` holds values of `Shared`.
    """

    mine: Rows
    gpus: Floats
    nodes: Floats
    batch: Floats
    other: Rows
    other_gpus: Floats
    other_nodes: Floats
    shared: Rows

    def __post_init__(self) -> None:
        Columns.__post_init__(self)
        if not self.other.shape == self.other_gpus.shape == self.other_nodes.shape:
            raise ValueError("the columns of neighbours differ in shape")


class InterferenceForecaster:
    """The model of interference, evaluated for many jobs at once."""

    def __init__(self, bundle: Bundle, sections: tuple[Section | None, Section | None]) -> None:
        self._model = bundle.model
        self._width = len(bundle.columns)
        self._sections = sections
        models = sorted({model for section in sections if section is not None for model in section.models})
        self.models: tuple[str, ...] = tuple(models)
        self._code = {model: code for code, model in enumerate(models)}

    @classmethod
    def from_bundle(cls, bundle: Bundle) -> "InterferenceForecaster":
        """Load a model; raises `ModelError` if it is damaged or of another kind."""
        width = len(bundle.columns)
        if bundle.kind != KIND or bundle.columns != COLUMNS[:width] or bundle.outputs != OUTPUTS:
            raise ModelError(
                f"model {bundle.kind} {bundle.version} is not an interference model of this release: fit it again"
            )
        name = f"{bundle.kind} {bundle.version}"
        read = read_parameters(bundle.parameters, name)
        gpu, node = (None if section is None else section_of(section, name) for section in (read.gpu, read.node))
        if gpu is None and node is None:
            raise ModelError(f"model {name}: parameters: nothing was measured; fit it again")
        most = max(len(section.scale) for section in (gpu, node) if section is not None)
        if len(ALONE_COLUMNS) + most > width:
            raise ModelError(f"model {name}: parameters: {most} products do not fit the graph; fit it again")
        return cls(bundle, (gpu, node))

    def codes(self, names: Sequence[str]) -> Rows:
        """Return the codes of models, -1 for those never measured; names are compared by letters and digits."""
        return np.array([self._code.get(name_key(name), UNKNOWN) for name in names], dtype=np.intp)

    def relative_speeds(self, pairs: JobPairs, shared: Shared) -> Intervals:
        """Return the speeds of jobs beside one other over their speeds alone, from all that is known of both."""
        section = self._section(shared)
        if section is None:
            return _nothing_known(len(pairs))
        mine, other = section.coordinates(pairs.items)
        known, measured = section.knows(pairs.items), section.measured(pairs.items)
        alone = alone_columns(pairs, section.parameters.alone)

        def columns(rows: slice) -> NDArray[np.float32]:
            products = section.products(mine[pairs.mine[rows]], other[pairs.other[rows]])
            return graph_rows(products, self._width, alone[rows])

        return self._speeds(
            shared,
            section,
            columns,
            known[pairs.mine] & known[pairs.other],
            by_alone=~(measured[pairs.mine] & measured[pairs.other]) if section.parameters.alone else None,
            anything=~section.on_measured_type(pairs.items)[pairs.mine],
        )

    def inflations(self, asked: NeighbourTable) -> Intervals:
        """Return inflations of at least 1; the effects of several neighbours are added.

        Adding them is an assumption, since only pairs are measured; it holds for jobs that take turns on a GPU. A gang
        within one node is not affected by a shared network. For an uplink the numbers are those of a shared node, which
        is an assumption: no such row is `known`.
        """
        low, median, high = (np.ones(len(asked)) for _ in range(3))
        known = np.ones(len(asked), dtype=np.bool_)
        for shared in Shared:
            rows, columns = np.nonzero((asked.shared == shared)[:, None] & (asked.other != NO_JOB))
            if shared is not Shared.GPU:
                sends = (asked.nodes[rows] != 1) & (asked.other_nodes[rows, columns] != 1)
                rows, columns = rows[sends], columns[sends]
            if not len(rows):
                continue
            inflations, place = self._pairs(asked, rows, columns, shared)
            low += _added(rows, inflations.high[place], len(asked))
            median += _added(rows, inflations.median[place], len(asked))
            high += _added(rows, inflations.low[place], len(asked))
            known[rows[~inflations.known[place]]] = False
            if shared is Shared.UPLINK:
                known[rows] = False
        return Intervals(low=low, median=median, high=high, known=known)

    def _section(self, shared: Shared) -> Section | None:
        return self._sections[0 if shared is Shared.GPU else 1]

    def _pairs(self, asked: NeighbourTable, rows: Rows, columns: Rows, shared: Shared) -> tuple[Intervals, Rows]:
        """Return the speeds of the distinct pairs, and for each neighbour the index of its pair."""
        section = self._section(shared)
        if section is None:
            return _nothing_known(1), np.zeros(len(rows), dtype=np.intp)
        nobody_told = np.full(len(rows), np.nan)
        mine = _different(asked.mine[rows], asked.batch[rows], asked.gpus[rows], asked.nodes[rows])
        cells = rows, columns
        other = _different(asked.other[cells], nobody_told, asked.other_gpus[cells], asked.other_nodes[cells])
        here = np.array([*(section.code(model) for model in self.models), UNKNOWN], dtype=np.intp)
        shares, at_mine, known = _alike(section, here, *mine)
        other_shares, at_other, other_known = _alike(section, here, *other)
        key = (at_mine * len(other_shares) + at_other) * 2 + (known & other_known)
        different, place = np.unique(key, return_inverse=True)
        first, second = different // 2 // len(other_shares), different // 2 % len(other_shares)
        speeds = self._speeds(
            shared,
            section,
            lambda rows: graph_rows(
                section.named_products(shares[first[rows]], other_shares[second[rows]]), self._width
            ),
            different % 2 == 1,
            named=True,
        )
        return speeds, place

    def _speeds(
        self,
        shared: Shared,
        section: Section,
        columns: Callable[[slice], NDArray[np.float32]],
        known: NDArray[np.bool_],
        *,
        named: bool = False,
        by_alone: NDArray[np.bool_] | None = None,
        anything: NDArray[np.bool_] | None = None,
    ) -> Intervals:
        """Return the speeds of pairs; `named` marks pairs of which little more than the names is known.

        `by_alone` `(n_rows,)` marks pairs that are forecast by what their jobs show alone, `anything` those on a GPU
        type of which no error is known: their interval is from hardly any speed to that alone. None if there is none.
        """
        first = 0 if shared is Shared.GPU else len(OF_ONE)
        parts = [
            self._model.run(columns(slice(start, start + CHUNK)))[:, first : first + len(OF_ONE)]
            for start in range(0, len(known), CHUNK)
        ]
        outputs = np.concatenate([np.empty((0, len(OF_ONE))), *parts]).astype(np.float64)
        speed = outputs[:, 0] if by_alone is None else np.where(by_alone, outputs[:, 3], outputs[:, 0])
        median = np.clip(speed, LEAST_SPEED, section.parameters.top_speed)
        spread = np.exp(np.clip(outputs[:, 2 if named else 1], -20.0, 3.0))
        factors = section.parameters.named_factors if named else section.parameters.known_factors
        errors = section.parameters.unseen_named_errors if named else section.parameters.unseen_errors
        ends = [np.where(known, factor * spread, error) for factor, error in zip(factors, errors, strict=True)]
        low, high = (np.clip(speed + end, LEAST_SPEED, section.parameters.top_speed) for end in ends)
        if anything is not None:
            low[anything], high[anything] = LEAST_SPEED, max(1.0, section.parameters.top_speed)
        return Intervals(low=np.minimum(low, median), median=median, high=np.maximum(high, median), known=known)


def _different(codes: Rows, batch: Floats, gpus: Floats, nodes: Floats) -> tuple[Floats, Rows]:
    """Return the distinct jobs, `(n, 4)`: code and base-2 logarithms of the settings; and the index of each job."""
    sizes = [np.nan_to_num(np.rint(counts), nan=0.0) for counts in (gpus, nodes)]
    with np.errstate(divide="ignore", invalid="ignore"):
        quarters = np.rint(np.log2(batch) * _STEPS_OF_BATCH)
    octaves = np.where(np.isfinite(quarters), np.clip(quarters, 0, 254) + 1, 0).astype(np.int64)
    gpu_count, node_count = (np.clip(counts, 0, 2047).astype(np.int64) for counts in sizes)
    keys, place = np.unique(((codes + 1) * 256 + octaves) * 2**22 + gpu_count * 2**11 + node_count, return_inverse=True)
    jobs = np.empty((len(keys), 4))
    jobs[:, 0] = keys // 2**30 - 1
    coded = keys // 2**22 % 256
    jobs[:, 1] = np.where(coded > 0, (coded - 1) / _STEPS_OF_BATCH, np.nan)
    for column, counted in ((2, keys // 2**11 % 2**11), (3, keys % 2**11)):
        jobs[:, column] = np.where(counted > 0, np.log2(np.maximum(counted, 1)), np.nan)
    return jobs, place


def _alike(section: Section, here: Rows, jobs: Floats, place: Rows) -> tuple[Floats, Rows, NDArray[np.bool_]]:
    """Return the shares of measured jobs that differ, and for each row of `place` which are its and if it is known.

    `jobs` `(n, 4)` are codes and settings, `here` maps codes to those of this way of sharing.
    """
    shares, known = section.shares(here[jobs[:, 0].astype(np.intp)], jobs[:, 1:])
    different, which = np.unique(shares.round(6), axis=0, return_inverse=True)
    return different, which.reshape(-1)[place], known[place]


def _added(rows: Rows, speeds: Floats, count: int) -> Floats:
    """Return the inflation that neighbours with these relative speeds add to each of `count` jobs."""
    return np.asarray(np.bincount(rows, np.maximum(1.0 / speeds - 1.0, 0.0), minlength=count), dtype=np.float64)


def _nothing_known(rows: int) -> Intervals:
    """Return relative speeds for a way of sharing without measurements."""
    return Intervals(
        low=np.full(rows, 1.0 / TURNS),
        median=np.full(rows, 1.0),
        high=np.full(rows, 1.0),
        known=np.zeros(rows, dtype=np.bool_),
    )


def neighbours_of(forecaster: InterferenceForecaster, names: Sequence[str]) -> Neighbours:
    """Return the table of some models, by name, with a row and a column for a model without a name at its end.

    Pairs that were never measured count with the pessimistic end of their interval.
    """
    inflation = pair_inflations(forecaster, names)
    expected = np.where(inflation.known, inflation.median, inflation.high)
    return Neighbours.of((expected - 1.0).reshape(len(names) + 1, len(names) + 1))


def pair_inflations(forecaster: InterferenceForecaster, names: Sequence[str]) -> Intervals:
    """Return the inflation of each model beside each one on a shared node, the other one varying first.

    A model without a name follows the last. Only the names are known of a neighbour, as on a live site.
    """
    codes = np.append(forecaster.codes(names), -1)
    mine, other = (axis.ravel() for axis in np.meshgrid(codes, codes, indexing="ij"))
    several = np.full(len(mine), 2.0)
    return forecaster.inflations(
        NeighbourTable(
            mine=mine,
            gpus=np.full(len(mine), np.nan),
            nodes=several,
            batch=np.full(len(mine), np.nan),
            other=other[:, None],
            other_gpus=np.full((len(mine), 1), np.nan),
            other_nodes=several[:, None],
            shared=np.full(len(mine), int(Shared.NODE), np.intp),
        )
    )


def models_known_to(forecaster: InterferenceForecaster) -> KnownModels:
    """Return all models that an interference model knows, with its table."""
    return KnownModels(codes=forecaster.codes, neighbours=neighbours_of(forecaster, forecaster.models))


def known_models(library: Library) -> KnownModels:
    """Return the models that the interference model in use knows, with its table; none where it cannot be used."""
    try:
        return models_known_to(InterferenceForecaster.from_bundle(library.load(KIND)))
    except ModelError:
        return NO_MODELS
