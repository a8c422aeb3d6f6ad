"""`sadvise maintenance`: pending jobs that would fit before a maintenance with a shorter time limit."""

from collections.abc import Sequence
from typing import Annotated, Final

import typer

from advisor.backends.process import SlurmCommands
from advisor.backends.reservations import read_reservations
from advisor.cli.options import OUTPUT, Json, LiveQueue, option
from advisor.config import Config
from advisor.diagnose.held_up import HeldUp, coming_maintenance, held_up
from advisor.domain.particulars import Reservation
from advisor.domain.snapshot import Snapshot
from advisor.site.delivery import check_mail, mail_users
from advisor.view.documents import meta
from advisor.view.maintenance_words import HEADER, held_up_row, maintenance_notice, maintenance_sentence
from advisor.view.terminal import console, print_json, print_labelled, print_mailed, print_table
from advisor.watch.reading import open_queue

SCHEMA: Final = "sadvise.maintenance/1"


def maintenance(
    reading: LiveQueue,
    mail: Annotated[bool, option("--mail", "Mail each user of such a job, as notify.users allows.", OUTPUT)] = False,
    json: Json = False,
) -> None:
    """List the pending jobs that would fit before a maintenance with a shorter time limit, and the limit that fits.

    Slurm starts no job that could still run when the maintenance of its nodes begins. Nothing is changed.
    """
    settings = reading.load_config()
    if mail:
        check_mail(settings.notify)
    opened = open_queue(reading, settings)
    seen = opened.snapshot()
    commands = SlurmCommands(timeout_s=reading.timeout_of(settings), cluster=reading.cluster)
    reservations = read_reservations(commands)
    found = held_up(seen, reservations)
    results = _mailed(found, seen, settings) if mail else {}
    if json:
        _print_json(found, reservations, seen, opened.name, results)
    else:
        _print(found, reservations, seen, results)
    if any(results.values()):
        raise typer.Exit(1)


def _mailed(found: Sequence[HeldUp], seen: Snapshot, settings: Config) -> dict[str, str]:
    """Mail the users who can shorten a job; map each to why it failed, "" if it did not."""
    notices = []
    for user in dict.fromkeys(each.job.user for each in found):
        mine = [each for each in found if each.job.user == user and not each.by_slurm]
        if mine and settings.notify.reaches(each.job.hints.wants_mail for each in mine):
            notices.append(maintenance_notice(mine, seen))
    return mail_users(notices, settings.notify)


def _print(
    found: Sequence[HeldUp], reservations: Sequence[Reservation], seen: Snapshot, results: dict[str, str]
) -> None:
    coming = coming_maintenance(reservations, seen.taken_at)
    for each in coming:
        print_labelled("maintenance", maintenance_sentence(each, found, seen.taken_at), width=13)
    if not coming:
        print_labelled("maintenance", "none is to come: scontrol show reservation", width=13)
    if found:
        console().print()
        print_table(HEADER, [held_up_row(each) for each in found], right=(0,))
    print_mailed(results, width=13)


def _print_json(
    found: Sequence[HeldUp],
    reservations: Sequence[Reservation],
    seen: Snapshot,
    reader: str,
    results: dict[str, str],
) -> None:
    print_json(
        {
            "meta": meta(seen, SCHEMA, reader),
            "maintenance": [
                {"name": each.name, "start_time": each.start_time, "end_time": each.end_time, "nodes": [*each.nodes]}
                for each in coming_maintenance(reservations, seen.taken_at)
            ],
            "jobs": [
                {
                    "job_id": each.job.job_id,
                    "user": each.job.user,
                    "account": each.job.account,
                    "partitions": [*each.job.partitions],
                    "time_limit_s": each.job.time_limit_s,
                    "maintenance": each.maintenance.name,
                    "fits_s": each.fits_s,
                    "starts_now": each.starts_now,
                    "by_slurm": each.by_slurm,
                }
                for each in found
            ],
            "mails": [{"user": user, "fault": fault or None} for user, fault in results.items()],
        }
    )
