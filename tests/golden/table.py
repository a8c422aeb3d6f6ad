"""The goldens by the names of their files."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from advisor.sim.policies import POLICIES
from tests.golden.documents import DOCUMENTS, decided
from tests.golden.plans import RANDOM_QUEUES, RECORDED, plan, random_record, recorded_record
from tests.golden.sentences import sentences
from tests.golden.simulated import TRACES, simulated

FOLDER: Final = Path(__file__).parent


def _random_plan(seed: int) -> str:
    return plan(random_record(seed))


def _recorded_plan(name: str, *, with_models: bool) -> str:
    return plan(recorded_record(name, with_models=with_models))


GOLDENS: Final[Mapping[str, Callable[[], str]]] = {
    **{f"plans/random/seed-{seed:03}.txt": partial(_random_plan, seed) for seed in range(RANDOM_QUEUES)},
    **{f"plans/recorded/{name}-rules.txt": partial(_recorded_plan, name, with_models=False) for name in RECORDED},
    **{f"plans/recorded/{name}-models.txt": partial(_recorded_plan, name, with_models=True) for name in RECORDED},
    **{f"simulated/{name}/{policy}.txt": partial(simulated, name, policy) for name in TRACES for policy in POLICIES},
    **{f"documents/{name}.json": partial(decided, name) for name in DOCUMENTS},
    "sentences.json": sentences,
}


def written() -> set[str]:
    """Return the names of the files that hold goldens."""
    return {str(path.relative_to(FOLDER)) for path in FOLDER.rglob("*") if path.suffix in {".json", ".txt"}}
