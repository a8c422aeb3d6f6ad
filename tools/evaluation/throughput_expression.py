"""The words of `--profile`: comparisons of nodes, gpus and batch, joined by `and`, `or`, `not` and parentheses."""

import ast
import operator
import re
from collections.abc import Callable, Mapping
from functools import reduce
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.errors import ConfigError

Mask = NDArray[np.bool_]
Columns = Mapping[str, NDArray[np.float64]]

_COMPARISONS: Final[Mapping[type[ast.cmpop], Callable[[NDArray[np.float64], NDArray[np.float64]], Mask]]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.LtE: operator.le,
    ast.GtE: operator.ge,
    ast.Lt: operator.lt,
    ast.Gt: operator.gt,
}
# A single equals sign compares as well.
_EQUALS: Final = re.compile(r"(?<![=!<>])=(?!=)")


def matching(text: str, columns: Columns) -> Mask:
    """Return which rows match; raises `ConfigError` for what is no such expression."""
    try:
        return _mask(ast.parse(_EQUALS.sub("==", text.strip().lower()), mode="eval").body, columns)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as err:
        raise ConfigError(
            f"--profile {text!r} is not understood: write as nodes==1 and gpus<=8, with the names {', '.join(columns)}"
        ) from err


def _mask(node: ast.expr, columns: Columns) -> Mask:
    """Return the rows that match a part of an expression; raises `ValueError` for what is none."""
    match node:
        case ast.BoolOp(op=ast.And(), values=parts):
            return reduce(operator.and_, (_mask(part, columns) for part in parts))
        case ast.BoolOp(op=ast.Or(), values=parts):
            return reduce(operator.or_, (_mask(part, columns) for part in parts))
        case ast.UnaryOp(op=ast.Not(), operand=part):
            return ~_mask(part, columns)
        case ast.Compare(left=left, ops=signs, comparators=others) if all(type(sign) in _COMPARISONS for sign in signs):
            values = pairwise(_value(part, columns) for part in (left, *others))
            return reduce(
                operator.and_, (_COMPARISONS[type(sign)](*pair) for sign, pair in zip(signs, values, strict=True))
            )
    raise ValueError(ast.unparse(node))


def _value(node: ast.expr, columns: Columns) -> NDArray[np.float64]:
    match node:
        case ast.Name(id=name) if name in columns:
            return columns[name]
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return np.full(len(next(iter(columns.values()))), float(number))
    raise ValueError(ast.unparse(node))
