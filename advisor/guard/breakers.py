"""Defines the circuit breakers; an open one limits the daemon to recommendations.

A breaker opens at once and closes slowly: its cause must be observed to be absent, and observed rounds must cover
`rest_s`. An unknown figure opens nothing and closes nothing.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, replace
from typing import Final

from advisor.domain.dataclass import dataclass
from advisor.domain.lease import Ending, Lease
from advisor.domain.load import ControllerLoad
from advisor.guard.ledger import person_objected
from advisor.settings import BreakerSettings

# The most rest that counts between two looks, so that neither a clock that jumps nor a pause of the daemon closes one.
LONGEST_STEP_S: Final = 600.0
_NO_LOAD: Final = ControllerLoad()


@dataclass(frozen=True, slots=True, kw_only=True)
class Vitals:
    """The health of the controller and of the requests to it, and people's objections; None is unknown.

    `reads_failed` counts the reads that failed in a row, `error_ratio` is the share of `requests` that failed. `leases`
    are the open ones and those that ended within the window of the objections, which count from `objected_since` on.
    """

    now: float
    load: ControllerLoad | None = None
    reads_failed: int | None = None
    error_ratio: float | None = None
    requests: int = 0
    leases: tuple[Lease, ...] | None = None
    objected_since: float = -math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenBreaker:
    """An open breaker, with its last known cause and for how long the cause has been absent.

    `keys` names the exceeded bounds. `rested_s` counts up to `looked_time`; None until the cause is observed to be
    absent.
    """

    name: str
    keys: tuple[str, ...]
    cause: str
    opened_time: float
    looked_time: float
    rested_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerState:
    """The open breakers, and the names of those whose figures were unknown at the last look, in table order.

    `counted_since` maps breakers that a person acknowledged to when; what happened before no longer counts.
    """

    open: tuple[OpenBreaker, ...] = ()
    unknown: tuple[str, ...] = ()
    counted_since: Mapping[str, float] = field(default_factory=dict)

    def sentences(self, settings: BreakerSettings) -> Mapping[str, str]:
        """Map each open breaker to a sentence: its figure, its bound, and when it closes."""
        return {
            breaker.name: f"{breaker.cause}; {_waits_for(breaker, self.unknown, settings)}" for breaker in self.open
        }


ALL_CLOSED = BreakerState()

# Maps the settings whose figure is known to a sentence about what is wrong, "" if nothing is.
Findings = Mapping[str, str]
Look = Callable[[Vitals, BreakerSettings], Findings]


def controller_threads(health: Vitals, settings: BreakerSettings) -> Findings:
    """Check how many requests slurmctld serves at a time."""
    load = health.load or _NO_LOAD
    return _at_most(settings, "max_server_threads", load.server_threads, "slurmctld has {} threads busy")


def controller_cycle(health: Vitals, settings: BreakerSettings) -> Findings:
    """Check the duration of the passes of Slurm's schedulers."""
    load = health.load or _NO_LOAD
    return {
        **_at_most(settings, "max_cycle_s", load.cycle_s, "Slurm's scheduler took {} s"),
        **_at_most(settings, "max_backfill_cycle_s", load.backfill_cycle_s, "Slurm's backfill took {} s"),
    }


def controller_queue(health: Vitals, settings: BreakerSettings) -> Findings:
    """Check the queues of slurmctld's messages to nodes and to its database."""
    load = health.load or _NO_LOAD
    return {
        **_at_most(settings, "max_agent_queue", load.agent_queue, "{} messages to nodes wait in slurmctld"),
        **_at_most(settings, "max_database_queue", load.database_queue, "{} records for slurmdbd wait in slurmctld"),
    }


def slurm_errors(health: Vitals, settings: BreakerSettings) -> Findings:
    """Check how many requests to Slurm fail."""
    ratio = health.error_ratio if health.requests >= max(1, settings.min_requests) else None
    return {
        **_at_most(settings, "max_reads_failed", health.reads_failed, "{} reads of the cluster failed in a row"),
        **_at_most(
            settings,
            "max_error_ratio",
            ratio,
            f"a share of {{}} of the last {health.requests} requests to Slurm failed",
        ),
    }


