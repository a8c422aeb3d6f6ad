"""Shadow mode: a learned policy plans beside the one in force; nothing of it is sent, and the journal keeps it."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from advisor.cycle import Cycle, CycleRecord
from advisor.domain.memory import NO_STATE
from advisor.domain.plan import Recommendation
from advisor.features.policy import Policy
from advisor.journal.deviations import AsRecorded

EVENT: Final = "shadow"
# The most changes that one row of the audit names on each side.
_MOST_NAMED: Final = 20


class Shadow:
    """Plans every round again with another policy, and tells where it would act otherwise."""

    def __init__(self, policy: Policy) -> None:
        """Take the policy in question."""
        self._policy = policy
        self._told: Mapping[str, str | int] = {}
        self._state = NO_STATE

    def difference(self, cycle: Cycle, record: CycleRecord) -> Mapping[str, str | int] | None:
        """Return how the policy would have acted otherwise in a round; None if the last row says the same."""
        other = replace(cycle, policy=self._policy, forecaster=AsRecorded(record.forecasts))
        would = other.judge(record.snapshot, replace(record.memory, policy_state=self._state))
        self._state = would.policy_state
        ours, theirs = ({_named(change): None for change in each.recommendations} for each in (record, would))
        found: dict[str, str | int] = {
            "policy": self._policy.name,
            "same": len(ours.keys() & theirs.keys()),
            "only_shadow": _listed([each for each in theirs if each not in ours]),
            "only_in_force": _listed([each for each in ours if each not in theirs]),
            **({"fault": would.policy_fault} if would.policy_fault else {}),
        }
        if found == self._told:
            return None
        self._told = found
        return found


def _named(change: Recommendation) -> str:
    return f"job {change.job_id} {change.action.lever} {change.action.after}"


def _listed(names: list[str]) -> str:
    more = len(names) - _MOST_NAMED
    return "; ".join(names[:_MOST_NAMED]) + (f"; {more} more" if more > 0 else "")
