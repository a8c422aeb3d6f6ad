"""Lays tables out for a terminal: which columns fit, how wide each one is, and which text is cut or folded.

Numbers and ids stay whole. Names are cut, with `+` as their last character, as sacct does. Sentences are folded between
words. Columns that still do not fit are omitted in the order that the table states; without such an order they follow
below, beside a copy of the first column.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from typing import Final

from rich.cells import cell_len, set_cell_size

from advisor.domain.dataclass import dataclass

GAP: Final = 2
CUT: Final = "+"
# The narrowest that a name is cut to, and that a sentence is folded to; a longer word of a sentence is cut.
LEAST_NAME: Final = 8
_LONGEST_NAME: Final = 24
_LEAST_SENTENCE: Final = 18
_LONGEST_WORD: Final = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class TableForm:
    """How a table gives way to a narrow terminal, by the names of its columns.

    Numbers and the columns in `whole` are never cut, those in `folded` are folded between words, any other one is cut.
    `narrowest` maps columns to the width that they are cut to at most. `omissible` names the columns that can be left
    out, the first first, and `last_resort` those that are left out only where the table does not fit at its narrowest.
    A line below the table names them where `names_omitted` is True. `styles` maps cells to their colours.
    """

    whole: Collection[str] = frozenset()
    folded: Collection[str] = frozenset()
    narrowest: Mapping[str, int] = field(default_factory=dict)
    omissible: Sequence[str] = ()
    last_resort: Sequence[str] = ()
    names_omitted: bool = True
    styles: Mapping[str, str] = field(default_factory=dict)


PLAIN: Final = TableForm()


@dataclass(frozen=True, slots=True, kw_only=True)
class TableColumn:
    """A column of a table, as `TableForm` describes it."""

    name: str
    cells: tuple[str, ...]
    is_right: bool = False
    is_whole: bool = False
    is_folded: bool = False
    narrowest: int = LEAST_NAME

    @property
    def widest(self) -> int:
        """Return the width of the widest cell."""
        return max(map(cell_len, self.cells), default=0)

    @property
    def natural(self) -> int:
        """Return the width at which no cell is cut or folded; the name can be folded."""
        return max(self.widest, _longest_word(self.name))

    @property
    def least(self) -> int:
        """Return the narrowest width at which the column can be read."""
        if self.is_whole:
            return self.natural
        if self.is_folded:
            longest = min(max(map(_longest_word, self.cells), default=0), _LONGEST_WORD)
            return max(_longest_word(self.name), min(self.widest, max(_LEAST_SENTENCE, longest)))
        return max(_longest_word(self.name), min(self.widest, self.narrowest))

    @property
    def comfortable(self) -> int:
        """Return the width below which other columns are left out, where they can be."""
        return self.least if self.is_whole or self.is_folded else max(self.least, min(self.widest, _LONGEST_NAME))

    def at(self, width: int) -> tuple[str, ...]:
        """Return the cells as they stand in a column of some width."""
        if self.is_folded:
            return tuple(" ".join(cut(word, width) for word in cell.split(" ")) for cell in self.cells)
        return tuple(cut(cell, width) for cell in self.cells)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLayout:
    """Columns with their widths, in one block or in several below each other, and the names of those left out."""

    blocks: tuple[tuple[tuple[TableColumn, int], ...], ...]
    omitted: tuple[str, ...] = ()


def cut(text: str, width: int) -> str:
    """Return text that is not wider than `width`; `+` stands where the rest was."""
    return text if cell_len(text) <= width else set_cell_size(text, width - 1).rstrip() + CUT


def laid_out(
    columns: Sequence[TableColumn], width: int, omissible: Sequence[str] = (), last_resort: Sequence[str] = ()
) -> TableLayout:
    """Return the layout of a table on a terminal; `omissible` names the columns that can be left out, the first first.

    They are left out before names are cut to less than 24 characters, and where they are empty; those in `last_resort`
    only where the others do not fit at their narrowest. On a terminal that is narrower than the first two columns,
    lines are longer than the terminal.
    """
    kept = [column for column in columns if column.widest or column.name not in omissible]
    omitted: list[str] = []
    for name in omissible:
        if sum(column.comfortable for column in kept) + GAP * (len(kept) - 1) <= width:
            break
        omitted.append(name)
        kept = [column for column in kept if column.name != name]
    for name in last_resort:
        if _taken(kept) <= width:
            break
        omitted.append(name)
        kept = [column for column in kept if column.name != name]
    return TableLayout(
        blocks=tuple(tuple(zip(block, _widths(block, width), strict=True)) for block in _blocks(kept, width)),
        omitted=tuple(name for name in omitted if any(column.name == name and column.widest for column in columns)),
    )


def _blocks(columns: Sequence[TableColumn], width: int) -> list[list[TableColumn]]:
    """Return the columns in as many blocks as it takes, each with the first column."""
    blocks: list[list[TableColumn]] = []
    for column in columns[1:]:
        if blocks and _taken([*blocks[-1], column]) <= width:
            blocks[-1].append(column)
        else:
            blocks.append([columns[0], column])
    return blocks or [list(columns)]


def _taken(columns: Collection[TableColumn]) -> int:
    return sum(column.least for column in columns) + GAP * (len(columns) - 1)


def _widths(columns: Sequence[TableColumn], width: int) -> list[int]:
    """Return the width of each column: cells first get the room that they need, then names that were folded."""
    widths = [column.least for column in columns]
    spare = width - _taken(columns)
    for wanted in (
        [column.natural for column in columns],
        [max(column.natural, cell_len(column.name)) for column in columns],
    ):
        widths = _filled(widths, wanted, spare)
        spare = width - sum(widths) - GAP * (len(columns) - 1)
    return widths


def _filled(widths: Sequence[int], wanted: Sequence[int], spare: int) -> list[int]:
    """Return the widths with the spare room spread evenly over the columns that want more, the least wants first."""
    filled = list(widths)
    wanting = sorted(
        (index for index in range(len(widths)) if wanted[index] > widths[index]),
        key=lambda index: (wanted[index] - widths[index], index),
    )
    for position, index in enumerate(wanting):
        more = min(wanted[index] - widths[index], max(0, spare) // (len(wanting) - position))
        filled[index] += more
        spare -= more
    return filled


def _longest_word(text: str) -> int:
    return max(map(cell_len, text.split(" ")), default=0)
