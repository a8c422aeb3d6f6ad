"""How the jobs of two short traces fare under every policy of the simulator."""

import functools
from dataclasses import replace
from typing import Final

from advisor.sim.cluster import parse_cluster
from advisor.sim.policies import POLICIES
from advisor.sim.policies.advised import AdvisedSlurm
from advisor.sim.run_outcome import Run
from advisor.sim.runner import simulate
from advisor.sim.traces.sampling import OPEN, fill
from advisor.sim.traces.trace import Trace
from advisor.sim.traces.trace_file import read_trace
from tests.golden.numbers import compact
from tests.golden.plans import DEMO

# Short ones: a golden is compared in every run of the tests.
JOBS: Final = 40
TRACES: Final = {"first-of-demo": slice(JOBS), "last-of-demo": slice(-JOBS, None)}
# Policies that run whole cycles of the advisor take three quarters of the time, most of it in the longer queue of the
# last jobs. There 28 jobs distinguish them as 40 do, except that no trial refuses a change; in the first jobs one does.
JOBS_ADVISED: Final = {"first-of-demo": JOBS, "last-of-demo": 28}
# Wide enough for every number, so that one that grows moves no other.
NARROWEST: Final = 9


@functools.cache
def trace(name: str) -> Trace:
    """Return a part of the trace that ships, with models drawn for its jobs."""
    demo = read_trace(DEMO / "trace.csv")
    return fill(replace(demo, jobs=demo.jobs[TRACES[name]]), ["resnet50", "bert"], 0, gpus_per_node=4, requests=OPEN)


def simulated(name: str, policy: str) -> str:
    """Return the outcome and the allocations of every job of a trace under a policy, a line each."""
    drawn = trace(name)
    if isinstance(POLICIES[policy], AdvisedSlurm):
        drawn = replace(drawn, jobs=drawn.jobs[: JOBS_ADVISED[name]])
    return _table(simulate(drawn, parse_cluster("nodes=4,gpus=4,leaf=2"), policy, seed=0))


def _table(run: Run) -> str:
    columns = run.outcomes.dtype.names or ()
    widths = [max(len(column), NARROWEST) for column in columns]
    allocations: dict[int, list[str]] = {}
    for job, gpus, nodes, tier, start, end in run.segments.tolist():
        allocations.setdefault(job, []).append(f"{gpus}/{nodes}/{tier} {compact(start)}-{compact(end)}")
    rows = [("job", *columns, "allocations: GPUs/nodes/tier start-end")]
    for job, outcome in enumerate(run.outcomes.tolist()):
        rows.append((str(job), *map(compact, outcome), ", ".join(allocations.get(job, ()))))
    lines = [
        " ".join((first.rjust(3), *(cell.rjust(width) for cell, width in zip(cells, widths, strict=True)), last))
        for first, *cells, last in rows
    ]
    return "".join(f"{line.rstrip()}\n" for line in (f"changes {run.changes}", *lines))
