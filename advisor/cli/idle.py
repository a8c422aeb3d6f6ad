"""`sadvise idle`: running jobs that hold GPUs which do nothing, by the measurements of the site."""

from collections.abc import Sequence
from typing import Annotated, Final

import typer

from advisor.backends.process import SlurmCommands
from advisor.cli.filters import Accounts, Partitions, Users, job_filter
from advisor.cli.options import OUTPUT, Json, LiveQueue, option
from advisor.clock import SystemClock
from advisor.config import Config
from advisor.domain.idle_gpus import IdleJob, IdleLook
from advisor.domain.snapshot import Snapshot
from advisor.errors import ConfigError
from advisor.site.delivery import check_mail, mail_users
from advisor.site.idle_watch import look_for_idle
from advisor.view.documents import meta
from advisor.view.idle_words import HEADER, idle_notice, idle_row, measured_words, total_words, unmapped_words
from advisor.view.terminal import console, print_json, print_labelled, print_mailed, print_table
from advisor.watch.reading import open_queue

SCHEMA: Final = "sadvise.idle/1"


def idle(
    reading: LiveQueue,
    partition: Partitions = None,
    user: Users = None,
    account: Accounts = None,
    mail: Annotated[bool, option("--mail", "Mail each user of such a job, as notify.users allows.", OUTPUT)] = False,
    json: Json = False,
) -> None:
    """List the running jobs that hold GPUs which do nothing, and for how long.

    It goes by the measurements of the Prometheus that `utilisation.prometheus` names. A GPU that is not measured counts
    as busy. Nothing is changed, and no job is ended.
    """
    settings = reading.load_config()
    if not settings.utilisation.is_on:
        raise ConfigError("no measurements: set prometheus in [utilisation] of sadvise.toml")
    if mail:
        check_mail(settings.notify)
    wanted = job_filter(partition, user, account)
    opened = open_queue(reading, settings)
    seen = opened.snapshot()
    wanted.check(seen)
    commands = SlurmCommands(timeout_s=reading.timeout_of(settings), cluster=reading.cluster)
    look = look_for_idle(seen, settings.utilisation, commands, SystemClock())
    jobs = [job for job in look.jobs if wanted.keeps(seen.jobs_by_id[job.job_id], seen)]
    results = _mailed(jobs, seen, settings) if mail else {}
    if json:
        _print_json(jobs, look, seen, opened.name, results)
    else:
        _print(jobs, look, seen, results)
    if any(results.values()):
        raise typer.Exit(1)


def _mailed(jobs: Sequence[IdleJob], seen: Snapshot, settings: Config) -> dict[str, str]:
    """Mail the users of the jobs; map each to why it failed, "" if it did not."""
    held, notices = seen.jobs_by_id, []
    for user in dict.fromkeys(held[job.job_id].user for job in jobs):
        mine = [job for job in jobs if held[job.job_id].user == user]
        if settings.notify.reaches(held[job.job_id].hints.wants_mail for job in mine):
            notices.append(idle_notice(mine, seen, settings.utilisation))
    return mail_users(notices, settings.notify)


def _print(jobs: Sequence[IdleJob], look: IdleLook, seen: Snapshot, results: dict[str, str]) -> None:
    print_labelled("measured", measured_words(look))
    if look.unmapped:
        print_labelled("note", unmapped_words(look))
    print_labelled("idle", total_words(jobs, seen) if jobs else "no running job holds idle GPUs")
    if jobs:
        console().print()
        print_table(HEADER, [idle_row(job, seen) for job in jobs], right=(0, 4, 5, 7))
    print_mailed(results)


def _print_json(jobs: Sequence[IdleJob], look: IdleLook, seen: Snapshot, reader: str, results: dict[str, str]) -> None:
    print_json(
        {
            "meta": meta(seen, SCHEMA, reader),
            "gpus": look.gpus,
            "measured": look.measured,
            "unmapped_jobs": look.unmapped,
            "jobs": [
                {
                    "job_id": job.job_id,
                    "user": seen.jobs_by_id[job.job_id].user,
                    "account": seen.jobs_by_id[job.job_id].account,
                    "partitions": [*seen.jobs_by_id[job.job_id].partitions],
                    "gpus": job.gpus,
                    "idle_gpus": job.idle_gpus,
                    "since_time": job.since_time,
                    "is_at_least": job.is_at_least,
                    "gpu_hours": round(job.gpu_hours(seen.taken_at), 2),
                }
                for job in jobs
            ],
            "mails": [{"user": user, "fault": fault or None} for user, fault in results.items()],
        }
    )
