"""The page of what Dally brings: its targets, and every corner with all policies."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from textwrap import wrap
from typing import Final

import numpy as np

import advisor
from advisor.planning.words import duration
from advisor.sim.comparison import by_policy, compare, ends_of, mean_of
from advisor.sim.result import RunResult
from advisor.sim.statistics import RelativeChange
from advisor.sim.wording import LABELS, change_in_words, ends_in_words, shown
from tools.dally import workload

UNLIMITED: Final = "unlimited GPUs"
METRICS: Final = (
    "mean_jct_s", "p99_jct_s", "makespan_s", "mean_queueing_delay_s", "communication_overhead_ratio",
)  # fmt: skip
COMPARED: Final = ("mean_jct_s", "p99_jct_s", "makespan_s", "communication_overhead_ratio")
OVERHEAD: Final = "communication_overhead_ratio"
# What the paper reports as its best changes, in percent, and against whom.
TARGETS: Final[Mapping[str, float]] = {
    "makespan_s": -69.0,
    "mean_jct_s": -83.0,
    OVERHEAD: -98.0,
}
SYSTEMS: Final = ("dally", "dally+preempt")
BASELINES: Final = ("las", "gandiva")
ABLATIONS: Final = ("dally-nowait", "dally-consolidated", "dally-fixed")
# How much longer than the best ablation's the mean JCT may be.
TOLERANCE_PERCENT: Final = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Corner:
    """An arrival (a load, None for all jobs at once) on a cluster of an oversubscription."""

    load_ratio: float | None
    oversubscription: float

    @property
    def name(self) -> str:
        """What stands for it in tables."""
        return f"{workload.arrival_name(self.load_ratio)}, {self.oversubscription:g}:1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """All results, one for each seed: by corner and policy, and of the unlimited cluster by load."""

    corners: Mapping[Corner, Mapping[str, Sequence[RunResult]]]
    unlimited: Mapping[float | None, Sequence[RunResult]]
    nic_gbps: float

    @property
    def policies(self) -> list[str]:
        """The policies, the one compared with the others first."""
        return list(next(iter(self.corners.values())))

    @property
    def seeds(self) -> int:
        """How many runs stand behind each figure."""
        return len(next(iter(self.unlimited.values())))


def page(bench: Bench, command: str) -> str:
    """Return the page; `command` is what makes it again."""
    lines = [*_head(bench, command), *_workload(bench), *_targets(bench), *_ablations(bench)]
    for corner in bench.corners:
        lines += _section(bench, corner)
    return "\n".join(lines).rstrip("\n") + "\n"


def change_of(before: Sequence[RunResult], after: Sequence[RunResult], metric: str) -> RelativeChange:
    """Return how a metric under the policy of `after` differs from that of `before`, over the same seeds."""
    (found,) = compare([*before, *after], seed=0, metrics=(metric,))
    return found.change


def tier_shares(results: Sequence[RunResult]) -> tuple[float, ...]:
    """Average over runs what node, leaf and spine have of the GPU-time that gangs held."""
    return tuple(np.mean([result.tiers.shares for result in results], axis=0).tolist())


def best_of(names: Sequence[str], own: Mapping[str, Sequence[RunResult]]) -> str:
    """Return the policy with the lowest mean JCT."""
    return min(names, key=lambda name: _mean("mean_jct_s", own[name]))


def _head(bench: Bench, command: str) -> Iterator[str]:
    first = bench.policies[0]
    yield "# Dally in the simulator"
    yield ""
    yield from paragraph(f"Written by `{command}`; do not edit. sadvise {advisor.__version__}.")
    yield from paragraph(
        """Dally is Sharma et al., arXiv 2401.16492: gangs wait for a place close together until a timer ends that
        tunes itself. Its formulas, traces and code are not public; the policies `dally...` are our interpretation
        ([policies.md](policies.md)), and so are the workload below and the network
        ([simulation.md](simulation.md)). Figures here can be held against the paper's in direction, not in size."""
    )
    yield from paragraph(
        f"""Figures are means over {bench.seeds} seeds, each of which draws a trace of its own; all policies run the
        same ones. Change is that of `{first}` against another policy, the geometric mean over seeds of what it is on
        one; below 0 is lower, which is better. In brackets stands the 95 % interval over seeds. Queueing delay is
        that to the first start. Communication overhead is exposed communication time over GPU-holding time.
        Node / leaf / spine is how the GPU-time that gangs of several GPUs held divides among the locality tiers at
        which they sat."""
    )


