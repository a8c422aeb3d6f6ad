"""A table for any number of rows: only those on the screen are made, and every cell is text without markup."""

from collections.abc import Callable, Hashable, Sequence
from typing import Any, ClassVar, Final

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType
from textual.events import Click
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from advisor.domain.dataclass import dataclass
from advisor.text import escaped
from advisor.view.table_layout import CUT, GAP

_HEADER: Final = Style(bold=True)
_CURSOR: Final = Style(reverse=True)
_PLAIN: Final = Style()


@dataclass(frozen=True, slots=True, kw_only=True)
class RowColumn:
    """A column of rows of any kind; `rank` 0 always stays, and of the others the highest is left out first.

    `takes_rest` is whether the column gets the width that is left over.
    """

    title: str
    width: int
    cell: Callable[[Any], str]
    rank: int = 0
    is_right: bool = False
    takes_rest: bool = False
    style: Callable[[Any], Style] | None = None


def fitted(columns: Sequence[RowColumn], width: int) -> tuple[tuple[RowColumn, int], ...]:
    """Return the columns that fit into a width, each with its own; the last rank goes first."""
    kept = list(columns)
    while _taken(kept) > width and any(column.rank for column in kept):
        kept.remove(max(kept, key=lambda column: column.rank))
    spare = max(0, width - _taken(kept))
    return tuple((column, column.width + (spare if column.takes_rest else 0)) for column in kept)


def cell_text(text: str, width: int, *, is_right: bool = False) -> str:
    """Return text that is exactly `width` wide on the screen; `+` stands where the rest was."""
    shown = escaped(text)
    if (length := cell_len(shown)) > width:
        return set_cell_size(shown, max(0, width - 1)) + CUT[:width]
    return " " * (width - length) + shown if is_right else shown + " " * (width - length)


def _taken(columns: Sequence[RowColumn]) -> int:
    return sum(column.width for column in columns) + GAP * (len(columns) - 1)


class RowList(ScrollView, can_focus=True):
    """A list with a header and a cursor, which stays on its row when the rows are read again."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab", "app.focus_next", "Pane", key_display="Tab"),
        Binding("up,k", "move(-1)", "Up", show=False),
        Binding("down,j", "move(1)", "Down", show=False),
        Binding("pageup", "page(-1)", "Page up", show=False),
        Binding("pagedown", "page(1)", "Page down", show=False),
        Binding("home,g", "to(0)", "First", show=False),
        Binding("end,G", "to(-1)", "Last", show=False),
    ]

    class Moved(Message):
        """The cursor is on another row."""

        def __init__(self, row_list: "RowList") -> None:
            self.row_list = row_list
            super().__init__()

    def __init__(self, columns: Sequence[RowColumn], *, key: Callable[[Any], Hashable], id: str) -> None:  # noqa: A002
        super().__init__(id=id)
        self._columns = columns
        self._key = key
        self._empty = ""
        self.rows: Sequence[Any] = ()
        self._cursor = 0

    @property
    def selected(self) -> Any:
        """The row under the cursor; None without rows."""
        return self.rows[self._cursor] if self.rows else None

    def show(self, rows: Sequence[Any], *, empty: str = "") -> None:
        """Show other rows; the cursor stays on its row if that is still there. `empty` is shown without rows."""
        kept = self._key(self.selected) if self.rows else None
        self.rows, self._empty = rows, empty
        places = (place for place, row in enumerate(rows) if self._key(row) == kept)
        self._cursor = next(places, min(self._cursor, max(0, len(rows) - 1)))
        self.virtual_size = Size(0, len(rows) + 1)
        self._keep_in_sight()
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """Return a line of the screen: the header, or the row that is scrolled to it."""
        width = self.size.width
        columns = fitted(self._columns, width)
        if not self.rows:
            text = (self._empty, "")[min(y, 1)]
            return Strip([Segment(cell_text(text, width), _PLAIN)], width)
        if y == 0:
            cells = (cell_text(column.title, own, is_right=column.is_right) for column, own in columns)
            return self._strip([Segment(cell, _HEADER) for cell in cells], width, _HEADER)
        place = y - 1 + self.scroll_offset.y
        if place >= len(self.rows):
            return Strip.blank(width)
        row = self.rows[place]
        base = _CURSOR if place == self._cursor and self.has_focus else _PLAIN
        segments = [
            Segment(
                cell_text(column.cell(row), own, is_right=column.is_right),
                base + column.style(row) if column.style is not None else base,
            )
            for column, own in columns
        ]
        return self._strip(segments, width, base)

    def action_move(self, rows: int) -> None:
        """Move the cursor by some rows."""
        self.action_to(max(0, self._cursor + rows))

    def action_page(self, pages: int) -> None:
        """Move the cursor by some screens."""
        self.action_move(pages * max(1, self.size.height - 2))

    def action_to(self, place: int) -> None:
        """Move the cursor to a place, -1 for the last."""
        last = max(0, len(self.rows) - 1)
        self._cursor = last if place < 0 else min(place, last)
        self._keep_in_sight()
        self.refresh()
        self.post_message(self.Moved(self))

    def on_click(self, event: Click) -> None:
        """Move the cursor to the row that was clicked."""
        place = event.y - 1 + self.scroll_offset.y
        if event.y > 0 and place < len(self.rows):
            self.action_to(place)

    def on_focus(self) -> None:
        """Show the cursor."""
        self.refresh()

    def on_blur(self) -> None:
        """Hide the cursor."""
        self.refresh()

    def on_resize(self) -> None:
        """Keep the row under the cursor on the screen."""
        self._keep_in_sight()

    def _strip(self, segments: list[Segment], width: int, gap: Style) -> Strip:
        spaced: list[Segment] = []
        for number, segment in enumerate(segments):
            spaced += [segment] if number == 0 else [Segment(" " * GAP, gap), segment]
        return Strip(spaced).adjust_cell_length(width, gap)

    def _keep_in_sight(self) -> None:
        """Scroll so that the row under the cursor is below the header and above the end."""
        visible = max(1, self.size.height - 1)
        top = self.scroll_offset.y
        if self._cursor < top:
            top = self._cursor
        elif self._cursor >= top + visible:
            top = self._cursor - visible + 1
        self.scroll_to(y=top, animate=False, force=True, immediate=True)