def people_object(health: Vitals, settings: BreakerSettings) -> Findings:
    """Check how many changes administrators revert, and which share of them users overrule."""
    if health.leases is None:
        return {}
    since = max(health.now - settings.objections_window_s, health.objected_since)
    votes = votes_of(health.leases, since, settings.max_objections_of_user)
    counts = votes.overruling_users >= settings.min_overruling_users
    words = (
        f"{votes.overruling_users} of {votes.users} users overrode changes to {votes.overruled_jobs} of {votes.jobs} "
        "jobs, a share of {} at least"
    )
    return {
        **_at_most(settings, "max_objections", votes.reverted_jobs, "administrators took back changes to {} jobs"),
        **_at_most(settings, "max_overruled_ratio", votes.overruled_ratio if counts else 0.0, words),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Votes:
    """Objections to the changes of a window: jobs reverted by administrators, and what users overruled.

    `users` have had changes, and `overruling_users` of them overruled one. Of each user at most a stated number of
    jobs is in `jobs` and `overruled_jobs`, so that no user counts for many.
    """

    reverted_jobs: int
    users: int
    overruling_users: int
    jobs: int
    overruled_jobs: int

    @property
    def overruled_ratio(self) -> float:
        """The share of the users that overruled changes, or that of their jobs if it is smaller."""
        return min(self.overruling_users / max(1, self.users), self.overruled_jobs / max(1, self.jobs))


def votes_of(leases: Iterable[Lease], since: float, most_of_user: int) -> Votes:
    """Count the objections after an instant to changes, of which `leases` are all that were out since then.

    A change reverted with `sadvise revert` always counts, since only administrators can do that. Users can overrule
    changes to their own jobs in Slurm; at most `most_of_user` jobs of each count.
    """
    user_by_job: dict[int, str] = {}
    reverted: set[int] = set()
    overruled: set[int] = set()
    for lease in leases:
        if lease.ending is Ending.NOT_APPLIED:
            continue
        user_by_job[lease.job_id] = lease.user
        seen_time = lease.ended_time if lease.overruled_time is None else lease.overruled_time
        if not person_objected(lease) or (seen_time is not None and seen_time <= since):
            continue
        (reverted if lease.by_person or lease.ending is Ending.REVERTED else overruled).add(lease.job_id)
    jobs_by_user = Counter(user_by_job.values())
    overruled_by_user = Counter(user_by_job[job_id] for job_id in overruled - reverted)
    return Votes(
        reverted_jobs=len(reverted),
        users=len(jobs_by_user),
        overruling_users=len(overruled_by_user),
        jobs=sum(min(count, most_of_user) for count in jobs_by_user.values()),
        overruled_jobs=sum(min(count, most_of_user) for count in overruled_by_user.values()),
    )


BREAKERS: Mapping[str, Look] = {
    "controller_threads": controller_threads,
    "controller_cycle": controller_cycle,
    "controller_queue": controller_queue,
    "slurm_errors": slurm_errors,
    "people_object": people_object,
}


def judged(state: BreakerState, health: Vitals, settings: BreakerSettings) -> BreakerState:
    """Return the breakers after one more look at the vitals."""
    before_by_name = {breaker.name: breaker for breaker in state.open}
    still_open: list[OpenBreaker] = []
    unknown: list[str] = []
    for name, look in BREAKERS.items():
        before, findings = before_by_name.get(name), look(health, settings)
        unseen = () if before is None else tuple(key for key in before.keys if key not in findings)
        if unseen or not findings:
            unknown.append(name)
        faults = {key: fault for key, fault in findings.items() if fault}
        if faults:
            after: OpenBreaker | None = OpenBreaker(
                name=name,
                keys=(*faults, *unseen),
                cause=" and ".join(faults.values()),
                opened_time=health.now if before is None else before.opened_time,
                looked_time=health.now,
            )
        elif before is None:
            after = None
        elif unseen:
            after = replace(before, looked_time=health.now)
        else:
            after = _rested(before, health.now, settings.rest_s)
        still_open += [] if after is None else [after]
    return replace(state, open=tuple(still_open), unknown=tuple(unknown))


def acknowledged(state: BreakerState, name: str, at_time: float) -> BreakerState:
    """Return the breakers after a person acknowledged one: it is closed, and counts again from that instant."""
    return replace(
        state,
        open=tuple(breaker for breaker in state.open if breaker.name != name),
        counted_since={**state.counted_since, name: at_time},
    )


def _rested(breaker: OpenBreaker, now: float, rest_s: float) -> OpenBreaker | None:
    """Return a breaker whose cause is absent; None if that has lasted for `rest_s`."""
    step_s = min(max(0.0, now - breaker.looked_time), LONGEST_STEP_S)
    rested_s = 0.0 if breaker.rested_s is None else breaker.rested_s + step_s
    return None if rested_s >= rest_s else replace(breaker, looked_time=now, rested_s=rested_s)


def _at_most(settings: BreakerSettings, key: str, figure: float | None, words: str) -> Findings:
    """Compare a figure with its upper bound."""
    if figure is None:
        return {}
    bound: float = getattr(settings, key)
    fault = f"{words.format(f'{figure:.6g}')} (breakers.{key} = {bound:g})"
    return {key: "" if figure <= bound else fault}


def _waits_for(breaker: OpenBreaker, unknown: Iterable[str], settings: BreakerSettings) -> str:
    if breaker.name in unknown:
        return "it stays open, as too little is known now"
    if breaker.rested_s is None:
        return "it stays open while that lasts"
    return f"that has passed, and it closes after another {settings.rest_s - breaker.rested_s:.0f} s without it"
