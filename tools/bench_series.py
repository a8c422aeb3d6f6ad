"""CPU of each cycle and memory over a series of cycles, from what squeue and sinfo print to the journal.

    python -m tools.bench_series [--cycles 60] [--jobs 10000] [--nodes 1000] [--changing 0.01] [--seed 1] [--json]

The queue changes slowly, as a busy one does: from one cycle to the next, 60 s later, a share of the pending jobs
leaves, as many arrive, and the same share of the running jobs ends and gives its nodes to others; every five minutes
all priorities age. Changes are carried out on the queue itself and written to a journal in a temporary folder. The CPU
of Slurm's own commands is not in the figures. The first cycle opens the models and forecasts the whole queue; means
are over the others.
"""

import argparse
import json
import resource
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from advisor.apply.applier import Applier
from advisor.backends.assembly import assemble
from advisor.backends.kept_rows import KeptRows
from advisor.backends.site_reader import Site
from advisor.backends.text import JOB_FIELDS, NODE_FIELDS, node_records, partitions_of, printed_rows, rows
from advisor.cycle import Cycle, CycleRecord
from advisor.domain.forecast import Forecasts
from advisor.domain.gang import GpuCount
from advisor.domain.job import Job
from advisor.domain.plan import Action, Outcome, Receipt, applied
from advisor.domain.snapshot import Snapshot
from advisor.journal import SqliteJournal
from advisor.planning.observing import observed
from advisor.predict.forecaster import ModelForecaster
from advisor.predict.library import Library
from tools.bench_cycle import synthetic

CYCLE_S = 60.0
# How often Slurm computes priorities anew, by default: PriorityCalcPeriod.
PRIORITIES_S = 300.0
NO_SITE = Path("/nonexistent")
_END = "\x1f\x1e"
_NOT_SET = {"HetJobID": "N/A", "HetJobOffset": "N/A", "StartTime": "N/A", "EndTime": "N/A"}
_NULL = ("Comment", "Feature", "Dependency", "Reservation", "tres-per-socket", "tres-per-task", "cpus-per-tres")


