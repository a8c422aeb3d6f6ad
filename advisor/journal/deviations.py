"""Planning a recorded cycle again, and saying where what comes of it differs."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from advisor.cycle import Cycle
from advisor.domain.forecast import Forecasts
from advisor.domain.snapshot import Snapshot
from advisor.features.policy import RecordedPolicy
from advisor.journal.cycle_record import Recorded, outcome_of

_ABSENT = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Deviation:
    """One thing about one job that came out otherwise; `-` where there is none."""

    job_id: int
    what: str
    recorded: str
    replayed: str


class AsRecorded:
    """Says what was forecast when the cycle was recorded."""

    def __init__(self, forecasts: Forecasts) -> None:
        self._forecasts = forecasts

    def forecasts(self, snapshot: Snapshot) -> Forecasts:  # noqa: ARG002  (the protocol's)
        """Return the recorded forecasts."""
        return self._forecasts


def cycle_of(recorded: Recorded) -> Cycle:
    """Return the pipeline as it was set when the cycle was recorded."""
    return Cycle(planning=recorded.planning, limits=recorded.limits, levers=recorded.levers, modes=recorded.modes)


def replayed(recorded: Recorded, cycle: Cycle | None = None) -> bytes:
    """Plan a recorded cycle again, with other settings if a cycle is given, and return what comes of it.

    The forecasts and the scores of a policy are those that were recorded: models change, and what is replayed is the
    planning.
    """
    planning = replace(cycle or cycle_of(recorded), forecaster=AsRecorded(recorded.forecasts))
    if recorded.decisions:
        planning = replace(planning, policy=RecordedPolicy(recorded.decisions))
    return outcome_of(planning.judge(recorded.snapshot, recorded.memory))


def deviations(before: bytes, after: bytes) -> tuple[Deviation, ...]:
    """Compare what came of a cycle twice, job by job."""
    return tuple(_deviations(json.loads(before), json.loads(after)))


def _deviations(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Deviation]:
    old, new = (_told(outcome) for outcome in (before, after))
    for key in sorted(old.keys() | new.keys()):
        if old.get(key) != new.get(key):
            yield Deviation(job_id=key[0], what=key[1], recorded=old.get(key, _ABSENT), replayed=new.get(key, _ABSENT))
    orders = [[each["recommendation"]["action"]["job_id"] for each in told["verdicts"]] for told in (before, after)]
    moved = next((pair for pair in zip(*orders, strict=False) if pair[0] != pair[1]), None)
    if old == new and moved is not None:
        yield Deviation(job_id=moved[0], what="order", recorded=str(moved[0]), replayed=str(moved[1]))


def _told(outcome: Mapping[str, Any]) -> Mapping[tuple[int, str], str]:
    """Map jobs and what is said about them to what is said."""
    told: dict[tuple[int, str], str] = {}
    for job_id, rule in outcome["left_alone"]:
        told[job_id, "left alone"] = rule
    for verdict in outcome["verdicts"]:
        change = verdict["recommendation"]
        job_id, lever = change["action"]["job_id"], verdict["lever"]
        told[job_id, lever] = _short(change["action"])
        told[job_id, f"{lever} refused by"] = verdict["refused_by"] or _ABSENT
        for name, value in change.items():
            if name != "action":
                told[job_id, f"{lever} {name}"] = _short(value)
    return told


def _short(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, separators=(",", ":"))
