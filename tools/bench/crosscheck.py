"""Compare simulated means with those of a second program that shares no code with this one.

    python -m tools.bench crosscheck [--data DIR] [TRACE ...]

DIR is a folder with `traces/ms_itp` and `traces/philly`, by default SADVISE_DATA. The reference is a quick check done
before this simulator was written: 8-GPU nodes without switches, strict head of the line, no preemption, consolidated
placement, run times known, in the order of submission (fifo) and shortest first (sjf). Here the same is
`--execution ideal` with oracle speeds under one leaf switch, and the means agree to the second. With a leaf switch for
every 8 nodes, printed beside them and not judged, gangs take other ones among equally free nodes, so that small jobs
find other gaps: up to some tenths of a percent. Exits with 1 where a mean is more than 2 % off.
"""

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from advisor.errors import TraceError
from advisor.sim.metrics import summarise
from advisor.sim.runner import SimulationOptions, simulate
from tools.simulated_traces import Workload, add_data_option, data_folder, read_workload

LARGEST_PERCENT: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """Mean JCTs of the second program on a trace; `nodes` are its nodes of 8 GPUs."""

    nodes: int
    mean_jct_s: Mapping[str, float]


REFERENCES: Final[Mapping[str, Reference]] = {
    "itp 02": Reference(nodes=14, mean_jct_s={"fifo": 358_197, "sjf": 86_676}),
    "itp 04": Reference(nodes=78, mean_jct_s={"fifo": 26_244, "sjf": 22_165}),
    "itp 07": Reference(nodes=41, mean_jct_s={"fifo": 37_307, "sjf": 29_877}),
    "itp 09": Reference(nodes=5, mean_jct_s={"fifo": 53_359, "sjf": 47_784}),
    "philly 6214e9": Reference(nodes=7, mean_jct_s={"fifo": 234_782, "sjf": 68_863}),
    "philly b436b2": Reference(nodes=5, mean_jct_s={"fifo": 172_591, "sjf": 24_117}),
    "philly ee9e8c": Reference(nodes=18, mean_jct_s={"fifo": 433_768, "sjf": 158_408}),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A mean JCT of ours, the reference for it, and ours with a leaf switch for every 8 nodes."""

    trace: str
    jobs: int
    nodes: int
    policy: str
    reference_s: float
    ours_s: float
    on_leaves_s: float

    @property
    def percent(self) -> float:
        """How far off ours is."""
        return 100.0 * (self.ours_s / self.reference_s - 1.0)

    @property
    def is_off(self) -> bool:
        """Whether that is too far; a mean over no job is."""
        return not abs(self.percent) <= LARGEST_PERCENT


def compare(workload: Workload, policy: str, reference_s: float) -> Comparison:
    """Simulate a workload under a policy, twice."""
    flat_s, on_leaves_s = (_mean_jct_s(workload, policy, leaf) for leaf in (0, 8))
    return Comparison(
        trace=workload.trace.name,
        jobs=len(workload.trace),
        nodes=workload.nodes,
        policy=policy,
        reference_s=reference_s,
        ours_s=flat_s,
        on_leaves_s=on_leaves_s,
    )


def _mean_jct_s(workload: Workload, policy: str, leaf: int) -> float:
    run = simulate(workload.trace, workload.cluster(leaf), policy, options=SimulationOptions(execution="ideal"))
    return summarise(run).mean_jct_s


def line_of(comparison: Comparison) -> str:
    """Return a comparison as a line of the table."""
    verdict = "TOO FAR" if comparison.is_off else "agrees"
    return (
        f"{comparison.trace:<15}{comparison.jobs:>7}{comparison.nodes:>7}  {comparison.policy:<5}"
        f"{comparison.reference_s:>11,.0f}{comparison.ours_s:>11,.0f}{comparison.percent:>+9.3f} %"
        f"  {verdict:<8}{comparison.on_leaves_s:>14,.0f}"
    )


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("traces", nargs="*", metavar="TRACE", help=f"default: {', '.join(REFERENCES)}")
    add_data_option(parser)


def run(options: argparse.Namespace) -> int:
    """Compare and print; return 1 where a mean is too far off."""
    unknown = [name for name in options.traces if name not in REFERENCES]
    if unknown:
        raise TraceError(f"trace {unknown[0]!r} has no reference: those with one are {', '.join(REFERENCES)}")
    folder = data_folder(options.data)
    comparisons: list[Comparison] = []
    print("mean JCT in seconds, ideal execution, strict head of the line, no preemption, one leaf switch")
    print("trace             jobs  nodes  policy  reference       ours  difference           leaves of 8")
    for name in options.traces or REFERENCES:
        reference = REFERENCES[name]
        workload = Workload(trace=read_workload(folder, name).trace, nodes=reference.nodes)
        for policy, reference_s in reference.mean_jct_s.items():
            comparisons.append(compare(workload, policy, reference_s))
            print(line_of(comparisons[-1]), flush=True)
    off = sum(comparison.is_off for comparison in comparisons)
    print(f"{len(comparisons) - off} of {len(comparisons)} within {LARGEST_PERCENT:g} %")
    return 1 if off else 0
