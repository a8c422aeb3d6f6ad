"""Packs the records of cycles: all that is needed to plan a cycle again, as differences from the record before.

A record that is complete by itself is a frame; the records after it hold what changed since the one before. With ten
thousand jobs a frame has a few hundred kilobytes, and each record after it a few tens.
"""

import hashlib
import json
import zlib
from collections import deque
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import replace
from operator import attrgetter, itemgetter
from typing import Annotated, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, TypeAdapter
from pydantic_core import PydanticSerializationError

from advisor import __version__
from advisor.cycle import Cycle, CycleRecord
from advisor.domain.actions import Action, Lever, Reason
from advisor.domain.dataclass import dataclass
from advisor.domain.forecast import Forecasts, Interval, JobForecast, Placement, RunTime
from advisor.domain.job import Job
from advisor.domain.lease import Lease
from advisor.domain.memory import Memory, Wait
from advisor.domain.mode import Modes
from advisor.domain.node import Node
from advisor.domain.plan import Recommendation
from advisor.domain.probation import Trust
from advisor.domain.snapshot import Snapshot
from advisor.domain.standings import NO_STANDINGS, Standings
from advisor.features.policy import ScoredDecision
from advisor.journal.differences import Difference, difference, mapped, restored
from advisor.journal.rows import STOP_LEVER, LeaseRow, lease_of, lease_row, whole_row
from advisor.planning.plan_trial import NO_TRIAL, PlanTrial
from advisor.settings import Limits, PlanningSettings
from advisor.view.sentences import assumption, sentence

# Enough that frames take little of the space, few enough that a record is read quickly.
RECORDS_IN_FRAME: Final = 60
# The fastest: frames are so repetitive that higher levels gain little.
_LEVEL: Final = 1
# A larger record is damaged: a frame of 100,000 jobs has a tenth of it.
_MOST_BYTES: Final = 1 << 30
# Values of a list of nodes and of a stop that earlier versions had: GPU-time of a try, and the GPUs of a restart.
_REMOVED_VALUES: Final = frozenset({"explored_gpu_s", "gpus_after"})

ForecastRow = tuple[
    int,
    RunTime | None,
    Interval | None,
    tuple[tuple[Placement, Interval], ...],
    Interval | None,
    tuple[str, ...],
]


def _present_levers(levers: Sequence[str]) -> tuple[Lever, ...]:
    """Return the levers of a record without the one that earlier versions had."""
    return tuple(Lever(lever) for lever in levers if lever != STOP_LEVER)


