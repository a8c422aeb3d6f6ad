"""Times a batch of changes on live Slurm: applied, read back and written to a journal, and then reverted.

python -m tools.bench apply [--release 22.05] [--changes 300] [--jobs 1000]
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from advisor.apply.applier import Applier
from advisor.backends.actuator import ScontrolActuator
from advisor.backends.diagnostics import read_load
from advisor.backends.named_jobs import NamedJobs
from advisor.backends.process import Answer, FedCommands, SlurmCommands, Stream
from advisor.backends.site_reader import SiteReader
from advisor.backends.sources import open_source
from advisor.clock import SystemClock
from advisor.cycle import Cycle, CycleRecord
from advisor.domain.actions import SetNice
from advisor.domain.forecast import NO_FORECASTS
from advisor.domain.memory import NOTHING_KNOWN, Memory
from advisor.domain.plan import Outcome, Receipt
from advisor.domain.snapshot import Snapshot
from advisor.journal import opened
from tools.kill_test.proposing import recommended
from tools.stage import LiveCluster, LiveSlurmError
from tools.stage.program import add_release
from tools.stage.watch import talking_to

TIMEOUT_S = 30.0


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_release(parser)
    parser.add_argument("--changes", type=int, default=300, help="changes of as many jobs, default: %(default)s")
    parser.add_argument("--jobs", type=int, default=1000, help="pending jobs in all, default: %(default)s")


def run(options: argparse.Namespace) -> int:
    """Measure one release and print the figures; return 1 if a change was not applied or not reverted."""
    try:
        with LiveCluster(options.release, node_count=2, start_slurmd=False) as live, talking_to(live):
            live.submit_many(options.jobs, "--time=10")
            return _measured(live, options.changes)
    except LiveSlurmError as err:
        print(f"bench apply: {err}", file=sys.stderr)
        return 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """Slurm's commands, with a list of those that were started."""

    inner: FedCommands
    started: list[str] = field(default_factory=list)
    cluster: str | None = None

    def ask(self, program: str, *arguments: str) -> Answer:
        """Run a command."""
        self.started.append(program)
        return self.inner.ask(program, *arguments)

    def stream(self, program: str, *arguments: str, variables: Mapping[str, str]) -> Stream:
        """Run a command and return its output in chunks."""
        self.started.append(program)
        return self.inner.stream(program, *arguments, variables=variables)

    def feed(self, program: str, lines: Sequence[str]) -> str:
        """Run a command that reads lines."""
        self.started.append(f"{program} of {len(lines)} lines")
        return self.inner.feed(program, lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class NiceOfEach(Cycle):
    """A cycle that gives each of the first `most` jobs a nice value of its own."""

    most: int

    def judge(self, snapshot: Snapshot, memory: Memory = NOTHING_KNOWN) -> CycleRecord:
        """Propose the changes, whatever the jobs are."""
        changes = [
            SetNice(job_id=job.job_id, before=job.nice, after=number)
            for number, job in enumerate(snapshot.pending[: self.most], start=1)
        ]
        return CycleRecord(
            snapshot=snapshot,
            memory=memory,
            forecasts=NO_FORECASTS,
            judged=tuple(recommended(change, None) for change in changes),
            left_alone={},
        )


def _measured(live: LiveCluster, changes: int) -> int:
    commands = Listed(inner=SlurmCommands(timeout_s=TIMEOUT_S))
    clock = SystemClock()
    source = open_source("text", cluster=None, timeout_s=TIMEOUT_S, clock=clock)
    with tempfile.TemporaryDirectory() as folder, opened(Path(folder) / "journal.sqlite") as journal:
        applier = Applier(
            source=source,
            actuator=ScontrolActuator(commands),
            cycle=NiceOfEach(most=changes),
            journal=journal,
            named=NamedJobs(commands, clock, SiteReader(commands, clock)),
        )
        snapshot = source.snapshot()
        live.run("sdiag", "--reset")
        began = time.perf_counter()
        applied = applier.step(snapshot).applied
        apply_s = time.perf_counter() - began
        started, update_us = list(commands.started), 1e6 * _update_s(commands)
        commands.started.clear()
        began = time.perf_counter()
        reverted = applier.revert(applier.leased()).taken_back
        revert_s = time.perf_counter() - began
        done, undone = _count(applied), _count(reverted)
        still_open = len(journal.leases())
    print(
        f"Slurm {live.version}, {len(snapshot.pending)} pending jobs: {done} of {changes} changes applied, read back "
        f"and journalled in {apply_s:.2f} s by {len(started)} processes ({', '.join(started)}), "
        f"{update_us:.0f} microseconds of slurmctld each"
    )
    print(
        f"{undone} reverted in {revert_s:.2f} s by {len(commands.started)} processes ({', '.join(commands.started)}), "
        f"{still_open} leases left"
    )
    return 0 if done == undone == changes and not still_open else 1


def _update_s(commands: Listed) -> float:
    """Return the mean time in which slurmctld has served an update."""
    return read_load(commands.inner).request_times_s["REQUEST_UPDATE_JOB"]


def _count(receipts: Sequence[Receipt]) -> int:
    return sum(receipt.outcome is Outcome.APPLIED for receipt in receipts)
