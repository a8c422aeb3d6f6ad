"""Learns how far sites depart from what was measured: the spreads of the performance model's prior."""

from collections.abc import Callable
from dataclasses import asdict, replace

from advisor.fit.performance_fit import Samples, SitePrior, Spreads, learnt_spreads, no_samples
from advisor.sim.study.engines import run_on_cores
from tools.train.places.rules import play
from tools.train.sites.cluster import SiteCluster, adapted_to, prior_of
from tools.train.sites.drawn import TRAINING, draw_site
from tools.train.sites.rules import cheapest_action

# Sites of the training on which spreads are learnt.
SITES = 24
SEED = 500_000


def samples_of(seed: int) -> Samples:
    """Return what the jobs of a site leave under the rule that teaches, with the prior as it ships."""
    site = draw_site(seed, TRAINING)
    prior = prior_of(site, Spreads())
    cluster = SiteCluster(site, adapted_to(no_samples(len(prior.models)), prior, seed))
    play(cluster, cheapest_action)
    return cluster.samples.all(len(prior.models))


def learn_spreads(workers: int, show: Callable[[str], None], sites: int = SITES) -> dict[str, float]:
    """Return the spreads under which the jobs of many sites are most probable.

    Each site has models and types of its own, so that the spreads are learnt for each, and averaged by squares.
    """
    tasks = {str(SEED + number): SEED + number for number in range(sites)}
    samples = dict(run_on_cores(tasks, samples_of, workers))
    show(f"{len(samples)} sites, {sum(map(len, samples.values()))} jobs")
    spreads = Spreads()
    for turn in range(8):
        learnt = [
            learnt_spreads(_prior(tasks[key], spreads), {key: of_site}, rounds=1) for key, of_site in samples.items()
        ]
        fields = asdict(learnt[0])
        mean = {name: (sum(asdict(one)[name] ** 2 for one in learnt) / len(learnt)) ** 0.5 for name in fields}
        spreads = replace(spreads, **{name: round(value, 4) for name, value in mean.items()})
        show(f"{turn + 1} of 8: {spreads}")
    return asdict(spreads)


def _prior(seed: int, spreads: Spreads) -> SitePrior:
    return prior_of(draw_site(seed, TRAINING), spreads)
