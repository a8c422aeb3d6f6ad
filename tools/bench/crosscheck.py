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
from advisor.sim.runner import SimulationOptions, simulate
from advisor.sim.study.metrics import summarise
from tools.data.simulated_traces import Workload, add_data_option, data_folder, read_workload

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


def mean_jct_s(workload: Workload, policy: str, leaf: int) -> float:
    """Simulate a workload under a policy, with `leaf` nodes under a leaf switch (0: all); return its mean JCT."""
    run = simulate(workload.trace, workload.cluster(leaf), policy, options=SimulationOptions(execution="ideal"))
    return summarise(run).mean_jct_s


def is_off(ours_s: float, reference_s: float) -> bool:
    """Whether a mean is too far from its reference; a mean over no job is."""
    return not abs(_percent(ours_s, reference_s)) <= LARGEST_PERCENT


def _percent(ours_s: float, reference_s: float) -> float:
    return 100.0 * (ours_s / reference_s - 1.0)


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
    verdicts: list[bool] = []
    print("mean JCT in seconds, ideal execution, strict head of the line, no preemption, one leaf switch")
    print("trace             jobs  nodes  policy  reference       ours  difference           leaves of 8")
    for name in options.traces or REFERENCES:
        reference = REFERENCES[name]
        workload = Workload(trace=read_workload(folder, name).trace, nodes=reference.nodes)
        for policy, reference_s in reference.mean_jct_s.items():
            ours_s, on_leaves_s = (mean_jct_s(workload, policy, leaf) for leaf in (0, 8))
            verdicts.append(is_off(ours_s, reference_s))
            print(
                f"{name:<15}{len(workload.trace):>7}{workload.nodes:>7}  {policy:<5}{reference_s:>11,.0f}"
                f"{ours_s:>11,.0f}{_percent(ours_s, reference_s):>+9.3f} %"
                f"  {'TOO FAR' if verdicts[-1] else 'agrees':<8}{on_leaves_s:>14,.0f}",
                flush=True,
            )
    print(f"{verdicts.count(False)} of {len(verdicts)} within {LARGEST_PERCENT:g} %")
    return 1 if any(verdicts) else 0
