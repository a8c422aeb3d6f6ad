"""Asks slurmctld whether a job would start now at a smaller size, before that size is written."""

import os
import re
import time
from collections.abc import Callable, Iterator
from typing import Final

from advisor.backends.process import Commands, text_of
from advisor.backends.spelling import instant
from advisor.domain.actions import SetGpus
from advisor.domain.gang import GpuCount, GpuScope
from advisor.domain.job import Job
from advisor.domain.plan import Recommendation
from advisor.domain.units import MINUTE_S, duration
from advisor.errors import SlurmRefusedError

# Slurm takes some passes to start a job that it can start.
LATE_S: Final = 120.0
# Of a job that others stand before, slurmctld tells that it starts in an hour, whatever the nodes.
FIRST: Final = -2_147_483_000
_OPTIONS: Final = {
    GpuScope.JOB: "--gpus",
    GpuScope.NODE: "--gpus-per-node",
    GpuScope.SOCKET: "--gpus-per-socket",
    GpuScope.TASK: "--gpus-per-task",
}
_START: Final = re.compile(r"to start at (\S+)")


class ConfirmedStart:
    """Has slurmctld confirm that a job starts at once with fewer GPUs, by `sbatch --test-only` of the same request.

    That costs one request for each such change. Only root can ask in the name of other users; others ask nothing.
    """

    def __init__(
        self, commands: Commands, *, now: Callable[[], float] = time.time, uid: Callable[[], int] = os.geteuid
    ) -> None:
        """Ask with some commands."""
        self._commands, self._now, self._uid = commands, now, uid

    def against(self, change: Recommendation, job: Job) -> str | None:
        """Return why a smaller size would not start now; None if it would, or if this user cannot ask."""
        action = change.action
        if not isinstance(action, SetGpus) or not action.shrinks or self._uid() != 0:
            return None
        try:
            answer = self._commands.ask("sbatch", *request_of(action.applied_to(job)))
        except SlurmRefusedError as err:
            return f"slurmctld: it would not start at that size: {err}"
        found = _START.search(text_of(answer.complaints) + text_of(answer.output))
        start_time = None if found is None else instant(found[1], field="sbatch --test-only")
        if start_time is None:
            return "slurmctld: it does not tell when the job would start at that size"
        late_s = start_time - self._now()
        return None if late_s <= LATE_S else f"slurmctld: at that size it would start in {duration(late_s)}, not now"


def request_of(job: Job) -> tuple[str, ...]:
    """Return the arguments of sbatch that test a job's request and submit nothing."""
    return ("--test-only", "--wrap=true", f"--nice={FIRST}", *_whose(job), *_gpus(job), *_where(job))


def _whose(job: Job) -> Iterator[str]:
    named = {"uid": job.user, "account": job.account, "qos": job.qos, "partition": ",".join(job.partitions)}
    yield from (f"--{name}={value}" for name, value in named.items() if value)
    if job.time_limit_s is not None:
        yield f"--time={-(-job.time_limit_s // MINUTE_S):.0f}"


def _gpus(job: Job) -> Iterator[str]:
    gang = job.gang
    for scope, option in _OPTIONS.items():
        if counts := gang.counts(scope):
            yield f"{option}={','.join(map(_spelled, counts))}"
    if gang.gres:
        yield f"--gres={','.join(map(str, gang.gres))}"
    if gang.cpus_per_gpu is not None:
        yield f"--cpus-per-gpu={gang.cpus_per_gpu}"
    elif gang.cpus > gang.tasks and gang.cpus % gang.tasks == 0:
        yield f"--cpus-per-task={gang.cpus // gang.tasks}"


def _spelled(gpus: GpuCount) -> str:
    return f"{gpus.gpu_type}:{gpus.count}" if gpus.gpu_type else str(gpus.count)


def _where(job: Job) -> Iterator[str]:
    gang = job.gang
    high = "" if gang.most_nodes is None else f"-{gang.most_nodes}"
    if high or gang.nodes_min > 1:
        yield f"--nodes={gang.nodes_min}{high}"
    numbers = {"ntasks": gang.tasks, "mincpus": gang.cpus_per_node}
    yield from (f"--{name}={number}" for name, number in numbers.items() if number > 1)
    if gang.tasks_per_node:
        yield f"--ntasks-per-node={gang.tasks_per_node}"
    amounts = {"mem": gang.memory_mib_per_node, "tmp": gang.tmp_disk_mib}
    yield from (f"--{name}={mib}M" for name, mib in amounts.items() if mib)
    nodes = {"nodelist": ",".join(gang.required_nodes), "exclude": ",".join(gang.excluded_nodes)}
    texts = {"constraint": gang.features, **nodes}
    yield from (f"--{name}={text}" for name, text in texts.items() if text)
    if gang.exclusive or gang.only_beside:
        yield "--exclusive" if gang.exclusive else "--exclusive=user"
