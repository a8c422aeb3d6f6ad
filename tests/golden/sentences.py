"""Every sentence of a reason, filled in with real values: one of each form, in a list to be read."""

import re
from collections.abc import Iterator, Mapping

from advisor.cycle import Cycle, CycleRecord
from advisor.view.sentences import assumption, sentence
from tests.builders import make_cluster
from tests.golden import digests
from tests.planning.test_checkpoint_requeue import FULL, GANG, judged

SEEDS = 300
# Durations, numbers and lists of ids are what differs between sentences of one form.
_FILLED_IN = re.compile(r"-?\d[\d.]*( (s|min|h|d)\b)?|(#, )*# and # more|(#, )+#|# to #|one node|(?<=# job)s")


def sentences() -> Mapping[str, str]:
    """Return the first sentence of each form in the plans for random queues, keyed by its reason and a number."""
    return numbered(_sentences())


def numbered(found: Iterator[tuple[str, str]]) -> Mapping[str, str]:
    """Return the first text of each form, keyed by its name and a number."""
    by_form: dict[tuple[str, str], str] = {}
    for name, text in found:
        by_form.setdefault((name, _form(text)), text)
    counts: dict[str, int] = {}
    listed = {}
    for (name, _), text in sorted(by_form.items()):
        counts[name] = counts.get(name, 0) + 1
        listed[f"{name} {counts[name]}"] = text
    return listed


def _form(text: str) -> str:
    return _FILLED_IN.sub("#", _FILLED_IN.sub("#", text))


def _sentences() -> Iterator[tuple[str, str]]:
    for record in _records():
        for verdict in record.verdicts:
            change = verdict.recommendation
            yield str(change.reason), sentence(change)
            yield f"{change.reason} if", assumption(change)


def _records() -> Iterator[CycleRecord]:
    yield from map(digests.random_record, range(SEEDS))
    yield from (Cycle().judge(later) for _, later in digests.later_snapshots())
    yield judged(make_cluster([*FULL, GANG]))
