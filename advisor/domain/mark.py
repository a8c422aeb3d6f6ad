"""Marks the nice values that sadvise sets, so that they are recognised when the journal does not know of them.

The mark is the last digit, 7. People choose round values, and the digit moves a job by nine points of priority at most.
"""

from typing import Final

MARK: Final = 7
MARK_SPAN: Final = 10


def marked(nice: int) -> int:
    """Return the next nice value that carries the mark, in the direction away from 0; 0 stays 0."""
    if nice < 0:
        return -marked(-nice)
    return nice + (MARK - nice) % MARK_SPAN if nice else 0


def marked_below(nice: int) -> int:
    """Return the highest nice value at or below `nice` that carries the mark."""
    return nice - (nice - MARK) % MARK_SPAN if nice >= MARK else marked(min(nice, -1))


def marked_beside(nice: int) -> tuple[int, int]:
    """Return the nice values that carry the mark next to `nice`: at or below it, and at or above it."""
    return marked_below(nice), -marked_below(-nice)


def is_marked(nice: int) -> bool:
    """Return whether a nice value carries the mark."""
    return abs(nice) % MARK_SPAN == MARK
