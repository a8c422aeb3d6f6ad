"""Holds jobs as columns: their attributes at submission, and how they ended."""

import re
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from advisor.domain.units import DAY_S, HOUR_S
from advisor.features.columns import Columns

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]
# Long enough for any real name; job names are written by users.
TEXT_LIMIT = 64
# Ten years: Slurm's largest limits in minutes are meant as none.
LONGEST_S = 10 * 366 * DAY_S
# The cluster ended these: their run times say nothing about the job.
ENDED_BY_THE_CLUSTER = ("NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "REVOKED", "REQUEUED", "RESIZING")
_FAMILY_END = re.compile(r"[0-9\x00-\x1f\x7f]")


def name_family(name: str) -> str:
    """Return the family name of a numbered series of jobs: the name up to its first digit, in lower case."""
    return _FAMILY_END.split(name[:TEXT_LIMIT], maxsplit=1)[0].strip(" -_.,:;/([").lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTimeTable(Columns):
    """Jobs, row by row; texts are empty and numbers NaN where not known, `limit_s` also where there is no limit.

    `gpus`, `cpus`, `nodes` and `memory_mib` are of the whole job. `waited_s` is how long a job has been pending so
    far, or was until its start; `elapsed_s` how long it has run, 0 for one that has not started.
    """

    user: tuple[str, ...]
    account: tuple[str, ...]
    name: tuple[str, ...]
    partition: tuple[str, ...]
    qos: tuple[str, ...]
    gpus: Floats
    cpus: Floats
    nodes: Floats
    memory_mib: Floats
    limit_s: Floats
    submit_time: Floats
    waited_s: Floats
    elapsed_s: Floats

    def __post_init__(self) -> None:
        lengths = {len(getattr(self, column.name)) for column in fields(self)}
        if len(lengths) > 1:
            raise ValueError(f"the columns of a table of jobs differ in length: {sorted(lengths)}")

    def __len__(self) -> int:
        return len(self.user)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedJobs(Columns):
    """Jobs with their run times, the instants of their ends and Slurm's words for how they ended."""

    jobs: RunTimeTable
    run_s: Floats
    end_time: Floats
    state: tuple[str, ...]

    def __post_init__(self) -> None:
        if not len(self.jobs) == len(self.run_s) == len(self.end_time) == len(self.state):
            raise ValueError("the columns of a table of ended jobs differ in length")

    def __len__(self) -> int:
        return len(self.jobs)

    def usable(self) -> tuple[NDArray[np.bool_], dict[str, int]]:
        """Return which rows are usable, and the number of the others by fault."""
        jobs, limit_s = self.jobs, self.jobs.limit_s
        by_cluster = [state.upper().startswith(ENDED_BY_THE_CLUSTER) for state in self.state]
        nameless = [not (user or account) for user, account in zip(jobs.user, jobs.account, strict=True)]
        good, dropped = np.ones(len(self), dtype=np.bool_), {}
        for reason, bad in (
            ("no run time, or a negative one", ~(np.isfinite(self.run_s) & (self.run_s > 0))),
            ("no submit or end time", ~(_plausible(jobs.submit_time) & _plausible(self.end_time))),
            ("ended before it was submitted", jobs.submit_time > self.end_time),
            ("no time limit", ~(np.isfinite(limit_s) & (limit_s > 0) & (limit_s < LONGEST_S))),
            ("ran far beyond its limit", self.run_s > 1.5 * limit_s + HOUR_S),
            ("neither user nor account", np.array(nameless, dtype=np.bool_)),
            ("ended by the cluster", np.array(by_cluster, dtype=np.bool_)),
        ):
            if count := int(np.count_nonzero(good & bad)):
                dropped[reason] = count
            good &= ~bad
        return good, dropped


def _plausible(instant: Floats) -> NDArray[np.bool_]:
    # Up to 2200; the clock of a simulated cluster begins at 0. NaN compares False.
    plausible: NDArray[np.bool_] = (instant >= 0.0) & (instant < 7_258_118_400)
    return plausible
