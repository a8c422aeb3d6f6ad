"""Lets administrators pause, apply and revert: a page that shows the exact command, and a form that runs its code."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import structlog
from flask import Blueprint, abort, current_app, g, render_template, request
from werkzeug.exceptions import NotFound

from advisor.daemon.pause_file import pause, resume
from advisor.errors import AdvisorError
from advisor.view.documents import shell
from advisor.watch.changes import ChangesMade, ChosenJobs, apply_changes, revert_changes
from advisor.web.content import Content

OPERATIONS: Final = Blueprint("operations", __name__, url_prefix="/do")
_LONGEST_REASON: Final = 200
_LOG = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """What an administrator is asked to confirm: a command, and what it does in words."""

    name: str
    title: str
    argv: tuple[str, ...]
    effect: str
    job_id: int | None = None
    asks_reason: bool = False

    @property
    def command(self) -> str:
        """The command that a shell runs."""
        return shell(list(self.argv))


def _operation(name: str, job_id: int | None) -> Operation:
    """Return an operation by its name; a wrong one is not found."""
    match name, job_id:
        case "pause", None:
            return Operation(
                name=name,
                title="Pause the daemon",
                argv=("sadvise", "pause"),
                effect="The daemon makes no new change from now on; what is due is reverted.",
                asks_reason=True,
            )
        case "resume", None:
            return Operation(
                name=name,
                title="End the pause",
                argv=("sadvise", "resume"),
                effect="The daemon changes jobs again.",
            )
        case "revert", int(number):
            return Operation(
                name=name,
                title=f"Revert the changes to job {number}",
                argv=("sadvise", "revert", str(number)),
                effect="Every field that sadvise set is put back, unless somebody has changed it since.",
                job_id=number,
            )
        case "apply", int(number):
            return Operation(
                name=name,
                title=f"Apply the advice for job {number}",
                argv=("sadvise", "apply", "--jobs", str(number)),
                effect="The queue is read and planned again; what is still recommended for this job is sent, and "
                "changes of any job that are due are reverted.",
                job_id=number,
            )
        case _:
            raise NotFound


@OPERATIONS.get("/<name>")
@OPERATIONS.get("/<name>/<int:job_id>")
def confirm(name: str, job_id: int | None = None) -> str:
    """Show the command that a form would run."""
    if not g.is_admin:
        abort(403)
    operation = _operation(name, job_id)
    seen = _content().view()
    advice = [row for row in seen.advice if job_id in row["job_ids"]] if name == "apply" else []
    return render_template("confirm.html", operation=operation, advice=advice)


@OPERATIONS.post("/<name>")
@OPERATIONS.post("/<name>/<int:job_id>")
def perform(name: str, job_id: int | None = None) -> tuple[str, int]:
    """Run an operation; `defence` has checked the user, the origin and the token."""
    operation = _operation(name, job_id)
    reason = request.form.get("reason", "").strip()[:_LONGEST_REASON]
    try:
        rows, fault = _done(operation, reason)
    except AdvisorError as err:
        rows, fault = [], str(err)
    _LOG.info("operation", user=g.user, command=operation.command, fault=fault)
    _content().forget()
    return render_template("done.html", operation=operation, rows=rows, fault=fault), 502 if fault else 200


def _done(operation: Operation, reason: str) -> tuple[list[dict[str, Any]], str]:
    """Do it by the code of the command; return the changes as published, and what went wrong, "" if nothing did."""
    content = _content()
    folder = Path(content.config.daemon.runtime_folder)
    if operation.name == "pause":
        pause(folder, by=g.user, reason=reason)
        return [], ""
    if operation.name == "resume":
        return [], "" if resume(folder) else "nothing was paused"
    if not content.reading.is_live:
        raise AdvisorError("a file or the demo is shown: there is no cluster to change")
    assert operation.job_id is not None  # noqa: S101  (the other two name none)
    chosen = frozenset({operation.job_id})
    live = replace(content.reading, tries_plans=False)
    done: ChangesMade = (
        apply_changes(live, content.journal, ChosenJobs(job_ids=chosen))
        if operation.name == "apply"
        else revert_changes(live, content.journal, chosen)
    )
    rows = [row for row in done.rows if row["done"] != "refused" or row["job_id"] in chosen]
    return rows, "" if done.fault is None else str(done.fault)


def _content() -> Content:
    content: Content = current_app.extensions["content"]
    return content
