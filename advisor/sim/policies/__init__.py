"""The policies that can be simulated, one file each."""

from collections.abc import Mapping

from advisor.sim.policies import (
    dally,
    dally_consolidated,
    dally_fixed,
    dally_nowait,
    dally_preempt,
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
    slurm_dally,
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
    dally,
    dally_preempt,
    dally_nowait,
    dally_consolidated,
    dally_fixed,
    slurm_dally,
    rules,
    forecast,
    forecast_noisy,
    forecast_oracle,
)
POLICIES: Mapping[str, Policy] = {module.POLICY.name: module.POLICY for module in _MODULES}
