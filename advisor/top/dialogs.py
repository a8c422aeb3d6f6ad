"""The screens over the live view: a question with its command, lines to read, and the keys."""

from collections.abc import Iterable, Sequence
from typing import ClassVar, Final

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from advisor.text import escaped
from advisor.top.orders import TopOrder

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


def help_screen() -> LinesScreen:
    """Return the screen with the keys and the columns."""
    return LinesScreen("Keys", (*KEYS, ("", ""), *COLUMNS_IN_WORDS))


def result_screen(lines: Sequence[str]) -> LinesScreen:
    """Return the screen that says what was done."""
    return LinesScreen("Done", (("", line) for line in lines))


def _labelled(label: str, text: str) -> Static:
    """Return a paragraph beside its label."""
    from rich.table import Table

    grid = Table.grid(padding=(0, 1), expand=True)
    grid.add_column(width=_LABEL)
    grid.add_column(ratio=1)
    grid.add_row(Text(label, style="bold"), Text(escaped(text)))
    return Static(grid)
