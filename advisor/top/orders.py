"""Words what a key would do, with its exact command, and does it as that command does."""

import getpass
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from advisor.errors import AdvisorError
from advisor.site.pause_file import pause, paused, resume
from advisor.text import escaped
from advisor.top.cells import change_in_words
from advisor.view.documents import ChangeDocument, shell
from advisor.watch.changes import ChangesMade, ChosenJobs, apply_changes, revert_changes
from advisor.watch.clusters import WatchedCluster


@dataclass(frozen=True, slots=True, kw_only=True)
class TopOrder:
    """Something that a person can confirm: a question, the command that does the same, and what does it.

    `details` are further lines for people. `run` returns what was done, a line for each change; it raises
    `AdvisorError` if it could not.
    """

    question: str
    command: str
    details: tuple[str, ...]
    run: Callable[[], Sequence[str]]


def refusal(cluster: WatchedCluster) -> str:
    """Return why nothing can be changed on what is looked at, "" if it can."""
    if cluster.reading.demo:
        return "--demo is no cluster: nothing can be changed"
    if cluster.reading.snapshot is not None:
        return "--snapshot is a file: nothing can be changed"
    return ""


def apply_order(cluster: WatchedCluster, row: ChangeDocument) -> TopOrder:
    """Return the order to apply a recommendation."""
    ids = row.job_ids
    return TopOrder(
        question=f"Apply: {row.kind} job {', '.join(map(str, ids))}, {change_in_words(row)}?",
        command=cluster.reading.command_line(cluster.journal, "apply", "-j", ",".join(map(str, ids))),
        details=(
            row.text,
            f"sends {shell(row.command)}",
            "It plans again first: a change that no longer helps is not sent, and changes that are due are reverted.",
        ),
        run=lambda: _lines(apply_changes(cluster.reading, cluster.journal, ChosenJobs(job_ids=frozenset(ids)))),
    )


def revert_order(cluster: WatchedCluster, job_id: int) -> TopOrder:
    """Return the order to revert the changes to a job."""
    return TopOrder(
        question=f"Revert the changes to job {job_id}?",
        command=cluster.reading.command_line(cluster.journal, "revert", str(job_id)),
        details=("A field that somebody else has changed since is left alone.",),
        run=lambda: _lines(revert_changes(cluster.reading, cluster.journal, frozenset([job_id]))),
    )


def pause_order(cluster: WatchedCluster) -> TopOrder:
    """Return the order to stop the daemon from making new changes, or where it is paused, to let it change jobs again.

    Raises `ConfigError` if the configuration cannot be read.
    """
    in_force = paused(_runtime_folder(cluster))
    if in_force is not None:
        return TopOrder(
            question="Let the daemon change jobs again?",
            command=cluster.reading.command_line(cluster.journal, "resume"),
            details=(in_force.text,),
            run=lambda: _resumed(cluster),
        )
    return TopOrder(
        question="Stop the daemon from making new changes?",
        command=cluster.reading.command_line(cluster.journal, "pause"),
        details=("Changes in effect are reverted when they are due.",),
        run=lambda: _paused(cluster),
    )


def _lines(done: ChangesMade) -> list[str]:
    """Return a line for each change; raises the fault of what Slurm refused."""
    done.raise_fault()
    return list(_in_words(done)) or ["nothing to do: it no longer helps, or was done already"]


def _in_words(done: ChangesMade) -> Iterator[str]:
    for row in done.rows:
        text = f" ({row.text})" if row.text else ""
        yield escaped(f"{row.done.replace('_', ' ')}: job {row.job_id} {row.lever}{text}")


def _paused(cluster: WatchedCluster) -> list[str]:
    folder = _runtime_folder(cluster)
    pause(folder, by=getpass.getuser(), reason="")
    return [f"paused: {folder}"]


def _resumed(cluster: WatchedCluster) -> list[str]:
    if not resume(_runtime_folder(cluster)):
        raise AdvisorError("nothing was paused")
    return ["resumed"]


def _runtime_folder(cluster: WatchedCluster) -> Path:
    return Path(cluster.reading.load_config().daemon.runtime_folder)
