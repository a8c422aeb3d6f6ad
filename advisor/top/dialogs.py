"""The screens over the live view, and what a confirmed key does: as its exact command does it."""

import getpass
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar, Final

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from advisor.domain.dataclass import dataclass
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


_LABEL: Final = 10
KEYS: Final = (
    ("Tab", "next pane: the line, the advice, the changes in effect, the nodes"),
    ("up down", "select a row; Page up, Page down, Home and End as well"),
    ("Enter e", "explain the selected job: why it waits, and what would change that"),
    ("a", "apply the selected recommendation, or that for the selected job"),
    ("v", "revert the changes to the selected job"),
    ("p", "pause the daemon, or let it go on"),
    ("/", "show only rows that contain a text; Esc ends that"),
    ("c", "next cluster, with -M all or -M NAME,NAME"),
    ("r", "read the cluster now, at most every 5 s"),
    ("q", "quit"),
)
COLUMNS_IN_WORDS: Final = (
    ("starts in", "median of the forecast; with Slurm: when Slurm expects to start the job"),
    ("saves", "job completion time that the change is expected to save, low and high end"),
    ("idle", "the GPUs that are idle; of them, why: too few CPUs or memory left, or fragments"),
    ("largest", "the largest gang that could start now: on one node, under one leaf switch, anywhere"),
)


class LinesScreen(ModalScreen[None]):
    """Lines to read, each beside its label; any of its keys closes it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter,e,question_mark", "close", "Close"),
        Binding("up,k", "scroll(-1)", "Up", show=False),
        Binding("down,j", "scroll(1)", "Down", show=False),
    ]

    def __init__(self, title: str, lines: Iterable[tuple[str, str]]) -> None:
        super().__init__()
        self._title = title
        self._lines = tuple(lines)

    def compose(self) -> ComposeResult:
        """Put the lines into a box that scrolls."""
        with VerticalScroll(id="box"):
            yield Static(Text(escaped(self._title), style="bold"))
            for label, text in self._lines:
                yield _labelled(label, text)
            yield Static(Text("Esc closes", style="bold"))

    def action_close(self) -> None:
        """Go back."""
        self.dismiss(None)

    def action_scroll(self, lines: int) -> None:
        """Scroll by some lines."""
        self.query_one("#box").scroll_relative(y=lines, animate=False)


class ConfirmScreen(ModalScreen[bool]):
    """A question with the exact command that does the same; only `y` confirms."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "Yes"),
        Binding("n,escape,q", "answer(False)", "No"),
    ]

    def __init__(self, order: TopOrder) -> None:
        super().__init__()
        self._order = order

    def compose(self) -> ComposeResult:
        """Show the question, the command and what it means."""
        with Vertical(id="box"):
            yield Static(Text(escaped(self._order.question), style="bold"))
            yield Static(Text(f"\n{escaped(self._order.command)}\n"))
            for line in self._order.details:
                yield Static(Text(escaped(line)))
            yield Static(Text("\ny yes   n no", style="bold"))

    def action_answer(self, is_yes: bool) -> None:
        """Answer the question."""
        self.dismiss(is_yes)


def _labelled(label: str, text: str) -> Static:
    """Return a paragraph beside its label."""
    from rich.table import Table

    grid = Table.grid(padding=(0, 1), expand=True)
    grid.add_column(width=_LABEL)
    grid.add_column(ratio=1)
    grid.add_row(Text(label, style="bold"), Text(escaped(text)))
    return Static(grid)
