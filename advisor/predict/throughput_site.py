"""Derives the laws that a site is served: of its own families of jobs, of measured models, and of any other job."""

from collections.abc import Sequence
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from advisor.domain.dataclass import dataclass
from advisor.features.columns import Columns
from advisor.predict.interference_items import name_key
from advisor.predict.scaling import COUNT, INSIDE, SCALE, VOLUME, Law, Prior, Vector, Work, reference_batch, taught
from advisor.predict.throughput_knowledge import Knowledge, Population, Profile, moved


class Evidence(IntEnum):
    """What is known of a family of jobs on the network of the site; each step is worth more than the one before."""

    NONE = 0
    ONE_NODE = 1
    SPREAD = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class SitePoints(Columns):
    """Step times that families of jobs showed on this site; all columns have `n_points` rows.

    `family` is a key of the name. `step_s` is in seconds, the batch of `work` in samples per GPU.
    """

    family: NDArray[np.str_]
    work: Work
    step_s: Vector

    def of(self, family: str) -> "SitePoints":
        """Return the points of a family."""
        return self.take(self.family == family)


def no_points() -> SitePoints:
    """Return a table without points."""
    none = np.zeros(0)
    work = Work(gpus=none, nodes=none, least=none, most=none, batch=none)
    return SitePoints(family=np.zeros(0, dtype=np.str_), work=work, step_s=none)


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteLaws(Columns):
    """The laws of families and models, those of a job of any other last: `(n, 12)` for `theta`, else `(n,)`.

    `doubt` is the deviation of the log of the volume between nodes that an unmeasured network causes, `doubt_inside`
    the same within a node. Batches are per GPU and NaN where none is known. `gpus` and `nodes` are the most that were
    seen. `spread_gpus`, `spread_nodes` and `spread_uneven` (the most GPUs on a node over the fewest) are the largest
    that the family itself showed over several nodes of this network, 0 where it showed none.
    """

    theta: Vector
    evidence: NDArray[np.int64]
    doubt: Vector
    doubt_inside: Vector
    reference: Vector
    lowest: Vector
    highest: Vector
    gpus: Vector
    nodes: Vector
    spread_gpus: Vector
    spread_nodes: Vector
    spread_uneven: Vector


def site_laws(knowledge: Knowledge, network: str | None, points: SitePoints) -> tuple[tuple[str, ...], SiteLaws]:
    """Return the keys of the names, and the laws in their order.

    `network` names one of `knowledge.clusters`, None where the network of the site was not measured. A family starts
    from what the others showed of the network, not from its own points twice.
    """
    start = knowledge.pooled if network is None else knowledge.clusters[network]
    own = {family: points.of(family) for family in sorted(set(points.family.tolist()))}
    priors = {family: _prior(_profiles(knowledge, family), knowledge, start) for family in own}
    laws = {family: _family_law(knowledge, priors[family], family, at) for family, at in own.items()}
    rows = []
    for family, at in own.items():
        others = [other for other in own if other != family]
        here = _after(start, [laws[other] for other in others], [priors[other] for other in others])
        law = _family_law(knowledge, _prior(_profiles(knowledge, family), knowledge, here), family, at)
        doubts = np.minimum(_unseen(knowledge, network, here), _doubts(law, at.work))
        rows.append(_row(law.theta, _of_points(knowledge, family, at.work, here), evidence_of(at.work), doubts))
    here = _after(start, list(laws.values()), list(priors.values()))
    shipped = sorted({name_key(profile.model) for profile in knowledge.profiles} - set(own))
    rows += [_named(knowledge, network, here, key) for key in shipped]
    doubts = _unseen(knowledge, network, here)
    rows.append(_row(here.prior().mean, _Seen(gpus=here.gpus, nodes=here.nodes), Evidence.NONE, doubts))
    return (*own, *shipped), SiteLaws.join(rows)


def evidence_of(work: Work) -> Evidence:
    """Return what points tell of a job: of others on one node from three sizes there on, over several from two.

    Between fewer sizes, intervals did not hold on networks that were not measured.
    """
    alone = work.nodes == 1
    sizes = len(np.unique(work.gpus[alone]))
    if sizes > 1 and not alone.all():
        return Evidence.SPREAD
    return Evidence.ONE_NODE if sizes > 2 else Evidence.NONE


def _profiles(knowledge: Knowledge, key: str) -> list[Profile]:
    return [profile for profile in knowledge.profiles if name_key(profile.model) == key]


def _prior(profiles: Sequence[Profile], knowledge: Knowledge, here: Population) -> Prior:
    """Return the prior of a family: its model where it was measured, moved to this network, else any model here."""
    return moved(profiles[0], knowledge, here) if profiles else here.prior()


