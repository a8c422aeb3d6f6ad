"""Plans recorded cycles again, or a cycle with another policy in shadow mode, and compares the outcomes."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from advisor.cycle import Cycle, CycleRecord
from advisor.domain.dataclass import dataclass
from advisor.domain.forecast import Forecasts
from advisor.domain.plan import Recommendation
from advisor.domain.snapshot import Snapshot
from advisor.errors import ModelError
from advisor.features.policy import Policy, RecordedPolicy
from advisor.journal.cycle_record import Recorded, outcome_of
from advisor.planning.case import Case
from advisor.planning.plan_trial import PlanTrial

SHADOW: Final = "shadow"
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


_ABSENT = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Deviation:
    """One difference between two outcomes about one job; `-` stands for an absent value."""

    job_id: int
    what: str
    recorded: str
    replayed: str


class AsRecorded:
    """A forecaster that returns recorded forecasts."""

    def __init__(self, forecasts: Forecasts) -> None:
        self._forecasts = forecasts

    def forecasts(self, snapshot: Snapshot) -> Forecasts:  # noqa: ARG002  (the protocol's)
        """Return the recorded forecasts."""
        return self._forecasts


class AsTried:
    """A trial of plans that returns a recorded one."""

    def __init__(self, trial: PlanTrial) -> None:
        self._trial = trial

    def tried(self, case: Case, changes: Sequence[Recommendation]) -> PlanTrial:  # noqa: ARG002  (the protocol's)
        """Return the recorded trial; changes that it does not hold are not refused."""
        return self._trial


def cycle_of(recorded: Recorded) -> Cycle:
    """Return the pipeline with the settings in force when the cycle was recorded."""
    return Cycle(planning=recorded.planning, limits=recorded.limits, levers=recorded.levers, modes=recorded.modes)


def replayed(recorded: Recorded, cycle: Cycle | None = None) -> bytes:
    """Plan a recorded cycle again, with other settings if a cycle is given, and return its outcome.

    The forecasts, the scores of a policy and the trials of changes are the recorded ones: models change, trials have a
    deadline, and a replay is about planning.
    """
    planning = replace(cycle or cycle_of(recorded), forecaster=AsRecorded(recorded.forecasts))
    planning = replace(planning, trial=AsTried(recorded.trial))
    if recorded.decisions:
        planning = replace(planning, policy=RecordedPolicy(recorded.decisions))
    return outcome_of(planning.judge(recorded.snapshot, recorded.memory))


def deviations(before: bytes, after: bytes) -> tuple[Deviation, ...]:
    """Compare two outcomes of a cycle, job by job."""
    return tuple(_deviations(json.loads(before), json.loads(after)))


def _deviations(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Deviation]:
    old, new = (_texts(outcome) for outcome in (before, after))
    for key in sorted(old.keys() | new.keys()):
        if old.get(key) != new.get(key):
            yield Deviation(job_id=key[0], what=key[1], recorded=old.get(key, _ABSENT), replayed=new.get(key, _ABSENT))
    orders = [
        [verdict["recommendation"]["action"]["job_id"] for verdict in outcome["verdicts"]]
        for outcome in (before, after)
    ]
    moved = next((pair for pair in zip(*orders, strict=False) if pair[0] != pair[1]), None)
    if old == new and moved is not None:
        yield Deviation(job_id=moved[0], what="order", recorded=str(moved[0]), replayed=str(moved[1]))


def _texts(outcome: Mapping[str, Any]) -> Mapping[tuple[int, str], str]:
    """Map each job and the name of a value to the value as text."""
    texts: dict[tuple[int, str], str] = {}
    for job_id, rule in outcome["left_alone"]:
        texts[job_id, "left alone"] = rule
    for verdict in outcome["verdicts"]:
        change = verdict["recommendation"]
        job_id, lever = change["action"]["job_id"], verdict["lever"]
        texts[job_id, lever] = _short(change["action"])
        texts[job_id, f"{lever} refused by"] = verdict["refused_by"] or _ABSENT
        for name, value in change.items():
            if name != "action":
                texts[job_id, f"{lever} {name}"] = _short(value)
    return texts


def _short(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
