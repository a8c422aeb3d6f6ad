"""Prints what a run showed, as tables."""

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from advisor.domain.lease import Lease
from tools.live_twins.both_clusters import Pair, Twin
from tools.live_twins.checks import (
    GROUPS,
    TwinFacts,
    differences,
    due_start,
    lateness,
    paired_delay,
    purpose_gone,
    touched_by_lever,
)
from tools.live_twins.twin_jobs import ATTACKER, TwinRequest
from tools.live_twins.twin_run import TwinOptions, TwinOutcome
from tools.stage.lateness import Known
from tools.stage.program import print_figures
from tools.stage.watch import LiveStay, can_delay, touched

_ROW = "{:<14}{:>9}{:>7}{:>7}{:>9}{:>10}{:>9}{:>8}{:>10}  {}"
_COLUMNS = ("job", "changed", "due", "plain", "advised", "vs plain", "vs due", "out, s", "gone, s", "changes by lever")

_LEGEND = """changed jobs: first change, due start and starts, in seconds from the first submission;
how much later than plain and than due (>= still waits, <= waits on plain alone);
how long changes were out, and at most after their purpose was gone"""


def report(outcome: TwinOutcome) -> None:
    """Print one line for each changed job, and the figures of the run."""
    facts = outcome.facts
    began = min((pair.submit_time for pair in facts.pairs), default=facts.until)
    rows = list(_job_rows(facts, began))
    if rows:
        print(_LEGEND)
        print("\n".join([_ROW.format(*_COLUMNS), *rows]))
    print_figures(_figures(outcome))


def _job_rows(facts: TwinFacts, began: float) -> Iterator[str]:
    pairs = {pair.job_id[Twin.ADVISED]: pair for pair in facts.pairs}
    leases_by_job: dict[int, list[Lease]] = {}
    for lease in sorted(touched(facts.leases), key=lambda lease: (lease.applied_time, lease.job_id)):
        leases_by_job.setdefault(lease.job_id, []).append(lease)

    def after(instant: float | None) -> str:
        return "-" if instant is None else f"{instant - began:.0f}"

    for job_id, leases in leases_by_job.items():
        pair, delaying = pairs[job_id], [lease for lease in leases if can_delay(lease)]
        delays = [late for lease in delaying if (late := lateness(lease, pair, facts.until)) is not None]
        yield _ROW.format(
            pair.name,
            after(leases[0].applied_time),
            after(min((due for lease in delaying if (due := due_start(lease)) is not None), default=None)),
            after(pair.stay[Twin.PLAIN].start_time),
            after(pair.stay[Twin.ADVISED].start_time),
            str(paired_delay(pair, facts.until) or "-"),
            str(max(delays, key=lambda late: late.seconds, default="-")),
            f"{sum(_out_until(lease, facts.until) - lease.applied_time for lease in leases):.0f}",
            f"{max(_useless_s(lease, pairs, facts.until) for lease in leases):.0f}",
            ", ".join(f"{lever} {count}" for lever, count in Counter(str(lease.lever) for lease in leases).items()),
        )


def _out_until(lease: Lease, until: float) -> float:
    return until if lease.ended_time is None else lease.ended_time


def _useless_s(lease: Lease, pairs: Mapping[int, Pair], until: float) -> float:
    """Return for how long a change was out after its purpose was gone."""
    gone = purpose_gone(lease, pairs)
    return 0.0 if gone is None else max(0.0, _out_until(lease, until) - gone)


