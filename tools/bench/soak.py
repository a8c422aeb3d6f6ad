"""Days of the daemon's rounds over a large synthetic cluster, with the clock turned by hand.

    python -m tools.bench soak --jobs 10000 --hours 24 [--nodes 1000] [--interval 60] [--turnover 0.01]

Runs the daemon's own round, journal on disk included, in mode apply. Between rounds a share of the queue changes: jobs
arrive, start and end. Prints, for every hour, CPU per round, resident memory and the size of the journal; then the
means by stage. Asked are a mean below 0.5 s of CPU per round, and less than 250 MiB that do not grow.
"""

import argparse
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from advisor.apply.applier import Applier
from advisor.clock import ManualClock
from advisor.config import Config, load_config
from advisor.cycle import Cycle
from advisor.daemon.live_parts import forecaster
from advisor.daemon.service import Outfit, Service
from advisor.domain.actions import Action
from advisor.domain.job import Allocation, Job, JobState
from advisor.domain.load import ControllerLoad
from advisor.domain.plan import Outcome, Receipt
from advisor.domain.snapshot import Snapshot
from advisor.journal import SqliteJournal
from advisor.planning.observing import observed
from advisor.site.site_gate import RoundDeadline, SiteGate
from tools.bench.measuring import Stages, resident_mib
from tools.bench.synthetic import synthetic

HOUR_S: Final = 3600.0
MIB: Final = 1 << 20
NOT_COUNTED: Final = "making the snapshot, not counted"
JOURNAL_STAGES: Final = {
    "journal, writing": ("claim", "keep", "close", "add_waits", "record", "receipts", "keep_outcomes", "note", "prune"),
    "journal, reading": ("leases", "closed", "waits", "observed_until", "outcomes", "open_outcomes"),
}


@dataclass
class Changing:
    """A synthetic cluster whose queue changes between rounds, and which carries out every change."""

    start: Snapshot
    chance: np.random.Generator
    turnover: float
    clock: ManualClock
    jobs: dict[int, Job]
    next_id: int
    name: str = "synthetic"

    @classmethod
    def made(cls, jobs: int, nodes: int, turnover: float, seed: int) -> "Changing":
        """Make a busy cluster with a number of pending jobs."""
        start = synthetic(jobs, nodes, seed)
        return cls(
            # The first snapshot must not live as long as the cluster does.
            start=replace(start, jobs=()),
            chance=np.random.default_rng(seed),
            turnover=turnover,
            clock=ManualClock(start.taken_at),
            jobs=dict(start.jobs_by_id),
            next_id=max(start.jobs_by_id) + 1,
        )

    def snapshot(self) -> Snapshot:
        """Return the cluster as it is now, with a new object for every job, as a reader has."""
        jobs = tuple(replace(self.jobs[job_id]) for job_id in sorted(self.jobs))
        return replace(self.start, taken_at=self.clock.now(), jobs=jobs)

    def apply(self, action: Action) -> Receipt:
        """Change a pending job."""
        job = self.jobs.get(action.job_id)
        if job is None or not job.is_pending or action.held_by(job) != action.before:
            return Receipt(action=action, outcome=Outcome.FAILED, text="the job is not pending")
        self.jobs[action.job_id] = action.applied_to(job)
        return Receipt(action=action, outcome=Outcome.APPLIED)

    def apply_all(self, changes: Sequence[Action]) -> tuple[Receipt, ...]:
        """Make changes, one after the other."""
        return tuple(map(self.apply, changes))

    def hides_range_end(self, job_id: int) -> bool:  # noqa: ARG002  (the protocol's)
        """Return False: both ends of a node range are shown."""
        return False

    def change(self) -> None:
        """Let a share of the queue start in the places of jobs that end, and as many arrive."""
        now = self.clock.now()
        pending = [job for job in self.jobs.values() if job.is_pending]
        running = [job for job in self.jobs.values() if job.allocation is not None]
        number = max(1, int(len(pending) * self.turnover))
        ending = self.chance.permutation(len(running))[:number]
        starting = self.chance.permutation(len(pending))[:number]
        for out, come in zip(ending, starting, strict=False):
            ended, job = running[out], pending[come]
            del self.jobs[ended.job_id]
            limit_s = job.time_limit_s or HOUR_S
            # It takes the whole place of the one that ended, so that nodes stay as full as they were.
            self.jobs[job.job_id] = replace(
                job,
                state=JobState.RUNNING,
                reason="None",
                gang=replace(ended.gang),
                partitions=ended.partitions,
                allocation=Allocation(nodes=ended.allocation.nodes, gpus=ended.allocation.gpus)
                if ended.allocation
                else None,
                start_time=now,
                end_time=now + limit_s,
                time_limit_s=limit_s,
            )
            arrived = replace(pending[int(self.chance.integers(len(pending)))])
            self.jobs[self.next_id] = replace(
                arrived, job_id=self.next_id, name=f"train{self.next_id}", submit_time=now, eligible_time=now
            )
            self.next_id += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Hourly:
    """The figures of one simulated hour."""

    hour: int
    cpu_s: float
    most_cpu_s: float
    resident_mib: float
    journal_mib: float
    applied: int
    leases: int


