"""Speed and memory of the simulator on published traces that queue, next to what they shall be.

    python -m tools.bench simulate [--data DIR] [--seconds N] [--traces 'itp 02,graham 0.9'] [--policies ...]

DIR is a folder with `traces/ms_itp`, by default SADVISE_DATA. Each figure comes from a process of its own, so that its
peak memory is its own; a process starts, reads, draws what the trace does not tell with seed 0, runs fifty jobs to
compile or to load what was compiled before, and only then is timed: the best of three runs counts, and only the loop.
What the start costs is stated apart. Nodes of 8 GPUs are as many as bring the load to 0.8, but no fewer than the
largest job fills: on ITP 01, whose largest jobs have 64 GPUs, that is 8 nodes and a load of 0.44. The load of a Graham
trace is in its name.
"""

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from math import inf, log
from pathlib import Path
from typing import Final

from advisor.errors import SimulationError
from tools.bench.measuring import in_own_process, peak_mib
from tools.data.simulated_traces import Workload, add_data_option, data_folder, read_workload, repeated

SEED: Final = 0
RUNS: Final = 3
EXECUTIONS: Final = ("measured", "ideal")
DEFAULT_TRACES: Final = "itp 01,itp 02,itp 04,graham 0.9"
DEFAULT_POLICIES: Final = "fifo,las,srtf,slurm,lift,order-fair,rules"
# Jobs simulated per second, start-up left out.
# Of the advisor, and of the policies that sort the whole line.
CYCLE_S: Final = 60.0
TARGETS_JOBS_PER_S: Final = {
    "fifo": 50_000.0,
    "las": 50_000.0,
    "slurm": 15_000.0,
    "order-fair": 5_000.0,
    "rules": 4_000.0,
    "forecast": 2_000.0,
}
# A cycle of the advisor is Python, not a compiled loop: of a trace under `rules` only the first jobs are run.
MOST_JOBS: Final = {"rules": 1000, "forecast": 1000}
WARM_JOBS: Final = 50
# One whose nodes are busy, and one whose jobs wait for a week in the mean.
GROWTH_TRACES: Final = ("itp 04", "graham 1.0")
GROWTH_TIMES: Final = (1, 4, 16)
# The length that grows; the others start from the whole trace.
GROWTH_JOBS: Final = {"rules": 100}
MEMORY_TRACE: Final = "itp 04"
MEMORY_POLICIES: Final = ("fifo", "slurm")
MEMORY_JOBS: Final = 1_000_000
MOST_MEMORY_MIB: Final = 1024.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationTask:
    """Says what one process measures: the first `jobs` of a trace (0: all), `times` over, of that the first `cut`.

    It begins no new run, and gives up the one in hand, once it has simulated for `seconds`; `start_time` is when it was
    started.
    """

    folder: str
    trace: str
    policy: str
    execution: str = "measured"
    jobs: int = 0
    times: int = 1
    cut: int = 0
    runs: int = RUNS
    seconds: float = inf
    start_time: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationFigures:
    """Says what a process measured; `done_ratio` is the share of the jobs that had ended by then, 1 for all."""

    trace: str
    policy: str
    execution: str
    jobs: int
    nodes: int
    load_ratio: float
    wall_s: float
    peak_rss_mib: float
    import_s: float
    read_s: float
    first_run_s: float
    runs: int
    done_ratio: float

    @property
    def jobs_per_s(self) -> float:
        """Jobs simulated per second of the loop."""
        return self.jobs * self.done_ratio / self.wall_s

    @property
    def stopped(self) -> str:
        """The words for how far the runs came when time was up; empty where all jobs ended."""
        return "" if self.done_ratio == 1.0 else f"   stopped at {self.done_ratio:.0%} of the jobs"

    @property
    def job_us(self) -> float:
        """Microseconds of the loop for a job."""
        return 1e6 / self.jobs_per_s


class _TimeUpError(Exception):
    """A run was given up."""


