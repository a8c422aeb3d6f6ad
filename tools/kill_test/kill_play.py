"""A random run against a live cluster: users, administrators, the advisor, and kill -9; and what must then hold."""

import random
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from advisor.apply.applier import Applier
from advisor.backends.actuator import ScontrolActuator
from advisor.backends.commands import apply_argv
from advisor.backends.named_jobs import NamedJobs
from advisor.backends.process import SlurmCommands
from advisor.backends.site_reader import SiteReader
from advisor.backends.sources import open_source
from advisor.clock import SystemClock
from advisor.config import Config
from advisor.daemon.submit_table import SubmitTables
from advisor.domain.actions import Action, Lever, NodeRange, SetNice, SizeRequest
from advisor.domain.job import Job
from advisor.domain.lease import Ending, Lease, LeaseState
from advisor.domain.snapshot import Snapshot
from advisor.files import replace_file
from advisor.journal import SqliteJournal, locked, opened
from advisor.planning.observing import observed
from advisor.planning.pins import pin_of
from advisor.settings import DaemonSettings, Fairness, Limits
from tools.kill_test.points import Aim, DeadlyActuator, DeadlyCommands, Points, aimed, deadly_journal, in_a_child
from tools.kill_test.proposing import MINUTE_S, RandomCycle, Value, change_of, field_of
from tools.stage import LiveCluster, uniform_cluster
from tools.stage.arrivals import RANGE, SPREAD
from tools.stage.conf_files import MEMORY_PER_CPU_MIB
from tools.stage.submit_scripts import install_scripts

NODES: Final = 4
TIMEOUT_S: Final = 30.0
PENDING_WANTED: Final = 16
# One GPU of each node is left, on which a gang of four could start if it were not held to one node.
FILLER: Final = ("--time=00:40:00", "--gres=gpu:a100:7", "-n7", "--requeue")
ARRIVALS: Final = (
    ("--time=1-00:00:00", *RANGE.options),
    ("--time=1-00:00:00", "-N1-3", "--gpus=a100:4", "-n4"),
    ("--time=1-00:00:00", *SPREAD.options),
    ("--time=12:00:00", "-N1", "--gpus=a100:8", "-n1", "--comment=sadvise: gpus=1-8 ckpt=300"),
    ("--time=06:00:00", "-N1", "--gres=gpu:a100:4", "-n4"),
    ("--time=00:10:00", "--gpus=a100:4", "-n4"),
    ("--time=01:00:00", "-N1", "--gpus=a100:2", "-n1"),
)
# The submit script holds gangs of an open node count to one node, and lets short jobs stand first, as interactive ones.
SITE: Final = """return {{
  pin_gangs = true, gpus_per_node = {{ default = 8 }}, submit_table = "{table}", notebooks = {{ "gpu" }},
}}
"""
FIRST_NICE: Final = -1_999_999_997
FAIRNESS: Final[tuple[Fairness, ...]] = ("trade", "lane")
ORDINARY: Final = "games"
# What a user asks for under a lease: a limit in minutes, or memory for each CPU in MiB; submitted were up to a day
# and 1000 MiB.
REQUESTS: Final = ("TimeLimit=120", "TimeLimit=300", "TimeLimit=2880", "MinMemoryCPU=500", "MinMemoryCPU=2000")


def kill_cluster(release: str) -> LiveCluster:
    """Return the cluster, not yet started, that the kill test plays on."""
    return uniform_cluster(release, NODES)


@dataclass
class KillTally:
    """Counts what was done, and what was found after each kill, by fault point."""

    kills: Counter[str] = field(default_factory=Counter)
    intents: Counter[str] = field(default_factory=Counter)
    took_effect: Counter[str] = field(default_factory=Counter)
    returns: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)
    refused: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


