"""The ensemble of the performance model: few samples reach every member."""

import numpy as np
import pytest

from advisor.fit.performance_fit import MEMBERS, Samples, SitePrior, Spreads, adapted


def samples_of(log_speed: float, count: int) -> Samples:
    """Return ended jobs of the first model on the first GPU type, alone."""
    return Samples(
        model=np.zeros(count, np.intp),
        gpu_type=np.zeros(count, np.intp),
        place=np.zeros(count),
        others=np.zeros((count, 2)),
        log_speed=np.full(count, log_speed),
        noise=np.full(count, 0.02),
        family=np.full(count, -1, np.intp),
    )


@pytest.mark.parametrize("seed", range(5))
def test_every_member_learns_from_one_sample(seed: int) -> None:
    prior = SitePrior(
        models=("a",),
        gpu_types=("v100",),
        log_speed=np.zeros((2, 2)),
        added=np.zeros((2, 2)),
        spreads=Spreads(family=0.01),
    )

    model = adapted(prior, samples_of(0.5, 1), seed=seed)

    speeds = [member.speed[0, 0] for member in model.members]
    assert len(speeds) == MEMBERS
    assert min(speeds) > 0.35
    assert np.ptp(speeds) > 0.0
