"""TOML whose nesting is bounded before it is parsed: the parser needs time and stack that grow faster than the text."""

import re
import tomllib
from itertools import accumulate
from typing import Any, Final

# Brackets inside of one another, and dots in one line. No file of sadvise has a third of either.
DEEPEST: Final = 32

_BRACKET: Final = re.compile(r"[\[\]{}]")


def parse_toml(text: str) -> dict[str, Any]:
    """Return the tables of a text; raises `ValueError` where it is no TOML, or nested too deeply.

    Brackets and dots count inside of texts and comments too, so that nothing has to be parsed to count them.
    """
    depths = accumulate(1 if bracket in "[{" else -1 for bracket in _BRACKET.findall(text))
    if max(depths, default=0) > DEEPEST or any(line.count(".") > DEEPEST for line in text.splitlines()):
        raise ValueError(f"nested more than {DEEPEST} deep: write its brackets and dotted keys flat")
    return tomllib.loads(text)