def _workload(bench: Bench) -> Iterator[str]:
    jobs = next(iter(bench.unlimited.values()))[0].summary.jobs
    mean_gpus = sum(np.multiply(workload.DEMANDS, workload.DEMAND_SHARES))
    yield "## Workload"
    yield ""
    yield from paragraph(
        f"""Cluster: {workload.LEAVES} leaf switches with {workload.LEAF_NODES} nodes of {workload.GPUS_PER_NODE} GPUs
        each, {workload.GPUS} GPUs in all, in the short form `{workload.cluster_text(1.0, bench.nic_gbps)}`. An
        oversubscription of 10:1 means that the nodes of a leaf send ten times what its uplinks carry."""
    )
    yield from paragraph(
        f"""Jobs: {jobs} a trace, that is all at once (batch) or by a Poisson process. Its load is the GPU-time that
        they bring in, run alone on their best placement, over what the cluster has in that time; the rate follows
        from the jobs drawn. {mean_gpus:.1f} GPUs are asked on average:"""
    )
    yield f"| GPUs | {' | '.join(map(str, workload.DEMANDS))} |"
    yield f"|---|{'--:|' * len(workload.DEMANDS)}"
    yield f"| of the jobs | {' | '.join(f'{100 * share:.0f} %' for share in workload.DEMAND_SHARES)} |"
    yield ""
    yield from paragraph(
        f"""The shares are ours. Jobs ask for more GPUs on average than on Microsoft's Philly and SenseTime's Helios and
        for fewer than on Acme's Kalos: where nearly all have one GPU, placement matters less than here. Run
        times do not depend on size and are log-normal, with a median of {duration(workload.MEDIAN_RUN_TIME_S)} and
        a standard deviation of {workload.RUN_TIME_SPREAD:g} of their logarithm, much as on Microsoft's ITP clusters,
        cut at {duration(workload.SHORTEST_S)} and {duration(workload.LONGEST_S)}. Models are drawn by size from
        all profiles with the weights of [traces.md](traces.md). All jobs are of one user, rigid, and leave their node
        count open, so that `slurm` may spread them; they write a checkpoint every
        {duration(workload.CHECKPOINT_INTERVAL_S)}."""
    )
    yield from paragraph(
        """No job has a time limit, as schedulers in papers know none: a limit that left room for what the network does
        to a job would tell nothing of its run time, a shorter one would end it. Slurm's backfill then takes every job
        to be longer than `bf_window`, reserves nothing, and starts in the order of priority whatever fits. The
        policies that go by run times are told the true ones."""
    )
    yield from paragraph(
        f"""`{UNLIMITED}` is the same trace where every job starts at once and sits alone on its best placement. No JCT
        and no makespan can be shorter, and no policy does away with the communication that its gangs have even there;
        an overhead may be a little lower, as restarts and shared GPUs add time to that over which it is stated."""
    )


def _targets(bench: Bench) -> Iterator[str]:
    judged = [name for name in bench.policies if name in SYSTEMS]
    against = [name for name in bench.policies if name in BASELINES]
    if not against or not judged:
        return
    worst = max(corner.oversubscription for corner in bench.corners)
    yield "## Targets"
    yield ""
    yield from paragraph(
        f"""What the paper reports as its best changes, beside those of {" and ".join(f"`{name}`" for name in judged)}
        where the network is most congested; the paper's system is the one that preempts. A target is reached where the
        change is as low; the interval tells how sure that is. The column `{UNLIMITED}` is the change if every job ran
        as there: no policy gets below. *Avoidable* is the change of what the overhead has above that of
        `{UNLIMITED}`, on average over seeds, which is not the paper's measure."""
    )
    yield f"| {worst:g}:1 | policy | against | metric | target | change | reached | {UNLIMITED} | avoidable |"
    yield "|---|---|---|---|--:|--:|---|--:|--:|"
    reached = dict.fromkeys(TARGETS, 0)
    rows = 0
    corners = [corner for corner in bench.corners if corner.oversubscription == worst]
    for corner, mine, other in product(corners, judged, against):
        rows += 1
        for metric, target in TARGETS.items():
            own, unlimited = bench.corners[corner], bench.unlimited[corner.load_ratio]
            change, least = change_of(own[other], own[mine], metric), change_of(own[other], unlimited, metric)
            is_reached = change.percent <= target
            reached[metric] += is_reached
            avoidable = _avoidable(own[other], own[mine], unlimited) if metric == OVERHEAD else ""
            runs = (workload.arrival_name(corner.load_ratio), mine, other)
            judgement = (f"{target:.0f} %", change_in_words(change), "yes" if is_reached else "no")
            cells = (*runs, LABELS[metric], *judgement, change_in_words(least), avoidable)
            yield f"| {' | '.join(cells)} |"
    yield ""
    counts = ", ".join(f"{LABELS[metric]} {count} of {rows}" for metric, count in reached.items())
    yield from paragraph(f"Reached: {counts}.")


