"""Plays the jobs on both clusters, with the daemon on one of them, and collects what came of it."""

import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from advisor.settings import Fairness
from tools.live_twins.both_clusters import Twin, Twins, line_of
from tools.live_twins.checks import TwinFacts
from tools.live_twins.twin_actors import Adversary, AttackPlace, KeptSnapshots, LimitLifter
from tools.live_twins.twin_jobs import MINUTE_S, TwinRequest, draw_jobs, draw_requests
from tools.stage.actors import Every, passing
from tools.stage.daemon import Table, daemon, write_config
from tools.stage.end import end_daemon
from tools.stage.lateness import Known, LatenessBound, LateWatch, WaitingLine
from tools.stage.watch import leases_of, rounds_of

Policy = Literal["default", "lift", "none"]
# Jobs arrive in this share of the run, and have the rest to start.
ARRIVALS_RATIO: Final = 0.5
POLL_S: Final = 0.25
LOOK_S: Final = 2.0
END_S: Final = 20.0
# The shortest that the daemon takes.
TWIN_INTERVAL_S: Final = 60.0
# Jobs are so short that little can be saved; and gangs so sensitive, places so frequent, that waiting for one pays.
# Timers are not tried first, so that their promises are put to the test too.
PLANNING: Final[Table] = {
    "rollout_deadline_s": 0.0,
    "min_saving_s": 20.0,
    "leaf_inflation": 4.0,
    "spine_inflation": 8.0,
    "node_timer_s": 30.0,
    "leaf_timer_s": 60.0,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TwinOptions:
    """The options of a run: until its time is over, or where `jobs` is given until all of those have ended.

    `lateness_s` is the daemon's bound on lateness, None for its default.
    """

    policy: Policy
    minutes: float
    seed: int
    adversary: AttackPlace | None
    attack_gpus: tuple[int, ...]
    interval_s: float
    bound_s: float
    tolerance_s: float
    fairness: Fairness = "trade"
    jobs: int | None = None
    run_scale: float = 1.0
    lateness_s: float | None = None

    def settings(self) -> Mapping[str, Table]:
        """Return the tables of the daemon's configuration."""
        guard: Table = {"fairness": self.fairness, "max_added_delay_s": self.bound_s}
        if self.lateness_s is None:
            return {"guard": guard, "planning": PLANNING}
        return {
            "guard": {**guard, "max_lateness_s": self.lateness_s},
            "daemon": {"twin_interval_s": TWIN_INTERVAL_S},
            "planning": PLANNING,
        }

    def requests(self) -> list[TwinRequest]:
        """Return the jobs to submit, in the order of their submission."""
        if self.jobs is None:
            return draw_requests(self.seed, ARRIVALS_RATIO * self.minutes * MINUTE_S)
        return draw_jobs(self.seed, self.jobs, self.run_scale)


@dataclass(frozen=True, slots=True, kw_only=True)
class TwinOutcome:
    """Holds what a run left, the attacks made and left out, and what went wrong with the daemon."""

    facts: TwinFacts
    attacks: int
    attacks_left_out: int
    lifts: int
    faults: tuple[str, ...]
    known: Mapping[int, Sequence[Known]]


def play(twins: Twins, options: TwinOptions, folder: Path, past: KeptSnapshots | None = None) -> TwinOutcome:
    """Run to the end, with journal, configuration and log of the daemon in a folder; `past` takes snapshots."""
    journal = folder / "journal.sqlite"
    place, sizes = options.adversary, options.attack_gpus
    adversary = None if place is None else Adversary(twins, journal, place, sizes)
    lifter = LimitLifter(twins) if options.policy == "lift" else None
    actors = [actor for actor in (lifter, past) if actor is not None]
    watch = LateWatch(journal)
    with _policy(twins, options, folder) as process:
        _watch(twins, options, adversary, actors, watch, process)
        twins.look()
        until = time.time()
        problems = () if process is None else tuple(end_daemon(process, END_S))
    leases, rounds = leases_of(journal), rounds_of(journal)
    line = WaitingLine(
        jobs=line_of(twins.pairs),
        leases=leases,
        rounds=rounds,
        known=watch.known,
        bound=LatenessBound.of(options.lateness_s),
    )
    return TwinOutcome(
        facts=TwinFacts(
            pairs=twins.pairs,
            leases=leases,
            rounds=rounds,
            until=until,
            late_run=line.late_run(until),
            bound_s=options.bound_s,
            tolerance_s=options.tolerance_s,
        ),
        attacks=0 if adversary is None else adversary.attacks,
        attacks_left_out=0 if adversary is None else adversary.left_out,
        lifts=0 if lifter is None else lifter.changes,
        faults=problems,
        known=watch.known,
    )


@contextmanager
def _policy(twins: Twins, options: TwinOptions, folder: Path) -> Iterator[subprocess.Popen[bytes] | None]:
    """Run the daemon on the advised cluster for a block with the policy `default`."""
    if options.policy != "default":
        yield None
        return
    config = write_config(folder, options.interval_s, options.settings())
    with daemon(twins.clusters[Twin.ADVISED], config, folder / "log") as process:
        yield process


def _watch(
    twins: Twins,
    options: TwinOptions,
    adversary: Adversary | None,
    actors: Sequence[LimitLifter | KeptSnapshots],
    watch: LateWatch,
    process: subprocess.Popen[bytes] | None,
) -> None:
    """Submit jobs as they are due, attack, and follow what starts, until the run or the daemon has ended."""
    due = options.requests()[::-1]
    looks = Every(LOOK_S)
    for passed_s in passing(options.minutes * MINUTE_S, POLL_S, process):
        while due and due[-1].submit_s <= passed_s:
            twins.submit(due.pop(), time.time())
        if looks.is_due(passed_s):
            twins.look()
            watch.look(time.time())
            if options.jobs is not None and not due and twins.all_ended:
                return
        if adversary is not None:
            adversary.act(passed_s, time.time())
        for actor in actors:
            actor.act(passed_s)
