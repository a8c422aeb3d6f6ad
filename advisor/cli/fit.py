"""`sadvise fit`: fit the models of the forecasts on this site's own history and measurements."""

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from advisor.backends.installation import how_to_install
from advisor.backends.process import SlurmCommands
from advisor.backends.site_reader import running_config
from advisor.cli.models import Folder, library
from advisor.cli.options import LIVE, RECENT, Cluster, ConfigFile, JournalFile, Since, Timeout, group, option
from advisor.cli.progress import progress_bar
from advisor.cli.site_history import accounting_commands
from advisor.clock import SystemClock
from advisor.config import load_config
from advisor.domain.probation import NO_ORDER, NO_PROOF, Proof
from advisor.errors import ConfigError, DecodeError, ModelError, SlurmError
from advisor.journal import SqliteJournal
from advisor.predict import run_time
from advisor.predict import start_time as start_times
from advisor.predict.forecaster import LEAST_TESTED, is_tested
from advisor.predict.library import Library, opened, read_card
from advisor.predict.manifest import Entry
from advisor.text import escaped
from advisor.view.terminal import instant
from advisor.watch.reading import journal_file

if TYPE_CHECKING:
    from advisor.fit.accounting import Accounting
    from advisor.fit.fitted import Fitted
    from advisor.fit.start_time_journal import JournalPolls

app = group("Fit a model on this site's own data and put it in use; needs the package sadvise-fit.")

Seed = Annotated[int, option("--seed N", "Seed of the random draws of the fit.", min=0)]
Files = Annotated[list[Path], option("--from FILE", "A file of measurements; repeat for several.")]
DryRun = Annotated[bool, option("--dry-run", "Fit and print the card, write nothing.")]
# The part of a card from which on it is for those who make models.
_SETTINGS = "## Settings"


@app.command()
def runtime(
    source: Annotated[str, option("--from FILE|live", "Output of sacct, plain or gzip, or live to run it.")],
    since: Since = RECENT,
    cluster: Cluster = None,
    timeout: Timeout = None,
    models: Folder = None,
    seed: Seed = 0,
    dry_run: DryRun = False,
) -> None:
    """Fit the run-time model on accounting, and keep its history of users with it.

    The latest jobs are kept aside at first, and forecast by forests fitted on the others and by the forests that ship.
    Those that ship are served with the history of this site unless its own are better by more than the standard error.

    A file is written with: sacct -a -X --json -S START
    """
    _check_fitting(models, dry_run=dry_run)
    from advisor.fit.accounting import ask_accounting, read_accounting
    from advisor.fit.publish import publish, publish_with_forests_of
    from advisor.fit.run_time_choice import chosen
    from advisor.fit.run_time_fit import fit_run_time
    from advisor.predict.library import opened

    if source == LIVE:
        accounting = ask_accounting(accounting_commands(cluster, timeout), since=since)
    else:
        accounting = read_accounting(Path(source))
    _tell(accounting)
    shipped = library(models).shipped_model(run_time.KIND)
    rival = run_time.RunTimeForecaster.from_bundle(opened(shipped)).curves
    fitted = fit_run_time(accounting.ended, seed=seed, keep_history=True, sources=(accounting.source,), rival=rival)
    choice = chosen(fitted.metrics, shipped.entry.version)
    fitted = replace(fitted, reason=choice.reason, tested=choice.tested if source == LIVE else None)
    private = not dry_run and _hides_jobs(cluster, 30.0 if timeout is None else timeout)
    write = publish if choice.ours else partial(publish_with_forests_of, shipped)
    _publish(fitted, models, dry_run=dry_run, write=partial(write, private=private))
    typer.echo(f"run_time: {choice.reason}", err=True)
    if source == LIVE and not dry_run:
        typer.echo(f"run_time: {_proof(fitted.tested)}", err=True)
    if private:
        typer.echo("run_time: closed to other users, as PrivateData hides their jobs or is not known", err=True)


@app.command()
def throughput(source: Files, models: Folder = None, seed: Seed = 0, dry_run: DryRun = False) -> None:
    """Fit the throughput model on measured step times; docs/forecasts/throughput.md has the formats."""
    _check_fitting(models, dry_run=dry_run)
    from advisor.fit.throughput_fit import fit_throughput

    _publish(fit_throughput(source, seed=seed), models, dry_run=dry_run)


@app.command()
def interference(source: Files, models: Folder = None, seed: Seed = 0, dry_run: DryRun = False) -> None:
    """Fit the interference model on measured pairs of jobs; docs/forecasts/interference.md has the formats."""
    _check_fitting(models, dry_run=dry_run)
    from advisor.fit.interference_fit import fit_interference

    _publish(fit_interference(source, seed=seed), models, dry_run=dry_run)


