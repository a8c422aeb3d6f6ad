"""Runs the line of proposers, which make a plan one after the other."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from advisor.domain.actions import Lever
from advisor.domain.dataclass import dataclass
from advisor.domain.plan import Kind, Plan, Recommendation
from advisor.planning import (
    compensation,
    elastic,
    exchange,
    lift,
    placement,
    soft_limit,
)
from advisor.planning.case import Case

Propose = Callable[[Case, Sequence[Recommendation]], Iterable[Recommendation]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposer:
    """A proposer of one kind of change with some levers, given the changes proposed before it.

    It is skipped where all of its levers are missing.
    """

    kind: Kind
    levers: frozenset[Lever]
    propose: Propose


# From first to last: each sees what those before it proposed. A new lever is one more row.
LINE: Final[tuple[Proposer, ...]] = (
    Proposer(kind=Kind.REORDER, levers=frozenset({Lever.NICE}), propose=compensation.recommendations),
    Proposer(kind=Kind.REORDER, levers=frozenset({Lever.NICE}), propose=lift.recommendations),
    Proposer(kind=Kind.REORDER, levers=frozenset({Lever.NICE}), propose=exchange.recommendations),
    Proposer(kind=Kind.REORDER, levers=frozenset({Lever.TIME_MIN}), propose=soft_limit.recommendations),
    # A gang that starts now where a policy wants it needs no timer.
    Proposer(kind=Kind.CONSOLIDATE, levers=frozenset({Lever.NODE_LIST}), propose=placement.named_places),
    Proposer(
        kind=Kind.CONSOLIDATE,
        levers=frozenset({Lever.NODE_RANGE, Lever.SWITCHES}),
        propose=placement.recommendations,
    ),
    # A gang that waits for a better place leaves its GPUs to others for now.
    Proposer(kind=Kind.RESIZE, levers=frozenset({Lever.GPU_COUNT}), propose=elastic.recommendations),
)
_RANKS: Final = {kind: rank for rank, kind in enumerate(Kind)}


def plan(case: Case, line: Sequence[Proposer] = LINE) -> Plan:
    """Plan one cycle: one change for each job at most. Equal cases give equal plans."""
    changes: list[Recommendation] = []
    for proposer in line:
        if not proposer.levers <= case.missing:
            changes += proposer.propose(case, changes)
    return Plan(recommendations=tuple(sorted(changes, key=lambda change: (_RANKS[change.kind], change.job_id))))
