"""The words of `--profile`: comparisons of nodes, gpus and batch, joined by `and`, `or`, `not` and parentheses."""

import operator
import re
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from advisor.errors import ConfigError

Mask = NDArray[np.bool_]
Columns = Mapping[str, NDArray[np.float64]]

_COMPARISONS: Mapping[str, Callable[[NDArray[np.float64], NDArray[np.float64]], Mask]] = {
    "==": operator.eq,
    "=": operator.eq,
    "!=": operator.ne,
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}
_TOKEN = re.compile(r"\s*(?:(?P<number>\d+(?:\.\d*)?|\.\d+)|(?P<word>[A-Za-z_]+)|(?P<sign>==|!=|<=|>=|[<>=()]))")
_DEEPEST = 50


def matching(text: str, columns: Columns) -> Mask:
    """Return which rows match; raises `ConfigError` for what is no such expression."""
    return _Reader(text, columns).whole()


class _Reader:
    """Reads one expression from left to right; `or` binds weakest."""

    def __init__(self, text: str, columns: Columns) -> None:
        self._text = text
        self._columns = columns
        self._rows = len(next(iter(columns.values())))
        self._tokens = self._split(text)
        self._at = 0
        self._depth = 0

    def whole(self) -> Mask:
        """Read all of it."""
        found = self._any()
        if self._next() is not None:
            raise self._wrong()
        return found

    def _any(self) -> Mask:
        found = self._all()
        while self._take("or"):
            found = found | self._all()
        return found

    def _all(self) -> Mask:
        found = self._one()
        while self._take("and"):
            found = found & self._one()
        return found

    def _one(self) -> Mask:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self._wrong()
        if self._take("not"):
            found = ~self._one()
        elif self._take("("):
            found = self._any()
            if not self._take(")"):
                raise self._wrong()
        else:
            found = self._comparison()
        self._depth -= 1
        return found

    def _comparison(self) -> Mask:
        left, found = self._value(), None
        # As in 2<=gpus<=8.
        while self._next() in _COMPARISONS:
            compare = _COMPARISONS[self._tokens[self._at]]
            self._at += 1
            right = self._value()
            holds = compare(left, right)
            found = holds if found is None else found & holds
            left = right
        if found is None:
            raise self._wrong()
        return found

    def _value(self) -> NDArray[np.float64]:
        token = self._next()
        self._at += 1
        if token is not None and token in self._columns:
            return self._columns[token]
        if token is not None and token[0] in "0123456789.":
            return np.full(self._rows, float(token))
        self._at -= 1
        raise self._wrong()

    def _next(self) -> str | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _take(self, wanted: str) -> bool:
        is_there = self._next() == wanted
        self._at += is_there
        return is_there

    def _split(self, text: str) -> list[str]:
        tokens, at = [], 0
        text = text.rstrip()
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                raise ConfigError(f"--profile {text!r}: {text[at:].strip()[:20]!r} is not understood")
            tokens.append(match.group(match.lastgroup or 0).lower())
            at = match.end()
        return tokens

    def _wrong(self) -> ConfigError:
        names = ", ".join(self._columns)
        there = f"at {self._tokens[self._at]!r}" if self._at < len(self._tokens) else "at its end"
        return ConfigError(
            f"--profile {self._text!r} is wrong {there}: write as nodes==1 and gpus<=8, with the names {names}"
        )
