"""Words what keeps Slurm from considering a job, with the numbers and the command that changes it."""

import math
import shlex
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from advisor.domain.dataclass import dataclass
from advisor.domain.diagnosis import Cause, Variant
from advisor.domain.job import Job
from advisor.domain.plan import Evidence
from advisor.domain.units import DAY_S, HOUR_S, MINUTE_S, duration, plural

Words = tuple[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class GateCase:
    """What keeps a job from being considered: the numbers behind it, the job, and the instant of the snapshot."""

    evidence: Mapping[str, Evidence]
    variant: Variant
    job: Job
    now: float

    def text(self, name: str) -> str:
        """Return a fact as text, "" where it is not known."""
        return str(self.evidence.get(name, ""))

    def number(self, name: str) -> int:
        """Return a fact as a whole number, 0 where it is not known."""
        return int(self.evidence.get(name, 0))

    def time(self, name: str) -> float | None:
        """Return a fact that is a time or a duration, None where it is not known."""
        return float(self.evidence[name]) if name in self.evidence else None


def moment(posix_s: float, now: float) -> str:
    """Return an instant in local time, with the date if half a day off, and how far off it is: `11:05 (in 2.0 h)`."""
    layout = "%H:%M" if abs(posix_s - now) < DAY_S / 2 else "%Y-%m-%dT%H:%M"
    off = duration(abs(posix_s - now))
    shown = time.strftime(layout, time.localtime(posix_s))
    return f"{shown} (in {off})" if posix_s >= now else f"{shown} ({off} ago)"


def slurm_time(seconds: float) -> str:
    """Return a time limit as Slurm takes it, rounded down to minutes: `1-06:00:00`."""
    minutes = math.floor(seconds / MINUTE_S)
    days, rest = divmod(minutes, round(DAY_S / MINUTE_S))
    hours, left = divmod(rest, round(HOUR_S / MINUTE_S))
    return f"{days}-{hours:02d}:{left:02d}:00" if days else f"{hours}:{left:02d}:00"


_ENDS: Final[Mapping[str, str]] = {
    "after": "to start",
    "afterany": "to end",
    "afterok": "to end without an error",
    "afternotok": "to fail",
    "aftercorr": "to end without an error, task by task",
    "afterburstbuffer": "to end and stage its data out",
    "singleton": "to end: a job of its name and user runs at a time",
}


def _dependency(gate: GateCase) -> Words:
    jobs = [gate.text(f"{state}_jobs") for state in ("failed", "running", "pending", "gone")]
    named = ", ".join(ids for ids in jobs if ids)
    if not named:
        return "it waits for the jobs it depends on", (*_seen_ends(gate), _without(gate))
    one_of = "one of " if "any_will_do" in gate.evidence else ""
    states = "; ".join(_states(gate))
    return f"it waits for {one_of}{_jobs(named)} {_ends(gate)}: {states}", (*_seen_ends(gate), _without(gate))


def _ends(gate: GateCase) -> str:
    # Several kinds have no entry of their own.
    return _ENDS.get(gate.text("kinds"), "to end as it requires")


def _states(gate: GateCase) -> Iterator[str]:
    if running := gate.text("running_jobs"):
        ends = gate.time("ends_time")
        until = "" if ends is None else f" until {moment(ends, gate.now)} at the latest"
        yield f"{_jobs(running)} {_verb(running, 'runs', 'run')}{until}"
    if pending := gate.text("pending_jobs"):
        yield f"{_jobs(pending)} {_verb(pending, 'has', 'have')} not started"
    if failed := gate.text("failed_jobs"):
        yield f"{_jobs(failed)} did not end so"
    if gone := gate.text("gone_jobs"):
        yield f"{_jobs(gone)} {_verb(gone, 'is', 'are')} no longer in the queue"


def _seen_ends(gate: GateCase) -> Iterator[str]:
    pending = gate.text("pending_jobs").partition(",")[0].partition(" ")[0]
    if pending:
        yield f"see why job {pending} has not started: sadvise explain {pending}"
    elif (ends := gate.time("ends_time")) is not None:
        yield f"wait: at the latest {duration(max(0.0, ends - gate.now))} until what it depends on has ended"
    else:
        yield "wait until the jobs it depends on have ended"


def _without(gate: GateCase) -> str:
    return f"the user, to start without them: scontrol update JobId={gate.job.job_id} Dependency="


def _jobs(ids: str) -> str:
    return f"job {ids}" if ids.isdecimal() else f"jobs {ids}"


def _verb(ids: str, one: str, several: str) -> str:
    return one if ids.isdecimal() else several


def _dependency_never(gate: GateCase) -> Words:
    job_id = gate.job.job_id
    failed = gate.text("failed_jobs") or gate.text("gone_jobs")
    on = _jobs(failed) if failed else "a job"
    text = f"it can never start: it needs {on} {_ends(gate)}, and that did not happen"
    return text, (
        f"the user: scontrol update JobId={job_id} Dependency= to start it all the same, or scancel {job_id}",
    )


def _partition_down(gate: GateCase) -> Words:
    names = gate.text("partitions").split(",")
    whose, are, start = ("partition", "is", "starts") if len(names) == 1 else ("partitions", "are", "start")
    text = f"{whose} {', '.join(names)} {are} not up, and {start} no jobs"
    name = shlex.quote(f"PartitionName={names[0]}")
    return text, (
        f"an operator: scontrol update {name} State=UP",
        f"the user: scontrol update JobId={gate.job.job_id} Partition=... if another one will do",
    )


def _partition_limit(gate: GateCase) -> Words:
    names, job_id = gate.text("partitions").replace(",", ", "), gate.job.job_id
    parts, remedies = [], []
    most_s, asked_s = gate.time("partition_max_time_s"), gate.time("time_limit_s")
    if most_s is not None and asked_s is not None:
        parts.append(f"{duration(asked_s)}, of which at most {duration(most_s)} are allowed")
        remedies.append(f"the user: scontrol update JobId={job_id} TimeLimit={slurm_time(most_s)}")
    if "partition_min_nodes" in gate.evidence:
        asked, least = gate.number("nodes_asked"), gate.number("partition_min_nodes")
        parts.append(f"at most {plural(asked, 'node')}, where each job takes at least {least}")
        remedies.append("the user: ask for more nodes (--nodes), or for another partition")
    elif "partition_max_nodes" in gate.evidence:
        asked, most = gate.number("nodes_asked"), gate.number("partition_max_nodes")
        parts.append(f"{plural(asked, 'node')}, of which at most {most} {'is' if most == 1 else 'are'} allowed")
        remedies.append("the user: ask for fewer nodes (--nodes), or for another partition")
    return f"it asks in partition {names} for {', and '.join(parts)}", tuple(remedies)


_OPTIONS: Final[Mapping[str, str]] = {
    "MaxTRESPJ": "MaxTRESPerJob",
    "MaxTRESPN": "MaxTRESPerNode",
    "MaxTRESPU": "MaxTRESPerUser",
    "MaxTRESPA": "MaxTRESPerAccount",
    "MaxTRESMinsPJ": "MaxTRESMinsPerJob",
    "MaxJobsPU": "MaxJobsPerUser",
    "MaxJobsPA": "MaxJobsPerAccount",
    "MaxWallPJ": "MaxWall",
}


def _limit(gate: GateCase) -> Words:
    """Word a limit of an association or a QOS; the commands are those of sacctmgr."""
    most, what = gate.number("most"), _Unit(gate.text("limit"), gate.text("tres"))
    raise_it = _raise_limit(gate)
    if "used" not in gate.evidence:
        asked = f"; this one asks for {what.amount(gate.number('asked'))}" if "asked" in gate.evidence else ""
        text = f"a job {_of_owner(gate)} may ask for {what.amount(most)} at most{what.each}{asked}"
        return text, (*_ask_for_less(gate), raise_it)
    asked = f", and this job asks for {what.amount(gate.number('asked'))}" if "asked" in gate.evidence else ""
    used = what.used(gate.number("used"))
    text = f"{_holder(gate)} {what.may} {what.amount(most)}{what.at_a_time} and {what.does} {used}{asked}"
    return text, (f"wait for jobs to end: squeue -t RUNNING {_squeue_filter(gate)}", raise_it)


@dataclass(frozen=True, slots=True)
class _Unit:
    """How a limit counts, by its name and its TRES."""

    name: str
    tres: str

    @property
    def is_wall(self) -> bool:
        return "Wall" in self.name

    @property
    def is_minutes(self) -> bool:
        return "Mins" in self.name

    @property
    def may(self) -> str:
        if "RunMins" in self.name:
            return "may hold"
        return "may run" if "Jobs" in self.name else "may use"

    @property
    def does(self) -> str:
        if "RunMins" in self.name:
            return "holds"
        if self.is_minutes or self.is_wall:
            return "has used"
        return "runs" if "Jobs" in self.name else "uses"

    @property
    def at_a_time(self) -> str:
        if "RunMins" in self.name:
            return " in running jobs"
        return "" if self.is_wall or self.is_minutes else " at a time"

    @property
    def each(self) -> str:
        return " on each node" if self.name.endswith("PN") else ""

    def used(self, count: int) -> str:
        """Return a number that is used, whose unit stands before it already."""
        return self.amount(count) if self.is_wall else str(count)

    def amount(self, count: int) -> str:
        """Return a number of what is limited."""
        if self.is_wall:
            return duration(count * MINUTE_S)
        kind = self.tres.rpartition(":")[2] if ":" in self.tres else ""
        noun = {"cpu": "CPU", "mem": "MiB", "billing": "billing unit", "": "job"}.get(self.tres, "GPU")
        minutes = "-minute" if self.is_minutes else ""
        words = f"{noun}{minutes}" if noun != "MiB" else noun
        named = f"{kind} {words}" if kind else words
        return f"{count} {named}" if noun == "MiB" else plural(count, named)


def _holder(gate: GateCase) -> str:
    qos, account, user = (gate.text(f"of_{owner}") for owner in ("qos", "account", "user"))
    if qos:
        holder = f"user {user}" if user else f"account {account}" if account else ""
        return f"{holder} in QOS {qos}" if holder else f"QOS {qos}"
    return f"user {user} in account {account}" if user else f"account {account}"


def _of_owner(gate: GateCase) -> str:
    return f"{'in' if gate.text('of_qos') else 'of'} {_holder(gate)}"


def _squeue_filter(gate: GateCase) -> str:
    qos, account, user = (gate.text(f"of_{owner}") for owner in ("qos", "account", "user"))
    filters = {"-q": qos, "-A": account, "-u": user}
    return " ".join(f"{option} {shlex.quote(name)}" for option, name in filters.items() if name)


def _raise_limit(gate: GateCase) -> str:
    qos, account, user = (shlex.quote(gate.text(f"of_{owner}")) for owner in ("qos", "account", "user"))
    name = gate.text("limit")
    option, tres = _OPTIONS.get(name, name), gate.text("tres")
    value = f"{option}={tres}=..." if tres else f"{option}=..."
    if gate.text("of_qos"):
        return f"an operator: sacctmgr modify qos {qos} set {value}"
    if gate.text("of_user"):
        return f"an operator: sacctmgr modify user {user} where account={account} set {value}"
    return f"an operator: sacctmgr modify account {account} set {value}"


def _ask_for_less(gate: GateCase) -> Iterator[str]:
    job_id, most = gate.job.job_id, gate.number("most")
    if gate.text("limit").startswith("MaxWall"):
        yield f"the user: scontrol update JobId={job_id} TimeLimit={slurm_time(most * MINUTE_S)}"
    else:
        yield f"waiting does not help; the user: scancel {job_id} and ask for what the limit allows"


def _licences(gate: GateCase) -> Words:
    name, asked = gate.text("licence"), gate.number("licences_asked")
    free = gate.number("licences_free")
    text = (
        f"it asks for {plural(asked, 'licence')} {name}, of which {free} of "
        f"{gate.number('licences_in_all')} {'is' if free == 1 else 'are'} free"
    )
    holders = f"squeue -t RUNNING -L {shlex.quote(name)}"
    if "licences_reserved" not in gate.evidence:
        return text, (f"wait for the jobs that hold them: {holders}",)
    reserved, end_time = gate.number("licences_reserved"), gate.time("end_time")
    by = f" (reservation {gate.text('reservations')})" if "reservations" in gate.evidence else ""
    until = "" if end_time is None else f" until {moment(end_time, gate.now)}"
    text += f"; {reserved} {'is' if reserved == 1 else 'are'} reserved{by}{until}"
    in_use = gate.number("licences_in_all") - free - reserved
    or_jobs = (f"or for the jobs that hold others: {holders}",) if in_use > 0 else ()
    return text, ("wait until the reservation ends: scontrol show reservation", *or_jobs)


def _reservation(gate: GateCase) -> Words:
    return _blocking(gate) if gate.variant is Variant.BLOCKING else _own(gate)


def _own(gate: GateCase) -> Words:
    name, job_id = gate.text("reservation"), gate.job.job_id
    start_time, end_time = gate.time("start_time"), gate.time("end_time")
    leave = f"the user, to start without it: scontrol update JobId={job_id} ReservationName="
    if start_time is None or end_time is None:
        return f"it asks for reservation {name}, which is not there", (leave,)
    nodes = plural(gate.number("nodes_reserved"), "node")
    if start_time > gate.now:
        text = f"it asks for reservation {name} ({nodes}), which begins at {moment(start_time, gate.now)}"
        return text, (f"wait for {duration(start_time - gate.now)}", leave)
    if end_time <= gate.now:
        return f"it asks for reservation {name}, which ended at {moment(end_time, gate.now)}", (leave,)
    text = f"it asks for reservation {name} ({nodes}), which runs until {moment(end_time, gate.now)}"
    return text, (f"wait for room in it: squeue -R {shlex.quote(name)}", leave)


def _blocking(gate: GateCase) -> Words:
    name, job_id = gate.text("reservation"), gate.job.job_id
    start_time, end_time = gate.time("start_time") or 0.0, gate.time("end_time") or 0.0
    limit_s, fits_s = gate.time("time_limit_s"), gate.time("time_limit_that_fits_s")
    kind = "maintenance reservation" if gate.number("is_maintenance") else "reservation"
    reserved, of_job = gate.number("nodes_reserved"), gate.number("nodes_of_job")
    nodes = f"all {of_job}" if reserved == of_job else f"{reserved} of the {of_job}"
    nodes = f"{nodes} nodes it can use" if of_job > 1 else "the node it can use"
    if not name:
        return f"a reservation takes {nodes}", ("see when it ends: scontrol show reservation",)
    wait = f"wait for its end at {moment(end_time, gate.now)}"
    if start_time <= gate.now:
        return f"{kind} {name} takes {nodes}, until {moment(end_time, gate.now)}", (wait,)
    limit = "it has no time limit" if limit_s is None else f"its limit of {duration(limit_s)} reaches into it"
    text = f"{kind} {name} takes {nodes} at {moment(start_time, gate.now)}; {limit}"
    # A minute less, as it does not start at once.
    shorter = slurm_time(max(0.0, (fits_s or 0.0) - MINUTE_S))
    if (fits_s or 0.0) < 2 * MINUTE_S:
        return text, (wait,)
    return text, (f"the user, to start before it: scontrol update JobId={job_id} TimeLimit={shorter}", wait)


# The sentence of each cause, and what would change it.
GATES: Final[Mapping[Cause, Callable[[GateCase], Words]]] = {
    Cause.DEPENDENCY: _dependency,
    Cause.DEPENDENCY_NEVER: _dependency_never,
    Cause.PARTITION_DOWN: _partition_down,
    Cause.PARTITION_LIMIT: _partition_limit,
    Cause.ASSOCIATION_LIMIT: _limit,
    Cause.QOS_LIMIT: _limit,
    Cause.LICENSES: _licences,
    Cause.RESERVATION: _reservation,
}
