"""Re-export until callers move."""

from advisor.domain.limits import Limits as Limits
