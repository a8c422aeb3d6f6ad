"""Computes the difference between the lists of two cycles, so that a record holds only what changed."""

from collections.abc import Callable, Hashable, Sequence
from itertools import islice
from operator import lt
from typing import Generic, TypeVar

from advisor.domain.dataclass import dataclass

Item = TypeVar("Item")
Other = TypeVar("Other")


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference(Generic[Item]):
    """The difference of a list from an earlier one; positions refer to the earlier list, followed by `added`.

    `order` is None if the kept items are in their old order and the added ones at the end.
    """

    dropped: tuple[int, ...] = ()
    changed: tuple[tuple[int, Item], ...] = ()
    added: tuple[Item, ...] = ()
    order: tuple[int, ...] | None = None


def difference(earlier: Sequence[Item], later: Sequence[Item], key: Callable[[Item], Hashable]) -> Difference[Item]:
    """Compare two lists, whose items are matched by `key`; without an earlier list every item is added."""
    positions = {key(item): position for position, item in enumerate(earlier)}
    if len(positions) < len(earlier):
        # Two items with one key cannot be distinguished.
        return Difference(dropped=tuple(range(len(earlier))), added=tuple(later))
    changed: list[tuple[int, Item]] = []
    added: list[Item] = []
    order: list[int] = []
    for item in later:
        position = positions.pop(key(item), None)
        if position is None:
            order.append(len(earlier) + len(added))
            added.append(item)
        else:
            order.append(position)
            old = earlier[position]
            if old is not item and old != item:
                changed.append((position, item))
    return Difference(
        dropped=tuple(sorted(positions.values())),
        changed=tuple(changed),
        added=tuple(added),
        order=None if all(map(lt, order, islice(order, 1, None))) else tuple(order),
    )


def restored(earlier: Sequence[Item], delta: Difference[Item]) -> tuple[Item, ...]:
    """Return the later list; raises `ValueError` if the difference does not fit the earlier list."""
    pool = list(earlier)
    try:
        for position, item in delta.changed:
            pool[position] = item
        if delta.order is not None:
            pool += delta.added
            return tuple(pool[position] for position in delta.order)
    except IndexError as err:
        raise ValueError("a record does not follow from the one before it") from err
    dropped = frozenset(delta.dropped)
    return (*(item for position, item in enumerate(pool) if position not in dropped), *delta.added)


def mapped(delta: Difference[Item], as_other: Callable[[Item], Other]) -> Difference[Other]:
    """Return the difference with every item converted by `as_other`."""
    return Difference(
        dropped=delta.dropped,
        changed=tuple((position, as_other(item)) for position, item in delta.changed),
        added=tuple(as_other(item) for item in delta.added),
        order=delta.order,
    )
