"""Many sites side by side, as learners see them: one decision of one policy in each."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from advisor.features.observe.graph import Floats, Floats32
from advisor.features.observe.least_loss import SEEN_COLUMNS, seen_columns
from advisor.features.observe.site_speeds import SiteSpeeds
from advisor.fit.performance_fit import Samples, SitePrior, Spreads
from tools.train.places.env import JOBS_MOST, PlacesEnv, mask_of
from tools.train.places.parts import Decision
from tools.train.places.workload import BELIEF_SPREAD
from tools.train.sites.cluster import SiteCluster, adapted_to, prior_of, true_speeds
from tools.train.sites.drawn import Change, DrawnSite, Family, draw_site
from tools.train.sites.network import SiteLayout
from tools.train.slots import Integers

# How many jobs of a site may have ended before the policy decides there.
ENDED: Final = (0, 100, 300, 1000)
# From a site and its seed to what the policy is shown of it.
Shown = Callable[[DrawnSite, int], SiteSpeeds]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownAfterSome:
    """Draws how many of `ended` jobs have ended at a site, and adapts the performance model to them."""

    spreads: Spreads
    ended: tuple[int, ...] = ENDED

    def __call__(self, site: DrawnSite, seed: int) -> SiteSpeeds:
        """Return what the policy is shown of a site."""
        rng = np.random.default_rng([seed, 23])
        prior = prior_of(site, self.spreads)
        return adapted_to(imagined_samples(site, prior, int(rng.choice(self.ended)), rng), prior, seed)


def imagined_samples(site: DrawnSite, prior: SitePrior, count: int, rng: np.random.Generator) -> Samples:
    """Return samples as `count` jobs of a site would leave them, drawn from its true tables without running them."""
    log_speed, added = true_speeds(site, site.before)
    model = rng.choice(site.trace.jobs["model"], count).astype(np.intp)
    gpu_type = rng.integers(len(prior.gpu_types), size=count)
    place = np.where(rng.random(count) < 0.7, 0.0, rng.exponential(0.4, count))
    others: Floats = np.zeros((count, len(prior.models) + 1))
    for _ in range(3):
        beside = rng.choice(site.trace.jobs["model"], count)
        others[np.arange(count), beside] += rng.random(count) * (rng.random(count) < 0.3)
    speed = log_speed[model, gpu_type] - place - np.log1p((others * added[model]).sum(axis=1))
    return Samples(
        model=model,
        gpu_type=gpu_type,
        place=place,
        others=others,
        log_speed=speed + rng.normal(0.0, BELIEF_SPREAD, count),
        noise=np.full(count, BELIEF_SPREAD),
        family=np.full(count, -1, np.intp),
    )


class SitesEnv(PlacesEnv):
    """`n` sites; actions are the next server, or wait, which is the last.

    What changes in the middle of an episode is one of `changes`, in turn. With `of_site` all episodes are workloads of
    the site of that seed: a task of meta-learning.
    """

    def __init__(
        self,
        n: int,
        family: Family,
        layout: SiteLayout,
        shown: Shown,
        *,
        changes: tuple[Change, ...] = (Change.NONE,),
        sees_speeds: bool = True,
    ) -> None:
        """Make the arrays; `reset` begins the episodes."""
        self.family, self.shown, self.changes, self.sees_speeds = family, shown, changes, sees_speeds
        self.of_site: int | None = None
        super().__init__(n, None, layout)  # type: ignore[arg-type]

    def __getstate__(self) -> dict[str, object]:
        """Keep what describes the episodes alone: a run begins them again where it goes on."""
        names = ("n", "family", "layout", "shown", "changes", "sees_speeds")
        return {name: getattr(self, name) for name in names}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def reset(self, seeds: Sequence[int], rows: Integers | None = None) -> None:
        """Begin the episodes of some seeds, in these rows or in all."""
        for row, seed in zip(range(self.n) if rows is None else rows.tolist(), seeds, strict=True):
            change = self.changes[seed % len(self.changes)]
            site = draw_site(seed, self.family, change, of_site=self.of_site)
            cluster = SiteCluster(site, self.shown(site, seed if self.of_site is None else self.of_site))
            self.clusters[row] = cluster
            self.decisions[row] = cluster.next_decision()
            self.begun[row] += 1
            self._look(row)

    def _look(self, row: int) -> None:
        """Write the observation and the mask of a row."""
        decision, cluster = self.decisions[row], self.clusters[row]
        self._seen[row], self._mask[row] = 0.0, False
        if decision is None or not isinstance(cluster, SiteCluster):
            self._mask[row, -1] = True
            return
        self.job[row], self.time[row] = decision.row + self.begun[row] * JOBS_MOST, cluster.now / cluster.unit_s
        self.layout.packed(self._seen[row], **site_tensors(decision, cluster, sees_speeds=self.sees_speeds))
        self._mask[row] = mask_of(decision, self.layout)


def site_tensors(decision: Decision, cluster: SiteCluster, *, sees_speeds: bool = True) -> dict[str, Floats32]:
    """Return the arrays of one observation by the names of `SiteView`."""
    choice = decision.choice
    seen = choice.columns()
    columns = np.zeros((len(seen), len(SEEN_COLUMNS)), np.float32)
    if sees_speeds:
        columns = seen_columns(choice)
    return {
        "choice": seen,
        "outlook": columns,
        "gang": choice.gang_columns(cluster.neighbours),
        "own": decision.reports[decision.agent],
    }