def _avoidable(before: Sequence[RunResult], after: Sequence[RunResult], least: Sequence[RunResult]) -> str:
    """Return the change of the mean overhead above the least, in percent."""
    floor, was, now = (_mean(OVERHEAD, results) for results in (least, before, after))
    return f"{100 * ((now - floor) / (was - floor) - 1.0):+.1f} %" if was > floor else "nothing to avoid"


def _ablations(bench: Bench) -> Iterator[str]:
    first, *others = bench.policies
    ablations = [name for name in others if name in ABLATIONS]
    if not ablations:
        return
    yield "## Against the best ablation"
    yield ""
    yield from paragraph(
        f"""Timers that tune themselves should do at least as well as the best of no timers, endless ones and fixed
        ones, whichever that is: the mean JCT of `{first}` may be {TOLERANCE_PERCENT:g} % longer at most. The best is
        chosen by the very runs it is judged by, which favours it."""
    )
    yield f"| corner | best ablation | its mean JCT | {first} | change | within {TOLERANCE_PERCENT:g} % |"
    yield "|---|---|--:|--:|--:|---|"
    within = 0
    for corner, own in bench.corners.items():
        best = best_of(ablations, own)
        change = change_of(own[best], own[first], "mean_jct_s")
        is_within = change.percent <= TOLERANCE_PERCENT
        within += is_within
        means = [shown("mean_jct_s", _mean("mean_jct_s", own[name])) for name in (best, first)]
        cells = (corner.name, best, *means, change_in_words(change), "yes" if is_within else "no")
        yield f"| {' | '.join(cells)} |"
    yield ""
    yield from paragraph(f"Within {TOLERANCE_PERCENT:g} %: {within} of {len(bench.corners)} corners.")


def _section(bench: Bench, corner: Corner) -> Iterator[str]:
    own = bench.corners[corner]
    first, *others = own
    yield f"## {corner.name}"
    yield ""
    yield f"| policy | {' | '.join(LABELS[metric] for metric in METRICS)} | node / leaf / spine |"
    yield f"|---|{'--:|' * len(METRICS)}--:|"
    for name, results in {UNLIMITED: bench.unlimited[corner.load_ratio], **own}.items():
        figures = [shown(metric, _mean(metric, results)) for metric in METRICS]
        yield f"| {' | '.join([name, *figures, _tiers_in_words(results)])} |"
    yield ""
    for name, results in own.items():
        left = ends_in_words(ends_of(by_policy(results)[name]), seeds=bench.seeds)
        if left:
            yield from paragraph(f"Under `{name}` not all jobs finished: {left}.")
    if not others:
        return
    yield f"| {first} against | {' | '.join(LABELS[metric] for metric in COMPARED)} |"
    yield f"|---|{'--:|' * len(COMPARED)}"
    for other in others:
        changes = [change_in_words(change_of(own[other], own[first], metric)) for metric in COMPARED]
        yield f"| {' | '.join([other, *changes])} |"
    yield ""


def _tiers_in_words(results: Sequence[RunResult]) -> str:
    shares = tier_shares(results)
    return "none" if np.isnan(shares).any() else f"{' / '.join(f'{100 * share:.0f}' for share in shares)} %"


def _mean(metric: str, results: Sequence[RunResult]) -> float:
    return mean_of(metric, {result.cell: result for result in results})


def paragraph(text: str) -> Iterator[str]:
    """Yield a paragraph, wrapped, and the empty line after it."""
    yield from wrap(" ".join(text.split()), 120, break_long_words=False, break_on_hyphens=False)
    yield ""
