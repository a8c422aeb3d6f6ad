"""How values stand in a golden: numbers to six digits, for CPUs differ beyond."""

import json
import math
from collections.abc import Mapping
from typing import Any, Final

# How the names of instants end. They are read from a queue, and to six digits all instants of a day look alike.
INSTANTS: Final = ("_time", "_at")


def rounded(value: Any) -> Any:
    """Return a value that JSON can hold with its numbers rounded."""
    match value:
        case float() if math.isfinite(value):
            # What is left of a sum that comes to nothing differs between CPUs as well.
            short = float(f"{round(value, 9):.6g}")
            return int(short) if short.is_integer() else short
        case float():
            return str(value)
        case dict():
            return {key: _named(key, each) for key, each in value.items()}
        case list() | tuple():
            return [rounded(each) for each in value]
        case _:
            return value


def _named(name: str, value: Any) -> Any:
    is_instant = isinstance(value, float) and math.isfinite(value) and name.endswith(INSTANTS)
    return round(value) if is_instant else rounded(value)


def compact(value: Any) -> str:
    """Return a value without blanks."""
    short = rounded(value)
    return short if isinstance(short, str) else json.dumps(short, sort_keys=True, separators=(",", ":"))


def fields(values: Mapping[str, Any]) -> str:
    """Return the values that are known, each with its name, on one line."""
    return " ".join(f"{name}={compact(value)}" for name, value in sorted(values.items()) if value is not None)
