"""Binary heaps of job rows that store the slot of every job, so that a job can be moved or removed.

`order` holds rows. `keys` and `slots` are columns of the job table: the key of a row and its place in the heap. Equal
keys are ordered by row, that is by submit time and job id. A heap can begin at any index `base` of `order`.
"""

import numpy as np
from numpy.typing import NDArray

from advisor.sim.compiled import compiled

Rows = NDArray[np.int32]
Keys = NDArray[np.float64]


@compiled
def push(order: Rows, keys: Keys, slots: Rows, base: int, length: int, row: int) -> int:
    """Add a row and return the new length."""
    order[base + length] = row
    _rise(order, keys, slots, base, length)
    return length + 1


@compiled
def remove(order: Rows, keys: Keys, slots: Rows, base: int, length: int, row: int) -> int:
    """Remove a row and return the new length."""
    slot = slots[row]
    slots[row] = -1
    last = length - 1
    if slot != last:
        order[base + slot] = order[base + last]
        _rise(order, keys, slots, base, slot)
        _sink(order, keys, slots, base, last, slots[order[base + slot]])
    return last


@compiled
def moved(order: Rows, keys: Keys, slots: Rows, base: int, length: int, row: int) -> None:
    """Restore the order after the key of a row has changed."""
    _rise(order, keys, slots, base, slots[row])
    _sink(order, keys, slots, base, length, slots[row])


@compiled
def _before(keys: Keys, one: int, other: int) -> bool:
    return keys[one] < keys[other] or (keys[one] == keys[other] and one < other)


@compiled
def _rise(order: Rows, keys: Keys, slots: Rows, base: int, slot: int) -> None:
    row = order[base + slot]
    while slot > 0:
        parent = (slot - 1) // 2
        above = order[base + parent]
        if not _before(keys, row, above):
            break
        order[base + slot] = above
        slots[above] = slot
        slot = parent
    order[base + slot] = row
    slots[row] = slot


@compiled
def _sink(order: Rows, keys: Keys, slots: Rows, base: int, length: int, slot: int) -> None:
    row = order[base + slot]
    while True:
        child = 2 * slot + 1
        if child >= length:
            break
        if child + 1 < length and _before(keys, order[base + child + 1], order[base + child]):
            child += 1
        below = order[base + child]
        if not _before(keys, below, row):
            break
        order[base + slot] = below
        slots[below] = slot
        slot = child
    order[base + slot] = row
    slots[row] = slot
