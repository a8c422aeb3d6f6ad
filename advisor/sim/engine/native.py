"""Load the compiled functions, and bind Python functions to them."""

import ctypes
import functools
import inspect
from collections.abc import Callable
from typing import Any, Final, ParamSpec, TypeVar, get_type_hints
from weakref import ref

from numpy.typing import NDArray

from advisor.sim.engine.build import library_file
from advisor.sim.engine.layout import Block
from advisor.sim.engine.tables import TABLES, check_layout

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

_NUMBERS: Final[dict[object, Any]] = {int: ctypes.c_int64, float: ctypes.c_double, bool: ctypes.c_bool}


def native(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Return a function that calls the C function of the same name.

    The Python function holds the types and the documentation. Numbers are passed as they are, tables as the addresses
    of their structs.
    """

    @functools.cache
    def bound() -> tuple[Callable[..., Any], tuple[bool, ...]]:
        hints = get_type_hints(function)
        kinds = [hints[parameter] for parameter in inspect.signature(function).parameters]
        target = getattr(_library(), function.__name__)
        target.argtypes = [_NUMBERS.get(kind, ctypes.c_void_p) for kind in kinds]
        target.restype = _NUMBERS.get(hints["return"])
        return target, tuple(kind not in _NUMBERS for kind in kinds)

    @functools.wraps(function)
    def call(*arguments: Parameters.args, **_: Parameters.kwargs) -> Result:
        target, are_tables = bound()
        # The blocks are kept until the function has returned.
        values = [_block(value) if is_table else value for value, is_table in zip(arguments, are_tables, strict=True)]
        result: Result = target(*values)
        return result

    return call


# The struct of the last table of each type, as most calls are with the table of the call before: the identities of its
# arrays, and references that remove it when one of them is freed.
_last: dict[type, tuple[tuple[int, ...], Block, tuple["ref[NDArray[Any]]", ...]]] = {}


def _block(table: Any) -> Block:
    """Return the struct of a table."""
    kind = type(table)
    if len(table) == 1:
        # Such a table is made for one call.
        return Block(table, TABLES[kind])
    arrays = tuple(map(id, table))
    last = _last.get(kind)
    if last is not None and last[0] == arrays:
        return last[1]
    block = Block(table, TABLES[kind])
    _last[kind] = arrays, block, tuple(ref(array, lambda _: _last.pop(kind, None)) for array in table)
    return block


@functools.cache
def _library() -> ctypes.CDLL:
    """Load the compiled functions."""
    check_layout()
    return ctypes.CDLL(str(library_file()))
