"""Runs a policy in shadow mode: its plans are compared with those in force and recorded, and never sent."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from advisor.cycle import Cycle, CycleRecord
from advisor.domain.plan import Recommendation
from advisor.errors import ModelError
from advisor.features.policy import Policy
from advisor.replay.deviations import AsRecorded, AsTried

EVENT: Final = "shadow"
# The most changes that one row of the audit names on each side.
_MOST_NAMED: Final = 20


class Shadow:
    """Plans every round again with another policy, and reports the differences."""

    def __init__(self, policy: Callable[[], Policy], name: str) -> None:
        """Take what opens the policy to run in shadow mode, called in every round, and how it is named."""
        self._policy = policy
        self._name = name
        self._last: Mapping[str, str | int] = {}

    def difference(self, cycle: Cycle, record: CycleRecord) -> Mapping[str, str | int] | None:
        """Return how the policy's plan differs in a round; None if it equals the last result.

        `same`, `shadow` and `in_force` count the changes that both propose, and that only one does.
        """
        try:
            policy = self._policy()
        except ModelError as err:
            fields: dict[str, str | int] = {"policy": self._name, "fault": str(err)}
        else:
            fields = self._compared(policy, cycle, record)
        if fields == self._last:
            return None
        self._last = fields
        return fields

    def _compared(self, policy: Policy, cycle: Cycle, record: CycleRecord) -> dict[str, str | int]:
        other = replace(cycle, policy=policy, forecaster=AsRecorded(record.forecasts), trial=AsTried(record.trial))
        would = other.judge(record.snapshot, record.memory)
        ours, theirs = ({_named(change): None for change in planned.recommendations} for planned in (record, would))
        only_shadow = [change for change in theirs if change not in ours]
        only_in_force = [change for change in ours if change not in theirs]
        return {
            "policy": self._name,
            "digest": policy.digest,
            "decisions": len(would.decisions),
            "same": len(ours.keys() & theirs.keys()),
            "shadow": len(only_shadow),
            "in_force": len(only_in_force),
            "only_shadow": _listed(only_shadow),
            "only_in_force": _listed(only_in_force),
            **({"fault": would.policy_fault} if would.policy_fault else {}),
        }


def _named(change: Recommendation) -> str:
    return f"job {change.job_id} {change.action.in_words(change.action.published()[1])}"


def _listed(names: list[str]) -> str:
    more = len(names) - _MOST_NAMED
    return "; ".join(names[:_MOST_NAMED]) + (f"; {more} more" if more > 0 else "")
