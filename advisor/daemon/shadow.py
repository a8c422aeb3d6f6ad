"""Runs a policy in shadow mode: its plans are compared with those in force and recorded, and never sent."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from advisor.cycle import Cycle, CycleRecord
from advisor.domain.memory import NO_STATE
from advisor.domain.plan import Recommendation
from advisor.features.policy import Policy
from advisor.journal.deviations import AsRecorded, AsTried

EVENT: Final = "shadow"
# The most changes that one row of the audit names on each side.
_MOST_NAMED: Final = 20


class Shadow:
    """Plans every round again with another policy, and reports the differences."""

    def __init__(self, policy: Policy) -> None:
        """Take the policy to run in shadow mode."""
        self._policy = policy
        self._last: Mapping[str, str | int] = {}
        self._state = NO_STATE

    def difference(self, cycle: Cycle, record: CycleRecord) -> Mapping[str, str | int] | None:
        """Return how the policy's plan differs in a round; None if it equals the last result."""
        other = replace(
            cycle, policy=self._policy, forecaster=AsRecorded(record.forecasts), trial=AsTried(record.trial)
        )
        would = other.judge(record.snapshot, replace(record.memory, policy_state=self._state))
        self._state = would.policy_state
        ours, theirs = ({_named(change): None for change in planned.recommendations} for planned in (record, would))
        fields: dict[str, str | int] = {
            "policy": self._policy.name,
            "same": len(ours.keys() & theirs.keys()),
            "only_shadow": _listed([change for change in theirs if change not in ours]),
            "only_in_force": _listed([change for change in ours if change not in theirs]),
            **({"fault": would.policy_fault} if would.policy_fault else {}),
        }
        if fields == self._last:
            return None
        self._last = fields
        return fields


def _named(change: Recommendation) -> str:
    return f"job {change.job_id} {change.action.in_words(change.action.published()[1])}"


def _listed(names: list[str]) -> str:
    more = len(names) - _MOST_NAMED
    return "; ".join(names[:_MOST_NAMED]) + (f"; {more} more" if more > 0 else "")
