"""Defines units of time in seconds."""

from typing import Final

MINUTE_S: Final = 60.0
HOUR_S: Final = 60 * MINUTE_S
DAY_S: Final = 24 * HOUR_S
WEEK_S: Final = 7 * DAY_S
YEAR_S: Final = 365 * DAY_S
