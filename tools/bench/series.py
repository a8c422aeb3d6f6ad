"""CPU of each cycle and memory over a series of cycles, from what squeue and sinfo print to the journal.

    python -m tools.bench series [--cycles 60] [--jobs 10000] [--nodes 1000] [--changing 0.01] [--seed 1] [--json]

The queue changes slowly, as a busy one does: from one cycle to the next, 60 s later, a share of the pending jobs
leaves, as many arrive, and the same share of the running jobs ends and gives its nodes to others; every five minutes
all priorities age. Changes are carried out on the queue itself and written to a journal in a temporary folder. The CPU
of Slurm's own commands is not in the figures. The first cycle opens the models and forecasts the whole queue; means
are over the others.
"""

import argparse
import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from advisor.apply.applier import Applier
from advisor.backends.assembly import assemble
from advisor.backends.kept_rows import KeptRows
from advisor.backends.site_reader import Site
from advisor.backends.text_decode import JOB_FIELDS, NODE_FIELDS, node_records, partitions_of, printed_rows, rows
from advisor.cycle import Cycle
from advisor.domain.actions import Action
from advisor.domain.gang import GpuCount
from advisor.domain.job import Job
from advisor.domain.plan import Outcome, Receipt
from advisor.domain.snapshot import Snapshot
from advisor.journal import SqliteJournal
from advisor.planning.observing import observed
from advisor.predict.forecaster import ModelForecaster
from advisor.predict.library import Library
from tools.bench.measuring import Stages, peak_mib, resident_mib
from tools.bench.synthetic import synthetic

CYCLE_S = 60.0
# How often Slurm computes priorities, by default: PriorityCalcPeriod.
PRIORITIES_S = 300.0
NO_SITE = Path("/nonexistent")
_END = "\x1f\x1e"
_NOT_SET = {"HetJobID": "N/A", "HetJobOffset": "N/A", "StartTime": "N/A", "EndTime": "N/A"}
_NULL = ("Comment", "Feature", "Dependency", "Reservation", "tres-per-socket", "tres-per-task", "cpus-per-tres")


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
            self._pending[action.job_id] = action.applied_to(self._pending[action.job_id])
        return Receipt(action=action, outcome=Outcome.APPLIED)

    def hides_range_end(self, job_id: int) -> bool:  # noqa: ARG002  (the protocol's)
        """Return False: both ends of a node range are shown."""
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
        return [
            int(job_id) for job_id in self._chance.choice(np.array(list(jobs), dtype=np.int64), count, replace=False)
        ]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--cycles", type=int, default=60, help="default 60")
    parser.add_argument("--jobs", type=int, default=10_000, help="pending jobs, default 10000")
    parser.add_argument("--nodes", type=int, default=1000, help="default 1000")
    parser.add_argument("--changing", type=float, default=0.01, help="share of jobs new in each cycle, default 0.01")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    """Measure and print."""
    figures = measure(options)
    if options.json:
        print(json.dumps({"meta": {"tool": "bench series", **vars(options)}, "series": figures}, indent=1))
        return 0
    print(f"{options.jobs} pending jobs, {options.nodes} nodes, {figures['cycles']} cycles after the first")
    for name, value in figures.items():
        shown = "  ".join(f"{key} {figure}" for key, figure in value.items()) if isinstance(value, dict) else value
        print(f"{name:14} {shown}")
    return 0


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Run the series in this process."""
    stages = Stages()
    cycles: list[dict[str, float]] = []
    queue = Queue(synthetic(options.jobs, options.nodes, options.seed), options.changing, options.seed, stages)
    before_mib = resident_mib()
    with (
        tempfile.TemporaryDirectory() as folder,
        stages.counting(ModelForecaster, "forecasts", "forecast"),
        stages.counting(Cycle, "judge", "plan and guard"),
        stages.counting(SqliteJournal, "record", "journal"),
    ):
        journal = SqliteJournal(Path(folder) / "journal.sqlite")
        cycle = Cycle(forecaster=ModelForecaster(Library(NO_SITE), start_times=False))

        applier = Applier(source=queue, actuator=queue, cycle=cycle, journal=journal, observe=observed)
        for _ in range(options.cycles):
            stages.cpu_s.clear()
            snapshot = queue.snapshot()
            step = applier.step(snapshot)
            cycles.append({**stages.cpu_s, "mib": resident_mib(), "sent": float(len(step.applied))})
            queue.pass_time()
        journal.close_file()
    steady = cycles[1:]
    names = ("decode", "forecast", "plan and guard", "journal")
    mean_s = {name: float(np.mean([cycle_s.get(name, 0.0) for cycle_s in steady])) for name in names}
    after_decoding_s = [sum(cycle_s.get(name, 0.0) for name in names[1:]) for cycle_s in cycles]
    return {
        "cycles": len(steady),
        "mean_cpu_s": {name: round(seconds, 4) for name, seconds in mean_s.items()},
        "cpu_s_after_decoding": {
            "mean": round(float(np.mean(after_decoding_s[1:])), 4),
            "p95": round(float(np.quantile(after_decoding_s[1:], 0.95)), 4),
            "first": round(after_decoding_s[0], 4),
        },
        "changes_sent": int(sum(cycle_s["sent"] for cycle_s in cycles)),
        "resident_mib": {
            "before": round(before_mib, 1),
            "early": round(cycles[min(5, len(cycles) - 1)]["mib"], 1),
            "last": round(cycles[-1]["mib"], 1),
            "peak": round(peak_mib(), 1),
        },
    }


def _printed(fields: Iterable[str], row: Mapping[str, str]) -> str:
    return "".join(f"{row.get(name, '')}{_END}" for name in fields) + "\n"


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
