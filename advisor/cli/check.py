"""`sadvise check`: what this site offers, and what each lack costs."""

import os
from collections.abc import Iterator
from pathlib import Path

from advisor.backends.failures_reader import read_failed_runs
from advisor.backends.probe import probes
from advisor.backends.process import Commands, SlurmCommands
from advisor.backends.scontrol_text import read_billings
from advisor.backends.submit_lines import read_submitted
from advisor.cli.options import AnyQueue, Form
from advisor.clock import SystemClock
from advisor.config import Config
from advisor.diagnose.failing_nodes import SINCE, failure_checks
from advisor.diagnose.site_checks import Check, Status, billing_checks, site_checks
from advisor.domain.lease import Lease
from advisor.domain.probation import Trust
from advisor.domain.snapshot import Snapshot
from advisor.errors import AdvisorError, ConfigError, JournalError, ModelError
from advisor.journal import SqliteJournal
from advisor.planning.strays import NOT_SUBMITTED, candidates, strays
from advisor.predict.forecaster import checked, is_tested
from advisor.predict.library import Library
from advisor.sim.slurm.slurm_settings import unknown_settings
from advisor.site.breaker_events import read_breakers
from advisor.site.idle_watch import look_for_idle
from advisor.site.pause_file import paused
from advisor.site.round_state import proofs_so_far, why_on_probation
from advisor.site.status_file import read_status
from advisor.site.status_words import pause_line
from advisor.view.breaker_words import stop_line
from advisor.view.documents import meta
from advisor.view.idle_words import measured_words, unmapped_words
from advisor.view.table_layout import TableForm
from advisor.watch.reading import journal_file, open_queue

_COSTS = {
    "run_time": "run times are assumed as shares of the time limits, and no soft limit is proposed",
    "throughput": "speeds are assumed to grow as a power of the GPU count, and spreading to cost every job the same",
    "interference": "neighbours are assumed to cost nothing",
    "start_time": "explain cannot forecast when a job starts",
}

_MOST_STRAYS = 50
_STRAY_COST = "nothing reverts it: if it is not the user's own, restore it with scontrol"


def check(reading: AnyQueue, output: Form) -> None:
    """Check the Slurm release, topology, parameters, privileges, load and readers, with what it costs to lack each.

    Asks slurmctld a little more than a snapshot does; run it by hand, not in a loop.
    """
    settings = reading.load_config()
    opened = open_queue(reading, settings)
    seen = opened.snapshot()
    checks = [*site_checks(seen, settings.guard), *_models(settings), *_what_if(seen)]
    if reading.is_live:
        checks += [*_trust(settings, seen.taken_at), *_notices(settings), *_interactive(settings)]
        timeout_s = reading.timeout_of(settings)
        commands = SlurmCommands(timeout_s=timeout_s, cluster=reading.cluster)
        checks = [
            *probes(seen, commands, source=opened, pacing=settings.daemon),
            *checks,
            *_fair_share(seen, commands),
            *_failures(seen, commands),
            *_idle_gpus(settings, seen, commands),
            *_strays(settings, seen, commands),
        ]
    header = ["check", "status", "finding", "cost of lacking it"]
    rows = [[result.name, str(result.status), result.text, result.cost] for result in checks]
    document = {"meta": meta(seen, "sadvise.check/1", opened.name), "checks": checks}
    warns = {str(status): "yellow" for status in (Status.LACKS, Status.UNKNOWN)}
    output.show(document, header, rows, form=TableForm(folded=(header[0], *header[2:]), styles=warns))


def _what_if(seen: Snapshot) -> Iterator[Check]:
    """Report the settings of the site that the model behind `simulate` does not know."""
    name = "what-if model"
    unknown = unknown_settings(seen.config, seen.topology.kind, seen.partitions, seen.nodes)
    if not unknown:
        yield Check(name=name, status=Status.OK, text="knows the settings of this site")
    for each in unknown:
        yield Check(name=name, status=Status.LACKS, text=f"does not know {each.setting}", cost=each.effect)


