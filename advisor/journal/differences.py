"""What changed between two lists of a cycle and the next, so that most of a record need not be written again."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import lt
from typing import Generic, TypeVar

Item = TypeVar("Item")
Other = TypeVar("Other")


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference(Generic[Item]):
    """How a list came from an earlier one; positions count in the earlier list, and in `order` the added follow it.

    `order` is None where what stayed kept its order and what is new stands at the end.
    """

    dropped: tuple[int, ...] = ()
    changed: tuple[tuple[int, Item], ...] = ()
    added: tuple[Item, ...] = ()
    order: tuple[int, ...] | None = None


def difference(earlier: Sequence[Item], later: Sequence[Item], key: Callable[[Item], Hashable]) -> Difference[Item]:
    """Compare two lists; `key` says which item of one is which of the other.

    Without an earlier list everything is new.
    """
    at = {key(item): position for position, item in enumerate(earlier)}
    if len(at) < len(earlier):
        # What stands twice cannot be told apart.
        return Difference(dropped=tuple(range(len(earlier))), added=tuple(later))
    changed: list[tuple[int, Item]] = []
    added: list[Item] = []
    order: list[int] = []
    for item in later:
        position = at.pop(key(item), None)
        if position is None:
            order.append(len(earlier) + len(added))
            added.append(item)
        else:
            order.append(position)
            old = earlier[position]
            if old is not item and old != item:
                changed.append((position, item))
    return Difference(
        dropped=tuple(sorted(at.values())),
        changed=tuple(changed),
        added=tuple(added),
        order=None if all(map(lt, order, islice(order, 1, None))) else tuple(order),
    )


def restored(earlier: Sequence[Item], found: Difference[Item]) -> tuple[Item, ...]:
    """Return the later list; raises `ValueError` where the difference is not one to the earlier list."""
    pool = list(earlier)
    try:
        for position, item in found.changed:
            pool[position] = item
        if found.order is not None:
            pool += found.added
            return tuple(pool[position] for position in found.order)
    except IndexError as err:
        raise ValueError("a record does not follow from the one before it") from err
    dropped = frozenset(found.dropped)
    return (*(item for position, item in enumerate(pool) if position not in dropped), *found.added)


def mapped(found: Difference[Item], as_other: Callable[[Item], Other]) -> Difference[Other]:
    """Return the same difference between other items."""
    return Difference(
        dropped=found.dropped,
        changed=tuple((position, as_other(item)) for position, item in found.changed),
        added=tuple(as_other(item) for item in found.added),
        order=found.order,
    )
