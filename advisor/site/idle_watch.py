"""Looks for idle GPUs of running jobs: asks Prometheus, and Slurm where jobs share nodes."""

from dataclasses import replace

from advisor.backends.gpu_indices import read_gpu_indices
from advisor.backends.process import Deadline, SlurmCommands
from advisor.backends.prometheus import read_gpus
from advisor.clock import Clock
from advisor.diagnose.idle_jobs import Indices, idle_look, jobs_to_map
from advisor.domain.idle_gpus import IdleLook, UtilisationSettings
from advisor.domain.snapshot import Snapshot
from advisor.errors import DecodeError, SlurmError


def look_for_idle(
    snapshot: Snapshot,
    settings: UtilisationSettings,
    commands: SlurmCommands,
    clock: Clock,
    patience: Deadline | None = None,
) -> IdleLook:
    """Return the running jobs with idle GPUs; raises `UtilisationError`.

    Slurm is asked at most once, and only if a GPU is idle on a node that jobs share and no measurement names jobs.
    """
    readings = read_gpus(settings, clock.now(), patience)
    shared = () if settings.job_label else jobs_to_map(snapshot, readings, settings)
    indices: Indices = {}
    gap = ""
    try:
        if shared:
            indices = read_gpu_indices(commands, [job.job_id for job in shared])
    except (SlurmError, DecodeError) as err:
        gap = str(err)
    return replace(idle_look(snapshot, readings, indices, settings), gap=gap)