def _reference(knowledge: Knowledge, family: str, work: Work) -> float:
    profiles = _profiles(knowledge, family)
    return profiles[0].reference if profiles else reference_batch(work)


def _family_law(knowledge: Knowledge, prior: Prior, family: str, at: SitePoints) -> Law:
    return taught(prior, at.work, at.step_s, _reference(knowledge, family, at.work))


def _after(start: Population, laws: Sequence[Law], before: Sequence[Prior]) -> Population:
    """Return the population of a network after laws on it."""
    network = start.network().seen(laws, before)
    return start.model_copy(update={"mean": network.mean.tolist(), "doubt": network.doubt.tolist()})


def _unseen(knowledge: Knowledge, network: str | None, here: Population) -> Vector:
    """Return the deviations of both volumes that come from the network; 0 where it was measured.

    Errors on measured networks, with a model left out, are what the graph states.
    """
    if network is not None:
        return np.zeros(2)
    measured = [each.doubt for each in knowledge.clusters.values()] or [[0.0] * COUNT]
    beyond = np.square(here.doubt) - np.min(np.square(measured), axis=0)
    return np.asarray(np.sqrt(np.maximum(beyond, 0.0))[[VOLUME, INSIDE]], dtype=np.float64)


def _doubts(law: Law, work: Work) -> Vector:
    """Return the deviations of both volumes of a family as its points show them; infinite where they do not."""
    own = np.sqrt(np.diag(law.covariance))[[VOLUME, INSIDE]]
    return np.where([evidence_of(work) is Evidence.SPREAD, evidence_of(work) is not Evidence.NONE], own, np.inf)


def _named(knowledge: Knowledge, network: str | None, here: Population, key: str) -> SiteLaws:
    """Return the law of a measured model: its own where it was measured here, else the mean of those moved here."""
    profiles = _profiles(knowledge, key)
    exact = [profile for profile in profiles if profile.cluster == network]
    if exact:
        evidence = Evidence.SPREAD if exact[0].nodes > 1 else Evidence.ONE_NODE
        own = exact[0]
        sizes = (own.gpus, own.nodes, own.gpus) if own.nodes > 1 else (0.0, 0.0, 0.0)
        return _row(own.law().theta, _of_profiles(exact, here, sizes), evidence, np.zeros(2))
    theta = np.mean([moved(profile, knowledge, here).mean for profile in profiles], axis=0)
    return _row(theta, _of_profiles(profiles, here), Evidence.NONE, _unseen(knowledge, network, here))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """The batches that a law counts from, and the largest sizes that were seen."""

    reference: float = np.nan
    lowest: float = np.nan
    highest: float = np.nan
    gpus: float
    nodes: float
    spread_gpus: float = 0.0
    spread_nodes: float = 0.0
    spread_uneven: float = 0.0


def _of_profiles(
    profiles: Sequence[Profile], here: Population, spread: tuple[float, float, float] = (0.0, 0.0, 0.0)
) -> _Seen:
    return _Seen(
        reference=profiles[0].reference,
        lowest=min(own.batch[0] for own in profiles),
        highest=max(own.batch[1] for own in profiles),
        gpus=here.gpus,
        nodes=here.nodes,
        spread_gpus=spread[0],
        spread_nodes=spread[1],
        spread_uneven=spread[2],
    )


def _of_points(knowledge: Knowledge, family: str, work: Work, here: Population) -> _Seen:
    # Without one on one node, a spread point is no measure of what spreading costs.
    evidence, largest = evidence_of(work), float(work.gpus.max())
    spread = work.take((work.nodes > 1) & (evidence is Evidence.SPREAD))
    return _Seen(
        reference=_reference(knowledge, family, work),
        lowest=float(work.batch.min()),
        highest=float(work.batch.max()),
        # Intervals of known families did not hold beyond the largest size that they had shown.
        gpus=largest if evidence else max(here.gpus, largest),
        nodes=max(here.nodes, float(work.nodes.max())),
        spread_gpus=float(spread.gpus.max(initial=0.0)),
        spread_nodes=float(spread.nodes.max(initial=0.0)),
        spread_uneven=float((spread.most / spread.least).max(initial=0.0)),
    )


def _row(theta: Vector, seen: _Seen, evidence: Evidence, doubt: Vector) -> SiteLaws:
    """Return a law as a table of one row."""
    theta = theta.copy()
    # Speeds are ratios, so that the scale of a step is no matter.
    theta[SCALE] = 0.0
    return SiteLaws(
        theta=theta[None],
        evidence=np.array([int(evidence)]),
        doubt=doubt[:1],
        doubt_inside=doubt[1:],
        **{name: np.array([getattr(seen, name)]) for name in _Seen.__slots__},
    )