def _fair_share(seen: Snapshot, commands: Commands) -> Iterator[Check]:
    """Check whether fair share is charged for GPUs."""
    try:
        yield from billing_checks(seen, read_billings(commands))
    except AdvisorError as err:
        cost = "users could hold GPUs that they do not pay for"
        yield Check(name="fair share", status=Status.UNKNOWN, text=f"the partitions cannot be read: {err}", cost=cost)


def _failures(seen: Snapshot, commands: Commands) -> Iterator[Check]:
    """Check whether some nodes end more jobs than others."""
    try:
        yield from failure_checks(read_failed_runs(commands, SINCE), len(seen.nodes))
    except AdvisorError as err:
        cost = "nodes that end jobs are not found"
        yield Check(
            name="nodes that end jobs", status=Status.UNKNOWN, text=f"accounting cannot be read: {err}", cost=cost
        )


def _idle_gpus(settings: Config, seen: Snapshot, commands: SlurmCommands) -> Iterator[Check]:
    """Check whether the GPUs of running jobs are measured."""
    name, cost = "idle GPUs", "GPUs that running jobs hold and do not use are not found"
    if not settings.utilisation.is_on:
        text = "not looked for: set prometheus in [utilisation] if a Prometheus scrapes the GPUs"
        yield Check(name=name, status=Status.LACKS, text=text, cost=cost)
        return
    try:
        look = look_for_idle(seen, settings.utilisation, commands, SystemClock())
    except AdvisorError as err:
        yield Check(name=name, status=Status.UNKNOWN, text=str(err), cost=cost)
        return
    if look.gpus and not look.measured:
        labels = "job_label" if settings.utilisation.job_label else "node_label and gpu_label"
        text = f"{measured_words(look)}: check {labels} in [utilisation]"
        yield Check(name=name, status=Status.LACKS, text=text, cost=cost)
        return
    shared = f"; {unmapped_words(look)}" if look.unmapped else ""
    yield Check(name=name, status=Status.OK, text=f"{measured_words(look)}{shared}")


def _trust(settings: Config, now: float) -> Iterator[Check]:
    """Check what the daemon does not do: a pause, open circuit breakers, and run times that are set aside."""
    if (pause := paused(Path(settings.daemon.runtime_folder))) is not None:
        yield Check(name="pause", status=Status.LACKS, text=pause_line(pause), cost="the daemon only recommends")
    path = Path(settings.journal.file)
    try:
        if not path.exists():
            return
        with SqliteJournal.read_only(path) as kept:
            breakers, trust = read_breakers(kept)[0], kept.trust()
            proof_by_model = proofs_so_far(kept, now)
    except (AdvisorError, OSError) as err:
        cost = "open breakers and unproven models are not known"
        yield Check(name="journal", status=Status.UNKNOWN, text=str(err), cost=cost)
        return
    for breaker in breakers.open:
        text, cost = stop_line(breaker), "the daemon only recommends"
        yield Check(name=f"breaker {breaker.name}", status=Status.LACKS, text=text, cost=cost)
    if not breakers.open:
        yield Check(name="breakers", status=Status.OK, text="none is open")
    model = _on_probation(settings, trust)
    if model is not None:
        text = why_on_probation(model, proof_by_model, trust, settings)
        yield Check(name="probation", status=Status.LACKS, text=text, cost="run times are shares of the time limits")


def _notices(settings: Config) -> Iterator[Check]:
    """Check that the last notices of the daemon were delivered."""
    try:
        last = read_status(Path(settings.daemon.runtime_folder))
    except ConfigError:
        return  # `sadvise status` says why
    if last is not None and last.undelivered:
        text = f"not delivered: {last.undelivered}; to do: `sadvise notify --test`"
        yield Check(name="notices", status=Status.LACKS, text=text, cost="people do not learn of breakers and the like")


