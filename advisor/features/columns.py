"""Tables as dataclasses: each field is a column, a table of as many rows, or a value that holds for all rows."""

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from advisor.domain.dataclass import dataclass

RowChoice = slice | NDArray[np.integer[Any]] | NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """A table whose columns are arrays `(n_rows, ...)`, or tuples of texts; the first one says how many rows it has."""

    def __post_init__(self) -> None:
        columns = [getattr(self, field.name) for field in fields(self)]
        lengths = {len(column) for column in columns if isinstance(column, np.ndarray | tuple | Columns)}
        if len(lengths) > 1:
            raise ValueError(f"the columns of a {type(self).__name__} differ in length: {sorted(lengths)}")

    def __len__(self) -> int:
        return len(getattr(self, fields(self)[0].name))

    def take(self, rows: RowChoice) -> Self:
        """Return these rows, in this order, or those that a mask marks."""
        return replace(self, **{field.name: _taken(getattr(self, field.name), rows) for field in fields(self)})

    def row_by_row(self) -> list[Self]:
        """Return each row as a table of its own; there is at least one column of arrays, and none of texts."""
        columns = {field.name: _rows(getattr(self, field.name)) for field in fields(self)}
        return [type(self)(**dict(zip(columns, row, strict=True))) for row in zip(*columns.values(), strict=True)]

    @classmethod
    def join(cls, parts: Sequence[Self]) -> Self:
        """Return the rows of all parts, at least one; raises `ValueError` if a value for all rows differs."""
        return cls(**{field.name: _joined([getattr(part, field.name) for part in parts]) for field in fields(cls)})


def _taken(column: Any, rows: RowChoice) -> Any:
    match column:
        case np.ndarray():
            return column[rows]
        case Columns():
            return column.take(rows)
        case tuple():
            return tuple(np.array(column, dtype=np.object_)[rows].tolist())
        case _:
            return column


def _rows(column: "Columns | NDArray[Any]") -> Sequence[Any]:
    # A copy, so that a row that is kept does not keep its table.
    return column.row_by_row() if isinstance(column, Columns) else [row.copy() for row in column[:, None]]


def _joined(columns: Sequence[Any]) -> Any:
    match columns[0]:
        case Columns() as first:
            return first.join(columns)
        case np.ndarray():
            return np.concatenate(columns)
        case tuple():
            return tuple(value for column in columns for value in column)
        case value:
            if any(other != value for other in columns):
                raise ValueError(f"parts of one table differ in a value for all rows: {set(columns)}")
            return value
