"""A trace: the jobs of a workload, as they were submitted and as they would run alone."""

from dataclasses import field

import numpy as np
from numpy.typing import NDArray

from advisor.domain.dataclass import dataclass

# One row per job, sorted by (submit_time, job_id). Codes are indices into the name tables of `Trace`.
TRACE_DTYPE = np.dtype(
    [
        ("job_id", np.int64),
        ("submit_time", np.float64),  # seconds from the trace's own zero
        ("run_time_s", np.float64),  # at the requested size, alone, on the best placement, on the GPU type asked
        ("gpus", np.int32),  # GPUs asked for; 0: CPUs alone
        ("gpus_min", np.int32),  # the range for a resize; both `gpus` for a rigid job
        ("gpus_max", np.int32),
        ("nodes_min", np.int32),  # 0: the fewest that hold the GPUs
        ("nodes_max", np.int32),  # 0: open
        ("cpus_per_gpu", np.int32),
        ("memory_mib_per_gpu", np.int64),
        ("time_limit_s", np.float64),  # infinity: none
        ("time_min_s", np.float64),  # 0: none
        ("gpu_type", np.int32),  # code, -1: any
        ("model", np.int32),  # code of the profile, -1: unknown
        ("user", np.int32),
        ("account", np.int32),
        ("qos", np.int32),
        ("switches", np.int32),  # Switches=count@wait, 0: not asked
        ("switches_wait_s", np.float64),
        ("nice", np.int32),
        ("checkpoint_interval_s", np.float64),  # 0: no checkpoint, a requeue loses all work
        ("recorded_start_time", np.float64),  # when it started in reality, NaN: unknown
        ("partition", np.int32),
        ("array_id", np.int64),  # the job array that it is a task of, 0: none
        ("dependency", np.int32),  # as Slurm spells it
        ("array_limit", np.int32),  # tasks of its array that run at once, 0: all
        ("begin_time", np.float64),  # not eligible before; 0: at submission
        ("name", np.int32),
        ("cpus", np.int32),  # asked for in all, 0: as cpus_per_gpu says
        ("memory_mib", np.int64),  # on each node, 0: as memory_mib_per_gpu says
        ("exclusive", np.int8),  # 1: shares no node
        ("features", np.int32),  # Slurm's --constraint, as it spells it
        ("required_nodes", np.int32),  # a node list, as is the next
        ("excluded_nodes", np.int32),
        ("reservation", np.int32),
        ("interactive", np.int8),  # 1: submitted by salloc or srun, for somebody who waits
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """The jobs of a workload; `jobs` is `(n_jobs,)` of `TRACE_DTYPE`.

    `sampled` names the columns that a sampler filled in, `seed` what it drew from. `note` is free text on where
    the trace comes from.
    """

    name: str
    jobs: NDArray[np.void]
    users: tuple[str, ...] = ("",)
    accounts: tuple[str, ...] = ("",)
    qos: tuple[str, ...] = ("normal",)
    gpu_types: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ("",)
    dependencies: tuple[str, ...] = ("",)
    job_names: tuple[str, ...] = ("",)
    features: tuple[str, ...] = ("",)
    required_nodes: tuple[str, ...] = ("",)
    excluded_nodes: tuple[str, ...] = ("",)
    reservations: tuple[str, ...] = ("",)
    sampled: tuple[str, ...] = ()
    seed: int | None = None
    note: str = field(default="", compare=False)

    def __len__(self) -> int:
        return len(self.jobs)
