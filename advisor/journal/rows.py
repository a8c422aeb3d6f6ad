"""Converts leases, actions and outcomes to rows and back."""

import json
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, Final

from pydantic import TypeAdapter

from advisor.domain.actions import ACTIONS, Action, Lever
from advisor.domain.dataclass import dataclass
from advisor.domain.lease import Ending, Lease, LeaseState
from advisor.domain.outcome import JobOutcome
from advisor.domain.request import Request
from advisor.domain.standings import Stretch
from advisor.journal.audit import Detail

LeaseRow = tuple[
    int,
    str,
    str,
    str,
    float,
    float | None,
    str,
    str | None,
    float | None,
    str,
    str,
    float,
    bool,
    float | None,
    int | None,
    str,
    float | None,
    float | None,
    float | None,
    str | None,
    str,
]
LEASE_COLUMNS: Final = (
    "job_id, lever, action, undo, applied_time, due_time, state, ending, ended_time, user, account, added_delay_s, "
    "by_person, overruled_time, priority, serves, planned_start, would_start_time, start_time, "
    "request, lost"
)
LEASE_VALUES: Final = ", ".join("?" * (LEASE_COLUMNS.count(",") + 1))

# The columns of the second and the fourth schema, in which earlier versions recorded cycles.
_SECOND_COLUMNS: Final = 14
_FOURTH_COLUMNS: Final = 19

# The lever by which earlier versions stopped running jobs.
STOP_LEVER: Final = "checkpoint_requeue"


@dataclass(frozen=True, slots=True, kw_only=True)
class PastStop:
    """Holds a stop of a running job by an earlier version: the start of the run before it, and None after it.

    It is listed among past changes and nothing else: no version can revert it.
    """

    job_id: int
    before: float | None
    after: float | None


# The lever is stored beside the JSON of an action and determines its kind.
_CODECS: Final[Mapping[Lever, TypeAdapter[Any]]] = {lever: TypeAdapter(action) for lever, action in ACTIONS.items()}
_STOPS: Final = TypeAdapter(PastStop)


def action_text(action: Action) -> str:
    """Return the JSON of an action; the lever has to be stored beside it."""
    return str(_CODECS[action.lever].dump_json(action).decode())


def action_of(lever: str, text: str) -> Action:
    """Return the action of a lever and its JSON; raises `ValueError` if they are invalid."""
    present = _with_sizes(text) if lever == Lever.GPU_COUNT else text
    action: Action = _CODECS[Lever(lever)].validate_json(present, strict=True)
    return action


def past_action_of(lever: str, text: str) -> Action | PastStop:
    """Return the action of a lever and its JSON, also where only an earlier version could make it."""
    return _STOPS.validate_json(text, strict=True) if lever == STOP_LEVER else action_of(lever, text)


def _with_sizes(text: str) -> str:
    """Return the JSON of a change of a size as this version writes it; earlier ones stored the GPUs alone."""
    values = json.loads(text)
    if isinstance(values, dict):
        values = {name: {"gpus": value} if isinstance(value, list) else value for name, value in values.items()}
    return json.dumps(values)


def lease_row(lease: Lease) -> LeaseRow:
    """Return a lease as the values of `LEASE_COLUMNS`; `serves` is empty, as no change lets certain jobs ahead."""
    return (
        lease.job_id,
        lease.lever,
        action_text(lease.action),
        action_text(lease.undo),
        lease.applied_time,
        lease.due_time,
        lease.state,
        lease.ending,
        lease.ended_time,
        lease.user,
        lease.account,
        lease.added_delay_s,
        lease.by_person,
        lease.overruled_time,
        lease.priority,
        "[]",
        lease.planned_start,
        lease.would_start_time,
        lease.start_time,
        None if lease.request is None else _requests().dump_json(lease.request).decode(),
        lease.lost,
    )


def whole_row(row: Sequence[Any]) -> tuple[Any, ...]:
    """Return the row of a lease as recorded by this version or an earlier one, without what that one did not know."""
    present = (*row, None, "[]", None, row[4], row[8]) if len(row) == _SECOND_COLUMNS else tuple(row)
    return (*present, None, "") if len(present) == _FOURTH_COLUMNS else present