@dataclass(slots=True)
class Stages:
    """CPU seconds by stage in one cycle."""

    spent_s: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Add what happens within to a stage."""
        began = time.process_time()
        yield
        self.spent_s[stage] += time.process_time() - began


class Queue:
    """A cluster that changes slowly: what Slurm prints of it, and what carries out changes."""

    name = "text"

    def __init__(self, start: Snapshot, changing: float, seed: int, stages: Stages) -> None:
        self._start = start
        self._changing = changing
        self._chance = np.random.default_rng(seed)
        self._stages = stages
        self._kept = KeptRows()
        self._pending = {job.job_id: job for job in start.jobs if job.is_pending}
        self._running = {job.job_id: job for job in start.jobs if not job.is_pending}
        self._next_id = max((job.job_id for job in start.jobs), default=0) + 1
        self._nodes = "".join(_printed(NODE_FIELDS, row) for row in _node_rows(start))
        self.now = start.taken_at

    def snapshot(self) -> Snapshot:
        """Print the cluster, and read what was printed."""
        jobs = "".join(
            _printed(JOB_FIELDS, _job_row(job)) for job in (*self._pending.values(), *self._running.values())
        )
        with self._stages.timed("decode"):
            nodes = rows(self._nodes, command="sinfo", fields=NODE_FIELDS, delimiter=_END)
            printed = printed_rows(jobs, command="squeue", fields=JOB_FIELDS, delimiter=_END)
            snapshot = assemble(
                source=self.name,
                taken_at=self.now,
                site=Site(config=self._start.config, topology=self._start.topology),
                jobs=self._kept.read(printed, frozenset()),
                nodes=node_records(nodes),
                partitions=partitions_of(nodes),
            )
            self._kept.keep(snapshot.jobs)
            return snapshot

    def apply(self, action: Action) -> Receipt:
        """Change a pending job."""
        if action.job_id in self._pending:
            self._pending[action.job_id] = applied(self._pending[action.job_id], action)
        return Receipt(action=action, outcome=Outcome.APPLIED)

    def hides_range_end(self, job_id: int) -> bool:  # noqa: ARG002  (the protocol's)
        """Tell that both ends of a node range are shown."""
        return False

    def pass_time(self) -> None:
        """Let a minute pass."""
        self.now += CYCLE_S
        for job_id in self._some(self._pending):
            left = self._pending.pop(job_id)
            fresh = replace(
                left, job_id=self._next_id, nice=0, submit_time=self.now - 30.0, eligible_time=self.now - 30.0
            )
            self._pending[fresh.job_id] = replace(fresh, name=f"train{fresh.job_id}", time_min_s=None)
            self._next_id += 1
        for job_id in self._some(self._running):
            left = self._running.pop(job_id)
            limit_s = left.time_limit_s or CYCLE_S
            fresh = replace(left, job_id=self._next_id, submit_time=self.now - 7200.0, start_time=self.now - 30.0)
            self._running[fresh.job_id] = replace(fresh, end_time=self.now - 30.0 + limit_s)
            self._next_id += 1
        if self.now % PRIORITIES_S:
            return
        self._pending = {
            job_id: job if not job.priority else replace(job, priority=job.priority + 1)
            for job_id, job in self._pending.items()
        }

    def _some(self, jobs: Mapping[int, Job]) -> list[int]:
        count = round(len(jobs) * self._changing)
        return [int(each) for each in self._chance.choice(np.array(list(jobs), dtype=np.int64), count, replace=False)]


@dataclass(frozen=True, slots=True)
class TimedForecaster:
    """A forecaster and what it spends."""

    inner: ModelForecaster
    stages: Stages

    def forecasts(self, snapshot: Snapshot) -> Forecasts:
        """Forecast."""
        with self.stages.timed("forecast"):
            return self.inner.forecasts(snapshot)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedCycle(Cycle):
    """A cycle and what it spends, its forecasts left out."""

    stages: Stages

    def judge(self, *args: Any, **named: Any) -> CycleRecord:
        """Plan and judge."""
        before = self.stages.spent_s["forecast"]
        with self.stages.timed("plan and guard"):
            record = Cycle.judge(self, *args, **named)
        self.stages.spent_s["plan and guard"] -= self.stages.spent_s["forecast"] - before
        return record


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Run the series in this process."""
    stages, found = Stages(), []
    queue = Queue(synthetic(options.jobs, options.nodes, options.seed), options.changing, options.seed, stages)
    before_mib = _resident_mib()
    forecaster = TimedForecaster(ModelForecaster(Library(NO_SITE), start_times=False), stages)
    with tempfile.TemporaryDirectory() as folder:
        journal = SqliteJournal(Path(folder) / "journal.sqlite")
        cycle = TimedCycle(forecaster=forecaster, stages=stages)

        def planned(record: CycleRecord) -> None:
            with stages.timed("journal"):
                journal.record(record, cycle)

        applier = Applier(source=queue, actuator=queue, cycle=cycle, journal=journal, observe=observed, planned=planned)
        for _ in range(options.cycles):
            stages.spent_s.clear()
            snapshot = queue.snapshot()
            step = applier.step(snapshot)
            found.append(dict(stages.spent_s) | {"mib": _resident_mib(), "sent": float(len(step.applied))})
            queue.pass_time()
        journal.close_file()
    steady = found[1:]
    named = ("decode", "forecast", "plan and guard", "journal")
    mean_s = {name: float(np.mean([each.get(name, 0.0) for each in steady])) for name in named}
    after_decoding_s = [sum(each.get(name, 0.0) for name in named[1:]) for each in found]
    return {
        "cycles": len(steady),
        "mean_cpu_s": {name: round(seconds, 4) for name, seconds in mean_s.items()},
        "cpu_s_after_decoding": {
            "mean": round(float(np.mean(after_decoding_s[1:])), 4),
            "p95": round(float(np.quantile(after_decoding_s[1:], 0.95)), 4),
            "first": round(after_decoding_s[0], 4),
        },
        "changes_sent": int(sum(each["sent"] for each in found)),
        "resident_mib": {
            "before": round(before_mib, 1),
            "early": round(found[min(5, len(found) - 1)]["mib"], 1),
            "last": round(found[-1]["mib"], 1),
            "peak": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
        },
    }


def _resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() / 2**20


def _printed(fields: Iterable[str], row: Mapping[str, str]) -> str:
    return "".join(f"{row.get(each, '')}{_END}" for each in fields) + "\n"


def _gres(counts: tuple[GpuCount, ...]) -> str:
    return ",".join(
        f"gres/gpu:{gpu.gpu_type}:{gpu.count}" if gpu.gpu_type else f"gres/gpu:{gpu.count}" for gpu in counts
    )


