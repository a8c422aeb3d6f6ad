"""Plays the adversary, its twin and honest users on a live cluster with the daemon, and takes all back now and then."""

import random
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Final

from advisor.domain.actions import Lever
from advisor.domain.lease import Ending, LeaseState
from tools.live_adversary.gambits import GPUS_PER_NODE, MOST_RUN_S, NODES, draw_form, draw_gambit
from tools.live_adversary.trial import GambitTrial, Player, ShownJob, records_of
from tools.live_adversary.verdict import (
    ROUNDS_TO_ACT,
    GambitOutcome,
    InLine,
    LatenessBound,
    LateWatch,
    WaitingLine,
    known_at,
)
from tools.stage import LiveCluster, uniform_cluster
from tools.stage.daemon import daemon, end_daemon, revert_all, write_config
from tools.stage.program import Every, passing
from tools.stage.roots import LiveSlurmError
from tools.stage.watch import leases_of, rounds_of, touched

HONEST_USERS: Final = ("news", "man", "lp", "root")
# Equal priorities, so that the order of submission is that of the site.
PRIORITY: Final = ("PriorityWeightAge=0", "PriorityWeightJobSize=0", "PriorityWeightPartition=50000")
BACKLOG: Final = 16
MOST_TRIALS: Final = 14
TRIAL_EVERY_S: Final = 3.5
# No trial begins in the last part of a run, so that those before can start.
LAST_RATIO: Final = 0.8
POLL_S: Final = 0.3
LOOK_S: Final = 1.0
WATCH_S: Final = 4.0
MINUTE_S: Final = 60.0
# Slurm holds a requeued job back for as long as its credential lives.
CREDENTIAL_S: Final = 20
TWIN_INTERVAL_S: Final = 20.0
LATENESS_S: Final = 120.0
# What a round takes beside the interval.
ROUND_S: Final = 3.0
REVERTS_IN_TEN_MINUTES: Final = 6
MOST_REVERTS: Final = 3
AGAIN_S: Final = 10.0
END_S: Final = 20.0


def adversary_cluster(release: str) -> LiveCluster:
    """Return the cluster of a run, not yet started."""
    return uniform_cluster(
        release, NODES, gpus_per_node=GPUS_PER_NODE, extra_lines=PRIORITY, cred_expire_s=CREDENTIAL_S
    )


@dataclass(kw_only=True)
class AdversaryRun:
    """Holds what a run left: pairs, lifts, reverts and waits; `faults` are the promises that did not hold."""

    release: str
    version: str = ""
    outcomes: list[GambitOutcome] = field(default_factory=list)
    commands: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    honest_jobs: int = 0
    lifted: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)
    reverts: int = 0
    reverts_again: int = 0
    reverted: int = 0
    left_alone: int = 0
    judged_jobs: int = 0
    later: int = 0
    latest_s: float = 0.0
    longest_pause_s: float = 0.0
    late: int = 0
    passed: int = 0
    faults: list[str] = field(default_factory=list)


