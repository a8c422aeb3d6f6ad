"""Judges policies where no training and no choice of a policy looked: `python -m tools.train.judge dl2 --runs DIR`.

Runs that differ in nothing but the seed are one row. All rows play the same traces, rules too, so that differences
are paired by trace; the intervals are those of `advisor.sim.study.statistics`, which draw traces, then seeds within a
trace.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from tools.train.dl2 import one_line
from tools.train.learning import deterministic

# The set of the judge of metarl that measures how fast a site is learnt.
LEARNING = 3

app = typer.Typer(add_completion=False, no_args_is_help=True, help=__doc__, pretty_exceptions_enable=False)


@app.callback()
def main() -> None:
    """Judge trained policies."""


@app.command()
def dl2(
    runs: Annotated[list[Path], typer.Option(help="Folders of finished runs; give it once for each.")],
    setting: Annotated[str, typer.Option(help="published, or slurm.")] = "published",
    out: Annotated[Path | None, typer.Option(help="File for the results, as JSON.")] = None,
    best_action: Annotated[
        bool, typer.Option("--best-action", help="Take the best action, do not sample; on Slurm this is always so.")
    ] = False,
    picture: Annotated[Path | None, typer.Option(help="File for the learning curves of one row, as SVG.")] = None,
    row: Annotated[str, typer.Option(help="The row whose learning curves are drawn; ours, or dl2 on Slurm.")] = "",
    traces: Annotated[int | None, typer.Option(help="Traces of a test, 30 or more for a verdict.")] = None,
    store: Annotated[Path | None, typer.Option(help="On Slurm, keep finished runs there, and go on from them.")] = None,
) -> None:
    """Judge DL2's policies in the published setting or on Slurm."""
    deterministic()
    with one_line():
        if setting == "published":
            results = _published(runs, traces, best_action, picture, row or "ours")
        elif setting == "slurm":
            results = _slurm(runs, traces, picture, row or "dl2", store)
        else:
            raise typer.BadParameter(f"no setting {setting}; there are published, slurm", param_hint="--setting")
    if out:
        out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


@app.command()
def marl(
    runs: Annotated[
        list[Path], typer.Option(help="Folders of finished runs; give it once for each.", exists=True, file_okay=False)
    ],
    store: Annotated[Path, typer.Option(help="Keep finished workloads there, and go on from them.")],
    out: Annotated[Path | None, typer.Option(help="File for the results, as JSON.")] = None,
    only: Annotated[list[int] | None, typer.Option(help="Sets to judge, counted from 1; all if left out.")] = None,
    workloads: Annotated[int | None, typer.Option(help="Workloads of a set at most; 30 or more for a verdict.")] = None,
    workers: Annotated[int, typer.Option(help="Workloads at once.", min=1)] = len(os.sched_getaffinity(0)),
) -> None:
    """Judge the placement of gangs by several agents."""
    from tools.train.places.judging import SETS, judged, table

    def tell(text: str) -> None:
        typer.echo(text, err=True)

    chosen = [one for number, one in enumerate(SETS, start=1) if not only or number in only]
    chosen = [replace(one, workloads=min(one.workloads, workloads or one.workloads)) for one in chosen]
    with one_line():
        results = judged(chosen, runs, store, workers, tell)
    typer.echo("\n\n".join(table(name, of_set) for name, of_set in results.items()))
    if out:
        out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


@app.command()
def metarl(
    runs: Annotated[
        list[Path], typer.Option(help="Folders of finished runs; give it once for each.", exists=True, file_okay=False)
    ],
    store: Annotated[Path, typer.Option(help="Keep finished workloads there, and go on from them.")],
    out: Annotated[Path | None, typer.Option(help="File for the results, as JSON.")] = None,
    only: Annotated[
        list[int] | None,
        typer.Option(help="Sets to judge: 1 undisturbed, 2 changed, 3 how fast a site is learnt; all if left out."),
    ] = None,
    workloads: Annotated[int | None, typer.Option(help="Workloads of a set at most; 30 or more for a verdict.")] = None,
    workers: Annotated[int, typer.Option(help="Workloads at once.", min=1)] = len(os.sched_getaffinity(0)),
) -> None:
    """Judge the placement of gangs on sites that differ, undisturbed and after a change."""
    from tools.train.sites.judging import SETS, fewer, judged, table
    from tools.train.sites.samples_needed import learning_curves, learning_table

    def tell(text: str) -> None:
        typer.echo(text, err=True)

    deterministic()
    chosen = [fewer(one, workloads) for number, one in enumerate(SETS, start=1) if not only or number in only]
    with one_line():
        results = judged(chosen, runs, store, workers, tell)
        curves = learning_curves(runs[0], store, workers, tell) if not only or LEARNING in only else {}
    typer.echo("\n\n".join(table(name, of_set) for name, of_set in results.items()))
    if curves:
        typer.echo("\n" + learning_table(curves))
    if out:
        out.write_text(json.dumps({"sets": results, "learning": curves}, indent=1) + "\n", encoding="utf-8")


def _published(
    runs: Sequence[Path], traces: int | None, best_action: bool, picture: Path | None, row: str
) -> dict[str, Any]:
    from tools.train.published.contenders import BOOK, draw, judged, table
    from tools.train.published.setting import Published
    from tools.train.published.training import TEST_SEEDS

    results = judged(Published(), runs, TEST_SEEDS[:traces], greedy=best_action)
    typer.echo(table(results))
    if picture:
        draw(Published(), BOOK.runs_of(row, runs), picture)
    return results


def _slurm(
    runs: Sequence[Path], traces: int | None, picture: Path | None, row: str, store: Path | None
) -> dict[str, Any]:
    from tools.train.slurm.drawn_sets import BOOK, SETS, draw, judged, table

    def tell(text: str) -> None:
        typer.echo(text, err=True)

    results = {name: judged(name, runs, most=traces, store=store, tell=tell) for name in SETS}
    typer.echo("\n\n".join(table(of_set) for of_set in results.values()))
    if picture:
        draw(BOOK.runs_of(row, runs), picture)
    return results


if __name__ == "__main__":
    app()
