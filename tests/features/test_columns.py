"""Tables of columns: parts of a table joined again."""

from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from advisor.features.columns import Columns


@dataclass(frozen=True, slots=True, kw_only=True)
class Part(Columns):
    """A column, texts, and a value for all rows."""

    numbers: NDArray[np.float64]
    names: tuple[str, ...] = ()
    by_limits: bool = True


def test_parts_taken_from_a_table_are_joined_to_it() -> None:
    table = Part(numbers=np.arange(3.0), names=("a", "b", "c"))

    joined = Part.join([table.take(slice(0, 1)), table.take(slice(1, 3))])

    assert (joined.numbers == table.numbers).all()
    assert (joined.names, joined.by_limits) == (table.names, table.by_limits)


def test_parts_that_differ_in_a_value_for_all_rows_are_not_joined() -> None:
    with pytest.raises(ValueError, match="parts of one table differ in a value for all rows"):
        Part.join([Part(numbers=np.zeros(1)), Part(numbers=np.zeros(1), by_limits=False)])