@app.command(name="start-time")
def start_time(
    journal: JournalFile = None,
    config: ConfigFile = None,
    models: Folder = None,
    seed: Seed = 0,
    dry_run: DryRun = False,
) -> None:
    """Fit the start-time model on the queue of this site, as the journal of the daemon shows it.

    One recorded cycle in 3 hours of the last 28 days counts; accounting is not read. A fit of the first three quarters
    of these days is judged on the last quarter. Only if it is better there than the shipped model and the wait so far,
    a model of all days is published and put in use. Cycles are kept for journal.keep_days, up to journal.records_mib.
    """
    _check_fitting(models, dry_run=dry_run)
    from advisor.fit.start_time_site import OURS, fit_site

    path, read = _read_polls(journal, config)
    fitted, judgement = fit_site(read, path.name, shipped=_shipped_starts(models), seed=seed)
    _publish(fitted, models, dry_run=dry_run)
    beside = ", ".join(f"{name} {error:.3f}" for name, error in judgement.squared.items() if name != OURS)
    typer.echo(
        f"start_time: judged on {judgement.rows:,} rows of {judgement.polls} polls of the last {judgement.days:.1f} "
        f"days: squared error {judgement.squared[OURS]:.3f} ({beside}), {judgement.coverage:.0%} in the intervals",
        err=True,
    )


def _read_polls(journal: Path | None, config: Path | None) -> "tuple[Path, JournalPolls]":
    """Read the polls of a journal, and print how many there are; raises `JournalError`."""
    from advisor.fit.start_time_journal import read_journal_polls

    path = journal_file(load_config(config, os.environ), journal)
    with SqliteJournal.read_only(path) as kept, progress_bar(100, "% of the polls") as show:
        read = read_journal_polls(kept, progress=lambda done, total: show(100.0 * done / total) if show else None)
    there = f"{len(read.polls):,} rows of {read.cycles:,} polls, {read.pending:,} of jobs that still wait"
    typer.echo(f"{there}{_left_out_words(read.left_out)}", err=True)
    return path, read


def _shipped_starts(models: Path | None) -> start_times.StartTimeForecaster | None:
    """Return the shipped model of start times; None if none ships that is sound."""
    try:
        return start_times.StartTimeForecaster.from_bundle(opened(library(models).shipped_model(start_times.KIND)))
    except ModelError:
        return None


def _check_fitting(folder: Path | None, *, dry_run: bool) -> None:
    """Raise `ConfigError` before the work if the fitting libraries are missing, or the model could not be written."""
    for module in ("sklearn", "skl2onnx"):
        if find_spec(module) is None:
            raise ConfigError(f"{module} is not installed, and fitting needs it: {how_to_install('fit')}")
    site = library(folder).site
    nearest = next(path for path in (site, *site.absolute().parents) if os.access(path, os.F_OK))
    if not dry_run and not (nearest.is_dir() and os.access(nearest, os.W_OK)):
        raise ConfigError(f"{nearest}: cannot be written: run this as root, or give --models DIR or --dry-run")


def _left_out_words(counts: Mapping[str, int]) -> str:
    """Return how many rows were left out, by reason, as the end of a sentence; "" if none were."""
    left_out = ", ".join(f"{count:,} {why}" for why, count in sorted(counts.items()))
    return f"; left out: {left_out}" if left_out else ""


def _hides_jobs(cluster: str | None, timeout_s: float) -> bool:
    """Return whether users do not see each other's jobs, whose run times the model holds; True if Slurm is silent."""
    try:
        return running_config(SlurmCommands(timeout_s=timeout_s, cluster=cluster)).hides_jobs
    except (SlurmError, DecodeError):
        return True


def _tell(accounting: "Accounting") -> None:
    rest = _left_out_words(accounting.left_out)
    typer.echo(f"{accounting.rows:,} rows, {len(accounting.ended):,} ended GPU jobs{rest}", err=True)


def _proof(tested: Proof | None) -> str:
    """Say whether the jobs kept aside from a fit prove its model, and what else will."""
    shown = tested or NO_PROOF
    inside = f"{shown.coverage.inside} of {shown.coverage.jobs} jobs kept aside from the fit ran within their intervals"
    aside = f"{inside}, and it {(shown.order or NO_ORDER).words}"
    if is_tested(tested):
        return f"not on probation: {aside}"
    return (
        f"on probation, so plans rest on time limits: {aside}; {LEAST_TESTED} with about 80 % inside, in a better "
        "order than that of their limits, prove it; the daemon counts those that end from now on (guard.probation_jobs)"
    )


def _print_card(card: str, *, whole: bool) -> None:
    """Print a card; unless `whole`, without what is for those who make models."""
    for line in card.splitlines():
        if not whole and line == _SETTINGS:
            break
        typer.echo(escaped(line))


def _publish(
    fitted: "Fitted", folder: Path | None, *, dry_run: bool, write: Callable[..., Entry] | None = None
) -> None:
    """Export, check parity, write and put in use; print the card."""
    from advisor.fit.publish import publish

    held, kind, today = library(folder), fitted.kind, instant(SystemClock().now())[:10]
    with TemporaryDirectory() as scratch:
        version = "dry-run" if dry_run else held.next_version(kind)
        written = Path(scratch) if dry_run else held.site
        (write or publish)(fitted, written, version, today=today)
        if not dry_run:
            held.use(kind, version)
        _print_card(read_card(Library(written, held.shipped).find(kind, version)), whole=dry_run)
    text = "nothing was written" if dry_run else f"version {version} is in use; {held.site} holds it"
    typer.echo(f"{kind}: {text}", err=True)
    if not dry_run:
        show, undo = (f"sadvise models {command} {kind}" for command in ("show", "rollback"))
        typer.echo(f"{kind}: `{show}` prints the rest of the card, `{undo}` undoes this", err=True)
