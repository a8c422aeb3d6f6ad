"""Judges an adapted performance model on jobs that it has not seen, beside the version in use.

Only differences between the jobs of a family count, so each model is first given the constant of each family, from the
older jobs. Then the newer jobs are forecast: by how much more probable they are under the candidate, and how many of
them lie within its 80 % intervals.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from advisor.features.observe.graph import Neighbours
from advisor.features.observe.known_models import SiteSpeeds
from advisor.fit.performance_fit import LARGEST, TAIL, Adapted, Floats, Rows, Samples, SitePrior

# The constant of a family is as good as free: only differences between its jobs count.
FAMILY_SPREAD: Final = 1.0
LEAST_SAMPLES: Final = 100
# Of the jobs that neither the candidate nor the version in use has seen.
LEAST_UNSEEN: Final = 20
# The share of the samples that is kept aside, the newest.
ASIDE_SHARE: Final = 0.2
COVERAGE: Final = (0.65, 0.95)
# The largest share of the effects that can be at their bound.
MOST_AT_BOUND: Final = 0.05
# The 80 % interval, in standard deviations of a normal and of a Student distribution of `TAIL` degrees of freedom.
INSIDE: Final = 1.2816
_INSIDE_TAIL: Final = 1.5332
_ROUNDS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """A version of the performance model, and the same older jobs and jobs kept aside, coded for its tables."""

    speeds: SiteSpeeds
    older: Samples
    aside: Samples


@dataclass(frozen=True, slots=True, kw_only=True)
class GateVerdict:
    """The figures of a judgement by name, and why the candidate is refused; no fault means that it passed."""

    figures: Mapping[str, float]
    faults: tuple[str, ...] = ()


def tables_of(model: Adapted) -> SiteSpeeds:
    """Return the most probable effects as tables, as they would be served without an ensemble."""
    effects, misfit = model.middle, model.prior.spreads.misfit
    share = effects.added / (1.0 + effects.added)
    return SiteSpeeds(
        models=model.prior.models,
        gpu_types=model.prior.gpu_types,
        log_speed=effects.speed,
        speed_variance=effects.speed_variance + misfit**2,
        place_weight=effects.place,
        neighbours=Neighbours.of(effects.added),
        added_variance=share**2 * effects.added_variance,
    )


def forecast(speeds: SiteSpeeds, samples: Samples) -> tuple[Floats, Floats]:
    """Return the expected `log_speed` of jobs, without the constant of their family, and its variance, `(n,)` each."""
    model, gpu_type = samples.model, samples.gpu_type
    beside = np.log1p((samples.others * speeds.neighbours.added[model]).sum(axis=1))
    mean = speeds.log_speed[model, gpu_type] - speeds.place_weight[model] * samples.place - beside
    unsure = speeds.speed_variance[model, gpu_type] + (samples.others * speeds.added_variance[model]).sum(axis=1)
    return mean, unsure + samples.noise**2


def family_constants(speeds: SiteSpeeds, samples: Samples, families: int) -> tuple[Floats, Floats]:
    """Return the constant of each family under a model and its variance, `(n_families,)`; outliers weigh less."""
    mean, variance = forecast(speeds, samples)
    error, constant = samples.log_speed - mean, np.zeros(families)
    for _ in range(_ROUNDS):
        left = error - constant[samples.family]
        precision = (TAIL + 1.0) / (TAIL + left**2 / variance) / variance
        total = np.bincount(samples.family, precision, minlength=families) + FAMILY_SPREAD**-2.0
        constant = np.bincount(samples.family, precision * error, minlength=families) / total
    return constant, 1.0 / total


def errors_of(speeds: SiteSpeeds, older: Samples, newer: Samples) -> tuple[Floats, Floats]:
    """Return the errors of the forecasts of newer jobs, given older ones of their families, and their variances."""
    families = 1 + int(max(older.family.max(initial=0), newer.family.max(initial=0)))
    constant, unsure = family_constants(speeds, older, families)
    mean, variance = forecast(speeds, newer)
    return newer.log_speed - mean - constant[newer.family], variance + unsure[newer.family]


def log_likelihood(error: Floats, variance: Floats) -> Floats:
    """Return the logarithm of the density of errors, Student's with the 80 % interval of the variance, `(n,)`."""
    scale = np.sqrt(variance) * INSIDE / _INSIDE_TAIL
    constant = math.lgamma((TAIL + 1.0) / 2.0) - math.lgamma(TAIL / 2.0) - 0.5 * math.log(TAIL * math.pi)
    return np.asarray(constant - np.log(scale) - (TAIL + 1.0) / 2.0 * np.log1p((error / scale) ** 2 / TAIL))


