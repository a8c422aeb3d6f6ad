"""The goldens by the names of their files."""

from collections.abc import Callable, Mapping
from typing import Final

from tests.golden.digests import documents, random_plans, recorded_plans, simulated
from tests.golden.sentences import sentences

GOLDENS: Final[Mapping[str, Callable[[], Mapping[str, str]]]] = {
    "random_plans": random_plans,
    "recorded_plans": recorded_plans,
    "simulated": simulated,
    "documents": documents,
    "sentences": sentences,
}
