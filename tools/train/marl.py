"""Trains the placement of gangs by several agents: `python -m tools.train.marl train --seed 1 --out DIR`."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from tools.train import dl2
from tools.train.places.training import ABLATIONS
from tools.train.planned import PlannedRun, complete, recipe_for
from tools.train.verdicts import read_results

app = typer.Typer(add_completion=False, no_args_is_help=True, help=__doc__, pretty_exceptions_enable=False)


@app.callback()
def main() -> None:
    """Train the placement of gangs by several agents."""


@app.command()
def train(
    out: dl2.Folder,
    seed: dl2.Seed = 1,
    without: Annotated[list[str] | None, typer.Option(help=f"Leave out: {', '.join(ABLATIONS)}.")] = None,
    change: dl2.Changes = None,
) -> None:
    """Train a policy on drawn clusters, first with one agent, then with several, and validate it on others."""
    with dl2.one_line():
        chosen = recipe_for("places", None, without or [], change or [])
        planned = PlannedRun(setting="places", recipe=chosen, teacher="best-fit", seed=seed)
        complete(planned, out, partial(dl2.report, figure="{:+6.2f} % of best fit"))


app.command()(dl2.sweep)


@app.command()
def publish(
    run: Annotated[Path, typer.Option(help="Folder of a finished run.", exists=True, file_okay=False)],
    results: Annotated[Path, typer.Option(help="What the judge wrote with --out.", exists=True, dir_okay=False)],
    models: Annotated[Path, typer.Option(help="Folder of models.")],
    version: Annotated[str, typer.Option(help="Name of the version.")] = "default-1",
    use: Annotated[bool, typer.Option("--use", help="Put it in use there.")] = False,
) -> None:
    """Publish the policy of a run as policy-marl, with its card."""
    from tools.train.places.publication import publish_policy

    with dl2.one_line():
        judged = read_results(results)
    dl2.publish_as(partial(publish_policy, run, judged), models, version, use=use)


if __name__ == "__main__":
    app()
