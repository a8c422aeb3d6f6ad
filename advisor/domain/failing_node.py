"""Defines runs of jobs that the failure of a node ended, and nodes that fail more often than others."""

from advisor.domain.dataclass import dataclass
from advisor.domain.units import HOUR_S, gpu_time, plural


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedRun:
    """A run of a job which Slurm ended because one of its nodes failed; `gpu_s` is the GPU-time that it had used."""

    nodes: tuple[str, ...]
    end_time: float
    gpu_s: float = 0.0
    user: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailingNode:
    """A node that failed more often than chance makes, with what it ended: `runs` of `users`, which used `gpu_s`."""

    name: str
    failures: int
    runs: int
    users: int
    gpu_s: float

    @property
    def text(self) -> str:
        """What the node did."""
        lost = f"{plural(self.runs, 'run')} of {plural(self.users, 'user')} with it, {gpu_time(self.gpu_s / HOUR_S)}"
        return f"{self.name} failed {self.failures} times and ended {lost}"
