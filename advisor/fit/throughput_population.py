"""Fits a population of scaling laws on each network, and the law of each model, by empirical Bayes."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from advisor.domain.dataclass import dataclass
from advisor.fit.throughput_data import StepTimes
from advisor.predict.interference_items import name_key
from advisor.predict.scaling import DEFAULT, Law, Prior, Vector, Work, reference_batch, taught
from advisor.predict.throughput_knowledge import (
    DEFAULT_WITHIN,
    UNTRAINED,
    Knowledge,
    NetworkBelief,
    Population,
    Profile,
    informed_by,
)

_ROUNDS = 3
# The weight of what is taken for granted, in models for how they differ, in networks for how those do.
_MODELS_BEFORE, _NETWORKS_BEFORE = 2.0, 3.0
_LEAST_DEVIATION = 0.05


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
    """The laws of all models, the beliefs that they were fitted from, and the networks as they show them."""

    groups: tuple[Group, ...]
    laws: tuple[Law, ...]
    before: tuple[Prior, ...]
    clusters: Mapping[str, NetworkBelief]
    pooled: NetworkBelief

    def knowledge(self) -> Knowledge:
        """Return the knowledge that is served, without calibration."""
        profiles = [_profile(group, law) for group, law in zip(self.groups, self.laws, strict=True)]
        return _common(self.groups, self.clusters, self.pooled).model_copy(update={"profiles": profiles})

    def without(self, model: str) -> Knowledge | None:
        """Return the knowledge from all other models, without profiles; None if there is no other."""
        kept = [number for number, group in enumerate(self.groups) if name_key(group.model) != name_key(model)]
        if not kept:
            return None
        groups, laws = [self.groups[number] for number in kept], [self.laws[number] for number in kept]
        before = [self.before[number] for number in kept]
        return _common(groups, *_networks(groups, laws, before, self.pooled, self.clusters))


def learn_laws(measured: StepTimes) -> Learned:
    """Fit a law to each model of each cluster, shrunk to the cluster's mean, itself shrunk to that of all networks."""
    groups = tuple(_groups(measured))
    pooled = UNTRAINED.pooled.network()
    clusters = dict.fromkeys(sorted({group.cluster for group in groups}), pooled)
    for _ in range(_ROUNDS):
        before = [clusters[group.cluster].prior() for group in groups]
        laws = [
            taught(prior, group.work, group.step_s, group.reference)
            for group, prior in zip(groups, before, strict=True)
        ]
        clusters, pooled = _networks(groups, laws, before, pooled, clusters)
    return Learned(groups=groups, laws=tuple(laws), before=tuple(before), clusters=clusters, pooled=pooled)


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


def _networks(
    groups: Sequence[Group],
    laws: Sequence[Law],
    before: Sequence[Prior],
    pooled: NetworkBelief,
    clusters: Mapping[str, NetworkBelief],
) -> tuple[dict[str, NetworkBelief], NetworkBelief]:
    """Return each network, and the belief about one that was never measured, as laws fitted from `before` show them.

    A network counts once, however many models and rows were measured on it.
    """
    names = sorted({group.cluster for group in groups})
    informed = np.array([informed_by(law, prior) for law, prior in zip(laws, before, strict=True)])
    middle = np.array([clusters[group.cluster].mean for group in groups])
    apart = (informed * (np.array([law.theta for law in laws]) - middle) ** 2).sum(axis=0)
    start = DEFAULT_WITHIN * DEFAULT.deviation
    within = np.sqrt((apart + _MODELS_BEFORE * start**2) / (informed.sum(axis=0) + _MODELS_BEFORE))
    within = np.maximum(within, _LEAST_DEVIATION)
    anywhere = NetworkBelief(mean=pooled.mean, within=within, doubt=pooled.doubt)
    own = {
        name: anywhere.seen(
            [law for group, law in zip(groups, laws, strict=True) if group.cluster == name],
            [prior for group, prior in zip(groups, before, strict=True) if group.cluster == name],
        )
        for name in names
    }
    means = np.array([network.mean for network in own.values()])
    mean = (means.sum(axis=0) + _NETWORKS_BEFORE * DEFAULT.mean) / (len(names) + _NETWORKS_BEFORE)
    unsure = DEFAULT.deviation**2 - start**2
    squares = ((means - mean) ** 2).sum(axis=0) + _NETWORKS_BEFORE * unsure
    doubt = np.sqrt(squares / (len(names) + _NETWORKS_BEFORE) * (1.0 + 1.0 / len(names)))
    return own, NetworkBelief(mean=mean, within=within, doubt=np.maximum(doubt, _LEAST_DEVIATION))


def _common(groups: Sequence[Group], clusters: Mapping[str, NetworkBelief], pooled: NetworkBelief) -> Knowledge:
    """Return the knowledge that models have in common."""
    return Knowledge(
        pooled=_population(pooled, groups),
        clusters={
            name: _population(network, [group for group in groups if group.cluster == name])
            for name, network in clusters.items()
        },
        profiles=[],
    )


def _population(network: NetworkBelief, groups: Sequence[Group]) -> Population:
    return Population(
        mean=network.mean.tolist(),
        within=network.within.tolist(),
        doubt=network.doubt.tolist(),
        gpus=max(float(group.work.gpus.max()) for group in groups),
        nodes=max(float(group.work.nodes.max()) for group in groups),
    )


def _profile(group: Group, law: Law) -> Profile:
    return Profile(
        model=group.model,
        cluster=group.cluster,
        theta=law.theta.tolist(),
        covariance=law.covariance.tolist(),
        reference=group.reference,
        batch=group.batch,
        gpus=float(group.work.gpus.max()),
        nodes=float(group.work.nodes.max()),
    )
