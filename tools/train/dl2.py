"""Trains DL2's policies: `python -m tools.train.dl2 published --seed 1 --out DIR`."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from advisor.cli.progress import terminated_as_interrupted
from advisor.cli.simulation import INTERRUPTED
from advisor.cli.simulation_options import Spread
from advisor.clock import SystemClock
from advisor.errors import AdvisorError
from advisor.predict.library import Library
from advisor.predict.manifest import Entry
from advisor.view.terminal import instant
from tools.train.campaign import run_campaign, unfinished
from tools.train.curves import Point
from tools.train.learning import deterministic
from tools.train.planned import PlannedRun, complete, read_runs, recipe_for
from tools.train.published.teachers import TEACHERS
from tools.train.published.training import ABLATIONS, RECIPES
from tools.train.training import Run

app = typer.Typer(add_completion=False, no_args_is_help=True, help=__doc__, pretty_exceptions_enable=False)

Folder = Annotated[Path, typer.Option(help="Folder of the run; a run that is there goes on.")]
Seed = Annotated[int, typer.Option(help="Seed of weights, episodes and actions.")]
Changes = Annotated[list[str] | None, typer.Option("--set", help="Field of the recipe, as NAME=JSON.")]


@app.callback()
def main() -> None:
    """Train DL2's policies."""


@app.command()
def published(
    out: Folder,
    seed: Seed = 1,
    recipe: Annotated[str, typer.Option(help=f"How to learn: {', '.join(RECIPES)}.")] = "published",
    teacher: Annotated[str, typer.Option(help=f"Teacher of the warm-up: {', '.join(TEACHERS)}.")] = "drf",
    without: Annotated[list[str] | None, typer.Option(help=f"Leave out: {', '.join(ABLATIONS)}.")] = None,
    change: Changes = None,
) -> None:
    """Train a policy for the published setting, and validate it on traces of its own."""
    with one_line():
        chosen = recipe_for("published", recipe, without or [], change or [])
        planned = PlannedRun(setting="published", recipe=chosen, teacher=teacher, seed=seed)
        complete(planned, out, partial(report, figure="{:6.3f} slots"))


@app.command()
def slurm(
    out: Folder,
    seed: Seed = 1,
    teacher: Annotated[str, typer.Option(help="Teacher of the warm-up: asked, gain, price.")] = "price",
    change: Changes = None,
    workers: Annotated[int, typer.Option(help="Processes that play the episodes.", min=1)] = 1,
) -> None:
    """Train a policy that sizes elastic jobs on Slurm, on drawn workloads."""
    with one_line():
        planned = PlannedRun(
            setting="slurm", recipe=recipe_for("slurm", None, [], change or []), teacher=teacher, seed=seed
        )
        complete(planned, out, partial(report, figure="{:+6.2f} % of as asked"), workers=workers)


@app.command()
def sweep(
    file: Annotated[Path, typer.Argument(help="File of runs, such as tools/train/published/table.toml.")],
    out: Annotated[Path, typer.Option(help="Folder of the folders of the runs.")],
    only: Annotated[list[str] | None, typer.Option(help="Rows of the file to run; all if left out.")] = None,
    seeds: Annotated[str | None, typer.Option(help="Seeds in place of those of the file, such as 1-5.")] = None,
    workers: Annotated[int | None, typer.Option(help="Runs at once; all cores, or 64 jobs.", min=1)] = None,
    engine: Annotated[Spread, typer.Option(help="Where runs go: cores of this machine, or jobs.")] = Spread.LOCAL,
) -> None:
    """Train the runs of a file, several at once; the same command goes on with those that are not over."""
    with one_line(), terminated_as_interrupted():
        runs = read_runs(file, only=only or [], seeds=seeds)
        todo = unfinished(runs, out)
        typer.echo(f"{len(runs) - len(todo)} of {len(runs)} runs are over")
        ends = {}
        try:
            for name, end in run_campaign(todo, out, engine=engine.value, workers=engine.at_once(workers)):
                ends[name] = end
                typer.echo(f"{name}: {end.error or f'{end.figure:.3f} in validation'}", err=bool(end.error))
        except KeyboardInterrupt:
            over = len(runs) - len(todo) + sum(not end.error for end in ends.values())
            left = ", ".join(name for name in todo if name not in ends)
            typer.echo(
                f"interrupted: {over} of {len(runs)} runs are over; run the same command again for {left}", err=True
            )
            raise typer.Exit(INTERRUPTED) from None
    if any(end.error for end in ends.values()):
        raise typer.Exit(1)


@app.command()
def publish(
    run: Annotated[Path, typer.Option(help="Folder of a finished run of `slurm`.")],
    models: Annotated[Path, typer.Option(help="Folder of models.")],
    version: Annotated[str, typer.Option(help="Name of the version.")] = "default-1",
    use: Annotated[bool, typer.Option("--use", help="Put it in use there.")] = False,
) -> None:
    """Publish the policy of a run as policy-dl2, with its card."""
    from tools.train.slurm.publication import publish_policy

    publish_as(partial(publish_policy, run), models, version, use=use)


def publish_as(publish: Callable[..., Entry], models: Path, version: str, *, use: bool) -> None:
    """Publish a policy of today, and put it in use if asked to."""
    deterministic()
    try:
        entry = publish(models, version, today=instant(SystemClock().now())[:10])
        if use:
            Library(models, models / "none").use(entry.kind, version)
    except (AdvisorError, OSError) as err:
        raise typer.BadParameter(str(err)) from err
    typer.echo(f"{entry.kind} {version}: parity {entry.parity.max_error:.2g} over {entry.parity.rows} options")


def report(run: Run, point: Point, *, figure: str) -> None:
    """Print a line for a validation; `figure` formats what is validated."""
    typer.echo(
        f"{point.phase:<8} {point.updates:>6} updates {point.episodes:>6} episodes  loss {point.loss:8.4f}  "
        f"mean JCT {figure.format(point.figure)}, least {figure.format(run.best)}  CPU {point.cpu_s:6.0f} s"
    )


@contextmanager
def one_line() -> Iterator[None]:
    """Turn what the user can fix into one line."""
    try:
        yield
    except AdvisorError as err:
        raise typer.BadParameter(str(err)) from err


if __name__ == "__main__":
    app()
