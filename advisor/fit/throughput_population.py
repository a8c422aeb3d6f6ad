"""Fits a population of scaling laws on each network, and the law of each model, by empirical Bayes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from advisor.fit.throughput_data import StepTimes
from advisor.predict.interference_items import name_key
from advisor.predict.scaling import DEFAULT, SCALE, Law, Prior, Vector, Work, log_step
from advisor.predict.throughput_adapt import reference_batch, taught
from advisor.predict.throughput_knowledge import Belief, Knowledge, Population, Profile

_ROUNDS = 3
# The weight of the prior, in models.
_MODELS_BEFORE = 0.5
_LEAST_DEVIATION = 0.05
_LEAST_COMMON = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The measurements of one model on one cluster."""

    model: str
    cluster: str
    work: Work
    step_s: Vector
    reference: float
    batch: tuple[float, float]


def work_of(measured: StepTimes) -> Work:
    """Return placements and batches in samples per GPU."""
    return Work(
        gpus=measured.gpus, nodes=measured.nodes, least=measured.least, most=measured.most, batch=measured.batch
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """The laws of all models, and the distributions of laws on each cluster and overall."""

    groups: tuple[Group, ...]
    laws: tuple[Law, ...]
    priors: Mapping[str, Prior]
    pooled: Prior

    def knowledge(self) -> Knowledge:
        """Return the knowledge that is served, without calibration."""
        of_cluster = {name: [group for group in self.groups if group.cluster == name] for name in self.priors}
        return Knowledge(
            pooled=_population(self.pooled, self.groups),
            clusters={name: _population(prior, of_cluster[name]) for name, prior in self.priors.items()},
            profiles=[_profile(group, self.priors[group.cluster]) for group in self.groups],
            speeds=_speeds(self.groups, self.laws),
        )

    def without(self, model: str) -> Knowledge | None:
        """Return the knowledge from all other models, without profiles; None if there is no other."""
        kept = [number for number, group in enumerate(self.groups) if group.model != model]
        if not kept:
            return None
        groups, laws = [self.groups[number] for number in kept], [self.laws[number] for number in kept]
        pooled = _common(laws, [self.priors[law.cluster] for law in groups], DEFAULT)
        names = sorted({group.cluster for group in groups})
        return Knowledge(
            pooled=_population(pooled, groups),
            clusters={
                name: _population(
                    _of_cluster(name, groups, laws, self.priors[name], pooled),
                    [group for group in groups if group.cluster == name],
                )
                for name in names
            },
            profiles=[],
        )


def learn_laws(measured: StepTimes) -> Learned:
    """Fit a law to each model of each cluster, shrunk to the cluster's mean, which is shrunk to the overall mean."""
    groups = tuple(_groups(measured))
    names = sorted({group.cluster for group in groups})
    priors = dict.fromkeys(names, DEFAULT)
    pooled, laws = DEFAULT, [_law(group, DEFAULT) for group in groups]
    for _ in range(_ROUNDS):
        pooled = _common(laws, [priors[group.cluster] for group in groups], DEFAULT)
        priors = {name: _of_cluster(name, groups, laws, priors[name], pooled) for name in names}
        laws = [_law(group, priors[group.cluster]) for group in groups]
    return Learned(groups=groups, laws=tuple(laws), priors=priors, pooled=pooled)


def _groups(measured: StepTimes) -> Iterator[Group]:
    for cluster, model in sorted(set(zip(measured.cluster.tolist(), measured.model.tolist(), strict=True))):
        own = measured.take((measured.cluster == cluster) & (measured.model == model))
        batch = (float(own.batch.min()), float(own.batch.max()))
        work = work_of(own)
        yield Group(
            model=model,
            cluster=cluster,
            work=work,
            step_s=own.step_s,
            reference=reference_batch(work),
            batch=batch,
        )


def belief_of(prior: Prior) -> Belief:
    """Return the belief about a job without a profile."""
    return Belief(prior=prior, profile=None, is_same_cluster=False, gpus=1.0, nodes=1.0)


def _law(group: Group, prior: Prior) -> Law:
    return taught(belief_of(prior), group.work, group.step_s, group.reference, group.batch)[0]


def _of_cluster(name: str, groups: Sequence[Group], laws: Sequence[Law], before: Prior, pooled: Prior) -> Prior:
    own = [law for group, law in zip(groups, laws, strict=True) if group.cluster == name]
    return _common(own, [before] * len(own), pooled)


def _common(laws: Sequence[Law], before: Sequence[Prior], start: Prior) -> Prior:
    """Return the mean and deviation of laws, each number weighted by the information in the measurements."""
    thetas = np.array([law.theta for law in laws])
    informed = np.array(
        [
            np.clip(1.0 - np.diag(law.covariance) / prior.deviation**2, 0.0, 1.0)
            for law, prior in zip(laws, before, strict=True)
        ]
    )
    informed[:, SCALE] = 1.0
    known = informed.sum(axis=0)
    mean = (np.sum(informed * thetas, axis=0) + _MODELS_BEFORE * start.mean) / (known + _MODELS_BEFORE)
    squares = np.sum(informed * (thetas - mean) ** 2, axis=0)
    # The prior weighs as much as two models, so that two that agree by chance do not make the deviation small.
    variance = (squares + 2.0 * start.deviation**2) / (known + 2.0) * (1.0 + 1.0 / (known + 1.0))
    variance = np.minimum(variance, start.deviation**2 + squares / np.maximum(known, 1.0))
    return Prior(mean=mean, deviation=np.maximum(np.sqrt(variance), _LEAST_DEVIATION))


def _population(prior: Prior, groups: Sequence[Group]) -> Population:
    return Population(
        mean=prior.mean.tolist(),
        deviation=prior.deviation.tolist(),
        gpus=max(float(group.work.gpus.max()) for group in groups),
        nodes=max(float(group.work.nodes.max()) for group in groups),
    )


def _profile(group: Group, prior: Prior) -> Profile:
    law, weights, noise = taught(belief_of(prior), group.work, group.step_s, group.reference, group.batch)
    return Profile(
        model=group.model,
        cluster=group.cluster,
        theta=law.theta.tolist(),
        covariance=law.covariance.tolist(),
        weights=weights.tolist(),
        noise=noise,
        reference=group.reference,
        batch=group.batch,
        gpus=float(group.work.gpus.max()),
        nodes=float(group.work.nodes.max()),
    )


def _speeds(groups: Sequence[Group], laws: Sequence[Law]) -> dict[str, float]:
    """Return the log of the speed of one GPU of each cluster over that of one of the first cluster.

    One model in common is not enough: two studies measured different programs under one name.
    """
    first = min(group.cluster for group in groups)
    rates = {(group.cluster, name_key(group.model)): (group, law) for group, law in zip(groups, laws, strict=True)}
    speeds = {first: 0.0}
    for cluster in sorted({group.cluster for group in groups} - {first}):
        names = sorted(name for place, name in rates if place == cluster and (first, name) in rates)
        if len(names) >= _LEAST_COMMON:
            speeds[cluster] = float(
                np.mean([_rate(*rates[cluster, name]) - _rate(*rates[first, name]) for name in names])
            )
    return speeds


def _rate(group: Group, law: Law) -> float:
    """Return the log of samples per second of one GPU at the largest measured batch."""
    one = np.ones(1)
    largest = Work(gpus=one, nodes=one, least=one, most=one, batch=one * group.batch[1] / group.reference)
    return float(np.log(group.batch[1]) - log_step(law.theta, largest)[0])