class KillPlay:
    """The run: `truth` is what users and administrators last left in each field of each job."""

    def __init__(self, live: LiveCluster, journal: Path, seed: int) -> None:
        self.live = live
        self.path = journal
        self.chance = random.Random(seed)
        self.tally = KillTally()
        self.truth: dict[tuple[int, Lever], Value] = {}
        self.users: dict[int, str] = {}
        # What people did to each job and what Slurm answered, so that a fault can be understood.
        self.people: dict[int, list[str]] = {}
        # Requeued, and not seen pending by the advisor since: until then the values they came back with have no owner.
        self.back: set[int] = set()
        # Slurm shows the lower end of a node range for both once it requeued the job, and from 24.11 on once
        # slurmctld was restarted.
        self.ends_hidden: set[int] = set()
        # What the submit script left in a field, which is no change of ours until the advisor knows of it.
        self.scripted: dict[tuple[int, Lever], Value] = {}
        self.table = live.folder / "submit-table"
        self.source = open_source("text", cluster=None, timeout_s=TIMEOUT_S, clock=SystemClock())

    def run(self, kills: int, *, restarts: int = 0) -> KillTally:
        """Fill the cluster, play until as many kills were survived, take everything back, and return what was found."""
        self._write_table()
        install_scripts(self.live, SITE.format(table=self.table))
        for _ in range(NODES):
            self.live.submit(*FILLER)
        self.live.wait_for(lambda: self.live.count("RUNNING") == NODES, 60.0, what="the nodes are full")
        every = kills // (restarts + 1)
        snapshot = self._people_act(self.source.snapshot())
        while sum(self.tally.kills.values()) < kills and not self.tally.faults:
            snapshot = self._one_life(snapshot)
            if restarts and sum(self.tally.kills.values()) >= every * (self.tally.events["restart of slurmctld"] + 1):
                self._restart_controller()
            if self.chance.random() < 0.6:
                snapshot = self._people_act(self.source.snapshot())
        if not self.tally.faults:
            self._revert_all()
        return self.tally

    def _one_life(self, snapshot: Snapshot) -> Snapshot:
        """Let the advisor work until it dies or is done, start it again, and return the cluster as it then is."""
        aim = aimed(self.chance, self.tally.kills)
        work = self.chance.choices(("step", "revert one", "revert --all", "return due", "leave"), (16, 2, 1, 2, 1))[0]
        if self.chance.random() < 0.5:
            self._let_leases_expire()
        if self.chance.random() < 0.2:
            self._person_changes(snapshot)
        if self.chance.random() < 0.4:
            self._request_changes(snapshot)
        fate = in_a_child(lambda points: self._advise(work, snapshot, points), aim)
        self.tally.events[work] += 1
        if fate.error:
            self.tally.faults.append(f"{work}, aimed at {aim.point}: {fate.error}")
            return snapshot
        if fate.killed:
            self.tally.kills[aim.point] += 1
        return self._start_again(aim, fate.killed)

    def _advise(self, work: str, snapshot: Snapshot, points: Points) -> None:
        """Do one round of the advisor, in the child."""
        commands = DeadlyCommands(inner=SlurmCommands(timeout_s=TIMEOUT_S), points=points)
        with locked(self.path):
            # Closed by the end of the child, which is what a kill leaves, too.
            journal = deadly_journal(self.path, points)
            site = SiteReader(commands.inner, SystemClock())
            applier = replace(
                self._applier(journal),
                actuator=DeadlyActuator(inner=ScontrolActuator(commands), points=points),
                named=NamedJobs(commands.inner, SystemClock(), site),
            )
            match work:
                case "step":
                    SubmitTables().adopt(Config(daemon=DaemonSettings(submit_table=str(self.table))), journal, snapshot)
                    applier.step(snapshot)
                case "revert one":
                    owned = [lease.job_id for lease in journal.leases()]
                    applier.revert(applier.leased(), self.chance.sample(owned, min(1, len(owned))))
                case "revert --all":
                    applier.revert(applier.leased())
                case "return due":
                    applier.return_due(snapshot.taken_at)
                case _:
                    applier.leave(applier.leased())

    def _applier(self, journal: SqliteJournal) -> Applier:
        return Applier(
            source=self.source,
            actuator=ScontrolActuator(SlurmCommands(timeout_s=TIMEOUT_S)),
            cycle=RandomCycle(
                limits=Limits(min_job_age_s=0.0, fairness=self.chance.choice(FAIRNESS)),
                chance=random.Random(self.chance.getrandbits(32)),
                most=12,
            ),
            journal=journal,
            observe=observed,
        )

    def _start_again(self, aim: Aim, killed: bool) -> Snapshot:
        """Open the journal as a new process would, and check that it and Slurm agree before and after reconciling."""
        self._check_file()
        with opened(self.path) as journal:
            snapshot = self.source.snapshot()
            found = journal.leases()
            self._check(snapshot, found, journal, settled=False)
            # Every command has ended, so none can still take effect.
            step = replace(self._applier(journal), grace_s=0.0).reconcile(snapshot)
            if step.taken_back:
                snapshot = self.source.snapshot()
            left = journal.leases()
            self._check(snapshot, left, journal, settled=True)
        if killed:
            intents = [lease for lease in found if lease.state is LeaseState.INTENDED]
            out = {(lease.job_id, lease.lever, lease.action.after) for lease in left}
            self.tally.intents[aim.point] += len(intents)
            self.tally.took_effect[aim.point] += sum(
                (lease.job_id, lease.lever, lease.action.after) in out for lease in intents
            )
            self.tally.returns[aim.point] += sum(lease.state is LeaseState.RETURNING for lease in found)
        return snapshot

    def _check(self, snapshot: Snapshot, leases: tuple[Lease, ...], journal: SqliteJournal, *, settled: bool) -> None:
        """Every field of every pending job holds what its user left there, or what an open lease says."""
        owned = {(lease.job_id, lease.lever): lease for lease in leases}
        for job in snapshot.jobs:
            if not job.is_pending or (not settled and job.job_id in self.back):
                continue
            for lever in Lever:
                theirs = self.truth.get((job.job_id, lever), _UNKNOWN)
                lease = owned.get((job.job_id, lever))
                held = field_of(job, lever)
                if theirs is not _UNKNOWN and not self._explained(job, lever, held, theirs, lease, settled=settled):
                    self._fault(job, lever, held, theirs, lease, journal, settled=settled)
        if settled:
            self.tally.faults.extend(_kept_though_larger(snapshot, leases))
            # One that is still completing comes back later.
            self.back -= {job.job_id for job in snapshot.jobs if job.is_pending}
            # A job that started just before its change was to be taken back is found to have done so by the next round.
            unsettled = [
                lease
                for lease in leases
                if lease.state in (LeaseState.INTENDED, LeaseState.RETURNING)
                and lease.job_id in snapshot.jobs_by_id
                and snapshot.jobs_by_id[lease.job_id].is_pending
            ]
            self.tally.faults.extend(f"still unknown after a restart: {lease}" for lease in unsettled)

    def _explained(
        self, job: Job, lever: Lever, held: Value, theirs: Value, lease: Lease | None, *, settled: bool
    ) -> bool:
        def same(one: Value, other: Value) -> bool:
            if job.job_id in self.ends_hidden and isinstance(one, NodeRange) and isinstance(other, NodeRange):
                return one.low == other.low
            return one == other

        if lease is None or lease.state is LeaseState.HANDS_OFF:
            return same(held, theirs) or same(held, self.scripted.get((job.job_id, lever)))
        if settled:
            # A person who set both ends of a range alike is found to have done so once the hold is to be taken back.
            unclear = held != lease.action.after and lease.action.can_hold(job, lease.action.after)
            return (unclear and held == theirs) or (same(held, lease.action.after) and same(lease.undo.after, theirs))
        # A change just overruled is still open as ours, until the next look.
        return any(same(held, value) for value in (theirs, lease.action.after, lease.action.before))

    def _fault(
        self,
        job: Job,
        lever: Lever,
        held: Value,
        theirs: Value,
        lease: Lease | None,
        journal: SqliteJournal,
        *,
        settled: bool,
    ) -> None:
        history = [f"{past.ending} {past.action}" for past in journal.closed([job.job_id]) if past.lever is lever]
        self.tally.faults.append(
            f"job {job.job_id} {lever} {'after' if settled else 'before'} reconciling: holds {held}, its user left "
            f"{theirs}, lease {lease}, before that {history[-3:]}, people did {self.people.get(job.job_id, [])[-12:]}"
        )

    def _check_file(self) -> None:
        """The file is whole, to the last page."""
        if not self.path.exists():
            return
        with closing(sqlite3.connect(self.path)) as database:
            (verdict,) = database.execute("PRAGMA integrity_check").fetchone()
        if verdict != "ok":
            self.tally.faults.append(f"the journal is damaged: {verdict}")

    def _let_leases_expire(self) -> None:
        """Shift the end of some leases into the past, as time would."""
        with opened(self.path) as journal:
            for lease in journal.leases():
                if lease.state is LeaseState.OUT and self.chance.random() < 0.5:
                    journal.keep(replace(lease, due_time=lease.applied_time))
                    self.tally.events["expiry"] += 1

    def _people_act(self, snapshot: Snapshot) -> Snapshot:
        """Let users and administrators do what they do, and return the cluster after it."""
        pending = [job for job in snapshot.jobs if job.is_pending and job.job_id in self.users]
        arrived = [self._submit() for _ in range(min(4, max(0, PENDING_WANTED - len(pending))))]
        if self.chance.random() < 0.7:
            self._person_changes(snapshot)
        if self.chance.random() < 0.6:
            self._request_changes(snapshot)
        if self.chance.random() < 0.15 and pending:
            cancelled = self.chance.choice(pending).job_id
            self._did(cancelled, "scancel", str(cancelled), event="user cancels")
        running = [job for job in snapshot.jobs if job.state.name == "RUNNING"]
        if self.chance.random() < 0.12 and running:
            # Jobs that waited under a lease are requeued as often as all others together.
            waited = [job for job in running if job.job_id in self.users]
            job = self.chance.choice(waited if waited and self.chance.random() < 0.5 else running)
            if self.chance.random() < 0.5:
                self._did(job.job_id, "scancel", str(job.job_id), event="a job ends and others start")
            elif self._did(job.job_id, "scontrol", "requeue", str(job.job_id), event="requeue"):
                self.back.add(job.job_id)
                self.ends_hidden.add(job.job_id)
                self._keeps_lowered_limit(job)
        after = self.source.snapshot()
        for job in after.jobs:
            if job.job_id in arrived:
                self.truth |= {(job.job_id, lever): field_of(job, lever) for lever in Lever}
                self._note_script(job)
        return after

    def _note_script(self, job: Job) -> None:
        """Take note of what the submit script wrote into a job that has arrived, and of what its user left there."""
        pin = pin_of(job)
        given: list[Action] = [] if pin is None else [pin]
        given += [SetNice(job_id=job.job_id, before=0, after=job.nice)] if job.nice == FIRST_NICE else []
        for action in given:
            self.truth[job.job_id, action.lever] = action.before
            self.scripted[job.job_id, action.lever] = action.after
            self.tally.events[f"{action.lever} by the submit script"] += 1

    def _write_table(self) -> None:
        """Write the submit table, as the daemon does in each round.

        It explains the jobs of earlier tables as well: a daemon remembers those, the child of a round does not.
        """
        now = int(time.time())
        body = (
            "sadvise submit table 1",
            *(f"written {now - 300}", f"valid {now + 300}", "lifts 20", "default gpu"),
            *(f"room 0 {FIRST_NICE} 480 64 64", "interactive gpu 0"),
        )
        replace_file(self.table, "".join(f"{line}\n" for line in (*body, f"end {len(body)}")).encode())

    def _keeps_lowered_limit(self, job: Job) -> None:
        """Take note of the limit to which Slurm lowered that of a job with TimeMin at its start: a requeue keeps it."""
        theirs = self.truth.get((job.job_id, Lever.GPU_COUNT))
        if isinstance(theirs, SizeRequest) and theirs.gpus == job.gang.per_job and job.time_min_s is not None:
            self.truth[job.job_id, Lever.GPU_COUNT] = replace(theirs, time_limit_s=job.time_limit_s)

    def _submit(self) -> int:
        self._write_table()
        user = self.chance.choice(("root", ORDINARY))
        job_id = self.live.submit(*self.chance.choice(ARRIVALS), user=user)
        self.users[job_id] = user
        self.tally.events["arrival"] += 1
        return job_id

    def _person_changes(self, snapshot: Snapshot) -> None:
        """Let the user of a job, or an administrator, change one of its fields."""
        known = {job_id for job_id, _ in self.truth}
        pending = [job for job in snapshot.jobs if job.is_pending and job.job_id in known]
        if not pending:
            return
        job = self.chance.choice(pending)
        lever = self.chance.choice(tuple(Lever))
        action = change_of(job, lever, self.chance)
        if action is None or (job.job_id in self.ends_hidden and lever is Lever.NODE_RANGE) or self._is_out(action):
            return
        by_user = self.chance.random() < 0.5
        user = self.users[job.job_id] if by_user else None
        if not self._did(
            job.job_id, *apply_argv(action), user=user, event="user change" if by_user else "admin change"
        ):
            return
        if self.live.state_of(job.job_id) == "PENDING":
            self.truth[job.job_id, lever] = action.after
        else:
            # For a job that has started Slurm ends well and leaves some fields as they were.
            self.truth.pop((job.job_id, lever), None)

    def _request_changes(self, snapshot: Snapshot) -> None:
        """Let a user ask for more or less for a job whose lease favours it."""
        favoured, sized = self._leased_jobs()
        jobs = [
            job
            for job in snapshot.jobs
            if job.is_pending and job.job_id in favoured - sized and (job.job_id, Lever.GPU_COUNT) in self.truth
        ]
        if not jobs:
            return
        job, words = self.chance.choice(jobs), self.chance.choice(REQUESTS)
        argv = ("scontrol", "update", f"JobId={job.job_id}", words)
        name, _, value = words.partition("=")
        amount = float(value)
        theirs = self.truth[job.job_id, Lever.GPU_COUNT]
        before_min = (job.time_limit_s or 0.0) / MINUTE_S if name == "TimeLimit" else MEMORY_PER_CPU_MIB
        event = f"{name} {'grows' if amount > before_min else 'shrinks'} under a lease"
        if not self._did(job.job_id, *argv, user=self.users[job.job_id], event=event):
            return
        if name == "TimeLimit" and isinstance(theirs, SizeRequest):
            if self.live.state_of(job.job_id) == "PENDING":
                self.truth[job.job_id, Lever.GPU_COUNT] = replace(theirs, time_limit_s=amount * MINUTE_S)
            else:
                self.truth.pop((job.job_id, Lever.GPU_COUNT), None)

    def _leased_jobs(self) -> tuple[set[int], set[int]]:
        """Return the jobs with a lease that favours them, and those with one on what they ask for."""
        with opened(self.path) as journal:
            leases = [lease for lease in journal.leases() if lease.state is not LeaseState.HANDS_OFF]
        return (
            {lease.job_id for lease in leases if lease.favours},
            {lease.job_id for lease in leases if lease.lever is Lever.GPU_COUNT},
        )

    def _is_out(self, action: Action) -> bool:
        """Return whether the advisor has set the same value: a change by a person would look alike.

        A job that started with a value of ours, and was requeued, has it again.
        """
        with opened(self.path) as journal:
            started = (lease for lease in journal.closed({action.job_id}) if lease.ending is Ending.NO_LONGER_PENDING)
            return any(
                (lease.job_id, lease.lever, lease.action.after) == (action.job_id, action.lever, action.after)
                for lease in (*journal.leases(), *started)
            )

    def _did(self, job_id: int, *argv: str, event: str, user: str | None = None) -> bool:
        answer = self.live.ask(*argv, user=user)
        done = answer.returncode == 0
        output = " ".join(answer.stderr.split())
        self.people.setdefault(job_id, []).append(f"{' '.join(argv)} -> {answer.returncode} {output}".rstrip())
        self.tally.events[event if done else f"{event}, refused"] += 1
        if not done:
            self.tally.refused.append(f"{' '.join(argv)}: {output}")
        return done

    def _restart_controller(self) -> None:
        self.live.stop_controller()
        self.live.start_controller()
        self.tally.events["restart of slurmctld"] += 1
        if self.live.release != "22.05":
            self.ends_hidden |= self.users.keys()

    def _revert_all(self) -> None:
        """Take everything back, after which every pending job is as its user left it."""
        with opened(self.path) as journal:
            replace(self._applier(journal), grace_s=0.0).revert(self.source.snapshot())
            left = [lease for lease in journal.leases() if lease.state is not LeaseState.HANDS_OFF]
            self.tally.faults.extend(f"still open after revert --all: {lease}" for lease in left)
            self._check(self.source.snapshot(), journal.leases(), journal, settled=True)
            closed = journal.closed([], since=0.0)
            self.tally.events["lease reverted for a person"] = sum(lease.ending is Ending.REVERTED for lease in closed)
            of_script = (lease for lease in closed if (lease.job_id, lease.lever) in self.scripted)
            self.tally.events.update(f"lease of {lease.lever} by the submit script" for lease in of_script)


_UNKNOWN: Final = object()


def _kept_though_larger(snapshot: Snapshot, leases: tuple[Lease, ...]) -> Iterator[str]:
    """Yield the pending jobs that keep a lease that favours them with a longer limit than it was given for."""
    sized = {lease.job_id for lease in leases if lease.lever is Lever.GPU_COUNT}
    for lease in leases:
        job = snapshot.jobs_by_id.get(lease.job_id)
        if job is None or not job.is_pending or lease.request is None or lease.job_id in sized:
            continue
        if not lease.favours or lease.state is not LeaseState.OUT:
            continue
        given_s, asked_s = lease.request.time_limit_s, job.time_limit_s
        if given_s is not None and (asked_s is None or asked_s > given_s):
            yield f"job {job.job_id} asks for {asked_s} s, for {given_s} s when it was changed, and keeps {lease}"
