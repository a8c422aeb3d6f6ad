"""Holds one way of sharing: the measured jobs, and how their pairs become columns of the graph."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationError

from advisor.domain.dataclass import dataclass
from advisor.errors import ModelError
from advisor.predict.interference_items import (
    ALONE_COLUMNS,
    MOST_FEATURES,
    PROFILE,
    SETTINGS,
    Feature,
    Floats,
    Items,
    JobPairs,
    Rows,
    Shape,
    similarity,
)
from advisor.predict.manifest import CheckedModel, fault_of

MOST_PRODUCTS = 3072
# A graph has the columns of jobs alone, and as many products as the larger of its two ways of sharing.
COLUMNS = (*ALONE_COLUMNS, *(f"product_{number:04d}" for number in range(MOST_PRODUCTS)))
OF_ONE = ("speed", "log_spread", "named_log_spread", "unseen_speed")
OUTPUTS = tuple(f"{shared}_{output}" for shared in ("gpu", "node") for output in OF_ONE)
# Settings further than this from the measured ones of a model, in doublings, count as unknown.
LARGEST_REACH = 2.0
LEAST_SPEED = 0.02
# The decrease in weight of a measured setting for each doubling of its distance.
DOUBLING_WEIGHT = 4.0


class Likeness(CheckedModel):
    """One side of a pair: the similarity of jobs, and the basis that turns it into coordinates."""

    time_length: float = Field(gt=0)
    saturation_length: float = Field(gt=0)
    profile_length: float = Field(gt=0)
    size_length: float = Field(gt=0)
    own_length: float = Field(gt=0)
    own_weight: float = Field(gt=0)
    group_alike: float = Field(gt=0)
    basis: list[list[float]]


class MeasuredItem(CheckedModel):
    """A job that was measured beside others."""

    group: str
    model: str
    variant: str
    settings: list[float | None] = Field(min_length=len(SETTINGS), max_length=len(SETTINGS))
    profile: list[float | None] = Field(min_length=len(PROFILE), max_length=len(PROFILE))


class SectionParameters(CheckedModel):
    """The parameters of one way of sharing.

    A product is `scale * mine[i] * other[j]`, where coordinate 0 is the constant 1. `known_factors` are the 10 % and
    90 % quantiles of the error over the spread, `named_factors` the same if little more than the names of the models is
    known. `unseen_errors` are those of the error for a model that was never measured, `unseen_named_errors` the same
    if nothing else is known of it either. `alone` are the features that such a model is forecast by; none where the
    products did better.
    """

    items: list[MeasuredItem] = Field(min_length=2)
    profile_mean: list[float] = Field(min_length=len(PROFILE), max_length=len(PROFILE))
    profile_spread: list[float] = Field(min_length=len(PROFILE), max_length=len(PROFILE))
    mine: Likeness
    other: Likeness
    products: list[tuple[int, int, float]] = Field(min_length=1, max_length=MOST_PRODUCTS, strict=False)
    known_factors: tuple[float, float] = Field(strict=False)
    named_factors: tuple[float, float] = Field(strict=False)
    unseen_errors: tuple[float, float] = Field(strict=False)
    unseen_named_errors: tuple[float, float] = Field(strict=False)
    alone: tuple[Feature, ...] = Field(max_length=MOST_FEATURES, strict=False)
    top_speed: float = Field(gt=0)


class InterferenceParameters(CheckedModel):
    """The parameters of the graph: one part for shared GPUs, one for shared nodes; None without measurements."""

    gpu: SectionParameters | None
    node: SectionParameters | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Coordinates:
    """Coordinates of the jobs that were measured, `(n_items, n_coordinates)`, and how to find those of others."""

    shape: Shape
    basis: Floats
    coordinates: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One way of sharing, ready for forecasts; `models` holds the keys that model names are compared by."""

    items: Items
    models: tuple[str, ...]
    groups: frozenset[str]
    profile_mean: Floats
    profile_spread: Floats
    mine: Coordinates
    other: Coordinates
    first: Rows
    second: Rows
    scale: Floats
    parameters: SectionParameters

    def products(self, mine: Floats, other: Floats) -> NDArray[np.float32]:
        """Return the products of pairs from their coordinates, `(n_rows, n_products)`."""
        one = np.ones((len(mine), 1), dtype=np.float32)
        left = np.concatenate([one, mine.astype(np.float32)], axis=1)
        right = np.concatenate([one, other.astype(np.float32)], axis=1)
        products: NDArray[np.float32] = left[:, self.first] * right[:, self.second]
        products *= self.scale.astype(np.float32)
        return products

    def coordinates(self, items: Items) -> tuple[Floats, Floats]:
        """Return the coordinates of jobs as the slowed and as the other side, from all that is known of them."""
        scaled = replace(items, profile=(items.profile - self.profile_mean) / self.profile_spread)
        mine, other = (similarity(scaled, self.items, side.shape) @ side.basis for side in (self.mine, self.other))
        return mine, other

    def measured(self, items: Items) -> NDArray[np.bool_]:
        """Return which jobs are of a model that was measured, on whatever GPU type."""
        return np.isin(np.array(items.model), np.array(self.models))

    def on_measured_type(self, items: Items) -> NDArray[np.bool_]:
        """Return which jobs are on a GPU type that was measured."""
        return np.isin(np.array(items.group), np.array(sorted(self.groups)))

    def knows(self, items: Items) -> NDArray[np.bool_]:
        """Return which jobs are of a model and a GPU type that were measured, not far from where they were."""
        known = np.zeros(len(items), dtype=np.bool_)
        models = np.array(self.items.model, dtype=object)
        for row, (model, group) in enumerate(zip(items.model, items.group, strict=True)):
            own = np.flatnonzero(models == model)
            if len(own) and group in self.groups:
                gaps = np.abs(np.nan_to_num(self.items.settings[own] - items.settings[row]))
                known[row] = gaps.max(axis=1).min() <= LARGEST_REACH
        return known

    def code(self, model: str) -> int:
        """Return the place of a model among those measured, -1 where it is not among them."""
        return self.models.index(model) if model in self.models else -1

    def shares(self, codes: Rows, settings: Floats) -> tuple[Floats, NDArray[np.bool_]]:
        """Return the weight of each measured job for jobs with few known attributes, and which of these are known.

        The shares `(n_jobs, n_items)` of a job add up to 1. Those of the same model stand for it, the nearest in their
        settings most; for an unknown model all models do, alike.
        """
        of_item = np.array([self.code(model) for model in self.items.model], dtype=np.intp)
        gaps = np.abs(np.nan_to_num(settings[:, None, :] - self.items.settings[None, :, :]))
        own = codes[:, None] == of_item[None, :]
        never = ~own.any(axis=1)
        # Each model counts as much as any other, however many of its settings were measured.
        base = np.where(own, 0.0, -np.inf)
        base[never] = -np.log(np.bincount(of_item))[of_item]
        nearness = base - DOUBLING_WEIGHT * np.sum(gaps**2, axis=2)
        weights = np.exp(nearness - nearness.max(axis=1, keepdims=True))
        reached = np.where(own, gaps.max(axis=2), np.inf).min(axis=1) <= LARGEST_REACH
        scaled: Floats = weights / weights.sum(axis=1, keepdims=True)
        return scaled, ~never & reached

    def named_products(self, mine: Floats, other: Floats) -> NDArray[np.float32]:
        """Return the products of pairs from the shares of their jobs, each `(n_rows, n_items)`.

        The forecast for a pair is the mean over the GPU types on which both were measured: on two types at once no pair
        was, and products of one job on one type beside another on another would be drawn to the mean of all pairs.
        """
        total = np.zeros((len(mine), len(self.scale)), dtype=np.float32)
        types = np.zeros(len(mine), dtype=np.float32)
        for group in sorted(self.groups):
            inside = np.array([item_group == group for item_group in self.items.group])
            masses = [shares @ inside for shares in (mine, other)]
            rows = np.flatnonzero((masses[0] > 0) & (masses[1] > 0))
            left, right = (
                shares[np.ix_(rows, np.flatnonzero(inside))] @ side.coordinates[inside] / mass[rows, None]
                for shares, side, mass in zip((mine, other), (self.mine, self.other), masses, strict=True)
            )
            total[rows] += self.products(left, right)
            types[rows] += 1.0
        apart = np.flatnonzero(types == 0)
        total[apart] = self.products(mine[apart] @ self.mine.coordinates, other[apart] @ self.other.coordinates)
        types[apart] = 1.0
        return total / types[:, None]

    def pair_products(self, pairs: JobPairs) -> NDArray[np.float32]:
        """Return the products of pairs of jobs, `(n_rows, n_products)`."""
        mine, other = self.coordinates(pairs.items)
        return self.products(mine[pairs.mine], other[pairs.other])


