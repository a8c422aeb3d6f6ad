"""Defines the jobs of the interference model, the similarity of two, and columns of pairs that were never measured."""

from collections.abc import Sequence
from dataclasses import fields
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from advisor.domain.dataclass import dataclass
from advisor.features.columns import Columns
from advisor.predict.manifest import CheckedModel

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]

# How a job runs: base-2 logarithms of its samples per step on one GPU, its GPUs and its nodes.
SETTINGS = ("batch", "gpus", "nodes")
# What a job shows when it runs alone, without a neighbour.
PROFILE = ("step_time", "saturation", "type_speed", "gpu_busy", "memory_busy", "memory")
# What a pair of jobs of one model has in common where the plan or the data set differs.
OTHER_VARIANT = 0.6


class Shared(IntEnum):
    """The resource that neighbours share."""

    GPU = 0
    NODE = 1
    UPLINK = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Items(Columns):
    """Jobs, row by row; `settings` `(n, 3)` and `profile` `(n, 6)` are NaN where not known, texts empty.

    `group` is where numbers compare, the GPU type; `variant` is what else tells two jobs of one model apart: the data
    set, the plan, the precision.
    """

    group: tuple[str, ...]
    model: tuple[str, ...]
    variant: tuple[str, ...]
    settings: Floats
    profile: Floats

    def __post_init__(self) -> None:
        Columns.__post_init__(self)
        if self.settings.shape[1:] != (len(SETTINGS),) or self.profile.shape[1:] != (len(PROFILE),):
            raise ValueError("settings and profile have other columns")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPairs:
    """Pairs of neighbours: `mine` and `other` `(n_rows,)` index `items`."""

    items: Items
    mine: Rows
    other: Rows

    def __len__(self) -> int:
        return len(self.mine)

    def take(self, rows: Rows) -> "JobPairs":
        """Return these rows, in this order, over the same jobs."""
        return JobPairs(items=self.items, mine=self.mine[rows], other=self.other[rows])


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The length scales of job similarity, in spreads of a profile or in doublings of a setting.

    `own_weight` is what jobs of one model have in common beyond their profiles, `group_alike` what jobs on different
    GPU types have in common, over what those on the same type have beyond it.
    """

    time_length: float = 1.0
    saturation_length: float = 1.0
    profile_length: float = 1.0
    size_length: float = 2.0
    own_length: float = 4.0
    own_weight: float = 1.0
    group_alike: float = 0.5

    def __post_init__(self) -> None:
        if not all(np.isfinite(getattr(self, field.name)) and getattr(self, field.name) > 0 for field in fields(self)):
            raise ValueError("lengths and weights are positive numbers")


def name_key(name: str | None) -> str:
    """Return the key that names are compared by: their letters, in lower case, and digits."""
    return "".join(letter for letter in (name or "").lower() if letter.isalnum())


def similarity(these: Items, those: Items, shape: Shape) -> Floats:
    """Return the similarity of jobs, `(n_these, n_those)`, 0 to 1, as a kernel; profiles in spreads around their mean.

    A GPU type that is not among `those` counts as the average of theirs.
    """
    lengths = np.array([shape.time_length, shape.saturation_length, *[shape.profile_length] * (len(PROFILE) - 2)])
    profile = _distances(these.profile, those.profile, lengths)
    sizes = _distances(these.settings[:, 1:], those.settings[:, 1:], np.full(2, shape.size_length))
    own = _distances(these.settings, those.settings, np.full(len(SETTINGS), shape.own_length))
    same_model = _equal([name_key(name) for name in these.model], [name_key(name) for name in those.model])
    same_variant = _equal(these.variant, those.variant)
    of_one_model = same_model * np.exp(-0.5 * own) * np.where(same_variant, 1.0, OTHER_VARIANT)
    alike = 1.0 + np.exp(-0.5 * (profile + sizes)) + shape.own_weight * of_one_model
    same_group = _equal(these.group, those.group)
    unheard = ~same_group.any(axis=1)
    in_group = same_group.astype(np.float64)
    in_group[unheard] = 1.0 / max(1, len(set(those.group)))
    near: Floats = (shape.group_alike + in_group) / (shape.group_alike + 1.0)
    return near * alike / (2.0 + shape.own_weight)


def _distances(these: Floats, those: Floats, lengths: Floats) -> Floats:
    """Return squared distances `(n_these, n_those)`; unknown values are 0, and one more away from known ones."""
    filled = [np.nan_to_num(side) / lengths for side in (these, those)]
    gaps = [np.isnan(side) / lengths for side in (these, those)]
    mine, other = (np.concatenate(parts, axis=1) for parts in zip(filled, gaps, strict=True))
    apart: Floats = np.sum((mine[:, None, :] - other[None, :, :]) ** 2, axis=2)
    return apart


def _equal(these: "tuple[str, ...] | list[str]", those: "tuple[str, ...] | list[str]") -> NDArray[np.bool_]:
    code = {text: number for number, text in enumerate(dict.fromkeys([*these, *those]))}
    mine, other = (np.array([code[text] for text in texts], np.intp) for texts in (these, those))
    equal: NDArray[np.bool_] = mine[:, None] == other[None, :]
    return equal


FEATURES = (*PROFILE, *SETTINGS)
MOST_FEATURES = 3
ALONE_COLUMNS = tuple(f"alone_{number:02d}" for number in range((MOST_FEATURES + 1) ** 2))


class Feature(CheckedModel):
    """A number that a job shows alone, one of `FEATURES`, with its mean and spread over the measured jobs."""

    name: str = Field(pattern=f"^({'|'.join(FEATURES)})$")
    mean: float
    spread: float = Field(gt=0)


def feature_values(items: Items, name: str) -> Floats:
    """Return a feature of jobs `(n_items,)`, NaN where not known."""
    values: Floats = np.concatenate([items.profile, items.settings], axis=1)[:, FEATURES.index(name)]
    return values


def alone_columns(pairs: JobPairs, features: Sequence[Feature]) -> NDArray[np.float32]:
    """Return the columns of pairs, `(n_rows, n_alone_columns)`: products of a feature of each side, or of one and 1.

    An unknown feature counts as its mean, and columns of features that are not there are 0.
    """
    values = np.zeros((len(pairs.items), MOST_FEATURES + 1))
    values[:, 0] = 1.0
    for place, feature in enumerate(features, start=1):
        scaled = (feature_values(pairs.items, feature.name) - feature.mean) / feature.spread
        values[:, place] = np.nan_to_num(scaled)
    products = values[pairs.mine][:, :, None] * values[pairs.other][:, None, :]
    return products.reshape(len(pairs), len(ALONE_COLUMNS)).astype(np.float32)
