"""How many examples the tests of drawn values draw: a third, and all in `make test-all`.

Every run draws other examples, so that they add up over runs.
"""

import os
from typing import Final

ALL: Final = "SADVISE_ALL_EXAMPLES"
LEAST: Final = 10


def examples(count: int) -> int:
    """Return how many of `count` examples this run draws."""
    return count if os.environ.get(ALL) == "1" else max(min(count, LEAST), count // 3)
