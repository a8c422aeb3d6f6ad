"""Counts which combinations the ended gangs of a site were, and how far the performance model was off for each.

This is what directed exploration looks up: rare combinations and those that the model got wrong are worth a try, and
all are after the site has shifted. It is counted again from all jobs every night, so that nothing is carried over.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from advisor.features.observe.site_speeds import SiteSpeeds
from advisor.features.observe.subspaces import NOTHING_SEEN, Signature, Subspaces
from advisor.fit.performance_fit import TAIL, Floats, Samples
from advisor.fit.performance_gate import forecast
from advisor.fit.performance_prior import FAMILY_SPREAD
from advisor.fit.performance_samples import EndedJob, samples_of, with_noise
from advisor.predict.interference_items import name_key

_OTHER = "other"


@dataclass(frozen=True, kw_only=True)
class ServedSpeeds:
    """The tables of the performance models that were in use: by digest of the policy that looked at one, or `shipped`.

    `noise_share` and `misfit` are those of the fit.
    """

    shipped: SiteSpeeds
    by_policy: Mapping[str, SiteSpeeds]
    noise_share: float
    misfit: float

    def deviations(self, jobs: Sequence[EndedJob]) -> Floats:
        """Return how far the log speed of each job was off what the model in use forecast, in standard deviations."""
        deviations = self._of(self.shipped, jobs)
        decided_by = [job.gang_place.decided_by if job.gang_place is not None else "" for job in jobs]
        for digest in sorted(self.by_policy.keys() & set(decided_by)):
            is_of = np.array([one == digest for one in decided_by], np.bool_)
            deviations = np.where(is_of, self._of(self.by_policy[digest], jobs), deviations)
        return deviations

    def _of(self, speeds: SiteSpeeds, jobs: Sequence[EndedJob]) -> Floats:
        samples = with_noise(samples_of(jobs, speeds.models, speeds.gpu_types), self.noise_share, self.misfit)
        return deviations_in_order(speeds, samples)


def deviations_in_order(speeds: SiteSpeeds, samples: Samples) -> Floats:
    """Return how far each sample is off its forecast, `(n,)`, in standard deviations of the noise and of the model.

    The constant of its family comes from the samples before it, so that a shift shows in those after it; outliers weigh
    less in it.
    """
    mean, variance = forecast(speeds, samples)
    error, deviations = samples.log_speed - mean, np.zeros(len(samples))
    families = 1 + int(samples.family.max(initial=-1))
    precision, weighted = np.full(families, FAMILY_SPREAD**-2.0), np.zeros(families)
    for row, family in enumerate(samples.family.tolist()):
        unsure = variance[row] + 1.0 / precision[family]
        deviations[row] = (error[row] - weighted[family] / precision[family]) / np.sqrt(unsure)
        weight = (TAIL + 1.0) / (TAIL + deviations[row] ** 2) / variance[row]
        precision[family] += weight
        weighted[family] += weight * error[row]
    return deviations


def seen_subspaces(
    jobs: Sequence[EndedJob], served: ServedSpeeds, models: Sequence[str], gpu_types: Sequence[str]
) -> Subspaces:
    """Return the combinations of ended jobs, which stand in order of their ends, by the names of the model to serve."""
    names = {name_key(name): name for name in models}
    seen = NOTHING_SEEN
    for job, deviation in zip(jobs, served.deviations(jobs).tolist(), strict=True):
        signature = _signature(job, names, gpu_types)
        if signature is not None:
            seen = seen.updated(signature.text, deviation)
    return seen


def _signature(job: EndedJob, names: Mapping[str, str], gpu_types: Sequence[str]) -> Signature | None:
    """Return the combination that a gang was; None for a job on one server.

    Others count that sent from its most loaded server for half of its run or longer, on average.
    """
    place = job.gang_place
    if place is None:
        return None
    others = [names.get(model, _OTHER) for model, count in job.others.items() for _ in range(int(count + 0.5))]
    return Signature(
        classes=(*others, names.get(job.model, _OTHER)),
        span=place.span,
        share=place.share,
        gpu_type=job.gpu_type if job.gpu_type in gpu_types else _OTHER,
    )