def _limit(seconds: float | None) -> str:
    minutes, rest = divmod(int(seconds or 0), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}" if seconds else "UNLIMITED"


def _instant(seconds: float | None) -> str:
    return "N/A" if seconds is None else str(int(seconds))


def _job_row(job: Job) -> dict[str, str]:
    gang, elastic = job.gang, job.hints.gpus
    comment = f"sadvise: gpus={elastic.low}-{elastic.high} ckpt={job.hints.checkpoint_s:.0f}" if elastic else "(null)"
    memory_mib = (gang.memory_mib_per_node or 0) * gang.nodes_min
    return {
        **dict.fromkeys(_NULL, "(null)"),
        **_NOT_SET,
        "JobID": str(job.job_id),
        "JobArrayID": str(job.job_id),
        "State": job.state.value.upper(),
        "Reason": job.reason or "None",
        "Name": job.name or "(null)",
        "UserName": job.user or "(null)",
        "Account": job.account or "(null)",
        "Partition": ",".join(job.partitions),
        "QOS": "normal",
        "Comment": comment,
        "NumNodes": str(gang.nodes_min),
        "MaxNodes": str(gang.nodes_max or 0),
        "NumTasks": str(gang.tasks),
        "NumCPUs": str(gang.cpus),
        "tres-alloc": f"cpu={gang.cpus},mem={memory_mib}M,node={gang.nodes_min},billing=1",
        "tres-per-job": _gres(gang.per_job) or "N/A",
        "tres-per-node": _gres(gang.per_node) or "N/A",
        "OverSubscribe": "OK",
        "Exclusive": "NO",
        "ReqSwitch": str(gang.switches.count if gang.switches else 0),
        "Wait4Switch": _limit(gang.switches.max_wait_s) if gang.switches else "0:00",
        "NodeList": ",".join(job.allocation.nodes) if job.allocation else "",
        "SubmitTime": _instant(job.submit_time),
        "EligibleTime": _instant(job.eligible_time),
        "StartTime": _instant(job.start_time),
        "EndTime": _instant(job.end_time),
        "TimeLimit": _limit(job.time_limit_s),
        "MinTime": _limit(job.time_min_s) if job.time_min_s else "0:00",
        "PriorityLong": str(0 if job.held else job.priority or 0),
        "Nice": str(job.nice),
        "Requeue": "1",
        "CronJob": "No",
    }


def _node_rows(snapshot: Snapshot) -> Iterator[dict[str, str]]:
    for node in snapshot.nodes:
        (pool,) = node.gpus
        yield {
            "NodeList": node.name,
            "PartitionName": node.partitions[0],
            "StateComplete": "+".join((node.state, *node.flags)).lower(),
            "Reason": "none",
            "CPUs": str(node.cpus),
            "CPUsState": f"{node.cpus_used}/{node.cpus - node.cpus_used}/0/{node.cpus}",
            "Memory": str(node.memory_mib),
            "AllocMem": str(node.memory_used_mib),
            "Gres": f"gpu:{pool.gpu_type}:{pool.total}",
            "GresUsed": f"gpu:{pool.gpu_type}:{pool.used}(IDX:0-7)",
            "features_act": "(null)",
            "Weight": "1",
            "Available": "up",
            "Time": "infinite",
            "DefaultTime": "1-00:00:00",
            "PriorityTier": "1",
            "Size": "1-infinite",
        }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tools.bench_series", description=__doc__.splitlines()[0])
    parser.add_argument("--cycles", type=int, default=60, help="default 60")
    parser.add_argument("--jobs", type=int, default=10_000, help="pending jobs, default 10000")
    parser.add_argument("--nodes", type=int, default=1000, help="default 1000")
    parser.add_argument("--changing", type=float, default=0.01, help="share of jobs new in each cycle, default 0.01")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    found = measure(options)
    if options.json:
        print(json.dumps({"meta": {"tool": "bench_series", **vars(options)}, "series": found}, indent=1))
        return
    print(f"{options.jobs} pending jobs, {options.nodes} nodes, {found['cycles']} cycles after the first")
    for name, value in found.items():
        shown = "  ".join(f"{key} {each}" for key, each in value.items()) if isinstance(value, dict) else value
        print(f"{name:14} {shown}")


if __name__ == "__main__":
    main()