class AdversaryPlay:
    """A run on one cluster."""

    def __init__(self, live: LiveCluster, seed: int, interval_s: float, folder: Path) -> None:
        self._live, self._interval_s, self._folder = live, interval_s, folder
        self._chance = random.Random(seed)
        self._run = AdversaryRun(release=live.release, version=live.version)
        self._trials: list[GambitTrial] = []
        self._open: list[GambitTrial] = []
        # Jobs of users who play no part, and for the order of starts those of both sides.
        self._guests: dict[int, InLine] = {}
        self._shown: Sequence[ShownJob] = ()
        self._lives = 0
        self._config = write_config(
            folder,
            interval_s,
            {
                "guard": {"max_lateness_s": LATENESS_S, "max_added_delay_s": LATENESS_S},
                "daemon": {"twin_interval_s": TWIN_INTERVAL_S},
                # Each revert here is that of an administrator.
                "breakers": {"max_objections": 1_000_000},
            },
        )
        self._journal = folder / "journal.sqlite"
        self._watch = LateWatch(self._journal)

    def run(self, minutes: float) -> AdversaryRun:
        """Play for some minutes, and return what came of it."""
        length_s = minutes * MINUTE_S
        count = max(2, round(REVERTS_IN_TEN_MINUTES * minutes / 10.0))
        instants = sorted(self._chance.uniform(0.15, 0.95) * length_s for _ in range(count))
        looks, watches, trials = Every(LOOK_S), Every(WATCH_S), Every(TRIAL_EVERY_S)
        with ExitStack() as stack:
            process = self._daemon(stack)
            for passed_s in passing(length_s, POLL_S):
                if process.poll() is not None:
                    self._run.faults.append(f"the daemon ended by itself with {process.returncode}")
                    break
                if looks.is_due(passed_s):
                    self._look()
                if watches.is_due(passed_s):
                    self._watch.look(time.time())
                wants = len(self._open) < MOST_TRIALS and passed_s < LAST_RATIO * length_s
                if wants and self._is_full() and trials.is_due(passed_s):
                    self._begin()
                self._play()
                if instants and passed_s >= instants[0]:
                    instants.pop(0)
                    if self._chance.random() < 0.5:
                        self._end(process)
                    # Kills it if it still runs.
                    stack.close()
                    self._take_back(process)
                    process = self._daemon(stack)
            self._end(process)
            self._take_back(process)
        self._sum_up(time.time())
        return self._run

    def _daemon(self, stack: ExitStack) -> subprocess.Popen[bytes]:
        self._lives += 1
        log = self._folder / f"log{self._lives}"
        return stack.enter_context(daemon(self._live, self._config, log))

    def _is_full(self) -> bool:
        """Whether as many honest jobs wait as are to wait."""
        return sum(record.is_pending and record.job_id in self._guests for record in self._shown) >= BACKLOG / 2

    def _play(self) -> None:
        """Let the honest users submit, and the adversary act."""
        waiting = sum(guest.start_time is None for guest in self._guests.values() if guest.name.startswith("honest"))
        if waiting < BACKLOG:
            form, user = draw_form(self._chance), self._chance.choice(HONEST_USERS)
            job_id = self._live.submit(*form.options(), script=f"sleep {form.run_s}", user=user)
            self._guests[job_id] = InLine(name=f"honest-{job_id}", job_id=job_id, submit_time=time.time())
            self._run.honest_jobs += 1
        for trial in self._open:
            self._run.commands += trial.act(self._live, self._shown, time.time())

    def _begin(self) -> None:
        earlier = self._chance.choice([record.job_id for record in self._shown] or [1])
        try:
            trial = GambitTrial.begun(self._live, draw_gambit(self._chance), earlier, self._chance, time.time())
        except LiveSlurmError as err:
            # What was submitted of it stays as a job like others.
            self._run.refused[str(err)] += 1
            return
        self._trials.append(trial)
        self._open.append(trial)
        for player, job_ids in trial.jobs.items():
            # Nice values of the adversary and tasks of arrays say nothing about the order of jobs.
            if "nice" not in trial.gambit.tricks and trial.gambit.final.tasks == 1:
                for job_id in job_ids:
                    name = f"{player}-{job_id}"
                    self._guests[job_id] = InLine(name=name, job_id=job_id, submit_time=trial.submit_time)

    def _look(self) -> None:
        shown = self._live.run("env", "SLURM_TIME_FORMAT=%s", "scontrol", "-o", "show", "job")
        self._shown = tuple(records_of(shown))
        for record in self._shown:
            guest = self._guests.get(record.job_id)
            if guest is not None and record.start_time is not None:
                guest.start_time = guest.start_time or record.start_time
        for trial in self._open:
            trial.look(self._shown)
        self._open = [trial for trial in self._open if not trial.is_over]

    def _take_back(self, process: subprocess.Popen[bytes]) -> None:
        """Have everything taken back while the adversary goes on, and check that nothing of ours is left."""
        self._end(process)
        self._run.reverts += 1
        found = ""
        for attempt in range(MOST_REVERTS):
            if attempt:
                self._run.reverts_again += attempt == 1
                for _ in passing(AGAIN_S, LOOK_S):
                    self._go_on_once()
            found = self._revert()
            if not found:
                return
        self._run.faults.append(f"after {MOST_REVERTS} times revert --all: {found}")

    def _go_on_once(self) -> None:
        self._look()
        self._play()

    def _revert(self) -> str:
        """Run `sadvise revert --all`, and return what is wrong after it, "" for nothing."""
        reverted = revert_all(self._live, self._config, self._go_on_once)
        if reverted.fault:
            return reverted.fault
        self._run.reverted += len(reverted.changes)
        self._look()
        left = [record for record in self._shown if record.is_pending and record.nice < 0]
        still_out = [lease for lease in leases_of(self._journal) if lease.ending is None]
        # An intent that Slurm did not confirm stays open for a while; nothing of it is in effect, as the nice shows.
        settled = (LeaseState.HANDS_OFF, LeaseState.INTENDED)
        wrong = [f"job {record.own_id} has nice {record.nice}" for record in left]
        wrong += [f"still out: {lease}" for lease in still_out if lease.state not in settled]
        return "; ".join(wrong)

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        if process.poll() is None:
            self._run.faults += end_daemon(process, END_S, any_status=True)

    def _sum_up(self, until: float) -> None:
        run, window_s = self._run, self._interval_s + ROUND_S
        run.outcomes = [trial.outcome(window_s, until) for trial in self._trials]
        for trial in self._trials:
            run.refused.update(text.partition(": ")[2] for text in trial.refused)
        owner = {
            job_id: str(player)
            for trial in self._trials
            for player, job_ids in trial.jobs.items()
            for job_id in job_ids
        }
        for lease in touched(leases_of(self._journal)):
            if lease.lever is Lever.NICE:
                run.lifted[owner.get(lease.job_id, "honest")] += 1
            if lease.lost and lease.ending is Ending.TAKEN_BACK:
                run.lost[owner.get(lease.job_id, "honest")] += 1
        run.faults += self._waits(until)
        if not run.lifted[Player.ADVERSARY]:
            run.faults.append("no job of the adversary was lifted, so that the run shows nothing")

    def _waits(self, until: float) -> Iterator[str]:
        """Yield whose wait passed the bound: jobs of others by more than it takes until their GPUs come free.

        The time in which no round ran, as on a machine that starts the daemon slowly, is beside that.
        """
        run, bound = self._run, LatenessBound.of(LATENESS_S)
        round_s = self._interval_s + ROUND_S
        grace_s = 2 * MOST_RUN_S + TWIN_INTERVAL_S + ROUNDS_TO_ACT * round_s
        rounds = rounds_of(self._journal)
        run.longest_pause_s = max((after - before for before, after in pairwise(rounds)), default=0.0)
        leases = leases_of(self._journal)
        # The daemon leaves a job alone, late or not, whose change an administrator had reverted.
        alone = {lease.job_id for lease in leases if lease.by_person}
        others = {
            guest.name: guest
            for guest in self._guests.values()
            if not guest.name.startswith(Player.ADVERSARY) and guest.job_id not in alone
        }
        run.left_alone = len(alone)
        for guest in others.values():
            end = guest.start_time or until
            known = known_at(self._watch.known.get(guest.job_id, ()), end)
            if known is None:
                continue
            run.judged_jobs += 1
            due = bound.due_time(known, guest.submit_time)
            beyond_s = end - due
            run.later += beyond_s > 0.0
            run.latest_s = max(run.latest_s, beyond_s)
            allowed_s = grace_s + paused_s(rounds, due, end, round_s)
            if beyond_s > allowed_s:
                yield f"{guest.name} started {beyond_s:.0f} s later than the bound, more than {allowed_s:.0f} s"
        line = WaitingLine(
            jobs=list(self._guests.values()),
            leases=leases,
            rounds=rounds,
            known=self._watch.known,
            bound=bound,
        )
        late_run = line.late_run(until)
        run.late = sum(name in others for name in late_run.late)
        for late, other in late_run.passed:
            if late in others:
                run.passed += 1
                yield f"{other} stood above {late}, which was late, and started before it"


def paused_s(rounds: Sequence[float], since: float, until: float, round_s: float) -> float:
    """Return for how long no round ran between two instants, beyond what passes from one to the next."""
    return sum(
        max(0.0, min(after, until) - max(before, since) - round_s)
        for before, after in pairwise(rounds)
        if before < until and after > since
    )
