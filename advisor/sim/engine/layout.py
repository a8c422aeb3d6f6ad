"""How C sees the tables of arrays that its functions read and write in place.

A table is a named tuple of arrays, whose annotations name the kinds of numbers: `header` writes the C structs from them
and lets the compiler check every offset, and `Block` refuses arrays of other types.
"""

from array import array
from collections.abc import Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, get_args, get_type_hints

import numpy as np
from numpy.typing import NDArray

from advisor.domain.dataclass import dataclass
from advisor.errors import SimulationError

_C_TYPES: Final[Mapping[np.dtype[Any], str]] = {
    np.dtype(np.float64): "double",
    np.dtype(np.float32): "float",
    np.dtype(np.int64): "int64_t",
    np.dtype(np.int32): "int32_t",
    np.dtype(np.int8): "int8_t",
}


_TOP: Final = "/* Written from tables.py by `python -m advisor.sim.engine.tables`. */"


@dataclass(frozen=True, slots=True)
class ArrayType:
    """The items of one array as C declares them, and its number of dimensions."""

    c_type: str
    dtype: np.dtype[Any]
    dimensions: int


def records(c_type: str, dtype: np.dtype[Any]) -> ArrayType:
    """Declare an array of records, `(n,)`; `c_type` names their struct."""
    return ArrayType(c_type, dtype, 1)


def declared(
    table: type, of_records: Mapping[str, ArrayType] = MappingProxyType({}), *, matrices: Collection[str] = ()
) -> Mapping[str, ArrayType]:
    """Declare the arrays of a table in their order: arrays of records, `matrices` with two dimensions, and lists."""
    arrays = {}
    for name, hint in get_type_hints(table).items():
        # NDArray[kind] is ndarray[shape, dtype[kind]], and since numpy 2.5 a name for it with one argument.
        kind = hint
        while arguments := get_args(kind):
            kind = arguments[-1]
        arrays[name] = of_records.get(name) or numbers(kind, 2 if name in matrices else 1)
    return arrays


def numbers(kind: type[np.generic], dimensions: int) -> ArrayType:
    """Declare an array of plain numbers with one or two dimensions."""
    return ArrayType(_C_TYPES[np.dtype(kind)], np.dtype(kind), dimensions)


class Block:
    """The C struct of a table: the addresses and lengths of its arrays, valid while the arrays live."""

    __slots__ = ("_as_parameter_", "_words")

    def __init__(self, table: Any, columns: Mapping[str, ArrayType]) -> None:
        """Check the arrays against their declaration and take their addresses."""
        words: list[int] = []
        for name, column in columns.items():
            values: NDArray[Any] = getattr(table, name)
            if values.dtype != column.dtype or values.ndim != column.dimensions or not values.flags.c_contiguous:
                raise SimulationError(
                    f"{type(table).__name__}.{name} must be contiguous, of {column.dtype} in {column.dimensions}"
                    f" dimensions, and is of {values.dtype} in {values.ndim}"
                )
            words += [values.ctypes.data, *values.shape]
        self._words = array("q", words)
        # What ctypes passes to a function.
        self._as_parameter_ = self._words.buffer_info()[0]


def header(tables: Mapping[type, Mapping[str, ArrayType]], constants: Mapping[str, float | Sequence[float]]) -> str:
    """Return the C header that declares constants, tables and the records in them."""
    lines = [_TOP, "#pragma once", "#include <stddef.h>", "#include <stdint.h>", ""]
    for name, value in constants.items():
        values = "{" + ", ".join(map(repr, value)) + "}" if isinstance(value, Sequence) else f"({value!r})"
        lines.append(f"#define {name} {values}")
    structs = {column.c_type: column.dtype for columns in tables.values() for column in columns.values()}
    for c_type, dtype in structs.items():
        lines += _record(c_type, dtype)
    for table, columns in tables.items():
        lines += ["typedef struct {", *_members(columns), f"}} {table.__name__};", ""]
    return "\n".join(lines)


def _members(columns: Mapping[str, ArrayType]) -> Iterator[str]:
    for name, column in columns.items():
        yield f"    {column.c_type} *{name};"
        yield f"    int64_t n_{name};"
        if column.dimensions == 2:
            yield f"    int64_t {name}_columns;"


def _record(c_type: str, dtype: np.dtype[Any]) -> Iterator[str]:
    """Declare the struct of a record, if it is one, and let the compiler check its offsets."""
    if dtype.fields is None:
        return
    yield "typedef struct {"
    for name, (kind, *_) in dtype.fields.items():
        yield f"    {_C_TYPES[kind]} {name};"
    yield f"}} {c_type};"
    for name, (_, offset, *_) in dtype.fields.items():
        yield f'_Static_assert(offsetof({c_type}, {name}) == {offset}, "{name}");'
    yield f'_Static_assert(sizeof({c_type}) == {dtype.itemsize}, "{c_type}");'
    yield ""