def mean_by_family(values: Floats, family: Rows) -> tuple[float, float]:
    """Return the mean over samples and its standard error, those of one family counting as one draw."""
    mean = float(values.mean())
    sums = np.bincount(family, values - mean)
    return mean, float(np.sqrt((sums**2).sum()) / len(values))


def share_at_bound(prior: SitePrior, model: Adapted) -> float:
    """Return the largest share, over the kinds of effects, of those at their bound; 1 if one is not finite."""
    effects = model.middle
    with np.errstate(divide="ignore", invalid="ignore"):
        moved = (effects.speed - prior.log_speed, np.log(effects.place), np.log(effects.added / prior.floored))
    variances = (effects.speed_variance, effects.place_variance, effects.added_variance)
    if not all(np.isfinite(table).all() for table in (*moved, *variances)):
        return 1.0
    return max(float((np.abs(table) >= LARGEST).mean()) for table in moved)


def judged(candidate: Side, in_use: Side, *, at_bound: float, unseen: Rows) -> GateVerdict:
    """Judge a candidate; `unseen` are the rows of the jobs kept aside that the version in use has not learnt from."""
    error, variance = errors_of(candidate.speeds, candidate.older, candidate.aside)
    inside = float((np.abs(error) <= INSIDE * np.sqrt(variance)).mean())
    gain = log_likelihood(error, variance) - log_likelihood(*errors_of(in_use.speeds, in_use.older, in_use.aside))
    figures = {"aside": float(len(error)), "unseen": float(len(unseen)), "coverage": inside, "at_bound": at_bound}
    if len(unseen) < LEAST_UNSEEN:
        fault = f"{len(unseen)} jobs that neither it nor the version in use has seen, fewer than {LEAST_UNSEEN}"
        return GateVerdict(figures=figures, faults=(fault,))
    family = np.unique(candidate.aside.family[unseen], return_inverse=True)[1].reshape(-1)
    by_sample = mean_by_family(gain[unseen], family)
    of_family = np.bincount(family, gain[unseen]) / np.bincount(family)
    by_family = mean_by_family(of_family, np.arange(len(of_family)))
    figures |= {
        "families": float(len(of_family)),
        "gain": by_sample[0],
        "gain_error": by_sample[1],
        "gain_by_family": by_family[0],
        "gain_by_family_error": by_family[1],
    }
    return GateVerdict(figures=figures, faults=tuple(_faults(figures)))


def _faults(figures: Mapping[str, float]) -> list[str]:
    faults = []
    for name, over in (("gain", "jobs"), ("gain_by_family", "families")):
        # Not above the border is refused too, so that what is not a number is.
        if not figures[name] >= -figures[f"{name}_error"]:
            faults.append(
                f"the log likelihood of later jobs is {figures[name]:+.3f} against the version in use, on average "
                f"over {over} (standard error {figures[f'{name}_error']:.3f})"
            )
    if not COVERAGE[0] <= figures["coverage"] <= COVERAGE[1]:
        faults.append(f"{figures['coverage']:.0%} of later jobs ran within their 80 % intervals")
    if not figures["at_bound"] <= MOST_AT_BOUND:
        faults.append(f"{figures['at_bound']:.0%} of its effects are at their bound, or not finite")
    return faults
