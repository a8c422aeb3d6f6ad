"""Trains the placement of gangs on sites that differ: `python -m tools.train.metarl train --seed 1 --out DIR`."""

import json
import os
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from tools.train import dl2
from tools.train.planned import PlannedRun, complete, recipe_for
from tools.train.sites.training import ABLATIONS, SPREADS_FILE
from tools.train.verdicts import read_results

app = typer.Typer(add_completion=False, no_args_is_help=True, help=__doc__, pretty_exceptions_enable=False)


@app.callback()
def main() -> None:
    """Train the placement of gangs on sites that differ."""


@app.command()
def spreads(
    out: Annotated[Path, typer.Option(help="File for the spreads.")] = SPREADS_FILE,
    workers: Annotated[int, typer.Option(help="Sites at once.", min=1)] = len(os.sched_getaffinity(0)),
) -> None:
    """Learn how far sites depart from what was measured, over the sites of the training."""
    from tools.train.sites.spreads import learn_spreads

    def show(text: str) -> None:
        typer.echo(text, err=True)

    with dl2.one_line():
        out.write_text(json.dumps(learn_spreads(workers, show), indent=1) + "\n", encoding="utf-8")


@app.command()
def train(
    out: dl2.Folder,
    seed: dl2.Seed = 1,
    without: Annotated[list[str] | None, typer.Option(help=f"Leave out: {', '.join(ABLATIONS)}.")] = None,
    change: dl2.Changes = None,
) -> None:
    """Train a policy on drawn sites, and validate it on others."""
    with dl2.one_line():
        chosen = recipe_for("sites", None, without or [], change or [])
        planned = PlannedRun(setting="sites", recipe=chosen, teacher="cheapest", seed=seed)
        complete(planned, out, partial(dl2.report, figure="{:+6.2f} % of the rule"))


app.command()(dl2.sweep)


@app.command("publish-prior")
def publish_prior(
    models: Annotated[Path, typer.Option(help="Folder of models.")],
    version: Annotated[str, typer.Option(help="Name of the version.")] = "default-1",
    use: Annotated[bool, typer.Option("--use", help="Put it in use there.")] = False,
) -> None:
    """Publish the performance model that every site starts from."""
    from tools.train.sites.publication import publish_performance

    dl2.publish_as(publish_performance, models, version, use=use)


@app.command()
def publish(
    run: Annotated[Path, typer.Option(help="Folder of a finished run.", exists=True, file_okay=False)],
    results: Annotated[Path, typer.Option(help="What the judge wrote with --out.", exists=True, dir_okay=False)],
    models: Annotated[Path, typer.Option(help="Folder of models.")],
    version: Annotated[str, typer.Option(help="Name of the version.")] = "default-1",
    use: Annotated[bool, typer.Option("--use", help="Put it in use there.")] = False,
) -> None:
    """Publish the policy of a run as policy-metarl, with its card."""
    from tools.train.sites.publication import publish_policy

    with dl2.one_line():
        judged = read_results(results)
    dl2.publish_as(partial(publish_policy, run, judged), models, version, use=use)


if __name__ == "__main__":
    app()
