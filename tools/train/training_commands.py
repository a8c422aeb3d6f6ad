"""The options and commands that the programs of all systems share: runs of a file, validations, publication."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
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
from tools.train.imitation import deterministic
from tools.train.runs import PlannedRun, Setting, complete, planned_run, read_runs, run_campaign, unfinished
from tools.train.training import CurvePoint, TrainingRun, read_results

Folder = Annotated[Path, typer.Option(help="Folder of the run; a run that is there goes on.")]
Seed = Annotated[int, typer.Option(help="Seed of weights, episodes and actions.")]
Changes = Annotated[list[str] | None, typer.Option("--set", help="Field of the recipe, as NAME=JSON.")]
FinishedRun = Annotated[Path, typer.Option(help="Folder of a finished run.", exists=True, file_okay=False)]
FinishedRuns = Annotated[
    list[Path], typer.Option(help="Folders of finished runs; give it once for each.", exists=True, file_okay=False)
]
Results = Annotated[Path, typer.Option(help="What the judge wrote with --out.", exists=True, dir_okay=False)]
Workers = Annotated[int | None, typer.Option(help="How many at once; all cores, or 64 jobs.", min=1)]
Engine = Annotated[
    Spread, typer.Option(help="Where they go: cores of this machine, or a job array; its folder is on all nodes.")
]
Models = Annotated[Path, typer.Option(help="Folder of models.")]
Version = Annotated[str, typer.Option(help="Name of the version.")]
Use = Annotated[bool, typer.Option("--use", help="Put it in use there.")]


def program(summary: str) -> typer.Typer:
    """Return a program without commands yet."""
    app = typer.Typer(add_completion=False, no_args_is_help=True, help=summary, pretty_exceptions_enable=False)
    # With a callback a program of one command takes its name, too.
    app.callback()(_nothing)
    return app


def _nothing() -> None:
    pass


def start(module: str) -> None:
    """Run the program of a module, imported by its name: checkpoints hold classes of that module."""
    import_module(module).app()


def finish(planned: PlannedRun, out: Path, figure: str) -> None:
    """Train a run to its end, with a line for each validation; `figure` formats what is validated."""
    complete(planned, out, partial(report, figure=figure))


def add_train(app: typer.Typer, setting: Setting, figure: str, summary: str) -> None:
    """Add the command that trains a policy that places gangs; `figure` formats what is validated."""

    @app.command(help=summary)
    def train(out: Folder, seed: Seed = 1, change: Changes = None) -> None:
        with one_line():
            finish(planned_run(setting, seed, changes=change or []), out, figure)


def add_publish(app: typer.Typer, publish_policy: Callable[..., Entry], kind: str) -> None:
    """Add the command that publishes the policy of a run with what the judge found."""

    @app.command(help=f"Publish the policy of a run as {kind}, with its card.")
    def publish(
        run: FinishedRun, results: Results, models: Models, version: Version = "default-1", use: Use = False
    ) -> None:
        with one_line():
            judged = read_results(results)
        publish_as(partial(publish_policy, run, judged), models, version, use=use)


def sweep(
    file: Annotated[Path, typer.Argument(help="File of runs, such as tools/train/dl2.toml.")],
    out: Annotated[Path, typer.Option(help="Folder of the folders of the runs.")],
    only: Annotated[list[str] | None, typer.Option(help="Rows of the file to run; all if left out.")] = None,
    seeds: Annotated[str | None, typer.Option(help="Seeds in place of those of the file, such as 1-5.")] = None,
    workers: Workers = None,
    engine: Engine = Spread.LOCAL,
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


def report(run: TrainingRun, point: CurvePoint, *, figure: str) -> None:
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
