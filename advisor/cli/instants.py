"""Parses instants as people write them."""

import re
from datetime import datetime

from advisor.domain.units import DAY_S, HOUR_S, MINUTE_S, WEEK_S
from advisor.errors import OptionsError

_UNITS_S = {"s": 1.0, "m": MINUTE_S, "h": HOUR_S, "d": DAY_S, "w": WEEK_S}
_AGO = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)([smhdw])", re.ASCII)


def instant_of(text: str, now: float) -> float:
    """Return the instant in POSIX seconds that `2h` (ago) or `2026-03-01T12:00` (local time) names.

    Raises `OptionsError` for anything else.
    """
    ago = _AGO.fullmatch(text.strip())
    if ago is not None:
        return now - float(ago[1]) * _UNITS_S[ago[2]]
    try:
        return datetime.fromisoformat(text.strip()).timestamp()
    except (ValueError, OverflowError, OSError) as err:
        raise OptionsError(
            f"--since {text!a}: give a time ago such as 2h or 3d, or one such as 2026-03-01T12:00"
        ) from err
