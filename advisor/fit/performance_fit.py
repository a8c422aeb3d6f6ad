"""Adapts the performance model to a site: what ended jobs say of GPU types, of places and of neighbours.

The model of the logarithm of a job's speed, relative to what was forecast for it, is

    speed[model, type] + type effect - weight[model] * place - log(1 + sum over neighbours of added[model, other])

with `added = prior added * exp(scale + own[model] + other[other])`. Every effect has a normal prior around what was
measured elsewhere; how wide each is was learnt over many drawn sites (`tools.train.metarl`): the meta-learning. A
site starts there, and a few Gauss-Newton steps lead from the prior to its own effects (MAP). Outliers weigh less
(Student's t). This form is our own; of the published performance model nothing but its purpose is known.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.features.columns import Columns

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]

MEMBERS: Final = 5
STEPS: Final = 5
# Each member of the ensemble weighs the samples at random, 1 on average, with a variance of 1 over this. None is left
# out: of few samples a member could miss all of a model, and would answer with the prior.
WEIGHT_SHAPE: Final = 4.0
# Degrees of freedom of the errors: an outlier weighs less the further out it is.
TAIL: Final = 4.0
# The farthest that one step moves an effect, and the largest effect; exp of it is a factor of 20.
_LONGEST_STEP: Final = 1.0
LARGEST: Final = 3.0
# Samples of which the derivatives are in memory at a time.
_CHUNK: Final = 1000
# No pair adds less than this in the prior, so that an effect which was measured as none can be learnt.
LEAST_ADDED: Final = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Spreads:
    """The standard deviations of the effects over sites, and of what no effect explains."""

    type_effect: float = 0.15
    speed: float = 0.35
    place_scale: float = 0.5
    place: float = 0.5
    scale: float = 0.5
    own: float = 0.6
    other: float = 0.6
    family: float = 0.3
    misfit: float = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class SitePrior:
    """What is believed before a site has shown anything; the last row and column stand for what is not known by name.

    `log_speed` `(n_models + 1, n_types + 1)`, `added` `(n_models + 1, n_models + 1)` is the inflation that one
    neighbour adds to a model.
    """

    models: tuple[str, ...]
    gpu_types: tuple[str, ...]
    log_speed: Floats
    added: Floats
    spreads: Spreads = Spreads()

    @property
    def floored(self) -> Floats:
        """The inflation that one neighbour adds, none below what can be learnt from."""
        return np.maximum(self.added, LEAST_ADDED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples(Columns):
    """Ended jobs, `(n,)` each: what they ran on, beside what, and how fast.

    `place` is the logarithm of the inflation that was forecast for the place alone, `others` `(n, n_models + 1)` how
    many neighbours of each model it had on average on its slowest server. `log_speed` is the logarithm of the forecast
    run time on the best place, alone, over that observed, and `noise` its standard deviation. Jobs of one `family`, the
    same user and model, share an error of the forecast; -1 for none.
    """

    model: Rows
    gpu_type: Rows
    place: Floats
    others: Floats
    log_speed: Floats
    noise: Floats
    family: Rows


def no_samples(models: int) -> Samples:
    """Return an empty table for a number of models."""
    none, floats = np.zeros(0, np.intp), np.zeros(0)
    return Samples(
        model=none, gpu_type=none, place=floats, others=np.zeros((0, models + 1)), log_speed=floats, noise=floats,
        family=none,
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Effects:
    """The effects of a site and their variances; shapes as in `SitePrior`, `(n_models + 1,)` for those of models."""

    speed: Floats
    speed_variance: Floats
    place: Floats
    place_variance: Floats
    added: Floats
    added_variance: Floats  # of the logarithm of `added`


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapted:
    """The performance model of a site: the most probable effects, and five that weigh the samples differently."""

    prior: SitePrior
    middle: Effects
    members: tuple[Effects, ...]
    samples: int
    residual: float  # root mean square of what the effects leave of `log_speed`, over its noise

    def log_speed(self, samples: Samples, effects: Effects | None = None) -> Floats:
        """Return the expected `log_speed` of some jobs, `(n,)`."""
        known = self.middle if effects is None else effects
        beside = np.log1p((samples.others * known.added[samples.model]).sum(axis=1))
        return np.asarray(
            known.speed[samples.model, samples.gpu_type] - known.place[samples.model] * samples.place - beside
        )


class _Layout:
    """Where each effect stands in the vector of all."""

    def __init__(self, prior: SitePrior, families: int) -> None:
        rows, types = prior.log_speed.shape
        spreads = prior.spreads
        parts: list[tuple[str, int, float]] = [
            ("type_effect", types, spreads.type_effect),
            ("speed", rows * types, spreads.speed),
            ("place_scale", 1, spreads.place_scale),
            ("place", rows, spreads.place),
            ("scale", 1, spreads.scale),
            ("own", rows, spreads.own),
            ("other", rows, spreads.other),
            ("family", families, spreads.family),
        ]
        self.types = types
        self.slices: dict[str, slice] = {}
        first = 0
        for name, size, _ in parts:
            self.slices[name] = slice(first, first + size)
            first += size
        self.size = first
        self.precision = np.concatenate([np.full(size, sd**-2.0) for _, size, sd in parts])


def adapted(prior: SitePrior, samples: Samples, *, seed: int, members: int = MEMBERS) -> Adapted:
    """Return the performance model of a site after some samples; without any it is the prior."""
    family, families = _families(samples)
    layout = _Layout(prior, families)
    weights = np.ones(len(samples))
    vector = _most_probable(prior, samples, family, layout, weights, np.zeros(layout.size), STEPS)
    middle, residual = _described(prior, samples, family, layout, weights, vector)
    rng = np.random.default_rng([seed, 5])
    ensemble = []
    for _ in range(members):
        drawn = rng.gamma(WEIGHT_SHAPE, 1.0 / WEIGHT_SHAPE, len(samples))
        one = _most_probable(prior, samples, family, layout, drawn, vector, 1) if len(samples) else vector
        ensemble.append(_described(prior, samples, family, layout, drawn, one)[0])
    return Adapted(prior=prior, middle=middle, members=tuple(ensemble), samples=len(samples), residual=residual)


def _families(samples: Samples) -> tuple[Rows, int]:
    """Number the families of two samples or more; -1 for all other samples."""
    named, place, count = np.unique(samples.family, return_inverse=True, return_counts=True)
    several = (count >= 2) & (named >= 0)
    number = np.where(several, several.cumsum() - 1, -1)
    return number[place.reshape(-1)].astype(np.intp), int(several.sum())


def _most_probable(
    prior: SitePrior,
    samples: Samples,
    family: Rows,
    layout: _Layout,
    weights: Floats,
    start: Floats,
    steps: int,
) -> Floats:
    vector = start.copy()
    if not len(samples):
        return vector
    for _ in range(steps):
        normal = _normal(prior, samples, family, layout, weights, vector)
        # An effect that no sample depends on stays at the prior.
        step = np.zeros(layout.size)
        step[normal.active] = np.linalg.solve(normal.curvature, normal.gradient)
        vector = np.clip(vector + np.clip(step, -_LONGEST_STEP, _LONGEST_STEP), -LARGEST, LARGEST)
    return vector


@dataclass(frozen=True, slots=True, kw_only=True)
class _Normal:
    """The normal equations of the effects that the samples depend on, `(n_active,)` of all."""

    active: Rows
    gradient: Floats  # (n_active,)
    curvature: Floats  # (n_active, n_active), with the precision of the prior
    squares: float  # the sum of squared errors over their variances


def _normal(
    prior: SitePrior, samples: Samples, family: Rows, layout: _Layout, weights: Floats, vector: Floats
) -> _Normal:
    """Return the normal equations at a vector of effects; the derivatives of a thousand samples are in memory."""
    parts = [np.arange(first, min(first + _CHUNK, len(samples))) for first in range(0, len(samples), _CHUNK)]
    active = np.flatnonzero(_touched(samples, family, layout))
    gradient = -(layout.precision * vector)[active]
    curvature, squares = np.asarray(np.diag(layout.precision[active]), np.float64), 0.0
    for part in parts:
        some = samples.take(part)
        error, jacobian, information = _linear(prior, some, family[part], layout, weights[part], vector)
        jacobian = jacobian[:, active]
        gradient += jacobian.T @ (information * error)
        curvature += (jacobian * information[:, None]).T @ jacobian
        squares += float((error**2 / (some.noise**2 + prior.spreads.misfit**2)).sum())
    return _Normal(active=active, gradient=gradient, curvature=curvature, squares=squares)


def _touched(samples: Samples, family: Rows, layout: _Layout) -> NDArray[np.bool_]:
    """Return which effects the samples depend on, `(n_effects,)`."""
    at, touched = layout.slices, np.zeros(layout.size, np.bool_)
    beside = samples.others > 0.0
    touched[at["type_effect"].start + samples.gpu_type] = True
    touched[at["speed"].start + samples.model * layout.types + samples.gpu_type] = True
    is_placed = samples.place > 0.0
    touched[at["place_scale"]] = is_placed.any()
    touched[at["place"].start + samples.model[is_placed]] = True
    touched[at["scale"]] = beside.any()
    touched[at["own"].start + samples.model[beside.any(axis=1)]] = True
    touched[at["other"]] = beside.any(axis=0)
    touched[at["family"].start + family[family >= 0]] = True
    return touched


def _tables(prior: SitePrior, layout: _Layout, vector: Floats) -> tuple[Floats, Floats, Floats]:
    """Return speeds, weights of places and what neighbours add, for a vector of effects."""
    at = layout.slices
    speed = prior.log_speed + vector[at["type_effect"]] + vector[at["speed"]].reshape(prior.log_speed.shape)
    place = np.exp(vector[at["place_scale"]] + vector[at["place"]])
    log_added = vector[at["scale"]] + vector[at["own"]][:, None] + vector[at["other"]][None, :]
    return speed, place, prior.floored * np.exp(log_added)


def _linear(
    prior: SitePrior, samples: Samples, family: Rows, layout: _Layout, weights: Floats, vector: Floats
) -> tuple[Floats, Floats, Floats]:
    """Return the errors `(n,)`, the derivatives of what is expected `(n, n_effects)`, and the weight of each sample."""
    speed, place, added = _tables(prior, layout, vector)
    rows, at, model = np.arange(len(samples)), layout.slices, samples.model
    beside = samples.others * added[model]
    total = 1.0 + beside.sum(axis=1)
    of_family = np.where(
        family >= 0, vector[at["family"]][family] if layout.slices["family"].stop > at["family"].start else 0.0, 0.0
    )
    expected = speed[model, samples.gpu_type] - place[model] * samples.place - np.log(total) + of_family
    error = samples.log_speed - expected
    jacobian = np.zeros((len(samples), layout.size))
    jacobian[rows, at["type_effect"].start + samples.gpu_type] = 1.0
    jacobian[rows, at["speed"].start + model * layout.types + samples.gpu_type] = 1.0
    by_place = -place[model] * samples.place
    jacobian[:, at["place_scale"].start] = by_place
    jacobian[rows, at["place"].start + model] = by_place
    share = beside / total[:, None]
    jacobian[:, at["scale"].start] = -share.sum(axis=1)
    jacobian[rows, at["own"].start + model] = -share.sum(axis=1)
    jacobian[:, at["other"]] = -share
    has_family = family >= 0
    jacobian[rows[has_family], at["family"].start + family[has_family]] = 1.0
    spreads = prior.spreads
    variance = samples.noise**2 + spreads.misfit**2 + np.where(has_family, 0.0, spreads.family**2)
    tail = (TAIL + 1.0) / (TAIL + error**2 / variance)
    return error, jacobian, weights * tail / variance


def _described(
    prior: SitePrior, samples: Samples, family: Rows, layout: _Layout, weights: Floats, vector: Floats
) -> tuple[Effects, float]:
    """Return the effects of a vector with their variances (Laplace), and the residual."""
    speed, place, added = _tables(prior, layout, vector)
    covariance, residual = np.asarray(np.diag(1.0 / layout.precision), np.float64), 0.0
    if len(samples):
        normal = _normal(prior, samples, family, layout, weights, vector)
        covariance[np.ix_(normal.active, normal.active)] = np.linalg.inv(normal.curvature)
        residual = (normal.squares / len(samples)) ** 0.5
    at = layout.slices
    types = slice(at["type_effect"].start, at["type_effect"].stop)
    variances = np.diag(covariance)
    of_type = variances[types][None, :]
    own = variances[at["speed"]].reshape(prior.log_speed.shape)
    columns = np.tile(np.arange(layout.types), prior.log_speed.shape[0])
    both = covariance[at["type_effect"].start + columns, np.arange(at["speed"].start, at["speed"].stop)]
    speed_variance = of_type + own + 2.0 * both.reshape(own.shape)
    scale, place_scale = at["scale"].start, at["place_scale"].start
    mine, theirs = covariance[at["own"], scale], covariance[at["other"], scale]
    crossed = covariance[at["own"], at["other"]]
    added_variance = (
        variances[scale]
        + (variances[at["own"]] + 2.0 * mine)[:, None]
        + (variances[at["other"]] + 2.0 * theirs)[None, :]
        + 2.0 * crossed
    )
    place_variance = variances[place_scale] + variances[at["place"]] + 2.0 * covariance[at["place"], place_scale]
    effects = Effects(
        speed=speed,
        speed_variance=np.maximum(speed_variance, 0.0),
        place=place,
        place_variance=np.maximum(place_variance, 0.0),
        added=added,
        added_variance=np.maximum(added_variance, 0.0),
    )
    return effects, residual


def learnt_spreads(prior: SitePrior, sites: Mapping[str, Samples], *, rounds: int = 8) -> Spreads:
    """Return the spreads under which the samples of many sites are most probable, by expectation and maximisation.

    Each round adapts to every site and sets each spread to the root mean square of its effects, with their variances.
    """
    spreads = prior.spreads
    fields = ("type_effect", "speed", "place_scale", "place", "scale", "own", "other")
    for _ in range(rounds):
        here = replace(prior, spreads=spreads)
        sums = dict.fromkeys(fields, 0.0)
        counts = dict.fromkeys(fields, 0)
        left, weight = 0.0, 0.0
        for samples in sites.values():
            family, families = _families(samples)
            layout, weights = _Layout(here, families), np.ones(len(samples))
            vector = _most_probable(here, samples, family, layout, weights, np.zeros(layout.size), STEPS)
            error, jacobian, information = _linear(here, samples, family, layout, weights, vector)
            curvature = (jacobian * information[:, None]).T @ jacobian
            curvature[np.diag_indices(layout.size)] += layout.precision
            covariance = np.linalg.inv(curvature)
            second = vector**2 + np.diag(covariance)
            for name in fields:
                sums[name] += float(second[layout.slices[name]].sum())
                counts[name] += layout.slices[name].stop - layout.slices[name].start
            explained = np.einsum("ij,jk,ik->i", jacobian, covariance, jacobian)
            variance = samples.noise**2 + spreads.misfit**2
            left += float(((error**2 + explained) / variance).sum())
            weight += len(samples)
        learnt = {name: max(0.02, (sums[name] / counts[name]) ** 0.5) for name in fields}
        misfit = spreads.misfit * float(np.clip((left / max(weight, 1.0)) ** 0.5, 0.7, 1.4))
        spreads = replace(spreads, **learnt, misfit=max(0.02, misfit))
    return spreads