def measure(task: SimulationTask) -> SimulationFigures:
    """Run a task in this process."""
    from advisor.sim.runner import SimulationOptions, simulate

    imported = time.perf_counter()
    import_s = time.time() - task.start_time if task.start_time else 0.0
    workload = _workload(task)
    read = time.perf_counter()
    options, cluster = SimulationOptions(execution=task.execution, advise_every_s=CYCLE_S), workload.cluster()
    first = simulate(workload.first(WARM_JOBS).trace, cluster, task.policy, seed=SEED, options=options)
    began = time.perf_counter()
    reached = 0.0

    def watch(share: float) -> None:
        nonlocal reached
        reached = share
        if share < 1.0 and time.perf_counter() - began > task.seconds:
            raise _TimeUpError

    runs_s: list[float] = []
    while len(runs_s) < task.runs and time.perf_counter() - began < task.seconds:
        try:
            run = simulate(workload.trace, cluster, task.policy, seed=SEED, options=options, progress=watch)
        except _TimeUpError:
            break
        runs_s.append(run.wall_s)
    return SimulationFigures(
        trace=task.trace,
        policy=task.policy,
        execution=task.execution,
        jobs=len(workload.trace),
        nodes=workload.nodes,
        load_ratio=workload.load_ratio,
        wall_s=min(runs_s) if runs_s else time.perf_counter() - began,
        peak_rss_mib=peak_mib(),
        import_s=import_s,
        read_s=read - imported,
        first_run_s=began - read - first.wall_s,
        runs=len(runs_s),
        done_ratio=1.0 if runs_s else reached,
    )


def _workload(task: SimulationTask) -> Workload:
    """Read a trace and draw what it does not tell, then repeat it: every copy draws the same."""
    from advisor.sim.study.cell import drawn

    workload = read_workload(Path(task.folder), task.trace)
    if task.jobs:
        workload = workload.first(task.jobs)
    workload = repeated(replace(workload, trace=drawn(workload.trace, workload.cluster(), SEED)), task.times)
    return workload.first(task.cut) if task.cut else workload


def measured(task: SimulationTask) -> SimulationFigures:
    """Measure a task in a process of its own."""
    text = json.dumps(asdict(replace(task, start_time=time.time())))
    try:
        return SimulationFigures(**in_own_process("simulate", "--one", text))
    except SimulationError as err:
        raise SimulationError(f"{task.trace} under {task.policy}: {err}") from err


def judged(value: float, target: float | None, *, at_most: bool = False) -> str:
    """Say whether a figure reaches its target, and by how much it does not."""
    if target is None:
        return "no target"
    if (value <= target) if at_most else (value >= target):
        return f"reached ({target:,.6g})"
    return f"above by {value / target - 1:.0%}" if at_most else f"short by {1 - value / target:.0%} ({target:,.6g})"


def logarithmic(before_jobs: int, after_jobs: int) -> float:
    """Return by how much the time for a job can grow between two lengths of a trace: like the logarithm of its jobs."""
    return log(after_jobs) / log(before_jobs)


def _print_speed(folder: str, traces: Sequence[str], policies: Sequence[str], seconds: float) -> None:
    print(f"speed: best of {RUNS} runs, the loop alone, seed {SEED}")
    print(
        f"{'trace':<12}{'nodes':>6}{'load':>6}{'jobs':>8}  {'policy':<7}{'execution':<10}{'jobs/s':>10}  "
        f"{'target jobs/s':<22}{'MiB':>6}   import, read, load s"
    )
    for trace, policy in product(traces, policies):
        task = SimulationTask(folder=folder, trace=trace, policy=policy)
        if trace == traces[0]:
            # Compiles where nothing was compiled before, which takes memory that is not the simulation's.
            measured(replace(task, jobs=WARM_JOBS, runs=1))
        for execution in EXECUTIONS:
            figures = measured(replace(task, execution=execution, seconds=seconds, jobs=MOST_JOBS.get(policy, 0)))
            print(
                f"{figures.trace:<12}{figures.nodes:>6}{figures.load_ratio:>6.2f}{figures.jobs:>8}  "
                f"{figures.policy:<7}{figures.execution:<10}{figures.jobs_per_s:>10,.0f}  "
                f"{judged(figures.jobs_per_s, TARGETS_JOBS_PER_S.get(policy)):<22}{figures.peak_rss_mib:>6.0f}   "
                f"{figures.import_s:.1f}, {figures.read_s:.1f}, {figures.first_run_s:.1f}{figures.stopped}",
                flush=True,
            )
    for policy, jobs in MOST_JOBS.items():
        if policy in policies:
            print(f"{policy}: the first {jobs} jobs of each trace only, on the nodes of the whole trace")
    print()