class _Content(BaseModel):
    """A record as stored in the file; `site` is a snapshot without jobs and nodes.

    `site` and `standings` are None if they are unchanged.
    """

    model_config = ConfigDict(
        ser_json_inf_nan="constants", ser_json_bytes="base64", val_json_bytes="base64", defer_build=True
    )

    version: str
    taken_at: float
    site: Snapshot | None
    jobs: Difference[Job]
    nodes: Difference[Node]
    forecasts: Difference[ForecastRow]
    models: tuple[str, ...]
    notes: tuple[str, ...]
    outstanding: tuple[int, ...]
    waits: Difference[Wait]
    leases: Difference[Annotated[LeaseRow, BeforeValidator(whole_row)]]
    planning: PlanningSettings
    limits: Limits
    levers: Annotated[tuple[Lever, ...], BeforeValidator(_present_levers)]
    modes: Modes
    verdicts: str
    left_alone: Difference[tuple[int, str]]
    decisions: tuple[ScoredDecision, ...] = ()
    policy: str = ""
    policy_digest: str = ""
    on_probation: tuple[str, ...] = ()
    standings: Standings | None = None
    trial: PlanTrial = NO_TRIAL


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A recorded cycle: its input, its settings, and its outcome as canonical JSON.

    `policy` names the learned policy that decided, and `policy_digest` is that of its model; "" for the rules, and in
    records of earlier versions.
    """

    cycle_id: int
    version: str
    snapshot: Snapshot
    memory: Memory
    forecasts: Forecasts
    planning: PlanningSettings
    limits: Limits
    levers: frozenset[Lever]
    modes: Modes
    decisions: tuple[ScoredDecision, ...]
    policy: str
    policy_digest: str
    trial: PlanTrial
    outcome: bytes

    @property
    def digest(self) -> str:
        """The digest of the outcome."""
        return digest_of(self.outcome)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lists:
    """The parts of a record that the next one can share."""

    site: Snapshot | None = None
    jobs: tuple[Job, ...] = ()
    nodes: tuple[Node, ...] = ()
    forecasts: tuple[tuple[int, JobForecast], ...] = ()
    waits: tuple[Wait, ...] = ()
    leases: tuple[Lease, ...] = ()
    left_alone: tuple[tuple[int, str], ...] = ()
    standings: Standings = NO_STANDINGS


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """A record ready to be written, with the id of the cycle whose record is its frame."""

    frame: int
    content: bytes


class Recorder:
    """Packs consecutive records; after a fault between `packed` and `written` the next one is a frame."""

    def __init__(self) -> None:
        self._last: _Lists | None = None
        self._packed: _Lists | None = None
        self._frame = 0
        self._count = 0

    def forget(self) -> None:
        """Make the next record a frame."""
        self._last = self._packed = None

    def packed(self, cycle_id: int, record: CycleRecord, cycle: Cycle) -> Packed | None:
        """Pack a record; return None if it holds a text that is not Unicode."""
        last = self._last if self._count < RECORDS_IN_FRAME else None
        lists = _lists(record)
        try:
            content = zlib.compress(_content(record, cycle, last or _Lists(), lists).model_dump_json().encode(), _LEVEL)
        except (PydanticSerializationError, UnicodeEncodeError):
            self.forget()
            return None
        if last is None:
            self._frame, self._count = cycle_id, 0
        self._packed, self._count = lists, self._count + 1
        return Packed(frame=self._frame, content=content)

    def written(self) -> None:
        """Note that the record packed last is in the file."""
        self._last, self._packed = self._packed, None


def recorded(cycle_id: int, contents: Iterable[bytes]) -> Recorded:
    """Unpack the last record of `contents`, which starts with its frame; raises `ValueError` if they are damaged."""
    unrolled = deque(_unrolled(contents), maxlen=1)
    if not unrolled:
        raise ValueError("a record lacks its frame")
    return _recorded(cycle_id, *unrolled.pop())


def recorded_cycles(rows: Sequence[tuple[int, bytes]], wanted: Container[int]) -> Iterator[Recorded]:
    """Unpack the records of one frame, from it on, and yield those wanted; raises `ValueError` if one is damaged."""
    for (cycle_id, _), unrolled in zip(rows, _unrolled(content for _, content in rows), strict=True):
        if cycle_id in wanted:
            yield _recorded(cycle_id, *unrolled)


def _unrolled(contents: Iterable[bytes]) -> Iterator[tuple[_Content, _Lists]]:
    """Yield each record with the lists that follow from it and those before it."""
    lists, leases = _Lists(), tuple[LeaseRow, ...]()
    for packed in contents:
        content = _Content.model_validate_json(_unpacked(packed), strict=True)
        leases = restored(leases, content.leases)
        lists = _Lists(
            site=content.site or lists.site,
            jobs=restored(lists.jobs, content.jobs),
            nodes=restored(lists.nodes, content.nodes),
            forecasts=restored(lists.forecasts, mapped(content.forecasts, _forecast_of)),
            waits=restored(lists.waits, content.waits),
            leases=tuple(lease_of(row) for row in leases if row[1] != STOP_LEVER),
            left_alone=restored(lists.left_alone, content.left_alone),
            standings=lists.standings if content.standings is None else content.standings,
        )
        yield content, lists


def _recorded(cycle_id: int, content: _Content, lists: _Lists) -> Recorded:
    if lists.site is None:
        raise ValueError("a record lacks its frame")
    return Recorded(
        cycle_id=cycle_id,
        version=content.version,
        snapshot=replace(lists.site, taken_at=content.taken_at, jobs=lists.jobs, nodes=lists.nodes),
        memory=Memory(
            leases=lists.leases,
            waits=lists.waits,
            busy=frozenset(content.outstanding),
            # Whatever put a model on probation, its run times stay aside.
            trust=Trust(drifted=frozenset(content.on_probation)),
            standings=lists.standings,
        ),
        forecasts=Forecasts(
            by_job=dict(lists.forecasts),
            models=content.models,
            notes=content.notes,
            on_probation=content.on_probation,
        ),
        planning=content.planning,
        limits=content.limits,
        levers=frozenset(content.levers),
        modes=content.modes,
        decisions=content.decisions,
        policy=content.policy,
        policy_digest=content.policy_digest,
        trial=content.trial,
        outcome=_outcome(content.verdicts, lists.left_alone),
    )


def outcome_of(record: CycleRecord) -> bytes:
    """Return the outcome of a cycle as canonical JSON: its verdicts in order, and the jobs left alone."""
    return _outcome(_verdicts(record), _left_alone(record))


def removed_reasons(outcome: bytes) -> tuple[str, ...]:
    """Return the codes of reasons in a recorded outcome that this version does not have."""
    verdicts = json.loads(outcome)["verdicts"]
    return tuple(sorted({verdict["recommendation"]["reason"] for verdict in verdicts} - set(Reason)))


def present_outcome(outcome: bytes) -> bytes:
    """Return a recorded outcome without the empty values of actions that earlier versions wrote."""
    whole = json.loads(outcome)
    for verdict in whole["verdicts"]:
        action = verdict["recommendation"]["action"]
        for name in _REMOVED_VALUES & action.keys():
            if not action[name]:
                del action[name]
    verdicts = json.dumps(whole["verdicts"], sort_keys=True, separators=(",", ":"))
    return _outcome(verdicts, whole["left_alone"])


def digest_of(outcome: bytes) -> str:
    """Return the SHA-256 of an outcome."""
    return hashlib.sha256(outcome).hexdigest()


_ACTION: Final[TypeAdapter[Action]] = TypeAdapter(Action)


def _verdicts(record: CycleRecord) -> str:
    return json.dumps([_verdict(change) for change in record.judged], sort_keys=True, separators=(",", ":"))


def _verdict(change: Recommendation) -> dict[str, object]:
    """Return a judged recommendation as written down, with its sentences as this version words them."""
    recommendation = {
        "kind": change.kind,
        "action": _ACTION.dump_python(change.action, mode="json"),
        "reason": change.reason,
        "text": sentence(change),
        "expected": {**change.expected.decides, "assumes": assumption(change)},
        "evidence": change.evidence,
        "revert_after_s": change.revert_after_s,
    }
    # Two kinds of action may hold the same values, so the lever is stored beside them.
    return {"lever": change.action.lever, "recommendation": recommendation, "refused_by": change.refused_by}


def _left_alone(record: CycleRecord) -> tuple[tuple[int, str], ...]:
    return tuple(sorted(record.left_alone.items()))


def _outcome(verdicts: str, left_alone: Sequence[Sequence[int | str]]) -> bytes:
    return f'{{"left_alone":{json.dumps(left_alone, separators=(",", ":"))},"verdicts":{verdicts}}}'.encode()


def _lists(record: CycleRecord) -> _Lists:
    # Without the instant, so that an unchanged site compares equal.
    site = replace(record.snapshot, jobs=(), nodes=(), taken_at=0.0)
    return _Lists(
        site=site,
        jobs=record.snapshot.jobs,
        nodes=record.snapshot.nodes,
        forecasts=tuple(record.forecasts.by_job.items()),
        waits=record.memory.waits,
        leases=record.memory.leases,
        left_alone=_left_alone(record),
        standings=record.memory.standings,
    )


def _content(record: CycleRecord, cycle: Cycle, last: _Lists, lists: _Lists) -> _Content:
    """Return what changed since the last record, without validation, since all of it comes from the core."""
    return _Content.model_construct(
        version=__version__,
        taken_at=record.snapshot.taken_at,
        site=None if lists.site == last.site else lists.site,
        jobs=difference(last.jobs, lists.jobs, attrgetter("job_id")),
        nodes=difference(last.nodes, lists.nodes, attrgetter("name")),
        forecasts=mapped(difference(last.forecasts, lists.forecasts, itemgetter(0)), _forecast_row),
        models=record.forecasts.models,
        notes=record.forecasts.notes,
        outstanding=tuple(sorted(record.memory.outstanding)),
        waits=difference(last.waits, lists.waits, lambda wait: wait),
        leases=mapped(difference(last.leases, lists.leases, lambda lease: lease), lease_row),
        planning=cycle.planning,
        limits=cycle.limits,
        levers=tuple(sorted(cycle.levers)),
        modes=cycle.modes,
        verdicts=_verdicts(record),
        left_alone=difference(last.left_alone, lists.left_alone, itemgetter(0)),
        decisions=record.decisions,
        policy="" if cycle.policy is None else cycle.policy.name,
        policy_digest="" if cycle.policy is None else cycle.policy.digest,
        on_probation=record.forecasts.on_probation,
        standings=None if lists.standings == last.standings else lists.standings,
        trial=record.trial,
    )


def _forecast_row(item: tuple[int, JobForecast]) -> ForecastRow:
    job_id, forecast = item
    speeds = tuple(forecast.speed_by_placement.items())
    return job_id, forecast.run_time, forecast.start_s, speeds, forecast.inflation_beside, forecast.unknown


def _forecast_of(row: ForecastRow) -> tuple[int, JobForecast]:
    job_id, run_time, start_s, speeds, beside, unknown = row
    forecast = JobForecast(
        run_time=run_time, start_s=start_s, speed_by_placement=dict(speeds), inflation_beside=beside, unknown=unknown
    )
    return job_id, forecast


def _unpacked(content: bytes) -> bytes:
    unpacking = zlib.decompressobj()
    try:
        plain = unpacking.decompress(content, _MOST_BYTES)
    except zlib.error as err:
        raise ValueError(f"a record is damaged: {err}") from err
    if not unpacking.eof:
        raise ValueError("a record is cut short or too long")
    return plain