def service_over(cluster: Changing, config: Config) -> Service:
    """Return the daemon's service over a synthetic cluster."""

    def build(config: Config) -> Outfit:
        models = forecaster(config)
        gate = SiteGate(runtime_folder=Path(config.daemon.runtime_folder), modes=config.mode, patience=RoundDeadline())
        applier = Applier(
            source=cluster,
            actuator=cluster,
            cycle=Cycle(planning=config.planning, limits=config.guard, forecaster=models, modes=config.mode),
            observe=observed,
            gate=gate,
        )
        return Outfit(
            config=config,
            applier=applier,
            leaver=applier,
            gate=gate,
            last=RoundDeadline(),
            read_load=ControllerLoad,
            rpcs=dict,
            forecaster=models,
        )

    return Service(build, config, cluster.clock, lambda _done: None)


def soak(cluster: Changing, config: Config, hours: float, interval_s: float, stages: Stages) -> Iterator[Hourly]:
    """Run the rounds, and yield the figures of every hour."""
    service = service_over(cluster, config)
    per_hour = max(1, round(HOUR_S / interval_s))
    rounds: list[float] = []
    changes = 0
    with _counted(stages):
        for number in range(1, round(hours * per_hour) + 1):
            with stages.timed("round"):
                began, read_s = time.process_time(), stages.cpu_s[NOT_COUNTED]
                done = service.round()
                rounds.append(time.process_time() - began - (stages.cpu_s[NOT_COUNTED] - read_s))
            if done.fault or done.step is None:
                raise RuntimeError(f"round {number}: {done.fault or 'no step'}")
            changes += len(done.step.applied)
            cluster.clock.advance(interval_s)
            cluster.change()
            if number % per_hour == 0 or number == round(hours * per_hour):
                yield Hourly(
                    hour=-(-number // per_hour),
                    cpu_s=round(float(np.mean(rounds)), 3),
                    most_cpu_s=round(max(rounds), 3),
                    resident_mib=round(resident_mib(), 1),
                    journal_mib=round(_size_mib(Path(config.journal.file)), 2),
                    applied=changes,
                    leases=sum(done.open_leases.values()),
                )
                rounds, changes = [], 0


@contextmanager
def _counted(stages: Stages) -> Iterator[None]:
    """Count the CPU of the stages of a round as long as the block lasts."""
    with ExitStack() as stack:
        stack.enter_context(stages.counting(Cycle, "judge", "judge"))
        # A synthetic reader is no measure of the real one.
        stack.enter_context(stages.counting(Changing, "snapshot", NOT_COUNTED))
        for stage, methods in JOURNAL_STAGES.items():
            for method in methods:
                stack.enter_context(stages.counting(SqliteJournal, method, stage))
        yield


def _size_mib(journal: Path) -> float:
    return sum(path.stat().st_size for path in journal.parent.glob(f"{journal.name}*")) / MIB


def configured(folder: Path, *, with_models: bool) -> Config:
    """Return a configuration in mode apply whose files stand in a folder."""
    path = folder / "sadvise.toml"
    path.write_text(
        f'[mode]\ndefault = "apply"\n[journal]\nfile = "{folder}/journal.sqlite"\n'
        f'[daemon]\nruntime_folder = "{folder}"\n[forecasts]\nenabled = {str(with_models).lower()}\n'
        # What is applied costs more than what is only advised, and run times here are drawn regardless of forecasts.
        "[guard]\nprobation_jobs = 0\n[breakers]\nmin_coverage_ratio = 0.0\n"
    )
    return load_config(path, {})


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--jobs", type=int, default=10_000, help="pending jobs, default: %(default)s")
    parser.add_argument("--nodes", type=int, default=1000, help="default: %(default)s")
    parser.add_argument("--hours", type=float, default=24.0, help="simulated hours, default: %(default)s")
    parser.add_argument("--interval", type=float, default=60.0, help="seconds between rounds, default: %(default)s")
    parser.add_argument("--turnover", type=float, default=0.01, help="share of the queue that changes in a round")
    parser.add_argument("--no-models", action="store_true", help="plan by the rules alone, without forecasts")
    parser.add_argument("--seed", type=int, default=1, help="default: %(default)s")


def run(options: argparse.Namespace) -> int:
    """Soak, and print the tables."""
    stages, rows = Stages(), []
    cluster = Changing.made(options.jobs, options.nodes, options.turnover, options.seed)
    with tempfile.TemporaryDirectory() as folder:
        config = configured(Path(folder), with_models=not options.no_models)
        print("hour   CPU/round s   most s   resident MiB   journal MiB   applied   leases out")
        for row in soak(cluster, config, options.hours, options.interval, stages):
            rows.append(row)
            print(
                f"{row.hour:>4}{row.cpu_s:>14}{row.most_cpu_s:>9}{row.resident_mib:>15}{row.journal_mib:>14}"
                f"{row.applied:>10}{row.leases:>13}",
                flush=True,
            )
    rounds = max(1, round(options.hours * HOUR_S / options.interval))
    by_stage = {stage: round(spent / rounds, 4) for stage, spent in sorted(stages.cpu_s.items())}
    by_stage["everything else in the round"] = by_stage.pop("round")
    print("\n".join(f"{stage:<36}{spent:>8.4f} s of CPU per round" for stage, spent in by_stage.items()))
    mean = float(np.mean([row.cpu_s for row in rows]))
    growth = rows[-1].resident_mib - rows[0].resident_mib
    most = max(row.resident_mib for row in rows)
    print(
        f"{rounds} rounds, seed {options.seed}: {mean:.3f} s of CPU per round, {most:.0f} MiB at most, "
        f"{growth:+.1f} MiB grown since the first hour"
    )
    return 0