def _print_growth(folder: str, policies: Sequence[str], seconds: float) -> None:
    times = ", ".join(f"{copies}x" for copies in GROWTH_TIMES)
    print(f"growth: traces repeated at a load of 1 at most, time for a job at {times}; at most like log(jobs)")
    print(f"{'trace':<12}{'policy':<8}{'jobs':>8}{'us/job':>10}{'growth':>8}  log allows")
    for trace, policy in product(GROWTH_TRACES, policies):
        task = SimulationTask(
            folder=folder, trace=trace, policy=policy, seconds=seconds, jobs=GROWTH_JOBS.get(policy, 0)
        )
        first: SimulationFigures | None = None
        for copies in GROWTH_TIMES:
            figures = measured(replace(task, times=copies))
            first = first or figures
            growth, allowed = figures.job_us / first.job_us, logarithmic(first.jobs, figures.jobs)
            verdict = "" if figures is first else judged(growth, round(allowed, 2), at_most=True)
            shown = f"{trace:<12}{policy:<8}{figures.jobs:>8}{figures.job_us:>10.1f}{growth:>8.2f}"
            print(f"{shown}  {verdict}{figures.stopped}", flush=True)
    print()


def _print_memory(folder: str, policies: Sequence[str], seconds: float) -> None:
    print(f"memory: {MEMORY_TRACE} repeated to {MEMORY_JOBS:,} jobs, peak of the process, reading included")
    length = len(read_workload(Path(folder), MEMORY_TRACE).trace)
    for policy in policies:
        task = SimulationTask(
            folder=folder,
            trace=MEMORY_TRACE,
            policy=policy,
            times=-(-MEMORY_JOBS // length),
            cut=MEMORY_JOBS,
            runs=1,
            seconds=2 * seconds,
        )
        figures = measured(task)
        verdict = judged(figures.peak_rss_mib, MOST_MEMORY_MIB, at_most=True)
        speed = f"{figures.jobs_per_s:,.0f} jobs/s{figures.stopped}"
        print(f"{policy:<8}{figures.peak_rss_mib:>6.0f} MiB  {verdict}  {speed}", flush=True)
    print()


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_data_option(parser)
    parser.add_argument("--seconds", type=float, default=60.0, help="most for the runs of one line, twice that for the "
                        "million jobs; default %(default)g")  # fmt: skip
    parser.add_argument("--traces", default=DEFAULT_TRACES, help="published traces, default %(default)s")
    parser.add_argument("--policies", default=DEFAULT_POLICIES, help="default %(default)s")
    parser.add_argument("--one", metavar="TASK", help=argparse.SUPPRESS)


def run(options: argparse.Namespace) -> int:
    """Measure and print."""
    if options.one:
        print(json.dumps(asdict(measure(SimulationTask(**json.loads(options.one))))))
        return 0
    folder, policies = str(data_folder(options.data)), options.policies.split(",")
    _print_speed(folder, options.traces.split(","), policies, options.seconds)
    _print_growth(folder, policies, options.seconds)
    _print_memory(folder, [policy for policy in MEMORY_POLICIES if policy in policies], options.seconds)
    return 0
