"""Holds the knowledge about models and networks: the JSON beside the graph of a throughput model."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from advisor.errors import ModelError
from advisor.predict.correction import WEIGHTS
from advisor.predict.interference_items import name_key
from advisor.predict.scaling import COUNT, DEFAULT, INSIDE, OVERLAP, SCALE, SHAPE, VOLUME, Law, Prior, Vector

Numbers = Annotated[list[Annotated[float, Field(ge=-100.0, le=100.0)]], Field(min_length=COUNT, max_length=COUNT)]
Deviations = Annotated[list[Annotated[float, Field(gt=0.0, le=100.0)]], Field(min_length=COUNT, max_length=COUNT)]
Positive = Annotated[float, Field(gt=0.0)]
_CHECKED = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)
# How much wider a profile is believed on a cluster where it was not measured, and when points of the job come in.
_ELSEWHERE, _AGAIN = 0.5, 2.0
_LEAST_DEVIATION = 0.02
_SCALE_ELSEWHERE = 0.8


class Population(BaseModel):
    """What models have in common on one network: means and deviations of the law's numbers, and the largest sizes."""

    model_config = _CHECKED

    mean: Numbers
    deviation: Deviations
    gpus: Positive
    nodes: Positive

    def prior(self) -> Prior:
        """Return the population as a prior."""
        return Prior(mean=np.array(self.mean), deviation=np.array(self.deviation))


class Profile(BaseModel):
    """The profile of one model on one cluster; `batch` has the smallest and the largest measured, per GPU.

    `reference` is the smallest measured within one node: the law counts batches in units of it.
    """

    model_config = _CHECKED

    model: str
    cluster: str
    theta: Numbers
    covariance: Annotated[list[list[float]], Field(min_length=COUNT, max_length=COUNT)]
    weights: Annotated[list[float], Field(min_length=WEIGHTS, max_length=WEIGHTS)]
    noise: Positive
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


class Calibration(BaseModel):
    """By how many stated deviations the 10 % and the 90 % quantile lie from the median, as measured."""

    model_config = _CHECKED

    low: Annotated[float, Field(ge=-20.0, le=0.0)] = -1.2816
    high: Annotated[float, Field(ge=0.0, le=20.0)] = 1.2816


class Knowledge(BaseModel):
    """All that a throughput model knows beside its graph.

    `profiled` calibrates jobs of a measured model; `adapted` and `one_node` jobs of which points were observed, some on
    several nodes or none; `unseen` jobs of which nothing is at hand; `ratios` the graph. `speeds` are logs of the speed
    of one GPU of a cluster over that of the first, where they have models in common.
    """

    model_config = _CHECKED

    pooled: Population
    clusters: dict[str, Population]
    profiles: list[Profile]
    speeds: dict[str, Annotated[float, Field(ge=-20.0, le=20.0)]] = {}
    profiled: Calibration = Calibration()
    adapted: Calibration = Calibration()
    one_node: Calibration = Calibration()
    unseen: Calibration = Calibration()
    ratios: Calibration = Calibration()


@dataclass(frozen=True, slots=True, kw_only=True)
class Belief:
    """The prior of one job, and the profile that it is based on, if any."""

    prior: Prior
    profile: Profile | None
    is_same_cluster: bool
    gpus: float
    nodes: float


# What serves where nothing was fitted: no size was ever measured.
UNTRAINED = Knowledge(
    pooled=Population(mean=DEFAULT.mean.tolist(), deviation=DEFAULT.deviation.tolist(), gpus=1e-9, nodes=1e-9),
    clusters={},
    profiles=[],
)


def tokens(name: str | None) -> frozenset[str]:
    """Return the words with a letter and a digit in a name, as `a100` in `nvidia_a100-sxm4`."""
    words = re.findall(r"[a-z0-9]+", (name or "").lower())
    return frozenset(word for word in words if re.search(r"[a-z]", word) and re.search(r"\d", word))


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


def believe(knowledge: Knowledge, model: str | None, cluster: str | None) -> Belief:
    """Return the belief about a job of `model` on `cluster`, each None where unknown."""
    here = {name_key(name): each for name, each in knowledge.clusters.items()}.get(name_key(cluster))
    population = here or knowledge.pooled
    named = [each for each in knowledge.profiles if name_key(model) and name_key(each.model) == name_key(model)]
    exact = next((each for each in named if name_key(each.cluster) == name_key(cluster)), None)
    if exact is not None:
        law = exact.law()
        deviation = _AGAIN * np.maximum(np.sqrt(np.diag(law.covariance)), _LEAST_DEVIATION)
        prior = Prior(mean=law.theta, deviation=deviation)
        profile: Profile | None = exact
    elif named:
        profile = named[0]
        prior = _moved(named[0], knowledge, population, _speed(knowledge, cluster) - _speed(knowledge, profile.cluster))
    else:
        profile = None
        prior = population.prior()
    return Belief(
        prior=prior,
        profile=profile,
        is_same_cluster=exact is not None,
        gpus=max(population.gpus, exact.gpus if exact else 0.0),
        nodes=max(population.nodes, exact.nodes if exact else 0.0),
    )


def _speed(knowledge: Knowledge, cluster: str | None) -> float:
    """Return the log of the speed of a cluster's GPU over that of the first; NaN where it is not known."""
    speeds = {name_key(name): speed for name, speed in knowledge.speeds.items()}
    return speeds.get(name_key(cluster), np.nan)


def _moved(profile: Profile, knowledge: Knowledge, population: Population, speed: float = np.nan) -> Prior:
    """Return a profile moved to another cluster: its computing, and the deviation of its volume from others.

    `speed` is the log of how much faster the GPU is there, NaN where that is not known.
    """
    law, wide = profile.law(), population.prior()
    there = knowledge.clusters.get(profile.cluster, knowledge.pooled)
    mean, deviation = law.theta.copy(), np.sqrt(np.diag(law.covariance)) + _ELSEWHERE
    mean[SCALE] -= 0.0 if np.isnan(speed) else speed
    deviation[SCALE] = _SCALE_ELSEWHERE
    for number in (VOLUME, INSIDE):
        mean[number] += population.mean[number] - there.mean[number]
    deviation[[VOLUME, INSIDE]] = wide.deviation[[VOLUME, INSIDE]]
    # How nodes and GPUs on them weigh is a matter of the network; how far it overlaps, of the model.
    mean[SHAPE:], deviation[SHAPE:] = wide.mean[SHAPE:], wide.deviation[SHAPE:]
    deviation[OVERLAP] = wide.deviation[OVERLAP]
    return Prior(mean=mean, deviation=deviation)


def live_laws(knowledge: Knowledge, models: Sequence[str]) -> Vector:
    """Return the numbers of each model on an unknown network, those of an unknown model last.

    `(n_models + 1, 12)`; where a model was measured on several clusters, the mean over them. All start at a scale of 0.
    """
    pooled = knowledge.pooled.prior()
    rows = [
        np.mean([_moved(own, knowledge, knowledge.pooled).mean for own in knowledge.profiles if own.model == model],
                axis=0)
        for model in models
    ]  # fmt: skip
    laws = np.array([*rows, pooled.mean], dtype=np.float64)
    laws[:, SCALE] = 0.0
    return laws
