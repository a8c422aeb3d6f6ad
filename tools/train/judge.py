"""Judges policies where no training and no choice of a policy looked: `python -m tools.train.judge dl2 --runs DIR`.

Runs that differ in nothing but the seed are one row. All rows play the same workloads, rules too, so that differences
are paired by workload.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from advisor.cli.progress import terminated_as_interrupted
from advisor.cli.simulation_options import Spread
from tools.train import training_commands
from tools.train.imitation import deterministic

app = training_commands.program(__doc__)

Out = Annotated[Path | None, typer.Option(help="File for the results, as JSON.")]
Store = Annotated[Path, typer.Option(help="Keep finished workloads there, and go on from them.")]
Workloads = Annotated[int | None, typer.Option(help="Workloads of a set at most; 30 or more for a verdict.", min=1)]


@app.command()
def dl2(
    runs: Annotated[list[Path], typer.Option(help="Folders of finished runs; give it once for each.")],
    setting: Annotated[str, typer.Option(help="published, or slurm.")] = "published",
    out: Out = None,
    best_action: Annotated[
        bool, typer.Option("--best-action", help="Take the best action, do not sample; on Slurm this is always so.")
    ] = False,
    picture: Annotated[Path | None, typer.Option(help="File for the learning curves of one row, as SVG.")] = None,
    row: Annotated[str, typer.Option(help="The row whose learning curves are drawn; ours, or dl2 on Slurm.")] = "",
    traces: Annotated[int | None, typer.Option(help="Traces of a test, 30 or more for a verdict.")] = None,
    store: Annotated[Path | None, typer.Option(help="On Slurm, keep finished runs there, and go on from them.")] = None,
) -> None:
    """Judge DL2's policies in the published setting or on Slurm."""
    from tools.train import dl2_judge, dl2_published
    from tools.train.dl2 import BOOK
    from tools.train.dl2_setting import Published

    deterministic()
    with training_commands.one_line():
        if setting == "published":
            published = Published()
            results = dl2_published.judged(published, runs, dl2_published.TEST_SEEDS[:traces], greedy=best_action)
            typer.echo(dl2_published.table(results))
            if picture:
                dl2_published.draw(published, dl2_published.BOOK.runs_of(row or "ours", runs), picture)
        elif setting == "slurm":
            results = {
                name: dl2_judge.judged(name, runs, most=traces, store=store, tell=_tell) for name in dl2_judge.SETS
            }
            typer.echo("\n\n".join(dl2_judge.table(of_set) for of_set in results.values()))
            if picture:
                dl2_judge.draw(BOOK.runs_of(row or "dl2", runs), picture)
        else:
            raise typer.BadParameter(f"no setting {setting}; there are published, slurm", param_hint="--setting")
    _write(results, out)


@app.command()
def marl(
    runs: training_commands.FinishedRuns,
    store: Store,
    out: Out = None,
    only: Annotated[list[int] | None, typer.Option(help="Sets to judge, counted from 1; all if left out.")] = None,
    workloads: Workloads = None,
    workers: training_commands.Workers = None,
    engine: training_commands.Engine = Spread.LOCAL,
) -> None:
    """Judge the placement of gangs by several agents."""
    from tools.train.marl_judge import SETS, judged, table

    chosen = (one for number, one in enumerate(SETS, start=1) if not only or number in only)
    sets = [replace(one, workloads=min(one.workloads, workloads or one.workloads)) for one in chosen]
    with training_commands.one_line(), terminated_as_interrupted():
        results = judged(sets, runs, store, engine.at_once(workers), _tell, engine.value)
    typer.echo(table(results))
    _write(results, out)


@app.command()
def metarl(
    runs: training_commands.FinishedRuns,
    store: Store,
    out: Out = None,
    only: Annotated[
        list[int] | None, typer.Option(help="Sets to judge: 1 undisturbed, 2 changed; both if left out.")
    ] = None,
    workloads: Workloads = None,
    workers: training_commands.Workers = None,
    engine: training_commands.Engine = Spread.LOCAL,
) -> None:
    """Judge the placement of gangs on sites that differ, undisturbed and after a change."""
    from tools.train.metarl_judge import SETS, judged, table

    deterministic()
    chosen = (one for number, one in enumerate(SETS, start=1) if not only or number in only)
    sets = [replace(one, workloads=min(one.workloads, workloads or one.workloads)) for one in chosen]
    with training_commands.one_line(), terminated_as_interrupted():
        results = judged(sets, runs, store, engine.at_once(workers), _tell, engine.value)
    typer.echo(table(results))
    _write({"sets": results}, out)


def _tell(text: str) -> None:
    typer.echo(text, err=True)


def _write(results: Mapping[str, Any], out: Path | None) -> None:
    if out:
        out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    training_commands.start("tools.train.judge")
