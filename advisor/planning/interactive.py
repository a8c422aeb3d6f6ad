"""Computes how many GPUs are left for interactive jobs, which `salloc` and `srun` submit without a script.

At their submission they get one nice, the lowest that sadvise sets. By it later snapshots show which jobs got it,
waiting and running, so that no count has to be kept.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.domain.dataclass import dataclass
from advisor.domain.gang import share_of_gpu
from advisor.domain.job import Job
from advisor.domain.mark import marked_below
from advisor.domain.snapshot import Snapshot
from advisor.features.capacity import node_table
from advisor.features.nodes import NodeTable
from advisor.features.queue import gpus_taken_by, joined
from advisor.planning.levers import missing_for_nice
from advisor.settings import Limits

# The code of the reason for which they are lifted, in the journal and in reports.
INTERACTIVE_FIRST: Final = "interactive_first"
# slurm/sadvise_lift.lua sets no lower nice than minus this.
_MOST_POINTS_UP: Final = 2_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class InteractiveRoom:
    """What the interactive jobs of partitions that share nodes can get: `gpus` that are left, `user_gpus` for one user.

    `nice` is what a job gets, `limit_s` its longest time limit, and `held` the GPUs that users have by such jobs.
    """

    partitions: tuple[str, ...]
    nice: int
    limit_s: float
    gpus: int
    user_gpus: int
    held: Mapping[str, int]

    def covers(self, job: Job) -> bool:
        """Return whether a job can have got the nice with what it asks for."""
        gpus, limit_s = job.gang.gpu_count, job.time_limit_s
        if gpus is None or limit_s is None:
            return False
        return (gpus == 1 or job.gang.nodes_max == 1) and gpus <= self.gpus and limit_s <= self.limit_s


def interactive_nice(limits: Limits) -> int | None:
    """Return the nice of lifted interactive jobs; None where they are not lifted."""
    nice = -marked_below(min(-limits.nice_min, _MOST_POINTS_UP))
    return nice if limits.interactive_ratio > 0.0 and nice < 0 else None


def interactive_rooms(snapshot: Snapshot, limits: Limits) -> Iterator[InteractiveRoom]:
    """Yield what is left for interactive jobs, for each group of partitions that share GPU nodes."""
    nice = interactive_nice(limits)
    if nice is None or missing_for_nice(snapshot) is not None:
        return
    table = node_table(snapshot)
    members = table.partition_member & table.gpus_total.any(axis=1)
    names = table.partition_names
    groups = joined({name: np.flatnonzero(rows).tolist() for name, rows in zip(names, members, strict=True)})
    jobs = [job for job in snapshot.jobs if job.nice == nice]
    taken = gpus_taken_by(jobs, snapshot, table).tolist()
    # A job there takes more than the GPUs by which the script counts it.
    whole = {partition.name for partition in snapshot.partitions if partition.gives_whole_nodes}
    for number in sorted(set(groups.values())):
        group = [name for name in names if groups.get(name) == number]
        rows = np.isin(names, group)
        share = _gpus(table, np.asarray(members[rows].any(axis=0))) * limits.interactive_ratio
        held: dict[str, float] = {}
        for job, gpus in zip(jobs, taken, strict=True):
            if not set(group).isdisjoint(job.partitions):
                held[job.user] = held.get(job.user, 0.0) + gpus
        yield InteractiveRoom(
            partitions=tuple(name for name in group if name not in whole),
            nice=nice,
            limit_s=limits.interactive_limit_s,
            gpus=max(0, math.floor(share - sum(held.values()))),
            user_gpus=math.ceil(math.floor(share) / 2),
            held={user: math.ceil(gpus) for user, gpus in sorted(held.items())},
        )


def _gpus(table: NodeTable, rows: NDArray[np.bool_]) -> float:
    """Return the whole GPUs of nodes that take jobs, of some rows."""
    shares = np.array([share_of_gpu(gpu_type) for gpu_type in table.gpu_types], dtype=np.float64)
    return float((table.gpus_total[rows & table.usable] @ shares).sum())
