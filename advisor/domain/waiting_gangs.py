"""Defines the gangs that starve, and the GPUs that idle because small jobs are scattered, as the daemon finds them."""

from typing import Final

from advisor.domain.dataclass import dataclass

# Most gangs and nodes that the daemon publishes and writes down, the longest and the largest first.
MOST: Final = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class StarvedGang:
    """A pending gang that has starved since an instant.

    It has been eligible for longer than `guard.max_job_wait_s`, and jobs of others that became eligible after it have
    had at least as much GPU-time on its nodes as it asks for: `passed_gpu_s`, in `passed_by` runs of `users`.
    """

    job_id: int
    gpus: int
    eligible_time: float
    since_time: float
    work_gpu_s: float
    passed_gpu_s: float
    passed_by: int
    users: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GangLook:
    """What a look at the pending gangs found: those that starve, the longest first.

    `scattered` are idle GPUs by node, most first, on nodes that jobs share: a pending gang would have them now if these
    jobs stood on fewer nodes.
    """

    looked_time: float
    starved: tuple[StarvedGang, ...] = ()
    scattered: tuple[tuple[str, int], ...] = ()

    def of(self, job_id: int) -> StarvedGang | None:
        """Return a gang if it starves."""
        return next((gang for gang in self.starved if gang.job_id == job_id), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class WeekOfGangs:
    """The gangs that starved in some days, each with its user, and the GPU-hours that idled by node, most first."""

    starved: tuple[tuple[int, str], ...] = ()
    scattered: tuple[tuple[str, float], ...] = ()


NO_GANGS: Final = WeekOfGangs()