def graph_rows(
    products: NDArray[np.float32], width: int, alone: NDArray[np.float32] | None = None
) -> NDArray[np.float32]:
    """Return rows of a graph, `(n_rows, width)`: the columns of jobs alone, 0 if not given, then the products."""
    rows = np.zeros((len(products), width), dtype=np.float32)
    if alone is not None:
        rows[:, : len(ALONE_COLUMNS)] = alone
    rows[:, len(ALONE_COLUMNS) : len(ALONE_COLUMNS) + products.shape[1]] = products
    return rows


def read_parameters(text: str, name: str) -> InterferenceParameters:
    """Read the parameters of a model; raises `ModelError`."""
    try:
        return InterferenceParameters.model_validate_json(text)
    except ValidationError as err:
        raise ModelError(f"model {name}: parameters: {fault_of(err)}; fit it again, or roll back") from err


def section_of(parameters: SectionParameters, name: str) -> Section:
    """Return a way of sharing from its parameters; raises `ModelError` if they do not fit each other."""
    items = Items(
        group=tuple(item.group for item in parameters.items),
        model=tuple(item.model for item in parameters.items),
        variant=tuple(item.variant for item in parameters.items),
        settings=np.array([item.settings for item in parameters.items], dtype=np.float64),
        profile=np.array([item.profile for item in parameters.items], dtype=np.float64),
    )
    first, second = (np.array([product[place] for product in parameters.products], np.intp) for place in (0, 1))
    mine, other = (_side(side, items, name) for side in (parameters.mine, parameters.other))
    sides = ((first, mine), (second, other))
    if any(columns.min() < 0 or columns.max() > side.basis.shape[1] for columns, side in sides):
        raise ModelError(f"model {name}: parameters: a product is of coordinates that are not there; fit it again")
    if min(parameters.profile_spread) <= 0:
        raise ModelError(f"model {name}: parameters: a spread of profiles is not positive; fit it again")
    return Section(
        items=items,
        models=tuple(dict.fromkeys(items.model)),
        groups=frozenset(items.group),
        profile_mean=np.array(parameters.profile_mean),
        profile_spread=np.array(parameters.profile_spread),
        mine=mine,
        other=other,
        first=first,
        second=second,
        scale=np.array([product[2] for product in parameters.products]),
        parameters=parameters,
    )


def _side(likeness: Likeness, items: Items, name: str) -> Coordinates:
    numbers = likeness.model_dump()
    rows = numbers.pop("basis")
    if len(rows) != len(items) or len({len(row) for row in rows}) != 1 or not rows[0]:
        raise ModelError(f"model {name}: parameters: a basis does not fit the jobs that were measured; fit it again")
    shape, basis = Shape(**numbers), np.array(rows, dtype=np.float64)
    return Coordinates(shape=shape, basis=basis, coordinates=similarity(items, items, shape) @ basis)