@lru_cache(maxsize=20_000)
def lease_of(row: LeaseRow) -> Lease:
    """Return the lease of a row; raises `ValueError` if the row is invalid.

    Cached, since every cycle reads all closed leases within the guard's window.
    """
    # fmt: off
    (
        _, lever, action, undo, applied, due, state, ending, ended, user, account, added, by_person, overruled,
        priority, _, planned_start, would_start_time, start_time, request, lost,
    ) = row
    # fmt: on
    return Lease(
        action=action_of(lever, action),
        undo=action_of(lever, undo),
        applied_time=applied,
        due_time=due,
        state=LeaseState(state),
        ending=None if ending is None else Ending(ending),
        ended_time=ended,
        user=user,
        account=account,
        added_delay_s=added,
        by_person=bool(by_person),
        overruled_time=overruled,
        priority=priority,
        planned_start=planned_start,
        would_start_time=would_start_time,
        start_time=start_time,
        request=None if request is None else _requests().validate_json(request, strict=True),
        lost=lost,
    )


def audit_detail(lease: Lease) -> dict[str, Detail]:
    """Return the detail of a lease in the audit; `before` is the user's value, `after` that of the change."""
    detail: dict[str, Detail] = {
        "job_id": lease.job_id,
        "lever": str(lease.lever),
        "user": lease.user,
        "account": lease.account,
        "before": value_text(lease.undo, "after"),
        "after": value_text(lease.action, "after"),
        "added_delay_s": lease.added_delay_s,
    }
    if lease.due_time is not None:
        detail["due_time"] = lease.due_time
    if lease.planned_start is not None:
        detail["planned_start"] = lease.planned_start
    if lease.would_start_time is not None:
        detail["would_start_time"] = lease.would_start_time
    if lease.start_time is not None:
        detail["start_time"] = lease.start_time
    if lease.by_person:
        detail["by_person"] = 1
    if lease.lost:
        detail["lost"] = lease.lost
    return detail


def value_text(action: Action, name: str) -> str:
    """Return the `before` or the `after` of an action as short JSON."""
    value = _CODECS[action.lever].dump_python(action, mode="json")[name]
    return json.dumps(value, separators=(",", ":"))


@cache
def _requests() -> TypeAdapter[Request]:
    return TypeAdapter(Request)


@cache
def _outcomes() -> TypeAdapter[JobOutcome]:
    return TypeAdapter(JobOutcome)


def outcome_row(outcome: JobOutcome) -> tuple[int, float, float | None, str]:
    """Return an outcome as job, submit time, end time and JSON."""
    return outcome.job_id, outcome.submit_time, outcome.end_time, _outcomes().dump_json(outcome).decode()


def outcome_of(text: str) -> JobOutcome:
    """Return the outcome of a JSON text, without stops by earlier versions; raises `ValueError` if it is invalid."""
    return _outcomes().validate_json(_without_stops(text) if STOP_LEVER in text else text, strict=True)


def _without_stops(text: str) -> str:
    outcome = json.loads(text)
    if isinstance(outcome, dict) and isinstance(outcome.get("changes"), list):
        outcome["changes"] = [
            one for one in outcome["changes"] if not (isinstance(one, dict) and one.get("lever") == STOP_LEVER)
        ]
    return json.dumps(outcome)


@cache
def _stretches() -> TypeAdapter[Stretch]:
    return TypeAdapter(Stretch)


def stretch_row(stretch: Stretch) -> tuple[float, float, str]:
    """Return a stretch as anchor, end and JSON."""
    return stretch.anchor_time, stretch.until, _stretches().dump_json(stretch).decode()


@lru_cache(maxsize=64)
def stretch_of(text: str | bytes) -> Stretch:
    """Return the stretch of a JSON text; raises `ValueError` if it is invalid.

    Cached, since every cycle reads the stretches of a week.
    """
    return _stretches().validate_json(text, strict=True)
