"""Fits the performance model of a drawn site: what ended jobs say of GPU types, of places and of neighbours.

The model of the logarithm of a job's speed, relative to what was forecast for it, is

    speed[model, type] + type effect - weight[model] * place - log(1 + sum over neighbours of added[model, other])

with `added = prior added * exp(scale + own[model] + other[other])`. Every effect has a normal prior around what was
measured elsewhere; how wide each is was learnt over many drawn sites (`tools.train.metarl`): the meta-learning. A
site starts there, and a few Gauss-Newton steps lead from the prior to its own effects (MAP). Outliers weigh less
(Student's t). This form is our own; of the published performance model nothing but its purpose is known.
"""

from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np

from advisor.features.columns import Columns
from advisor.features.observe.graph import Floats, Neighbours, Rows
from advisor.features.observe.known_models import SiteSpeeds
from advisor.predict.performance import MEMBERS

STEPS: Final = 5
# Each member of the ensemble weighs the samples at random, 1 on average, with a variance of 1 over this. None is left
# out: of few samples a member could miss all of a model, and would answer with the prior.
WEIGHT_SHAPE: Final = 4.0
# Degrees of freedom of the errors: an outlier weighs less the further out it is.
TAIL: Final = 4.0
# The farthest that one step moves an effect, and the largest effect; exp of it is a factor of 20.
_LONGEST_STEP: Final = 1.0
LARGEST: Final = 3.0
# No pair adds less than this in the prior, so that an effect which was measured as none can be learnt.
LEAST_ADDED: Final = 0.02
_LEAST_SPREAD: Final = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Spreads:
    """The standard deviations of the effects over sites, and of what no effect explains.

    `family` is that of the error which the forecasts of one user's jobs of one model have in common.
    """

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
    run time on the best place, alone, over that observed, and `noise` its standard deviation.
    """

    model: Rows
    gpu_type: Rows
    place: Floats
    others: Floats
    log_speed: Floats
    noise: Floats


def no_samples(models: int) -> Samples:
    """Return an empty table for a number of models."""
    none, floats = np.zeros(0, np.intp), np.zeros(0)
    others = np.zeros((0, models + 1))
    return Samples(model=none, gpu_type=none, place=floats, others=others, log_speed=floats, noise=floats)


class _Tables(NamedTuple):
    """The effects of a site; shapes as in `SitePrior`, `(n_models + 1,)` for the weights of places."""

    speed: Floats
    place: Floats
    added: Floats


class _Fit:
    """The samples of a site, and where each effect stands in the vector of all."""

    def __init__(self, prior: SitePrior, samples: Samples) -> None:
        rows, types = prior.log_speed.shape
        sizes = {
            "type_effect": types, "speed": rows * types, "place_scale": 1, "place": rows, "scale": 1, "own": rows,
            "other": rows,
        }  # fmt: skip
        self.prior, self.samples, self.types = prior, samples, types
        self.at: dict[str, slice] = {}
        self.size = 0
        for name, size in sizes.items():
            self.at[name] = slice(self.size, self.size + size)
            self.size += size
        spreads = [np.full(size, getattr(prior.spreads, name) ** -2.0) for name, size in sizes.items()]
        self.precision = np.concatenate(spreads)

    def most_probable(self, weights: Floats, start: Floats, steps: int) -> Floats:
        """Return the vector of effects after some Gauss-Newton steps."""
        vector = start.copy()
        for _ in range(steps if len(self.samples) else 0):
            error, jacobian, information = self.linear(weights, vector)
            active, curvature = self._curvature(jacobian, information)
            gradient = -(self.precision * vector)[active] + jacobian[:, active].T @ (information * error)
            # An effect that no sample depends on stays at the prior.
            step = np.zeros(self.size)
            step[active] = np.linalg.solve(curvature, gradient)
            vector = np.clip(vector + np.clip(step, -_LONGEST_STEP, _LONGEST_STEP), -LARGEST, LARGEST)
        return vector

    def _curvature(self, jacobian: Floats, information: Floats) -> tuple[Rows, Floats]:
        """Return the effects that the samples depend on, `(n_active,)`, and the curvature of the posterior in them."""
        active = np.flatnonzero(jacobian.any(axis=0))
        some = jacobian[:, active]
        return active, np.asarray(np.diag(self.precision[active]) + (some * information[:, None]).T @ some)

    def tables(self, vector: Floats) -> _Tables:
        """Return the tables of a vector of effects."""
        at, prior = self.at, self.prior
        speed = prior.log_speed + vector[at["type_effect"]] + vector[at["speed"]].reshape(prior.log_speed.shape)
        place = np.exp(vector[at["place_scale"]] + vector[at["place"]])
        log_added = vector[at["scale"]] + vector[at["own"]][:, None] + vector[at["other"]][None, :]
        return _Tables(speed, place, prior.floored * np.exp(log_added))

    def linear(self, weights: Floats, vector: Floats) -> tuple[Floats, Floats, Floats]:
        """Return the errors `(n,)`, the derivatives of what is expected `(n, n_effects)`, and the weight of each."""
        speed, place, added = self.tables(vector)
        samples, at, model = self.samples, self.at, self.samples.model
        rows = np.arange(len(samples))
        beside = samples.others * added[model]
        total = 1.0 + beside.sum(axis=1)
        by_place = -place[model] * samples.place
        error = samples.log_speed - (speed[model, samples.gpu_type] + by_place - np.log(total))
        jacobian = np.zeros((len(samples), self.size))
        jacobian[rows, at["type_effect"].start + samples.gpu_type] = 1.0
        jacobian[rows, at["speed"].start + model * self.types + samples.gpu_type] = 1.0
        jacobian[:, at["place_scale"].start] = by_place
        jacobian[rows, at["place"].start + model] = by_place
        share = beside / total[:, None]
        jacobian[:, at["scale"].start] = -share.sum(axis=1)
        jacobian[rows, at["own"].start + model] = -share.sum(axis=1)
        jacobian[:, at["other"]] = -share
        variance = samples.noise**2 + self.prior.spreads.misfit**2 + self.prior.spreads.family**2
        tail = (TAIL + 1.0) / (TAIL + error**2 / variance)
        return error, jacobian, weights * tail / variance

    def variances(self, weights: Floats, vector: Floats) -> tuple[Floats, Floats]:
        """Return the variances of speeds, and of the logarithms of what neighbours add (Laplace)."""
        covariance = np.asarray(np.diag(1.0 / self.precision), np.float64)
        if len(self.samples):
            _, jacobian, information = self.linear(weights, vector)
            active, curvature = self._curvature(jacobian, information)
            covariance[np.ix_(active, active)] = np.linalg.inv(curvature)
        at, variances = self.at, np.diag(covariance)
        own = variances[at["speed"]].reshape(self.prior.log_speed.shape)
        columns = np.tile(np.arange(self.types), len(own))
        both = covariance[at["type_effect"].start + columns, np.arange(at["speed"].start, at["speed"].stop)]
        speed = variances[at["type_effect"]][None, :] + own + 2.0 * both.reshape(own.shape)
        scale = at["scale"].start
        added = (
            variances[scale]
            + (variances[at["own"]] + 2.0 * covariance[at["own"], scale])[:, None]
            + (variances[at["other"]] + 2.0 * covariance[at["other"], scale])[None, :]
            + 2.0 * covariance[at["own"], at["other"]]
        )
        return np.maximum(speed, 0.0), np.maximum(added, 0.0)


def adapted(prior: SitePrior, samples: Samples, *, seed: int) -> SiteSpeeds:
    """Return the tables of a site after some samples, as its graph would give them; without any they are the prior's.

    They are means over an ensemble, whose members weigh the samples differently; their spread counts as variance.
    """
    fit, alike, rng = _Fit(prior, samples), np.ones(len(samples)), np.random.default_rng([seed, 5])
    vector = fit.most_probable(alike, np.zeros(fit.size), STEPS)
    members = []
    for _ in range(MEMBERS):
        drawn = rng.gamma(WEIGHT_SHAPE, 1.0 / WEIGHT_SHAPE, len(samples))
        members.append(fit.tables(fit.most_probable(drawn, vector, 1)))
    speed_variance, added_variance = fit.variances(alike, vector)
    added = fit.tables(vector).added
    share = added / (1.0 + added)
    return SiteSpeeds(
        models=prior.models,
        gpu_types=prior.gpu_types,
        log_speed=np.mean([one.speed for one in members], axis=0),
        speed_variance=speed_variance + np.var([one.speed for one in members], axis=0),
        place_weight=np.mean([one.place for one in members], axis=0),
        neighbours=Neighbours.of(np.mean([one.added for one in members], axis=0)),
        added_variance=share**2 * added_variance + np.var([np.log1p(one.added) for one in members], axis=0),
    )


def learnt_spreads(prior: SitePrior, samples: Samples) -> Spreads:
    """Return the spreads under which the samples of a site are more probable: a round of expectation and maximisation.

    Each spread is the root mean square of the effects of the site, with their variances.
    """
    fit, alike, before = _Fit(prior, samples), np.ones(len(samples)), prior.spreads
    vector = fit.most_probable(alike, np.zeros(fit.size), STEPS)
    error, jacobian, information = fit.linear(alike, vector)
    curvature = (jacobian * information[:, None]).T @ jacobian
    curvature[np.diag_indices(fit.size)] += fit.precision
    covariance = np.linalg.inv(curvature)
    second = vector**2 + np.diag(covariance)
    explained = np.einsum("ij,jk,ik->i", jacobian, covariance, jacobian)
    left = float(((error**2 + explained) / (samples.noise**2 + before.misfit**2)).mean())
    misfit = before.misfit * float(np.clip(left**0.5, 0.7, 1.4))
    learnt = {name: max(_LEAST_SPREAD, float(second[place].mean()) ** 0.5) for name, place in fit.at.items()}
    return replace(before, **learnt, misfit=max(_LEAST_SPREAD, misfit))
