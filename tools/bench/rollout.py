"""Time of rollouts from a made-up snapshot: building the arrays, one run, and many plans under many draws.

    python -m tools.bench rollout [--sizes 1000:125,10000:125] [--plans 8] [--draws 32] [--threads 2] [--json]

A snapshot has JOBS pending jobs of 1 to 32 GPUs, and NODES nodes of 8 GPUs, full with jobs of 1 to 4 GPUs, under leaf
switches of 8 nodes. A run covers 24 h; run times are drawn from forecasts. One run is measured with a reservation for
as many jobs as slurmctld tests (`run_all_s`) and for those that a rollout takes by default (`run_s`); `wait_ratio` is
the mean wait of the second over that of the first. `pairs_s` is the time of all plans under all draws. `trial_s` is the
time of planning with rollouts: a trial of 20 lifts and 8 other changes, as the daemon makes it, in a process of its own
on two threads and without a deadline; `trial_cpu_s` is the CPU time of that process.
"""

import argparse
import json
import resource
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

import numpy as np

from advisor.domain.actions import Action, Reason, SetNice, SetSwitches
from advisor.domain.forecast import Forecasts, Interval, JobForecast, RunTime
from advisor.domain.gang import GangRequest, GpuCount, SwitchRequest
from advisor.domain.job import Allocation, Job, JobState
from advisor.domain.node import GpuPool, Node
from advisor.domain.plan import Expected, Facts, Kind, Recommendation
from advisor.domain.site import Partition, SiteConfig
from advisor.domain.snapshot import Snapshot
from advisor.domain.topology import Switch, Topology, TopologyKind
from advisor.planning.case import Case
from advisor.planning.plan_trial import PlanTrial
from advisor.planning.rollout import TimedAction
from advisor.sim.live.continuation import Continuation
from advisor.sim.live.draws import by_forecasts, uniforms
from advisor.sim.live.slurm_rollout import SlurmRollout, roll_out
from advisor.sim.live.snapshot_model import model_of
from advisor.site.plan_trials import ChildTrial, run_trial
from tools.bench.measuring import size_of

TAKEN_AT = 1_800_000_000.0
GPUS_PER_NODE = 8
NODES_PER_LEAF = 8
LIMITS_S = (1800.0, 3600.0, 14_400.0, 28_800.0, 86_400.0)
HORIZON_S = 86_400.0
# The plan of a trial; beyond its number of plans changes are tried together alone.
LIFTS = 20
TIMERS = 8
NO_DEADLINE_S = 3600.0
Result = TypeVar("Result")
DEFAULT_SIZES = "1000:125,10000:125"


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutFigures:
    """The figures of one size; times are the least of the repeats."""

    pending: int
    running: int
    gpus: int
    model_s: float
    arrays_s: float
    run_all_s: float
    run_s: float
    wait_ratio: float
    pairs: int
    pairs_s: float
    trial_s: float
    trial_cpu_s: float


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--sizes", default=DEFAULT_SIZES, metavar="JOBS:NODES,...", help=f"default {DEFAULT_SIZES}")
    parser.add_argument("--plans", type=int, default=8, help="plans, default %(default)s")
    parser.add_argument("--draws", type=int, default=32, help="draws of run times, default %(default)s")
    parser.add_argument("--threads", type=int, default=2, help="threads of the plans and draws, default %(default)s")
    parser.add_argument("--repeat", type=int, default=3, help="repeats of all but the last figure; the fastest counts")
    parser.add_argument("--seed", type=int, default=1, help="seed of the snapshot and the draws")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    """Measure every size and print the figures."""
    rows: list[dict[str, Any]] = []
    for size in options.sizes.split(","):
        rows.append(asdict(measure(*size_of(size), options)))
        if options.json:
            continue
        if len(rows) == 1:
            print("  ".join(f"{name:>10}" for name in rows[0]))
        shown = (f"{value:.3f}" if isinstance(value, float) else str(value) for value in rows[-1].values())
        print("  ".join(f"{value:>10}" for value in shown), flush=True)
    if options.json:
        print(json.dumps({"meta": {"tool": "bench rollout", "seed": options.seed}, "runs": rows}, indent=1))
    return 0


