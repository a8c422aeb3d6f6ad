"""How long the journal keeps what has happened."""

from dataclasses import dataclass
from typing import Final

MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long cycles, outcomes and the audit are kept, and how much room records of whole cycles may take."""

    keep_days: float = 90.0
    records_mib: float = 512.0
