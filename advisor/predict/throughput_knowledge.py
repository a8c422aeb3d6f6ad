"""Holds the knowledge about models and networks: the JSON beside the graph of a throughput model."""

import json
from collections.abc import Sequence
from typing import Annotated, Self

import numpy as np
from pydantic import Field, ValidationError, model_validator

from advisor.domain.dataclass import dataclass
from advisor.errors import ModelError
from advisor.predict.manifest import CheckedModel
from advisor.predict.scaling import COUNT, DEFAULT, INSIDE, OVERLAP, SCALE, SHAPE, VOLUME, Law, Prior, Vector

Numbers = Annotated[list[Annotated[float, Field(ge=-100.0, le=100.0)]], Field(min_length=COUNT, max_length=COUNT)]
Deviations = Annotated[list[Annotated[float, Field(gt=0.0, le=100.0)]], Field(min_length=COUNT, max_length=COUNT)]
Positive = Annotated[float, Field(gt=0.0)]
# How much wider a profile is believed on a cluster where it was not measured.
_ELSEWHERE = 0.5
# Before anything is measured, models on one network are taken to differ by this share of the whole deviation.
DEFAULT_WITHIN = 0.5
_SCALE_ELSEWHERE = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkBelief:
    """The belief about a network: `(12,)` each.

    A model on it differs from `mean` by `within`; the mean itself is known to `doubt`.
    """

    mean: Vector
    within: Vector
    doubt: Vector

    def prior(self) -> Prior:
        """Return the belief about a model that was never seen on it."""
        return Prior(mean=self.mean, deviation=np.hypot(self.within, self.doubt))

    def seen(self, laws: Sequence[Law], before: Sequence[Prior]) -> "NetworkBelief":
        """Return the belief after laws of models on it, each fitted from its prior; number by number, after Bayes."""
        weight, total = self.doubt**-2, self.doubt**-2 * self.mean
        for law, prior in zip(laws, before, strict=True):
            informed = informed_by(law, prior)
            # The estimate from the points without the prior, and its weight.
            middle = prior.mean + (law.theta - prior.mean) / informed
            own = 1.0 / (np.diag(law.covariance) / informed + self.within**2)
            weight, total = weight + own, total + own * middle
        return NetworkBelief(mean=total / weight, within=self.within, doubt=weight**-0.5)


def informed_by(law: Law, prior: Prior) -> Vector:
    """Return which share of each number of a law its points tell, `(12,)`, above 0 to 1; the rest is the prior's."""
    informed = np.clip(1.0 - np.diag(law.covariance) / prior.deviation**2, 1e-6, 1.0)
    # Each job has a scale of its own, of which the prior tells nothing.
    informed[SCALE] = 1.0
    return np.asarray(informed, dtype=np.float64)


class Calibration(CheckedModel):
    """By how many stated deviations the 10 % and the 90 % quantile lie from the median, as measured."""

    low: Annotated[float, Field(ge=-20.0, le=0.0)] = -1.2816
    high: Annotated[float, Field(ge=0.0, le=20.0)] = 1.2816


class Population(CheckedModel):
    """What models have in common on one network, as `NetworkBelief` has it, and the largest sizes.

    `ratios` calibrates the deviations that the graph states, by the models left out there.
    """

    mean: Numbers
    within: Deviations
    doubt: Deviations
    gpus: Positive
    nodes: Positive
    ratios: Calibration = Calibration()

    def network(self) -> NetworkBelief:
        """Return the population as a belief about its network."""
        return NetworkBelief(mean=np.array(self.mean), within=np.array(self.within), doubt=np.array(self.doubt))

    def prior(self) -> Prior:
        """Return the belief about a model that was never seen on the network."""
        return self.network().prior()


class Profile(CheckedModel):
    """The profile of one model on one cluster; `batch` has the smallest and the largest measured, per GPU.

    `reference` is the smallest measured within one node: the law counts batches in units of it.
    """

    model: str
    cluster: str
    theta: Numbers
    covariance: Annotated[list[list[float]], Field(min_length=COUNT, max_length=COUNT)]
    reference: Positive
    batch: tuple[Positive, Positive]
    gpus: Positive
    nodes: Positive

    @model_validator(mode="after")
    def _is_a_covariance(self) -> Self:
        covariance = np.array([np.array(row) for row in self.covariance], dtype=object)
        if covariance.shape != (COUNT, COUNT):
            raise ValueError(f"covariance is not {COUNT} by {COUNT}")
        if np.diag(covariance.astype(np.float64)).min() < 0.0 or self.batch[0] > self.batch[1]:
            raise ValueError("a variance is negative, or the batches are in the wrong order")
        return self

    def law(self) -> Law:
        """Return the profile as a law."""
        return Law(theta=np.array(self.theta), covariance=np.array(self.covariance))


class Knowledge(CheckedModel):
    """All that a throughput model knows beside its graph; `pooled` is of a network that was not measured."""

    pooled: Population
    clusters: dict[str, Population]
    profiles: list[Profile]


# What serves where nothing was fitted: no size was ever measured.
UNTRAINED = Knowledge(
    pooled=Population(
        mean=DEFAULT.mean.tolist(),
        within=(DEFAULT_WITHIN * DEFAULT.deviation).tolist(),
        doubt=(np.sqrt(1.0 - DEFAULT_WITHIN**2) * DEFAULT.deviation).tolist(),
        gpus=1e-9,
        nodes=1e-9,
    ),
    clusters={},
    profiles=[],
)


def parse_knowledge(text: str, name: str) -> Knowledge:
    """Read the JSON of a bundle; raises `ModelError`."""
    try:
        return Knowledge.model_validate_json(text)
    except (ValidationError, RecursionError, ValueError) as err:
        reason = (str(err).splitlines() or [""])[0]
        raise ModelError(f"model {name}: its parameters are damaged ({reason}): fit it again, or roll back") from err


def write_knowledge(knowledge: Knowledge) -> str:
    """Return the JSON of a bundle."""
    return json.dumps(knowledge.model_dump(mode="json"), sort_keys=True)


def moved(profile: Profile, knowledge: Knowledge, population: Population) -> Prior:
    """Return a profile moved to another network: its computing, and the deviation of its volumes from others."""
    law, wide = profile.law(), population.prior()
    there = knowledge.clusters.get(profile.cluster, knowledge.pooled)
    mean, deviation = law.theta.copy(), np.sqrt(np.diag(law.covariance)) + _ELSEWHERE
    deviation[SCALE] = _SCALE_ELSEWHERE
    for number in (VOLUME, INSIDE):
        mean[number] += population.mean[number] - there.mean[number]
    deviation[[VOLUME, INSIDE]] = wide.deviation[[VOLUME, INSIDE]]
    # How nodes and GPUs on them weigh is a matter of the network; how far it overlaps, of the model.
    mean[SHAPE:], deviation[SHAPE:] = wide.mean[SHAPE:], wide.deviation[SHAPE:]
    deviation[OVERLAP] = wide.deviation[OVERLAP]
    return Prior(mean=mean, deviation=deviation)
