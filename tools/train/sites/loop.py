"""Closes the loop at a simulated site: every night the performance model is adapted to the jobs that have ended."""

from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from advisor.domain.units import DAY_S
from advisor.features.observe.graph import Floats
from advisor.features.observe.site_speeds import SiteSpeeds
from advisor.fit.performance_fit import Samples, SitePrior, no_samples
from tools.train.places.parts import Decision
from tools.train.places.rules import Decide
from tools.train.sites.cluster import SiteCluster, adapted_to
from tools.train.sites.directed import Directed

# After this many jobs what one of them showed counts half.
HALF_LIFE: Final = 600.0
# The share of the placements that explore at random.
RANDOM_SHARE: Final = 0.05


@dataclass(slots=True, kw_only=True)
class Nightly:
    """Adapts the tables of a cluster each night; `kept` are the tables by number of samples, for learning curves."""

    prior: SitePrior
    seed: int
    is_nightly: bool = True
    keep_at: tuple[int, ...] = ()
    kept: dict[int, SiteSpeeds] = field(default_factory=dict)
    explorer: Directed | None = None
    next_time: float = DAY_S
    nights: int = 0

    def first(self) -> SiteSpeeds:
        """Return the tables before any job has ended."""
        return adapted_to(no_samples(len(self.prior.models)), self.prior, self.seed)

    def __call__(self, cluster: SiteCluster) -> None:
        """Adapt if the night has come; keep the tables of the learning curve."""
        count = sum(len(part) for part in cluster.samples.parts)
        if self.explorer is not None:
            newest = cluster.samples.parts[-1]
            self.explorer.learn(cluster.ended.tolist(), residuals(newest, cluster.speeds))
        for wanted in self.keep_at:
            if count >= wanted and wanted not in self.kept:
                self.kept[wanted] = self._adapted(cluster)
        if self.is_nightly and cluster.now >= self.next_time:
            self.next_time = (cluster.now // DAY_S + 1.0) * DAY_S
            self.nights += 1
            cluster.learn(self._adapted(cluster))

    def _adapted(self, cluster: SiteCluster) -> SiteSpeeds:
        return adapted_to(aged(cluster.samples.all(len(self.prior.models))), self.prior, self.seed)


def residuals(samples: Samples, speeds: SiteSpeeds) -> Floats:
    """Return by how much ended jobs were faster than the tables say, in standard deviations, `(n,)`."""
    model = samples.model
    beside = np.log1p((samples.others * speeds.neighbours.added[model]).sum(axis=1))
    expected = speeds.log_speed[model, samples.gpu_type] - speeds.place_weight[model] * samples.place - beside
    variance = samples.noise**2 + speeds.speed_variance[model, samples.gpu_type]
    return np.asarray((samples.log_speed - expected) / np.sqrt(variance))


def aged(samples: Samples) -> Samples:
    """Return samples of which older ones have more noise, so that a site that changes is followed."""
    age = np.arange(len(samples))[::-1]
    return replace(samples, noise=samples.noise * np.exp2(age / HALF_LIFE / 2.0))


def at_random(decide: Decide, seed: int, share: float = RANDOM_SHARE) -> Decide:
    """Return what takes a random legal server in a share of its decisions, and the given one in the others."""
    rng = np.random.default_rng([seed, 24])

    def explored(decision: Decision) -> int | None:
        chosen = decide(decision)
        legal = np.flatnonzero(decision.choice.legal)
        if chosen is None or not len(legal) or rng.random() >= share:
            return chosen
        return int(rng.choice(legal))

    return explored
