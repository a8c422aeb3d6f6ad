"""What the commands that fit models share, and `sadvise fit performance`, which learns from the daemon's journal."""

import os
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from advisor.backends.installation import how_to_install
from advisor.cli.models import Folder, library
from advisor.cli.options import ConfigFile, option
from advisor.cli.progress import progress_bar
from advisor.clock import SystemClock
from advisor.config import load_config
from advisor.errors import ConfigError, JournalError, ModelError
from advisor.journal import SqliteJournal
from advisor.predict.library import PERFORMANCE, Library, read_card
from advisor.text import escaped
from advisor.view.terminal import instant

if TYPE_CHECKING:
    from advisor.fit.performance_release import Sources
    from advisor.fit.performance_samples import JournalJobs
    from advisor.fit.performance_site import SiteFit


# The part of a card from which on it is for those who make models.
_SETTINGS = "## Settings"


def use_one_thread() -> None:
    """Keep linear algebra to one thread, if NumPy is not imported yet.

    Beside other work, threads that wait for each other make small systems many times slower.
    """
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        os.environ.setdefault(name, "1")


def left_out_words(counts: Mapping[str, int]) -> str:
    """Return how many rows were left out, by reason, as the end of a sentence; "" if none were."""
    left_out = ", ".join(f"{count:,} {why}" for why, count in sorted(counts.items()))
    return f"; left out: {left_out}" if left_out else ""


def print_card(card: str, *, whole: bool) -> None:
    """Print a card; unless `whole`, without what is for those who make models."""
    for line in card.splitlines():
        if not whole and line == _SETTINGS:
            break
        typer.echo(escaped(line))


def check_fitting(folder: Path | None, *, dry_run: bool) -> None:
    """Raise `ConfigError` before the work if the fitting libraries are missing, or the model could not be written."""
    for module in ("sklearn", "skl2onnx"):
        if find_spec(module) is None:
            raise ConfigError(f"{module} is not installed, and fitting needs it: {how_to_install('fit')}")
    site = library(folder).site
    nearest = next(path for path in (site, *site.absolute().parents) if os.access(path, os.F_OK))
    if not dry_run and not (nearest.is_dir() and os.access(nearest, os.W_OK)):
        raise ConfigError(f"{nearest}: cannot be written: run this as root, or give --models DIR or --dry-run")


# In place of a file: the journal of the configuration.
CONFIGURED = "journal"


def performance(
    source: Annotated[str, option("--from FILE|journal", "A journal, or journal for that of the configuration.")],
    models: Folder = None,
    config: ConfigFile = None,
    seed: Annotated[int, option("--seed N", "Seed of the random draws of the fit.", min=0)] = 0,
    user_share: Annotated[float, option("--user-share X", "Largest share of one user's jobs.", min=0.0, max=1.0)] = 0.1,
    account_share: Annotated[
        float, option("--account-share X", "Largest share of one account's.", min=0.0, max=1.0)
    ] = 0.3,
    dry_run: Annotated[bool, option("--dry-run", "Fit, judge and print the card, write nothing.")] = False,
) -> None:
    """Adapt the performance model to this site: effects of GPU types, places and neighbours on run times.

    The result is compared with the version in use on later jobs. If it passes, it is published beside it with a version
    of policy-metarl that looks at it, and put in use by `sadvise models use policy-metarl VERSION` alone.
    """
    use_one_thread()
    from advisor.fit.performance_release import sources_of
    from advisor.fit.performance_site import Shares, fitted_to_site
    from advisor.predict.performance import PerformanceModel

    check_fitting(models, dry_run=dry_run)
    held = library(models)
    sources = sources_of(held)
    read = _read(_journal(source, config))
    with progress_bar(100, "% of the fit") as show:
        fit = fitted_to_site(
            PerformanceModel.opened(sources.prior),
            PerformanceModel.opened(sources.in_use),
            read.jobs,
            seed=seed,
            shares=Shares(user=user_share, account=account_share),
            progress=lambda done: show(100.0 * done) if show else None,
        )
    if fit.verdict.faults:
        raise ModelError(f"performance: not published: {'; '.join(fit.verdict.faults)}")
    _publish(held, sources, read, fit, seed=seed, dry_run=dry_run)


def _journal(source: str, config: Path | None) -> Path:
    """Return the path of the journal that is learnt from; raises `JournalError` where no file is there."""
    if source != CONFIGURED:
        if not (path := Path(source)).is_file():
            raise JournalError(f"--from {source}: no such journal: name a file, or `{CONFIGURED}` for that in use")
        return path
    return Path(load_config(config, os.environ).journal.file)


def _read(path: Path) -> "JournalJobs":
    """Read the ended jobs of a journal, and print how many there are."""
    from advisor.fit.performance_samples import read_ended_jobs

    with SqliteJournal.read_only(path) as journal, progress_bar(100, "% of the recorded cycles") as show:
        read = read_ended_jobs(
            journal, progress=lambda done, total: show(100.0 * done / total) if show and done % 10 == 0 else None
        )
    rest = left_out_words(read.left_out)
    there = f"{read.outcomes:,} ended jobs in {read.cycles:,} recorded cycles"
    typer.echo(f"{there}, {len(read.jobs):,} to learn from{rest}")
    return read


def _publish(
    held: Library, sources: "Sources", read: "JournalJobs", fit: "SiteFit", *, seed: int, dry_run: bool
) -> None:
    """Publish what passed the gate, and print its card."""
    from advisor.fit.performance_release import POLICY_KIND, publish_site

    today, figures = instant(SystemClock().now())[:10], fit.verdict.figures
    with TemporaryDirectory() as scratch:
        version = "dry-run" if dry_run else held.next_version(PERFORMANCE, POLICY_KIND)
        folder = Path(scratch) if dry_run else held.site
        published = publish_site(fit, read, sources, folder, version, today=today, seed=seed)
        card = read_card(Library(folder, held.shipped).find(PERFORMANCE, version))
    print_card(card, whole=dry_run)
    if published.policy is not None and sources.policy is not None and not dry_run:
        compare = f"sadvise models compare {POLICY_KIND} {sources.policy.entry.version} {version} --rollout"
        use = f"sadvise models use {POLICY_KIND} {version}"
        typer.echo(f"performance: see it in shadow and in `{compare}`, then `{use}`", err=True)
    what = "nothing was written" if dry_run else f"{version} is published beside the version in use"
    typer.echo(
        f"performance: {what}: {len(fit.jobs):,} jobs of the last {fit.stretch:,}, log likelihood "
        f"{figures['gain']:+.3f} (standard error {figures['gain_error']:.3f}), coverage {figures['coverage']:.0%}",
        err=True,
    )
