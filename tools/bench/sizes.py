"""Time of a learned policy for sizes: one decision, and the plan for a queue of elastic jobs.

    python -m tools.bench sizes [--jobs 1000] [--nodes 250] [--policy dl2]

Each job asks for 4 GPUs and declares 1 to 8, before a cluster that is nearly full. A decision is one run of the graph
over the options of a full window. The plan is all that sizing takes: tables, steps and decisions.
"""

import argparse
import sys
import time
from dataclasses import replace
from typing import Final

import numpy as np

from advisor.domain.actions import Lever
from advisor.domain.gang import GangRequest, GpuCount
from advisor.domain.job import GpuRange, JobHints
from advisor.domain.snapshot import Snapshot
from advisor.errors import ModelError
from advisor.features.policy import Decider, Options, Policy
from advisor.features.steps import OPTION_COLUMNS, WINDOW
from advisor.planning.case import Case
from advisor.planning.elastic import recommendations
from advisor.predict.library import Library
from advisor.predict.served_policy import open_policy
from tools.bench.synthetic import synthetic

RUNS: Final = 20
DECISIONS: Final = 2000


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--jobs", type=int, default=1000, help="pending elastic jobs, default %(default)s")
    parser.add_argument("--nodes", type=int, default=250, help="nodes, default %(default)s")
    parser.add_argument("--policy", default="dl2", help="default: %(default)s")


def run(options: argparse.Namespace) -> int:
    """Measure and print."""
    try:
        policy = open_policy(Library(), options.policy)
    except ModelError as err:
        print(f"bench sizes: {err}", file=sys.stderr)
        return 1
    print(f"one decision over {2 * WINDOW} options: {1e6 * decision_s(policy):.0f} us")
    snapshot = queue(options.jobs, options.nodes)
    spent, decisions = [], 0
    for _ in range(RUNS):
        case = Case(snapshot=snapshot, decider=Decider(policy=policy))
        # Read by every proposer before.
        _ = case.queue, case.table, case.freed
        began = time.perf_counter()
        changes = list(recommendations(case))
        spent.append(time.perf_counter() - began)
        decisions = len(case.decider.decisions)
    plan_ms = 1e3 * float(np.median(spent))
    print(f"plan for {options.jobs:,} elastic jobs, {options.nodes} nodes: {plan_ms:.0f} ms, median of {RUNS}")
    print(f"{decisions} decisions, {len(changes)} changes")
    return 0


def decision_s(policy: Policy) -> float:
    """Return the median time of a decision over a full window."""
    rng = np.random.default_rng(0)
    columns = {name: rng.random(2 * WINDOW) for name in OPTION_COLUMNS}
    options = Options(lever=Lever.GPU_COUNT, job_id=np.zeros(2 * WINDOW, np.int64), columns=columns)
    spent = []
    for _ in range(DECISIONS):
        began = time.perf_counter()
        policy.act(options)
        spent.append(time.perf_counter() - began)
    return float(np.median(spent))


def queue(jobs: int, nodes: int) -> Snapshot:
    """Return a busy cluster before which elastic jobs of 4 GPUs wait."""
    busy = synthetic(jobs, nodes, seed=0)
    gang = GangRequest(per_job=(GpuCount(gpu_type=None, count=4),), cpus=4)
    hints = JobHints(gpus=GpuRange(low=1, high=8))
    asked = [replace(job, gang=gang, hints=hints, held=False) if job.is_pending else job for job in busy.jobs]
    return replace(busy, jobs=tuple(asked))