def measure(n_pending: int, n_nodes: int, options: argparse.Namespace) -> RolloutFigures:
    """Measure one size in this process."""
    snapshot = made_snapshot(n_pending, n_nodes, options.seed)
    model_s, model = _fastest(lambda: model_of(snapshot), options.repeat)
    arrays_s, like_slurm = _fastest(lambda: Continuation(model), options.repeat)
    default = Continuation(model, places=SlurmRollout().places)
    run_time_s = by_forecasts(model, _forecasts(snapshot), uniforms(model, range(options.draws), options.seed))
    run_all_s, exact = _fastest(lambda: _run(like_slurm, run_time_s[0]), options.repeat)
    run_s, quick = _fastest(lambda: _run(default, run_time_s[0]), options.repeat)
    pending = [job.job_id for job in snapshot.pending]
    plans = [[TimedAction(action=SetNice(job_id=pending[n], before=0, after=100 * n))] for n in range(options.plans)]
    pairs_s, _ = _fastest(
        lambda: roll_out(default, plans, run_time_s, horizon_s=HORIZON_S, threads=options.threads), repeat=1
    )
    cpu_s = _children_cpu_s()
    trial_s, trial = _fastest(lambda: _trial(snapshot), repeat=1)
    if trial.fault:
        raise SystemExit(trial.fault)
    return RolloutFigures(
        pending=n_pending,
        running=len(model.trace) - n_pending,
        gpus=n_nodes * GPUS_PER_NODE,
        model_s=model_s,
        arrays_s=arrays_s,
        run_all_s=run_all_s,
        run_s=run_s,
        wait_ratio=quick / exact,
        pairs=options.plans * options.draws,
        pairs_s=pairs_s,
        trial_s=trial_s,
        trial_cpu_s=_children_cpu_s() - cpu_s,
    )


