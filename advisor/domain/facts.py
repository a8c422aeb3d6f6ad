"""The facts behind a proposal: the numbers that its sentence is made of."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Final

from advisor.domain.actions import Reason
from advisor.domain.topology import LocalityTier

Evidence = str | int | float

# Marks a fact that its sentence needs and that is not published as evidence.
UNPUBLISHED: Final[Mapping[str, bool]] = {"is_unpublished": True}


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Facts by name, not rounded; a proposer declares a class of them for each of its reasons.

    The order of the fields is that of the evidence.
    """

    @property
    def reason(self) -> Reason:
        """Return the reason of the proposal."""
        raise NotImplementedError

    @property
    def evidence(self) -> dict[str, Evidence]:
        """Return the facts as published."""
        return published(self)


def published(facts: Facts) -> dict[str, Evidence]:
    """Return the facts that are published, numbers rounded to a thousandth."""
    return {fact.name: _rounded(getattr(facts, fact.name)) for fact in fields(facts) if not fact.metadata}


def _rounded(value: Evidence | LocalityTier | None) -> Evidence:
    match value:
        case None:
            return "none"
        case LocalityTier():
            return value.name.lower()
        case float():
            return round(value, 3)
        case int() | str():
            return value
