"""Asks slurmctld about one pending job what a snapshot does not hold: a few requests, each only where it matters."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeVar

from advisor.backends.assoc_text import read_associations, read_partition_qos
from advisor.backends.fair_share import read_fair_share
from advisor.backends.licences import read_licences
from advisor.backends.priorities import read_priority_factors
from advisor.backends.process import Commands
from advisor.backends.reached_limit import names_a_limit, reached_limit
from advisor.backends.reservations import read_reservations
from advisor.domain.diagnosis import Cause
from advisor.domain.job import Job
from advisor.domain.particulars import FairShare, Particulars, PriorityFactors, ReachedLimit
from advisor.domain.site import SiteConfig
from advisor.domain.slurm_reasons import causes_named
from advisor.errors import AdvisorError

_Answer = TypeVar("_Answer")

_NO_SHARES = "fair share: slurmctld shows no account of its user, as it does without slurmdbd"
_NO_LIMIT = "the numbers of the limit that Slurm names: slurmctld does not show it to this user, or has no slurmdbd"


def read_particulars(commands: Commands, job: Job, config: SiteConfig) -> Particulars:
    """Ask about a pending job; what cannot be read is a line of `unread`, never an error."""
    unread: list[str] = []

    def read(what: str, ask: Callable[[], _Answer]) -> _Answer | None:
        try:
            return ask()
        except AdvisorError as err:
            unread.append(f"{what}: {err}")
            return None

    named = causes_named(job.reason)
    competes = not job.held and not job.dependency
    factors = read("the parts of its priority", lambda: _factors(commands, job)) if not job.held else None
    share: FairShare | None = None
    if competes and config.priority_weights.get("fair_share", 0) > 0:
        share = read("fair share", lambda: read_fair_share(commands, account=job.account, user=job.user))
        if share is None and not unread:
            unread.append(_NO_SHARES)
        elif share is not None:
            share = replace(share, half_life_s=config.priority_decay_half_life_s or None)
    limit: ReachedLimit | None = None
    if names_a_limit(job.reason):
        before = len(unread)
        limit = read("the limit that Slurm names", lambda: _limit(commands, job))
        if limit is None and len(unread) == before:
            unread.append(_NO_LIMIT)
    licences = read("licences", lambda: read_licences(commands, job.job_id)) if Cause.LICENSES in named else ()
    reservations = read("reservations", lambda: read_reservations(commands)) if competes else None
    return Particulars(
        factors=factors,
        limit=limit,
        share=share,
        reservations=reservations,
        licences=licences or (),
        unread=tuple(unread),
    )


def _factors(commands: Commands, job: Job) -> PriorityFactors | None:
    return read_priority_factors([job.job_id], cluster=None, timeout_s=0.0, commands=commands).get(job.job_id)


def _limit(commands: Commands, job: Job) -> ReachedLimit | None:
    return reached_limit(job, read_associations(commands, job.user), _qos_names(commands, job))


def _qos_names(commands: Commands, job: Job) -> Iterator[str]:
    """Yield the names of a job's QOS and, where Slurm names a limit of a QOS, of those of its partitions."""
    yield job.qos
    if causes_named(job.reason) == {Cause.QOS_LIMIT}:
        by_partition = read_partition_qos(commands)
        yield from (by_partition[name] for name in job.partitions if by_partition.get(name))
