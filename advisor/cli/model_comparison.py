"""`sadvise models compare`: judge two versions of a learned policy on the recorded cycles of the journal."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import count
from pathlib import Path

from advisor.cli.progress import progress_bar, terminated_as_interrupted
from advisor.domain.dataclass import dataclass
from advisor.domain.units import duration, plural
from advisor.errors import JournalError, OptionsError
from advisor.features.policy import Policy, models_of
from advisor.journal import SqliteJournal
from advisor.predict.library import Library
from advisor.predict.manifest import POLICY
from advisor.predict.served_policy import open_policy
from advisor.replay.deviations import SHADOW
from advisor.replay.policy_comparison import (
    PlaceComparison,
    PlacesCompared,
    PlanComparison,
    PlannedBy,
    PlanPair,
    PolicyComparison,
    RolledOut,
    rolled_out,
)
from advisor.sim.live.slurm_rollout import SlurmRollout
from advisor.view.overall import signed
from advisor.view.terminal import Output, instant, print_json, print_labelled, print_table, tool_meta

SCHEMA = "sadvise.models.compare/1"
RULES = "rules"
# The most recorded snapshots that are rolled out: a rollout at 1,000 jobs takes seconds, one at 10,000 a minute.
SNAPSHOTS = 10
DRAWS = 12
HORIZON_S = 12 * 3600.0
# An interval that ends beyond eleven times the run time says nothing.
_WIDEST = 10.0
_NOT_SIMULATED = (
    "not compared: the plans differ in the nodes that they name for gangs alone, and named nodes are not simulated"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class InShadow:
    """What the journal keeps of a version in shadow: results that differ from the one before, and their changes."""

    results: int
    since: float
    same: int
    only_shadow: int
    only_in_force: int
    faults: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """What the journal shows of each side by its name: in shadow, and the places that it names."""

    in_shadow: Mapping[str, InShadow | None]
    places: Mapping[str, PlacesCompared]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Side:
    name: str
    policy: Policy | None

    @property
    def comparison(self) -> PlaceComparison | None:
        """What compares the nodes that it names; None for the rules and a policy without a performance model."""
        models = models_of(self.policy, None)
        return None if models is None or models.speeds is None else PlaceComparison(models)

    @property
    def digest(self) -> str:
        """The digest of its model, "" for the rules."""
        return "" if self.policy is None else self.policy.digest


def compare_versions(
    kind: str,
    versions: tuple[str, str],
    *,
    cycles: int,
    rollout: bool,
    journal: Path,
    library: Library,
    output: Output,
) -> None:
    """Compare two versions of a policy on the last cycles of a journal, and print what differs."""
    sides = _sides(library, kind, *versions)
    with terminated_as_interrupted(), SqliteJournal.read_only(journal) as past:
        cycle_ids = _recorded_ids(past, cycles)
        tried = _spread(cycle_ids, SNAPSHOTS) if rollout else ()
        with progress_bar(len(cycle_ids) + len(tried), "cycles") as show:
            found, pairs, places = _compared(past, cycle_ids, frozenset(tried), sides, show)
            values = _rolled_out(pairs, len(cycle_ids), show) if rollout else None
        in_shadow = {side.name: _in_shadow(past, side.digest) for side in sides if side.digest}
    seen = _Seen(in_shadow=in_shadow, places=places)
    if output.json:
        print_json(_document(kind, sides, found, values, seen))
    else:
        _print(sides, found, values, seen, noheader=output.noheader)


def _sides(library: Library, kind: str, a: str, b: str) -> tuple[_Side, _Side]:
    """Open both versions; raises `OptionsError` or `ModelError`."""
    if not kind.startswith(POLICY):
        raise OptionsError(f"{kind!a} forecasts, and what is compared are policies: give {POLICY}NAME")
    if a == b:
        raise OptionsError(f"{a!a} is compared with itself: give two versions, or one and {RULES}")
    name = kind.removeprefix(POLICY)
    opened = (None if given == RULES else open_policy(library, f"{name}@{given}") for given in (a, b))
    first, second = (_Side(name=given, policy=policy) for given, policy in zip((a, b), opened, strict=True))
    return first, second


def _recorded_ids(past: SqliteJournal, most: int) -> tuple[int, ...]:
    ids = past.recorded_ids(most)
    if not ids:
        raise JournalError(f"{past.path}: no cycle is recorded in full: nothing to compare")
    return ids


def _spread(cycle_ids: Sequence[int], most: int) -> tuple[int, ...]:
    """Return up to `most` cycles at even distances, the last one included."""
    count = min(most, len(cycle_ids))
    return tuple(cycle_ids[len(cycle_ids) * (place + 1) // count - 1] for place in range(count))


def _compared(
    past: SqliteJournal,
    cycle_ids: Sequence[int],
    tried: frozenset[int],
    sides: tuple[_Side, _Side],
    show: Callable[[float], None] | None,
) -> tuple[PlanComparison, list[PlanPair], dict[str, PlacesCompared]]:
    """Plan the cycles with both sides; return the plans of those that are to be rolled out, and the places by side."""
    comparison = PolicyComparison((sides[0].policy, sides[1].policy), time.perf_counter)
    pairs, of_places = [], [side.comparison for side in sides]
    for recorded in past.recorded_cycles(cycle_ids):
        pair = comparison.plan(recorded)
        for of_side, plan in zip(of_places, pair.plans, strict=True):
            if of_side is not None:
                of_side.add(pair.case, plan)
        if recorded.cycle_id in tried:
            pairs.append(pair)
        if show is not None:
            show(comparison.found.cycles)
    places = {side.name: one.result() for side, one in zip(sides, of_places, strict=True) if one is not None}
    return comparison.found, pairs, places


def _rolled_out(pairs: Iterable[PlanPair], before: int, show: Callable[[float], None] | None) -> RolledOut:
    done = count(before + 1)
    return rolled_out(
        pairs,
        SlurmRollout(places=50),
        horizon_s=HORIZON_S,
        draws=DRAWS,
        done=lambda: None if show is None else show(next(done)),
    )


def _in_shadow(past: SqliteJournal, digest: str) -> InShadow | None:
    """Return what the journal keeps of a model in shadow; None if it holds nothing of it."""
    rows = [row for row in past.audit_after(0) if row.event == SHADOW and row.detail.get("digest") == digest]
    if not rows:
        return None

    def total(name: str) -> int:
        return sum(int(row.detail.get(name, 0)) for row in rows)

    return InShadow(
        results=len(rows),
        since=rows[0].time,
        same=total("same"),
        only_shadow=total("shadow"),
        only_in_force=total("in_force"),
        faults=sum("fault" in row.detail for row in rows),
    )


def _print(
    sides: tuple[_Side, _Side], found: PlanComparison, values: RolledOut | None, seen_in: _Seen, *, noheader: bool
) -> None:
    """Print a table with a column for each side, and what holds for both as sentences."""
    names = [side.name for side in sides]
    rows = [[label, *(text(side) for side in found.sides)] for label, text in _ROWS.items()]
    print_table(("", *names), rows, right=(1, 2), noheader=noheader)
    sys.stdout.write("\n")
    for label, text in [*_sentences(names, found, seen_in), *(() if values is None else _of_rollout(names, values))]:
        print_labelled(label, text, width=max(9, len(label) + 2))


def _sentences(names: Sequence[str], found: PlanComparison, seen_in: _Seen) -> Iterator[tuple[str, str]]:
    """Yield labels and sentences on the plans, and on what the journal shows of each side."""
    cycles = f"{plural(found.cycles, 'recorded cycle')}, in {found.equal} of them the same plan"
    yield "cycles", f"{cycles}; {plural(found.both, 'change')} by both"
    for name, side in zip(names, found.sides, strict=True):
        if side.first_fault:
            yield "fault", f"{name}: {side.first_fault}"
    for name, seen in seen_in.in_shadow.items():
        if seen is not None:
            changes = f"{plural(seen.same, 'change')} as in force, {seen.only_shadow} only in shadow"
            rest = f"{seen.only_in_force} only in force, {plural(seen.faults, 'fault')}"
            yield "shadow", f"{name}: {plural(seen.results, 'result')} since {instant(seen.since)}: {changes}, {rest}"
    for name, of_places in seen_in.places.items():
        yield "places", f"{name}: {_places(of_places)}"


def _of_rollout(names: Sequence[str], values: RolledOut) -> Iterator[tuple[str, str]]:
    """Yield labels and sentences on the rollouts, and on what they leave out."""
    plans = f"{plural(values.snapshots, 'snapshot')}, {values.differing} with different plans, {values.draws} draws"
    yield "rollout", f"{plans}, {duration(values.horizon_s)} each: {_verdict(names, values)}"
    if values.skipped:
        yield "skipped", f"{plural(values.skipped, 'snapshot')} that cannot be simulated"
    if values.named:
        differ = f"the nodes that are named for gangs, which differ in {plural(values.named, 'snapshot')}"
        yield "not in it", f"{differ}: named nodes are not simulated"
    for sentence in values.left_out:
        yield "not in it", sentence


def _verdict(names: Sequence[str], values: RolledOut) -> str:
    """Return which side is better in one sentence, or that there is no clear difference."""
    if not values.differing:
        return _NOT_SIMULATED if values.named else "no clear difference: both plan the same"
    interval = f"95 % interval {signed(values.low)} to {signed(values.high)}"
    better, worse = names if values.change_s > 0.0 else names[::-1]
    which = f"{better} is better than {worse}" if values.is_clear else "no clear difference"
    return f"{which}; mean completion of all jobs {signed(values.change_s)} under {names[1]}, {interval}"


def _places(found: PlacesCompared) -> str:
    """Return what the named nodes are expected to change, as one sentence."""
    rest = [
        *([f"{found.same} of them on the same nodes"] if found.same else []),
        *([f"{found.by_name} more started on nodes that were named"] if found.by_name else []),
        *([f"{found.unseen} more {'was' if found.unseen == 1 else 'were'} not seen to start"] if found.unseen else []),
    ]
    if found.change is None:
        return "; ".join(["no gang for which it names nodes was seen to start where Slurm chose", *rest])
    interval = ""
    if found.low is not None and found.high is not None:
        is_wide = found.high > _WIDEST
        bounds = f"{_percent(found.low)} to {_percent(found.high)}"
        interval = ", too few for an interval" if is_wide else f", 95 % interval {bounds}"
    change = (
        f"run time {_percent(found.change)} on the nodes that it names, against those on which Slurm started "
        f"{plural(found.gangs, 'gang')}{interval}, by the performance model, not observed"
    )
    return "; ".join([change, *rest])


def _percent(share: float) -> str:
    return f"{100.0 * share:+.1f} %"


def _saving(side: PlannedBy) -> str:
    return f"{duration(side.saved_s_low)} to {duration(side.saved_s_high)}" if side.changes else "none"


_ROWS: Mapping[str, Callable[[PlannedBy], str]] = {
    "decisions": lambda side: str(side.decisions),
    "time per decision": lambda side: "-" if side.s_per_decision is None else f"{side.s_per_decision * 1e6:.0f} us",
    "changes": lambda side: str(side.changes),
    "only by this one": lambda side: str(side.only_here),
    "expected saving": _saving,
    "cycles with a fault": lambda side: str(side.faults),
}


def _document(
    kind: str, sides: tuple[_Side, _Side], found: PlanComparison, values: RolledOut | None, seen_in: _Seen
) -> dict[str, object]:
    """Return the comparison as published."""
    documents = [
        {
            "version": side.name,
            "digest": side.digest or None,
            **asdict(sums),
            "s_per_decision": sums.s_per_decision,
            "in_shadow": seen_in.in_shadow.get(side.name),
            "places": seen_in.places.get(side.name),
        }
        for side, sums in zip(sides, found.sides, strict=True)
    ]
    return {
        "meta": tool_meta(SCHEMA),
        "kind": kind,
        "cycles": found.cycles,
        "equal": found.equal,
        "both": found.both,
        "sides": documents,
        "rollout": None if values is None else {**asdict(values), "is_clear": values.is_clear},
    }
