"""Places that are tried where a user's jobs lie about their speed: what the jobs of other users really lose.

`python -m tests.planning.test_lying_users` prints the figures of decision 0038, over more sites.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from advisor.features.observe.graph import Flags
from advisor.fit.performance_fit import Floats, Samples
from tests.planning.lying_site import LIAR, MODELS, LyingSite, capped_samples, realised

HONEST, LIES, SITES, TRIES, SLOWDOWN = 300, 300, 12, 30, 0.15
SITES_OF_FIGURES = 40
# One-sided, of a lower bound at 1.64 standard deviations.
EXPECTED_BEYOND = 0.05


def hides_all(samples: Samples, _lies: Flags) -> Samples:
    """Return the samples as drawn: the jobs of the liar seem to run as fast beside others as alone."""
    return samples


def on_one_model(samples: Samples, lies: Flags) -> Samples:
    """Return the samples with all lies about one model."""
    model = samples.model.copy()
    model[lies] = 0
    return replace(samples, model=model, family=np.where(lies, LIAR * (len(MODELS) + 1), samples.family))


def beside_one_model(samples: Samples, lies: Flags) -> Samples:
    """Return the samples with all lies about jobs beside one model."""
    others = samples.others.copy()
    others[lies, 0], others[lies, 1:] = others[lies].sum(axis=1), 0.0
    return replace(samples, others=others)


def faster_beside_others(samples: Samples, lies: Flags) -> Samples:
    """Return the samples with lies that jobs run faster beside others than alone."""
    speed = samples.log_speed.copy()
    speed[lies] = 0.3 * (samples.others[lies].sum(axis=1) > 0.0)
    return replace(samples, log_speed=speed)


Lie = Callable[[Samples, Flags], Samples]
EVERY_LIE: tuple[Lie, ...] = (hides_all, on_one_model, beside_one_model, faster_beside_others)


def speeds_of_affected(lie: Lie, *, lies: int, capped: bool, sites: int = SITES) -> Floats:
    """Return the relative speeds that affected jobs really have, over some drawn sites."""
    all_speeds = []
    for number in range(sites):
        site = LyingSite.drawn(np.random.default_rng([number, 7]), honest=HONEST, lies=lies)
        samples = lie(site.samples, site.users == LIAR)
        if capped:
            samples = capped_samples(samples, site.users, seed=number)
        rng = np.random.default_rng([number, 9])
        all_speeds.append(realised(site, site.learnt(samples), rng, tries=TRIES, slowdown=SLOWDOWN).all)
    return np.concatenate(all_speeds)


def beyond(speeds: Floats) -> float:
    """Return the share of affected jobs that lose more than the stated share of their speed."""
    return float((speeds < 1.0 - SLOWDOWN).mean())


@pytest.mark.slow
def test_honest_site_keeps_affected_jobs_within_the_bound() -> None:
    speeds = speeds_of_affected(hides_all, lies=0, capped=True)

    assert len(speeds) > 200
    assert beyond(speeds) <= 0.01


@pytest.mark.slow
@pytest.mark.parametrize("lie", EVERY_LIE)
def test_liar_breaks_the_bound_of_others_unless_capped(lie: Lie) -> None:
    free, capped = (speeds_of_affected(lie, lies=LIES, capped=capped) for capped in (False, True))

    assert len(capped) > 200
    assert beyond(capped) < EXPECTED_BEYOND / 2
    assert beyond(free) > 3.0 * beyond(capped) and beyond(free) > 0.03
    assert free.min() < capped.min()


def figures() -> None:
    """Print the share of affected jobs that lose more than stated, and the least speed, for each lie."""
    print("lie                   capped  affected  beyond  least speed")
    cases: list[tuple[str, Lie, int, bool]] = [("none", hides_all, 0, capped) for capped in (False, True)]
    cases += [(lie.__name__, lie, LIES, capped) for lie in EVERY_LIE for capped in (False, True)]
    for name, lie, lies, capped in cases:
        speeds = speeds_of_affected(lie, lies=lies, capped=capped, sites=SITES_OF_FIGURES)
        print(f"{name:22}{capped!s:8}{len(speeds):8}{beyond(speeds):8.2%}{speeds.min():13.2f}", flush=True)


if __name__ == "__main__":
    figures()