def _children_cpu_s() -> float:
    """Return the CPU time of the processes that were started and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _trial(snapshot: Snapshot) -> PlanTrial:
    """Try a plan: the lifts of the jobs with the lowest priorities, and gangs that wait for one leaf switch."""
    pending = sorted(snapshot.pending, key=lambda job: (job.priority or 0, job.job_id))
    gangs = [job for job in pending[LIFTS:] if (job.gang.gpu_count or 0) > GPUS_PER_NODE]
    one_leaf = SwitchRequest(count=1, max_wait_s=3600.0)
    changes = [
        *(_change(Kind.REORDER, SetNice(job_id=job.job_id, before=0, after=-100_000)) for job in pending[:LIFTS]),
        *(
            _change(Kind.CONSOLIDATE, SetSwitches(job_id=job.job_id, before=None, after=one_leaf))
            for job in gangs[-TIMERS:]
        ),
    ]
    case = Case(snapshot=snapshot, forecasts=_forecasts(snapshot))
    return ChildTrial(run=run_trial(), deadline_s=NO_DEADLINE_S).tried(case, changes)


def _change(kind: Kind, action: Action) -> Recommendation:
    expected = Expected(saved_s=300.0, saved_s_low=0.0, saved_s_high=600.0, jobs_helped=1, added_delay_max_s=0.0)
    return Recommendation(kind=kind, action=action, facts=MadeUp(), expected=expected)


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeUp(Facts):
    """No facts: the changes of the benchmark are made up."""

    @property
    def reason(self) -> Reason:
        """Return a reason that no rule treats as special."""
        return Reason.SHORT_WORK_FIRST


def _fastest(work: Callable[[], Result], repeat: int) -> tuple[float, Result]:
    """Return the least time of a piece of work, and its result."""
    times = []
    for _ in range(repeat):
        began = time.perf_counter()
        result = work()
        times.append(time.perf_counter() - began)
    return min(times), result


def _run(continuation: Continuation, run_time_s: np.ndarray) -> float:
    """Run once and return the mean start of the pending jobs in seconds, that of the horizon for those beyond it."""
    course = continuation.run(continuation.workspace(), run_time_s, horizon_s=HORIZON_S)
    starts_s = course.start_time[np.isnan(continuation.model.start_time)] - TAKEN_AT
    return float(np.where(np.isnan(starts_s), HORIZON_S, starts_s).mean())


def _forecasts(snapshot: Snapshot) -> Forecasts:
    """Forecast that jobs use from 10 to 90 % of their limits."""
    by_limit = {
        limit_s: JobForecast(
            run_time=RunTime(
                interval_s=Interval(low=0.1 * limit_s, median=0.4 * limit_s, high=0.9 * limit_s), mean_s=0.5 * limit_s
            )
        )
        for limit_s in LIMITS_S
    }
    return Forecasts(by_job={job.job_id: by_limit[job.time_limit_s or LIMITS_S[0]] for job in snapshot.jobs})


def made_snapshot(n_pending: int, n_nodes: int, seed: int) -> Snapshot:
    """Make a full cluster with running jobs of 1 to 4 GPUs and a queue, in one partition."""
    rng = np.random.default_rng(seed)
    names = [f"n{number:05}" for number in range(n_nodes)]
    running: list[Job] = []
    for name in names:
        left = GPUS_PER_NODE
        while left:
            gpus = min(left, int(rng.choice([1, 2, 4])))
            running.append(_running(n_pending + len(running) + 1, name, gpus, rng))
            left -= gpus
    nodes = tuple(
        Node(
            name=name,
            state="MIXED",
            cpus=64,
            cpus_used=32,
            memory_mib=512_000,
            gpus=(GpuPool(total=GPUS_PER_NODE, used=GPUS_PER_NODE),),
            partitions=("gpu",),
        )
        for name in names
    )
    starts = range(0, n_nodes, NODES_PER_LEAF)
    leaves = tuple(
        Switch(name=f"leaf{start:05}", level=0, nodes=tuple(names[start : start + NODES_PER_LEAF])) for start in starts
    )
    return Snapshot(
        taken_at=TAKEN_AT,
        source="synthetic",
        config=SiteConfig(
            cluster="synthetic",
            slurm_version="24.11.5",
            scheduler_type="sched/backfill",
            priority_type="priority/multifactor",
            priority_weights={"age": 1000, "fair_share": 10_000},
            priority_max_age_s=604_800.0,
            priority_calc_period_s=300.0,
        ),
        topology=Topology(
            kind=TopologyKind.TREE, switches=(*leaves, Switch(name="spine", level=1, nodes=tuple(names)))
        ),
        partitions=(Partition(name="gpu", nodes=tuple(names)),),
        nodes=nodes,
        jobs=(*(_pending(job_id, rng) for job_id in range(1, n_pending + 1)), *running),
    )


def _running(job_id: int, node: str, gpus: int, rng: np.random.Generator) -> Job:
    limit_s = float(rng.choice(LIMITS_S))
    ran_s = float(rng.integers(0, int(limit_s)))
    return Job(
        job_id=job_id,
        state=JobState.RUNNING,
        partitions=("gpu",),
        gang=GangRequest(per_node=(GpuCount(count=gpus),), nodes_max=1, cpus=4 * gpus),
        allocation=Allocation(nodes=(node,), gpus=(GpuCount(count=gpus),)),
        submit_time=TAKEN_AT - ran_s - 3600.0,
        start_time=TAKEN_AT - ran_s,
        end_time=TAKEN_AT - ran_s + limit_s,
        time_limit_s=limit_s,
    )


def _pending(job_id: int, rng: np.random.Generator) -> Job:
    gpus = int(rng.choice([1, 1, 1, 2, 4, 8, 16, 32]))
    nodes = max(1, gpus // GPUS_PER_NODE)
    counts = (GpuCount(count=gpus),)
    if rng.random() < 0.7:
        gang = GangRequest(per_node=(GpuCount(count=gpus // nodes),), nodes_min=nodes, nodes_max=nodes, cpus=4 * gpus)
    else:
        gang = GangRequest(per_job=counts, cpus=4 * gpus)
    waited_s = float(rng.integers(0, 200_000))
    return Job(
        job_id=job_id,
        state=JobState.PENDING,
        reason="Priority",
        user=f"user{job_id % 50}",
        account=f"lab{job_id % 10}",
        partitions=("gpu",),
        gang=gang,
        submit_time=TAKEN_AT - waited_s,
        eligible_time=TAKEN_AT - waited_s,
        time_limit_s=float(rng.choice(LIMITS_S)),
        priority=int(1000 * waited_s / 604_800.0) + 1000 * int(rng.integers(1, 9)),
    )
