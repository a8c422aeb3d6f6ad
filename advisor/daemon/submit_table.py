"""Writes the table by which `slurm/sadvise_lift.lua` gives jobs a nice at submission, and adopts the jobs that got one.

A job that holds a value of the table becomes an open lease at first sight, as if a round had lifted it.
"""

import math
import pwd
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from advisor.config import Config
from advisor.cycle import CycleRecord
from advisor.domain.actions import Lever, Reason, SetNice
from advisor.domain.dataclass import dataclass
from advisor.domain.job import Job
from advisor.domain.lease import Lease, LeaseState, intended
from advisor.domain.mark import is_marked
from advisor.domain.mode import Mode
from advisor.domain.request import request_of
from advisor.domain.snapshot import Snapshot
from advisor.domain.units import MINUTE_S
from advisor.files import EVERYONE, read_bounded, replace_file
from advisor.guard.job_rules import LARGEST_LOCAL_ID
from advisor.journal import SqliteJournal
from advisor.planning.interactive import INTERACTIVE_FIRST, InteractiveRoom, interactive_rooms
from advisor.planning.newcomers import Bound, Ladder, Newcomers, newcomers

# For how long the script follows a table after it was written.
VALID_S: Final = 300
# The most bytes that the script reads, users whose bounds fit in, and lifts by one table.
MOST_BYTES: Final = 131_072
_MOST_BOUNDS: Final = 1000
_MOST_LIFTS: Final = 100
# The clocks of the machines can differ by this.
_CLOCK_S: Final = 5.0
# Bounds are rounded in the table.
_ROUNDED: Final = 1.01
_GROWN: Final = "asks for more than a job that gets this nice at its submission"
_FORMAT: Final = "sadvise submit table 1"
_NAME: Final = re.compile(r"[\w.+-]{1,60}", re.ASCII)
_LARGEST: Final = 1e15
_PARTITION: Final = re.compile(
    r"partition (?P<name>[\w.+-]{1,60}) (?P<nice>-\d{1,10}) (?P<step>[1-9]\d{0,9}) (?P<classes>\d{1,2})",
    re.ASCII,
)
_BOUND: Final = re.compile(
    r"bound (?P<name>[\w.+-]{1,60}) \S{1,20} (?P<gpu_s>\d{1,20}\.\d{1,6}) (?P<share>\d{1,2}\.\d{1,6})", re.ASCII
)
_WHEN: Final = re.compile(r"(?P<key>written|valid) (?P<time>\d{1,11})", re.ASCII)
_ROOM: Final = re.compile(r"room (?P<pool>\d{1,5}) (?P<nice>-\d{1,10}) (?P<minutes>\d{1,7}) (?P<gpus>\d{1,7}) \d{1,7}")
_INTERACTIVE: Final = re.compile(r"interactive (?P<name>[\w.+-]{1,60}) (?P<pool>\d{1,5})", re.ASCII)
_EVENT: Final = "submit_table"
_PURPOSE: Final = f"lifted at submission, by the submit table: it should start next ({Reason.SHORT_WORK_FIRST})"
_PURPOSE_OF_INTERACTIVE: Final = (
    "lifted at submission, as it is interactive: it stands first, and in simulations half of such jobs start within "
    f"3 min where jobs end often ({INTERACTIVE_FIRST})"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """The nice values that jobs submitted within some time can have got, by partition.

    `most_gpu_s` is the most GPUs times the time limit that any user's job could have for one.
    """

    written_time: float
    valid_until: float
    ladders: Mapping[str, Ladder]
    most_gpu_s: Mapping[str, float]
    rooms: Sequence[InteractiveRoom] = ()

    def explains(self, job: Job) -> bool:
        """Return whether the nice of a job can come from this table."""
        in_time = self.written_time - _CLOCK_S <= job.submit_time <= self.valid_until + _CLOCK_S
        is_of_ladder = any(name in self.ladders and self.ladders[name].holds(job.nice) for name in job.partitions)
        return in_time and (is_of_ladder or self.room_of(job) is not None)

    def room_of(self, job: Job) -> InteractiveRoom | None:
        """Return the room from which an interactive job got its nice; None for other jobs."""
        rooms = (
            room for room in self.rooms if job.nice == room.nice and not set(job.partitions).isdisjoint(room.partitions)
        )
        return next(rooms, None)

    def covers(self, job: Job) -> bool:
        """Return whether a job that it explains is no larger than it can have been at its submission."""
        if (room := self.room_of(job)) is not None:
            return room.covers(job)
        gpus, limit_s = job.gang.gpu_count, job.time_limit_s
        if gpus is None or limit_s is None:
            return False
        return any(
            gpus * limit_s <= _ROUNDED * self.most_gpu_s.get(name, math.inf) / 2**size_class
            for name in job.partitions
            if name in self.ladders and (size_class := self.ladders[name].class_of(job.nice)) is not None
        )


class SubmitTables:
    """The tables that a daemon has written lately, also the last one of the daemon before it."""

    def __init__(self) -> None:
        """Begin without a table."""
        # The numbers of users, each looked up until it is known: a directory service can fail for a while.
        self._uid_by_user: dict[str, int] = {}
        self._given: list[Given] = []
        self._path: Path | None = None
        self._fault = ""

    def adopt(self, config: Config, journal: SqliteJournal, snapshot: Snapshot) -> None:
        """Open the leases of the pending jobs that got their nice at submission; raises `JournalError`."""
        self._follow(config.daemon.submit_table)
        leases = tuple(self._adopted(journal, snapshot, config.planning.lift_lease_s)) if self._given else ()
        if leases:
            nices = {room.nice for given in self._given for room in given.rooms}
            with journal.together():
                for lease in leases:
                    journal.keep(lease)
                    journal.keep(replace(lease, state=LeaseState.OUT))
                    purpose = _PURPOSE_OF_INTERACTIVE if lease.action.after in nices else _PURPOSE
                    journal.adopted(snapshot.taken_at, (lease.action,), purpose)
        self._given = [given for given in self._given if given.valid_until + _CLOCK_S >= snapshot.taken_at]

    def publish(self, config: Config, journal: SqliteJournal, record: CycleRecord, *, applies: bool) -> None:
        """Write the table after a round, or remove it while no change can be made; a failure is in the audit."""
        if self._path is None:
            return
        fault = ""
        try:
            table = table_of(config, record) if applies else ()
            rooms = rooms_of(config, record) if applies else ()
            if table or rooms:
                self._write(self._path, table, rooms, config, record.snapshot)
            else:
                self._path.unlink(missing_ok=True)
        except OSError as err:
            fault = f"{self._path}: {err.strerror}"
        if fault and fault != self._fault:
            journal.note(record.snapshot.taken_at, _EVENT, {"said": fault})
        self._fault = fault

    def _follow(self, path: str) -> None:
        """Use the table at another path, or none; what stands there is from the daemon before."""
        now = Path(path) if path else None
        if now == self._path:
            return
        if self._path is not None:
            self._path.unlink(missing_ok=True)
        self._path = now
        earlier = None if now is None else _read(now)
        if earlier is not None:
            self._given.append(earlier)

    def _adopted(self, journal: SqliteJournal, snapshot: Snapshot, lease_s: float) -> Iterator[Lease]:
        jobs = [
            job
            for job in snapshot.pending
            if job.nice < 0
            and is_marked(job.nice)
            and not job.cron
            and snapshot.shows(job, Lever.NICE)
            and any(given.explains(job) for given in self._given)
        ]
        if not jobs:
            return
        known = (*journal.leases(), *journal.closed({job.job_id for job in jobs}))
        changed = {lease.job_id for lease in known if lease.lever is Lever.NICE}
        for job in sorted(jobs, key=lambda job: job.job_id):
            if job.job_id not in changed:
                action = SetNice(job_id=job.job_id, before=0, after=job.nice)
                lease = intended(
                    action,
                    snapshot.taken_at,
                    after_s=lease_s,
                    job=action.swapped().applied_to(job),
                    request=request_of(job),
                )
                is_covered = any(given.explains(job) and given.covers(job) for given in self._given)
                yield lease if is_covered else replace(lease, lost=_GROWN)

    def _write(
        self,
        path: Path,
        table: Sequence[Newcomers],
        rooms: Sequence[InteractiveRoom],
        config: Config,
        snapshot: Snapshot,
    ) -> None:
        written_time = math.floor(snapshot.taken_at)
        given = Given(
            written_time=written_time,
            valid_until=written_time + VALID_S,
            ladders={arriving.partition: arriving.ladder for arriving in table},
            most_gpu_s={
                arriving.partition: max(bound.limit_gpu_s for bound in (arriving.others, *arriving.bounds.values()))
                for arriving in table
            },
            rooms=rooms,
        )
        content = "".join(f"{line}\n" for line in self._lines(given, table, config, snapshot))
        # Before the table is there: a job can get a value of it at once.
        self._given.append(given)
        replace_file(path, content.encode("ascii"), mode=EVERYONE)

    def _lines(self, given: Given, table: Sequence[Newcomers], config: Config, snapshot: Snapshot) -> list[str]:
        lines = [
            _FORMAT,
            f"written {given.written_time:.0f}",
            f"valid {given.valid_until:.0f}",
            f"lifts {min(config.planning.lift_places, _MOST_LIFTS)}",
            *(f"default {part.name}" for part in snapshot.partitions if part.is_default and _NAME.fullmatch(part.name)),
            *(f"exclude {account}" for account in sorted(config.mode.accounts_below(Mode.APPLY))),
        ]
        for arriving in table:
            name, ladder = arriving.partition, arriving.ladder
            lines.append(f"partition {name} {ladder.nice} {ladder.step} {ladder.classes}")
            lines.append(f"bound {name} * {_decimals(arriving.others)}")
            lines += [f"bound {name} {uid} {_decimals(bound)}" for uid, bound in self._bounds(arriving, len(table))]
        for pool, room in enumerate(given.rooms):
            lines.append(f"room {pool} {room.nice} {room.limit_s // MINUTE_S:.0f} {room.gpus} {room.user_gpus}")
            lines += [f"held {pool} {uid} {gpus}" for uid, gpus in self._held(room)]
            lines += [f"interactive {name} {pool}" for name in room.partitions]
        return [*lines, f"end {len(lines)}"]

    def _bounds(self, arriving: Newcomers, tables: int) -> Iterator[tuple[int, Bound]]:
        """Yield the bounds of users whose numbers are known, once each; users beyond the most have that of others."""
        by_uid = {self._uid_of(user): bound for user, bound in sorted(arriving.bounds.items(), reverse=True)}
        known = ((uid, bound) for uid, bound in by_uid.items() if uid is not None)
        yield from sorted(known, key=lambda entry: entry[0])[: _MOST_BOUNDS // tables]

    def _held(self, room: InteractiveRoom) -> Iterator[tuple[int, int]]:
        """Yield the GPUs of users whose numbers are known, by number; those with most where there are too many."""
        by_uid = {self._uid_of(user): gpus for user, gpus in sorted(room.held.items(), reverse=True)}
        known = [(uid, gpus) for uid, gpus in by_uid.items() if uid is not None]
        yield from sorted(sorted(known, key=lambda entry: -entry[1])[:_MOST_BOUNDS])

    def _uid_of(self, user: str) -> int | None:
        """Return the number of a user; None where this machine does not know the name."""
        if user not in self._uid_by_user:
            try:
                self._uid_by_user[user] = pwd.getpwnam(user).pw_uid
            except (KeyError, ValueError):
                return None
        return self._uid_by_user[user]


def table_of(config: Config, record: CycleRecord) -> tuple[Newcomers, ...]:
    """Return the nice values of the partitions whose jobs a round can lift."""
    if not _can_lift(config, record.snapshot):
        return ()
    arriving = newcomers(record.snapshot, config.planning, config.guard, record.forecasts.counted, record.memory)
    return tuple(each for each in arriving if _is_lifted(each.partition, config, record.snapshot))


def rooms_of(config: Config, record: CycleRecord) -> tuple[InteractiveRoom, ...]:
    """Return what is left for interactive jobs in the partitions whose jobs a round can change."""
    snapshot = record.snapshot
    if not _can_lift(config, snapshot):
        return ()
    rooms = (
        replace(room, partitions=tuple(name for name in room.partitions if _is_lifted(name, config, snapshot)))
        for room in interactive_rooms(snapshot, config.guard)
    )
    return tuple(room for room in rooms if room.partitions)


def _can_lift(config: Config, snapshot: Snapshot) -> bool:
    """Return whether the script can know all jobs that are left alone, and a revert can reach all that are lifted."""
    # In a federation a job can start on another cluster, which a revert does not reach.
    federated = any(job.job_id > LARGEST_LOCAL_ID for job in snapshot.jobs)
    return not federated and all(_NAME.fullmatch(account) for account in config.mode.accounts_below(Mode.APPLY))


def _is_lifted(partition: str, config: Config, snapshot: Snapshot) -> bool:
    return (
        _NAME.fullmatch(partition) is not None
        and config.mode.of_partition(partition) is Mode.APPLY
        and config.experiment.against_change(snapshot.taken_at, (partition,)) is None
    )


def _decimals(bound: Bound) -> str:
    return f"{min(bound.gpu_s, _LARGEST):.3f} {bound.used_limit_ratio:.6f}"


def _read(path: Path) -> Given | None:
    """Return the nice values of the table in a file; None where there is none, or it is damaged."""
    try:
        lines = read_bounded(path, MOST_BYTES).decode("ascii").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    return _given(lines) if lines[:1] == [_FORMAT] else None


def _given(lines: Iterable[str]) -> Given | None:
    times: dict[str, float] = {}
    ladders: dict[str, Ladder] = {}
    most_gpu_s: dict[str, float] = {}
    rooms: dict[str, InteractiveRoom] = {}
    for line in lines:
        if when := _WHEN.fullmatch(line):
            times[when["key"]] = float(when["time"])
        elif match := _PARTITION.fullmatch(line):
            ladders[match["name"]] = Ladder(**{key: int(match[key]) for key in ("nice", "step", "classes")})
        elif match := _BOUND.fullmatch(line):
            bound = Bound(gpu_s=float(match["gpu_s"]), used_limit_ratio=float(match["share"]))
            most_gpu_s[match["name"]] = max(most_gpu_s.get(match["name"], 0.0), bound.limit_gpu_s)
        elif match := _ROOM.fullmatch(line):
            nice, minutes, gpus = (int(match[key]) for key in ("nice", "minutes", "gpus"))
            rooms[match["pool"]] = InteractiveRoom(
                partitions=(), nice=nice, limit_s=minutes * MINUTE_S, gpus=gpus, user_gpus=gpus, held={}
            )
        elif (match := _INTERACTIVE.fullmatch(line)) and (room := rooms.get(match["pool"])) is not None:
            rooms[match["pool"]] = replace(room, partitions=(*room.partitions, match["name"]))
    if not times.keys() >= {"written", "valid"}:
        return None
    return Given(
        written_time=times["written"],
        valid_until=times["valid"],
        ladders=ladders,
        most_gpu_s=most_gpu_s,
        rooms=tuple(rooms.values()),
    )
