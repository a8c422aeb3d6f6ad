"""Computes again only what changed since the last round.

From one round to the next few jobs of a queue change, and most forecasts depend on little more than the job itself. A
value is therefore kept with its basis: all that it was computed from. While the basis of a key stays equal, its value
is the one that would be computed again; so a round costs what changed, and its result equals that of a first round.
Nothing has to be invalidated: whatever can change a value, such as the model that was asked, is a part of the basis.
Keys that a round does not name are forgotten, so that a memo never holds more than one round.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Generic, TypeVar

Key = TypeVar("Key")
Basis = TypeVar("Basis")
Value = TypeVar("Value")

# Keys per batch: the tables between a request and its forecast are a hundred times as wide as the request.
BATCH = 1024


class Memo(Generic[Key, Basis, Value]):
    """The values of the last round by key, each with its basis."""

    def __init__(self) -> None:
        """Remember nothing yet."""
        self._last: dict[Key, tuple[Basis, Value]] = {}

    def fill(
        self,
        keys: Sequence[Key],
        bases: Iterable[Basis],
        compute: Callable[[Mapping[Key, Basis]], Iterable[Value]],
    ) -> list[Value]:
        """Return the value of each key; a key may come again, with the same basis.

        `compute` returns the values of keys that are new, or whose basis is, in their order; raises what it raises.
        """
        last, values, fresh = self._last, dict[Key, tuple[Basis, Value]](), dict[Key, Basis]()
        for key, basis in zip(keys, bases, strict=True):
            known = last.get(key)
            if known is not None and (known[0] is basis or known[0] == basis):
                values[key] = known
            else:
                fresh[key] = basis
        for batch in _batches(fresh):
            values.update(zip(batch, zip(batch.values(), compute(batch), strict=True), strict=True))
        self._last = values
        return [values[key][1] for key in keys]


def _batches(fresh: Mapping[Key, Basis]) -> Iterator[Mapping[Key, Basis]]:
    items = list(fresh.items())
    return (dict(items[start : start + BATCH]) for start in range(0, len(items), BATCH))
