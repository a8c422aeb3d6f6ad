"""Lets administrators pause, apply and revert: a page that shows the exact command, and a form that runs its code."""

import re
from pathlib import Path
from typing import Final

import structlog
from flask import Blueprint, g, render_template, request
from werkzeug.exceptions import NotFound

from advisor.domain.dataclass import dataclass
from advisor.errors import AdvisorError
from advisor.site.pause_file import pause, resume
from advisor.watch.changes import ChosenJobs, DoneDocument, apply_changes, revert_changes
from advisor.web.defence import refuse
from advisor.web.served_clusters import selected_content

OPERATIONS: Final = Blueprint("operations", __name__, url_prefix="/do")
_LONGEST_REASON: Final = 200
# An exchange is about two jobs.
_JOBS: Final = re.compile(r"[1-9][0-9]{0,9}(,[1-9][0-9]{0,9})?", re.ASCII)
_LOG = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """What an administrator is asked to confirm: the command, and what it does in words."""

    name: str
    title: str
    command: str
    effect: str
    jobs: str = ""
    asks_reason: bool = False

    @property
    def job_ids(self) -> frozenset[int]:
        """The jobs that it is about."""
        return frozenset(int(number) for number in self.jobs.split(",") if number)


def _operation(name: str, jobs: str) -> Operation:
    """Return an operation by its name; a wrong one is not found."""
    if jobs and not _JOBS.fullmatch(jobs):
        raise NotFound
    content = selected_content()

    def command(*arguments: str) -> str:
        return content.reading.command_line(content.journal, name, *arguments)

    match name, bool(jobs):
        case "pause", False:
            title, effect = "Pause the daemon", "The daemon makes no new change from now on; what is due is reverted."
            return Operation(name=name, title=title, command=command(), effect=effect, asks_reason=True)
        case "resume", False:
            title, effect = "End the pause", "The daemon changes jobs again."
            return Operation(name=name, title=title, command=command(), effect=effect)
        case "revert", True:
            return Operation(
                name=name,
                title=f"Revert the changes to job {jobs}",
                command=command(*jobs.split(",")),
                effect="Every field that sadvise set is put back, unless somebody has changed it since.",
                jobs=jobs,
            )
        case "apply", True:
            return Operation(
                name=name,
                title=f"Apply the advice for job {jobs}",
                command=command("-j", jobs),
                effect="The queue is read and planned again; what is still recommended for this job is sent, and "
                "changes of any job that are due are reverted.",
                jobs=jobs,
            )
        case _:
            raise NotFound


@OPERATIONS.get("/<name>")
@OPERATIONS.get("/<name>/<jobs>")
def confirm(name: str, jobs: str = "") -> str:
    """Show the command that a form would run."""
    if not g.is_admin:
        refuse("no administrator")
    operation = _operation(name, jobs)
    seen = selected_content().view()
    chosen = operation.job_ids if name == "apply" else frozenset()
    advice = [row for row in seen.advice if chosen.intersection(row.job_ids)]
    return render_template("confirm.html", operation=operation, advice=advice)


@OPERATIONS.post("/<name>")
@OPERATIONS.post("/<name>/<jobs>")
def perform(name: str, jobs: str = "") -> tuple[str, int]:
    """Run an operation; `defence` has checked the user, the origin and the token."""
    operation = _operation(name, jobs)
    reason = request.form.get("reason", "").strip()[:_LONGEST_REASON]
    try:
        rows, fault = _done(operation, reason)
    except AdvisorError as err:
        rows, fault = [], str(err)
    _LOG.info("operation", user=g.user, command=operation.command, fault=fault)
    selected_content().forget()
    return render_template("done.html", operation=operation, rows=rows, fault=fault), 502 if fault else 200


def _done(operation: Operation, reason: str) -> tuple[list[DoneDocument], str]:
    """Do it by the code of the command; return the changes as published, and what went wrong, "" if nothing did."""
    content = selected_content()
    folder, chosen = Path(content.config.daemon.runtime_folder), operation.job_ids
    if operation.name == "pause":
        pause(folder, by=g.user, reason=reason)
        return [], ""
    if operation.name == "resume":
        return [], "" if resume(folder) else "nothing was paused"
    if not content.reading.is_live:
        raise AdvisorError("a file or the demo is shown: there is no cluster to change")
    made = (
        apply_changes(content.reading, content.journal, ChosenJobs(job_ids=chosen))
        if operation.name == "apply"
        else revert_changes(content.reading, content.journal, chosen)
    )
    # Refusals of other jobs are not shown: the form asked for the chosen jobs only.
    rows = [row for row in made.rows if row.done != "refused" or row.job_id in chosen]
    return rows, "" if made.fault is None else str(made.fault)
