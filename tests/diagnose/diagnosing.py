"""A job, the nodes it may run on and why it is not starting there."""

from collections.abc import Iterable, Sequence

from advisor.diagnose.causes import diagnose
from advisor.domain.diagnosis import Cause
from advisor.domain.job import Job
from advisor.domain.node import Node
from advisor.domain.site import Partition
from advisor.view.explanations import Explanation, explanation
from tests.builders import make_gang, make_node, make_snapshot

FULL: Sequence[Node] = (make_node("n1", used=8), make_node("n2", used=8))
IDLE: Sequence[Node] = (make_node("n1"), make_node("n2"))
# A request in which nothing is left unknown.
GPU = make_gang(1, memory_mib_per_node=1)


def diagnosis(
    job: Job,
    nodes: Iterable[Node] = IDLE,
    others: Iterable[Job] = (),
    *,
    partitions: Iterable[Partition] | None = None,
) -> Explanation:
    """Say why job 1 is not starting on these nodes, beside these other jobs."""
    return explanation(diagnose(make_snapshot([job, *others], nodes, partitions=partitions), 1))


def causes(found: Explanation) -> list[Cause]:
    """Return the causes in the order in which they bind."""
    return [found.first.cause, *(finding.cause for finding in found.further)]