def _figures(outcome: TwinOutcome) -> Iterator[tuple[str, object]]:
    facts = outcome.facts
    own = [pair for pair in facts.pairs if pair.request.user != ATTACKER]
    yield "jobs submitted to each cluster, without attacks", len(own)
    if outcome.lifts:
        yield "jobs lifted", outcome.lifts
    if facts.rounds:
        yield "rounds of the daemon", len(facts.rounds)
        for name, count in sorted(touched_by_lever(facts.leases).items()):
            yield f"  jobs changed by {name}", count
        yield "long jobs submitted right after a change", outcome.attacks
        for twin in Twin:
            attacks = [pair.stay[twin].start_time for pair in facts.pairs if pair.request.user == ATTACKER]
            yield f"  started on the {twin} cluster", sum(start_time is not None for start_time in attacks)
        yield "  left out, since half of the GPUs were theirs", outcome.attacks_left_out
        yield from _worst(facts)
        yield "jobs that the daemon held to be late", len(facts.late_run.late)
        yield "  jobs not late that stood above one and started first", len(facts.late_run.passed)
        yield "  jobs not late that stood behind one and started first", len(facts.late_run.backfilled)
    found = differences(facts.pairs, facts.until, facts.tolerance_s)
    yield "paired difference of starts (advised - plain), jobs", found.jobs
    yield "  of them started on one cluster alone, time so far", found.censored
    yield "  started on neither, left out", found.on_neither
    yield "  mean, s", f"{found.mean_s:+.1f}"
    yield "  95 % interval of the mean, s", f"{found.low_s:+.1f} {found.high_s:+.1f}"
    yield "  worst, s", f"{found.worst_s:+.0f}"
    yield f"  later by more than {facts.tolerance_s:.0f} s", found.later
    yield f"  earlier by more than {facts.tolerance_s:.0f} s", found.earlier
    for percent, seconds in found.quantiles_s.items():
        yield f"  {percent} % of all starts differ by at most, s", f"{seconds:.0f}"


def _worst(facts: TwinFacts) -> Iterator[tuple[str, object]]:
    """Yield the latest start of each kind of change, against the plain cluster and against when the job was due."""
    for name, levers in GROUPS.items():
        leases = [lease for lease in touched(facts.leases) if lease.lever in levers]
        yield f"latest start after a {name}: later than plain, s", _latest(_against_plain(facts, leases))
        yield f"latest start after a {name}: later than due, s", _latest(_against_due(facts, leases))


def _against_plain(facts: TwinFacts, leases: Sequence[Lease]) -> Iterator[float]:
    for pair in map(facts.pair_of, leases):
        delay = paired_delay(pair, facts.until)
        if delay is not None:
            yield delay.seconds


def _against_due(facts: TwinFacts, leases: Sequence[Lease]) -> Iterator[float]:
    for lease in leases:
        late = lateness(lease, facts.pair_of(lease), facts.until)
        if late is not None:
            yield late.seconds


def _latest(seconds: Iterable[float]) -> str:
    latest_s = max(seconds, default=None)
    return "-" if latest_s is None else f"{latest_s:+.0f}"


def keep_jobs(pairs: Iterable[Pair], known: Mapping[int, Sequence[Known]], path: Path) -> None:
    """Write what is known of each job, one JSON object a line, so that a fault can be followed to its cause.

    `known` are the starts without advice that the daemon held for jobs of the advised cluster.
    """
    with path.open("w") as lines:
        for pair in pairs:
            row = {
                "name": pair.name,
                "user": pair.request.user,
                "gpus": pair.request.gpus,
                "limit_s": pair.request.limit_s,
                "run_s": pair.request.run_s,
                "submit_s": pair.request.submit_s,
                "submit_time": pair.submit_time,
                "known_plain_starts": known.get(pair.job_id[Twin.ADVISED], ()),
                **{
                    f"{twin}_{field}": value
                    for twin in Twin
                    for field, value in (
                        ("job_id", pair.job_id[twin]),
                        ("state", pair.stay[twin].state),
                        ("start_time", pair.stay[twin].start_time),
                        ("end_time", pair.stay[twin].end_time),
                        ("nodes", pair.stay[twin].nodes),
                    )
                },
            }
            lines.write(json.dumps(row) + "\n")


def pair_of_row(row: Mapping[str, Any]) -> Pair:
    """Return a job on both clusters from a line of `keep_jobs`, without its options."""
    return Pair(
        request=TwinRequest(
            name=row["name"],
            submit_s=row["submit_s"],
            user=row["user"],
            options=(),
            gpus=row["gpus"],
            limit_s=row["limit_s"],
            run_s=row["run_s"],
        ),
        submit_time=row["submit_time"],
        job_id={twin: row[f"{twin}_job_id"] for twin in Twin},
        stay={
            twin: LiveStay(**{field: row[f"{twin}_{field}"] for field in ("start_time", "end_time", "state", "nodes")})
            for twin in Twin
        },
    )


def keep_run(options: TwinOptions, outcome: TwinOutcome, version: str, path: Path) -> None:
    """Write the options of a run and the facts that are not in its journal and jobs."""
    facts = outcome.facts
    row = {
        "version": version,
        "options": asdict(options),
        "until": facts.until,
        "rounds": list(facts.rounds),
        "load_average": os.getloadavg(),
    }
    path.write_text(json.dumps(row) + "\n")
