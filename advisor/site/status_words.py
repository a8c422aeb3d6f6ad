"""Words how the daemon is doing: what it last did, what stops it, what is out, and why nothing happens."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from advisor.domain.dataclass import dataclass
from advisor.domain.lease import Lease
from advisor.domain.mode import Mode
from advisor.domain.probation import OrderLook
from advisor.domain.standings import Standing
from advisor.domain.units import duration, plural
from advisor.guard.breakers import OpenBreaker
from advisor.metrics.catalogue import PAUSED
from advisor.metrics.health import STALE_INTERVALS
from advisor.site.pause_file import Pause
from advisor.site.status_file import DaemonStatus, RoundCounts
from advisor.view.breaker_words import StopDocument, stop_document, stop_line
from advisor.view.gang_words import scattered_sentence, starved_sentence
from advisor.view.idle_words import idle_sentence
from advisor.view.standing_report import (
    StandingDocument,
    difference_words,
    mean_waits,
    standing_document,
    sure_words,
)
from advisor.view.terminal import instant

RUNNING: Final = "running"
STALE: Final = "stale"
NOT_RUNNING: Final = "not running"


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlook:
    """All that is known of a daemon now; None where it is not known.

    `last` is its last round, `runs` whether its process exists. `configured` is the farthest mode that the
    configuration allows. `next_due_time` is when the next change is due to be reverted. `last_day` compares the waits
    of the last 24 hours with those on plain Slurm. `notes` say what could not be read, and why.
    """

    now: float
    configured: Mode
    last: DaemonStatus | None
    runs: bool
    pause: Pause | None = None
    breakers: tuple[OpenBreaker, ...] = ()
    out: int | None = None
    next_due_time: float | None = None
    last_day: Standing | None = None
    notes: tuple[str, ...] = ()

    def with_leases(self, leases: Iterable[Lease]) -> "Overlook":
        """Return the same with the changes that are in effect."""
        out = [lease for lease in leases if lease.is_in_effect]
        due = min((lease.due_time for lease in out if lease.due_time is not None), default=None)
        return replace(self, out=len(out), next_due_time=due)

    @property
    def mode(self) -> Mode:
        """The farthest mode in force: that of the last round, or what the configuration allows while no daemon runs."""
        return self.configured if self.last is None or not self.runs else self.last.mode

    @property
    def state(self) -> str:
        """Whether the daemon runs, and its rounds are done."""
        if self.last is None or not self.runs:
            return NOT_RUNNING
        return STALE if self.now - self.last.started_time > STALE_INTERVALS * self.last.interval_s else RUNNING

    @property
    def stops(self) -> tuple[str, ...]:
        """What keeps the daemon from applying, a line for each, the pause first."""
        found = [] if self.pause is None else [pause_line(self.pause)]
        found += [stop_line(breaker) for breaker in self.breakers]
        known = {PAUSED, *(breaker.name for breaker in self.breakers)}
        held_to = {} if self.last is None else self.last.held_to
        return (*found, *(reason for cause, reason in held_to.items() if cause not in known))

    @property
    def is_well(self) -> bool:
        """Whether rounds are done, nothing due or unknown stays out, and nothing but a person stops the daemon."""
        last = self.last
        if last is None or self.state != RUNNING or last.fault or last.overdue or last.strays:
            return False
        return not self.breakers and last.held_to.keys() <= {PAUSED}


def idle_reason(seen: Overlook) -> str:
    """Return why the last round changed nothing, and what to do; "" if it changed something."""
    last = seen.last
    if last is None or seen.state == NOT_RUNNING:
        return "no daemon runs; to do: `systemctl status sadvised`"
    if seen.state == STALE:
        return f"no round since {duration(seen.now - last.started_time)}; to do: `journalctl -u sadvised`"
    if last.planned is None or last.fault:
        return last.fault or "the last round read nothing"
    if last.planned.sent:
        return ""
    if seen.stops:
        return seen.stops[0]
    return _by_mode(last.mode, last.planned) or _by_plan(last.planned)


def state_sentence(seen: Overlook) -> str:
    """Return in one line what stops the daemon, or why nothing was changed, or that all is well."""
    return "; ".join(seen.stops) or idle_reason(seen) or "well"


def _by_mode(mode: Mode, planned: RoundCounts) -> str:
    match mode:
        case Mode.OBSERVE:
            return "mode observe proposes nothing; to do: set default in [mode] to recommend"
        case Mode.RECOMMEND:
            changes = plural(planned.recommended, "change")
            return f"mode recommend sends nothing: {changes} recommended; to do: `sadvise recommend` shows them"
        case Mode.APPLY:
            return ""


def _by_plan(planned: RoundCounts) -> str:
    if not planned.pending_gpu_jobs:
        return "no GPU job waits"
    if planned.held_back:
        return f"{plural(planned.held_back, 'change')} held back for now; to do: `sadvise journal changes` says why"
    jobs = plural(planned.pending_gpu_jobs, "GPU job")
    alone = f", {planned.left_alone} of them left alone by a rule" if planned.left_alone else ""
    refused = f", {plural(planned.refused, 'proposal')} refused by a rule" if planned.refused else ""
    return f"no change would help: {jobs} waiting{alone}{refused}; to do: `sadvise explain JOBID`"


def lines(seen: Overlook) -> Iterator[tuple[str, str]]:
    """Yield labels and sentences for people."""
    last = seen.last
    if last is None:
        yield "daemon", seen.state
    else:
        age = duration(max(0.0, seen.now - last.started_time))
        every = duration(last.interval_s)
        yield "daemon", f"{seen.state}, pid {last.pid}, sadvise {last.version}; last round {age} ago, one every {every}"
    in_force = "" if last is None or last.mode is seen.configured else f", {last.mode} in force"
    yield "mode", f"{seen.configured}{in_force}"
    for stop in seen.stops:
        yield "stopped", stop
    if last is not None:
        yield "round", _round_words(last)
        for model, why in last.on_probation.items():
            yield "probation", why if why.startswith(model) else f"{model}: {why}"
        if last.run_time_order is not None and last.run_time_order.model not in last.on_probation:
            yield "order", order_line(last.run_time_order)
    if seen.out is not None:
        due = "" if seen.next_due_time is None else f"; the next is taken back at {instant(seen.next_due_time)}"
        yield "out", f"{plural(seen.out, 'change')} in effect{due}"
    if last is not None and last.overdue:
        yield "overdue", f"{plural(last.overdue, 'change')} should have been taken back; to do: `sadvise revert --all`"
    if last is not None and last.strays:
        jobs = ", ".join(map(str, last.strays))
        yield "strays", f"lifts that the journal does not know, on jobs {jobs}; to do: `sadvise revert --strays`"
    yield from _further_lines(seen)
    for note in seen.notes:
        yield "unread", note


def _further_lines(seen: Overlook) -> Iterator[tuple[str, str]]:
    """Yield the lines that depend on the state: notices, the gain of the last day, and why nothing happens."""
    if seen.last is not None and seen.last.settings:
        yield "settings", seen.last.settings
    if seen.last is not None and seen.last.failing_nodes:
        yield "nodes", f"{seen.last.failing_nodes}, in 7 days; `sadvise check` has the commands to drain them"
    if seen.last is not None and seen.last.idle is not None:
        yield "GPUs", idle_sentence(seen.last.idle, seen.now)
    if seen.last is not None and seen.last.gangs is not None:
        sentences = {"starved": starved_sentence(seen.last.gangs), "fragments": scattered_sentence(seen.last.gangs)}
        yield from ((label, text) for label, text in sentences.items() if text)
    if seen.last is not None and seen.last.undelivered:
        yield "notices", f"not delivered: {seen.last.undelivered}; to do: `sadvise notify --test`"
    if seen.last_day is not None and seen.last_day.jobs:
        waits = f"in all {difference_words(seen.last_day.difference_s)}{sure_words(seen.last_day)}"
        yield "last 24 h", f"{mean_waits(seen.last_day)}; {waits}"
    if seen.last is not None and seen.last.asleep:
        yield "asleep", "; ".join(f"{lever}, because {missing}" for lever, missing in seen.last.asleep.items())
    if reason := idle_reason(seen):
        yield "idle", reason


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeDocument:
    """The farthest mode that the configuration allows, and the one in force in the last round, None without one."""

    configured: Mode
    in_force: Mode | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusDocument:
    """The state of the daemon as published."""

    state: str
    is_well: bool
    mode: ModeDocument
    paused: Pause | None
    breakers: tuple[StopDocument, ...]
    stopped_by: tuple[str, ...]
    last_round: DaemonStatus | None
    out: int | None
    next_take_back_time: float | None
    last_24_h: StandingDocument | None
    idle_reason: str | None
    notes: tuple[str, ...]


def status_document(seen: Overlook) -> StatusDocument:
    """Return all of it as published."""
    last = seen.last
    return StatusDocument(
        state=seen.state,
        is_well=seen.is_well,
        mode=ModeDocument(configured=seen.configured, in_force=None if last is None else last.mode),
        paused=seen.pause,
        breakers=tuple(map(stop_document, seen.breakers)),
        stopped_by=tuple(seen.stops),
        last_round=last,
        out=seen.out,
        next_take_back_time=seen.next_due_time,
        last_24_h=None if seen.last_day is None else standing_document(seen.last_day),
        idle_reason=idle_reason(seen) or None,
        notes=tuple(seen.notes),
    )


def order_line(look: OrderLook) -> str:
    """Return one line about how a run-time model orders the jobs of the site: the shares, and since when."""
    return f"{look.model} {look.order.words}, at {instant(look.looked_time)}"


def pause_line(pause: Pause) -> str:
    """Return one line about a pause: who, why, since when, and what ends it."""
    return f"{pause.text}, since {instant(pause.since_time)}; to do: `sadvise resume`"


def _round_words(last: DaemonStatus) -> str:
    planned = last.planned
    if planned is None:
        return f"not done: {last.fault or 'nothing was read'}"
    fault = f"; {last.fault}" if last.fault else ""
    return (
        f"{plural(planned.jobs, 'job')} of {planned.cluster or 'this cluster'}, {planned.pending_gpu_jobs} GPU jobs "
        f"waiting: {planned.recommended} recommended, {planned.sent} sent, {planned.held_back} held back, "
        f"{planned.taken_back} taken back, in {last.duration_s:.1f} s{fault}"
    )
