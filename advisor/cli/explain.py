"""`sadvise explain JOBID`: why a job is not starting."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from advisor.cli.filters import job_name
from advisor.cli.options import AnyQueue, JournalFile, Json, option
from advisor.config import Config
from advisor.domain.job import Job
from advisor.domain.particulars import Particulars
from advisor.domain.snapshot import Snapshot
from advisor.errors import ConfigError
from advisor.site.status_file import DaemonStatus, read_status, status_of
from advisor.view.documents import meta
from advisor.view.terminal import console, print_json, print_labelled
from advisor.watch.job_answer import job_answer
from advisor.watch.planned import forecaster_of, plan_now
from advisor.watch.reading import open_queue


def explain(
    job: Annotated[str, typer.Argument(metavar="JOBID", help="The job: 123, 123_4, 123_[1-9] or 123+1.")],
    reading: AnyQueue,
    journal: JournalFile = None,
    long: Annotated[
        bool, option("--long", "Add the numbers behind each cause, and what the forecasts rest on.")
    ] = False,
    json: Json = False,
) -> None:
    """Explain why a pending job is not starting, with the numbers and what would change it.

    The first lines say why, since when, and what to do. Then: other causes, the job's place in line and what its
    account has used of its share, its forecasts, and what advice did to it or would do.

    Beside the queue it asks Slurm, where it matters for the job, for the limit that is reached, the shares of the
    accounts, reservations, licences and the parts of the priority. It says what could not be read.
    """
    name = job_name(job)
    settings = reading.load_config()
    opened = open_queue(reading, settings)
    seen = opened.snapshot()
    target = next((candidate for candidate in seen.jobs if name.names(candidate)), None)
    if target is None:
        raise ConfigError(
            f"job {job} is not in the queue of {seen.config.cluster or 'this cluster'}: it has ended, never was, or "
            "is hidden from you (PrivateData)"
        )
    forecaster = forecaster_of(settings, start_times=False)
    planned = plan_now(reading, settings, journal, seen, forecaster, about=target)
    if forecaster is not None:
        starts = forecaster.with_starts(planned.record.forecasts, seen, [target.job_id])
        planned = replace(planned, record=replace(planned.record, forecasts=starts))
    asked = _particulars(target, seen, reading.cluster, reading.timeout_of(settings)) if reading.is_live else None
    bases = () if forecaster is None or not target.gang.wants_gpus else forecaster.bases(target, seen)
    last = _last_round(settings, seen) if reading.is_live else None
    answer = job_answer(target, seen, settings, planned, bases, asked, last)
    if json:
        print_json({"meta": meta(seen, "sadvise.explain/1", opened.name), "diagnosis": answer.document()})
        return
    for number, group in enumerate(answer.groups(reading.cluster, opened.name, is_long=long)):
        if number:
            console().print()
        for label, text in group:
            print_labelled(label, text)


def _last_round(settings: Config, seen: Snapshot) -> DaemonStatus | None:
    """Return the status of the daemon; None where none runs or it cannot be read, as `sadvise status` says."""
    try:
        return status_of(read_status(Path(settings.daemon.runtime_folder)), seen.config.cluster)
    except ConfigError:
        return None


def _particulars(job: Job, seen: Snapshot, cluster: str | None, timeout_s: float) -> Particulars | None:
    """Ask Slurm about a pending job what the snapshot does not hold."""
    if not job.is_pending:
        return None
    # A file or the demo is asked nothing.
    from advisor.backends.particulars_reader import read_particulars
    from advisor.backends.process import SlurmCommands

    return read_particulars(SlurmCommands(timeout_s=timeout_s, cluster=cluster), job, seen.config)