def _interactive(settings: Config) -> Iterator[Check]:
    """Check that interactive jobs can be lifted where the site wants it."""
    if not settings.guard.interactive_ratio:
        return
    name, cost = "interactive jobs", "no interactive job is lifted at its submission"
    path, beside = settings.daemon.submit_table, Path(os.environ.get("SLURM_CONF", "/etc/slurm/slurm.conf")).parent
    if not path:
        text = "guard.interactive_ratio needs daemon.submit_table, which names no file"
        yield Check(name=name, status=Status.LACKS, text=text, cost=cost)
    elif not Path(path).exists():
        text = f"{path} is not there: the daemon writes it in each round in mode apply"
        yield Check(name=name, status=Status.LACKS, text=text, cost=cost)
    elif not (beside / "sadvise_lift.lua").exists():
        text = f"{beside} holds no sadvise_lift.lua on this machine; slurmctld needs it beside job_submit.lua"
        yield Check(name=name, status=Status.UNKNOWN, text=text, cost=cost)
    else:
        yield Check(name=name, status=Status.OK, text=f"{path} and sadvise_lift.lua are there")


def _on_probation(settings: Config, trust: Trust) -> str | None:
    """Return the run-time model in use if it is on probation."""
    if not settings.forecasts.enabled:
        return None
    try:
        held = Library(Path(settings.forecasts.models)).find("run_time", None)
    except ModelError:
        return None  # the check of the models says why
    tested = held.entry.tested
    is_exempt = not settings.guard.probation_jobs or (tested is not None and is_tested(tested.proof))
    is_trusted = held.name not in trust.drifted and (is_exempt or held.name in trust.proven)
    return None if is_trusted else held.name


def _strays(settings: Config, seen: Snapshot, commands: Commands) -> Iterator[Check]:
    """Report pending jobs that look changed by sadvise, and of which the journal knows no change."""
    name, path = "changes without a lease", journal_file(settings, None)
    leases: tuple[Lease, ...] = ()
    try:
        if path.exists():
            with SqliteJournal.read_only(path) as journal:
                leases = journal.leases()
    except (JournalError, OSError) as err:
        cost = "changes of sadvise and those of users cannot be distinguished"
        yield Check(name=name, status=Status.UNKNOWN, text=f"the journal cannot be read: {err}", cost=cost)
        return
    submitted = NOT_SUBMITTED
    try:
        submitted = read_submitted(commands, candidates(seen))
    except AdvisorError as err:
        cost = "node ranges and switches are not compared"
        yield Check(name=f"{name}: accounting", status=Status.UNKNOWN, text=f"not read: {err}", cost=cost)
    found = strays(seen, leases, submitted)
    if not found:
        yield Check(name=name, status=Status.OK, text="none seen")
    for stray in found[:_MOST_STRAYS]:
        yield Check(name=f"{name}: job {stray.job_id}", status=Status.LACKS, text=stray.text, cost=_STRAY_COST)
    if len(found) > _MOST_STRAYS:
        more = f"{len(found) - _MOST_STRAYS} more"
        yield Check(name=name, status=Status.LACKS, text=more, cost=_STRAY_COST)


def _models(settings: Config) -> Iterator[Check]:
    """Open every model in use, and report the models that are missing or refused."""
    if not settings.forecasts.enabled:
        cost = "the planner uses its rules alone"
        yield Check(name="models", status=Status.LACKS, text="turned off: forecasts.enabled is false", cost=cost)
        return
    library = Library(Path(settings.forecasts.models))
    for kind, cost in _COSTS.items():
        name = f"model {kind}"
        try:
            held = library.find(kind, None)
            checked(held)
        except ModelError as err:
            yield Check(name=name, status=Status.LACKS, text=str(err), cost=cost)
        else:
            origin = "ships with sadvise; fit your own" if held.shipped else "fitted here"
            yield Check(
                name=name, status=Status.OK, text=f"{held.entry.version} of {held.entry.fitted}, {origin}", cost=""
            )
