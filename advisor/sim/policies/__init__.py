"""The policies that can be simulated, one file each."""

from collections.abc import Mapping

from advisor.sim.policies import (
    drf,
    fifo,
    forecast,
    forecast_noisy,
    forecast_oracle,
    gandiva,
    las,
    optimus,
    qssf,
    rules,
    sjf,
    slurm,
    srsf,
    srtf,
    tetris,
    themis,
)
from advisor.sim.policy import Policy

_MODULES = (
    slurm,
    fifo,
    sjf,
    srtf,
    srsf,
    qssf,
    las,
    drf,
    tetris,
    optimus,
    gandiva,
    themis,
    rules,
    forecast,
    forecast_noisy,
    forecast_oracle,
)
POLICIES: Mapping[str, Policy] = {module.POLICY.name: module.POLICY for module in _MODULES}
