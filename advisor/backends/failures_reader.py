"""Reads from accounting which runs of jobs ended because a node failed."""

from typing import Final

from advisor.backends.process import Commands, ask_text
from advisor.backends.spelling import count, instant, node_names
from advisor.backends.tres import tres
from advisor.domain.failing_node import FailedRun
from advisor.errors import DecodeError

# Slurm fills in all of them, so that no user can write a row.
_FIELDS: Final = ("NodeList", "End", "ElapsedRaw", "AllocTRES", "User")


def read_failed_runs(commands: Commands, since: str) -> tuple[FailedRun, ...]:
    """Ask accounting for the runs that a failing node ended since a time in the spelling of sacct, requeued ones too.

    Raises `SlurmError` or `DecodeError`.
    """
    states = ("-s", "NODE_FAIL,BOOT_FAIL", "-S", since, "-E", "now")
    shown = ask_text(commands, "sacct", "-a", "-n", "-X", "-D", "-P", *states, "-o", ",".join(_FIELDS))
    runs = (_run(row.split("|")) for row in shown.splitlines() if row)
    return tuple(run for run in runs if run.nodes)


def _run(cells: list[str]) -> FailedRun:
    if len(cells) != len(_FIELDS):
        raise DecodeError(f"sacct: {len(cells)} columns in place of {len(_FIELDS)}")
    nodes, end, elapsed, held, user = cells
    gpus = sum(each.count for each in tres(held, field="AllocTRES").gpus or ())
    return FailedRun(
        nodes=() if nodes == "None assigned" else node_names(nodes, field="NodeList"),
        end_time=instant(end, field="End") or 0.0,
        gpu_s=gpus * float(count(elapsed, field="ElapsedRaw")),
        user=user,
    )
