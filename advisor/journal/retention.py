"""Defines how long the journal keeps its rows."""

from dataclasses import dataclass
from typing import Final

MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """For how long cycles, outcomes and the audit are kept, and the size limit of cycles recorded in full."""

    keep_days: float = 90.0
    records_mib: float = 512.0
