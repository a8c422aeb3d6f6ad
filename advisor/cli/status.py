"""`sadvise status`: how the daemon is doing, and why nothing happens if nothing happens."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

import typer

from advisor.cli.options import Clusters, ConfigFile, JournalFile, Json
from advisor.clock import SystemClock
from advisor.domain.units import duration
from advisor.errors import AdvisorError
from advisor.site.status_words import NOT_RUNNING as ENDED
from advisor.site.status_words import Overlook, lines, state_sentence, status_document
from advisor.view.table_layout import TableForm
from advisor.view.terminal import print_json, print_labelled, print_table, tool_meta
from advisor.watch.clusters import check_one_journal, readings_of
from advisor.watch.daemon_state import check_cluster, daemon_state
from advisor.watch.reading import Reading

SCHEMA: Final = "sadvise.status/1"
SEVERAL_SCHEMA: Final = "sadvise.status-clusters/1"
# For monitoring; 1 and 2 are those of errors and of usage.
DEGRADED: Final = 4
NOT_RUNNING: Final = 5


# The exit codes from best to worst; 1 is a cluster whose files cannot be read, or lifts that the journal does not know.
_SEVERITY: Final = (0, DEGRADED, NOT_RUNNING, 1)
_HEADER: Final = ("cluster", "daemon", "mode", "out", "overdue", "last round", "state")


def status(
    cluster: Clusters = None, config: ConfigFile = None, journal: JournalFile = None, json: Json = False
) -> None:
    """Show how the daemon is doing: mode, pause, breakers, last round, changes in effect, and the gain of a day.

    Says why nothing was changed if nothing was. Asks Slurm nothing. Exits with 0 if all is well, 4 if the daemon runs
    but a breaker is open, a change is overdue or rounds fail, 5 if it does not run, 1 if jobs hold lifts that the
    journal does not know. Of several clusters (-M all), it prints one line for each, and exits with the worst: 1 also
    if the files of one cannot be read.
    """
    readings = readings_of(Reading(cluster=cluster, config=config))
    check_one_journal(readings, journal)
    code = _one(readings[0], journal, json=json) if len(readings) == 1 else _several(readings, json=json)
    if code:
        raise typer.Exit(code)


def _one(reading: Reading, journal: Path | None, *, json: bool) -> int:
    """Print the status of one cluster in full, and return its exit code."""
    seen = _seen(reading, journal, SystemClock().now())
    if json:
        print_json({"meta": tool_meta(SCHEMA, now=seen.now), **asdict(status_document(seen))})
    else:
        for label, text in lines(seen):
            print_labelled(label, text, width=10)
    return _code(seen)


def _seen(reading: Reading, journal: Path | None, now: float) -> Overlook:
    """Return the state of the daemon of a cluster; raises `ConfigError` if it works on another one."""
    config = reading.load_config()
    check_cluster(config, reading.cluster)
    return daemon_state(config, journal, now)


def _several(readings: Sequence[Reading], *, json: bool) -> int:
    """Print a line for each cluster, and return the worst exit code; a fault of one hides no other."""
    now, rows, worst = SystemClock().now(), [], 0
    documents: list[dict[str, object]] = []
    for reading in readings:
        name = reading.cluster or ""
        try:
            seen = _seen(reading, None, now)
        except AdvisorError as err:
            code = 1
            rows.append([name, "?", "?", "?", "?", "?", str(err)])
            documents.append({"cluster": name, "fault": str(err)})
        else:
            code = _code(seen)
            rows.append([name, *_fields(seen)])
            documents.append({"cluster": name, "fault": None, **asdict(status_document(seen))})
        worst = max(worst, code, key=_SEVERITY.index)
    if json:
        print_json({"meta": tool_meta(SEVERAL_SCHEMA, now=now), "clusters": documents})
    else:
        print_table(_HEADER, rows, form=TableForm(folded=("state",)))
    return worst


def _fields(seen: Overlook) -> list[str]:
    """Return the status of a cluster as the fields of its line."""
    last = seen.last
    age = "-" if last is None else f"{duration(max(0.0, seen.now - last.started_time))} ago"
    overdue = "-" if last is None else str(last.overdue)
    out = "?" if seen.out is None else str(seen.out)
    return [seen.state, str(seen.mode), out, overdue, age, state_sentence(seen)]


def _code(seen: Overlook) -> int:
    if seen.state == ENDED:
        return NOT_RUNNING
    if seen.last is not None and seen.last.strays:
        return 1
    return 0 if seen.is_well else DEGRADED
