"""Finds the nodes that fail more often than chance makes, and end the jobs on them."""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from advisor.diagnose.site_checks import Check, Status
from advisor.domain.failing_node import FailedRun, FailingNode
from advisor.domain.units import MINUTE_S, plural

# How far back accounting is asked, in the spelling of sacct and in words.
SINCE: Final = "now-7days"
_PERIOD: Final = "in the last 7 days"
# Slurm ends all jobs of a node that fails within this time.
_TOGETHER_S: Final = 2 * MINUTE_S
_FEWEST_FAILURES: Final = 2
# How likely chance alone may have any node named.
_MOST_BY_CHANCE: Final = 0.05
_NAME: Final = "nodes that end jobs"


def failing_nodes(runs: Sequence[FailedRun], node_count: int) -> tuple[FailingNode, ...]:
    """Return the nodes with more failures than chance makes where all nodes are alike, those with most first.

    Runs on a node that end together are one failure. Which node of a gang failed is not known, so that the end of a
    run of n nodes is an nth of a failure of each, unless a smaller run ends there, too. The failures of a node that is
    like the others have a Poisson distribution.
    """
    by_node: defaultdict[str, list[FailedRun]] = defaultdict(list)
    for run in sorted(runs, key=lambda run: run.end_time):
        for name in run.nodes:
            by_node[name].append(run)
    failures = {name: _failures(own) for name, own in by_node.items()}
    nodes = max(node_count, len(failures), 1)
    expected = sum(failures.values()) / nodes
    found = [
        FailingNode(
            name=name,
            failures=int(failures[name]),
            runs=len(own),
            users=len({run.user for run in own}),
            gpu_s=sum(run.gpu_s for run in own),
        )
        for name, own in by_node.items()
        if failures[name] >= _FEWEST_FAILURES and nodes * _at_least(int(failures[name]), expected) <= _MOST_BY_CHANCE
    ]
    return tuple(sorted(found, key=lambda node: (-node.failures, -node.gpu_s, node.name)))


def failure_checks(runs: Sequence[FailedRun], node_count: int) -> Iterator[Check]:
    """Check the nodes of a site by the runs that ended as a node failed."""
    found = failing_nodes(runs, node_count)
    for node in found:
        advice = f"have it repaired: scontrol update NodeName={node.name} State=DRAIN Reason='ends jobs'"
        yield Check(name=_NAME, status=Status.LACKS, text=f"{node.text}, {_PERIOD}", cost=f"lost work; {advice}")
    if not found:
        ended = f"{plural(len(runs), 'run')} ended as a node failed" if runs else "no run ended as a node failed"
        yield Check(name=_NAME, status=Status.OK, text=f"no node fails more often than chance makes; {ended} {_PERIOD}")


def _failures(runs: Sequence[FailedRun]) -> float:
    """Count the failures of a node by the runs on it, in the order of their ends."""
    shares: list[float] = []
    last_time = -math.inf
    for run in runs:
        if run.end_time - last_time > _TOGETHER_S:
            shares.append(0.0)
        shares[-1] = max(shares[-1], 1.0 / len(run.nodes))
        last_time = run.end_time
    return sum(shares)


def _at_least(count: int, mean: float) -> float:
    """Return the probability that a variable with a Poisson distribution is at least `count`."""
    return 1.0 - sum(math.exp(-mean) * mean**k / math.factorial(k) for k in range(count))
