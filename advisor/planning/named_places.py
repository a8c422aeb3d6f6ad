"""Proposes nodes for gangs where a policy chooses them; what such a policy sees is imported there alone."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from advisor.domain.actions import Lever, Reason
from advisor.domain.plan import Facts, Recommendation
from advisor.planning.case import Case


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceForGang(Facts):
    """The nodes chosen for a gang that can start now; neighbours are gangs that send from these nodes, too."""

    reason = Reason.PLACE_FOR_GANG

    gpus: int
    nodes: int
    leaves: int
    neighbours: int
    slowed_by_neighbours: float
    lease_s: float
    by_policy: str


def recommendations(case: Case, so_far: Sequence[Recommendation] = ()) -> Iterable[Recommendation]:
    """Propose nodes for the gangs that can start now, where the site allows it and a policy chooses them.

    Where the policy fails, the rule goes on in its place.
    """
    policy = case.decider.policy
    if not case.settings.name_nodes or policy is None or Lever.NODE_LIST not in policy.levers:
        return ()
    from advisor.planning import gang_nodes

    return gang_nodes.recommendations(case, so_far)
