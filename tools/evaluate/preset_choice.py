"""Judges the choice of `sadvise tune`: made on the first half of a trace, and run on the second half."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Final

import typer

from advisor.cli.progress import progress_bar
from advisor.settings import DaemonSettings
from advisor.sim.simulated_policy import SimulationOptions
from advisor.sim.study.cell import Cell, drawn
from advisor.sim.study.exploration import Exploration
from advisor.sim.study.frontier import Point, TuneOutcome
from advisor.sim.study.result import RunResult
from advisor.sim.study.statistics import CellName, RelativeChange, difference_of_figures
from advisor.sim.study.sweep import run_sweep
from advisor.sim.study.tried_settings import Preset
from advisor.sim.traces.trace import Trace
from advisor.view.terminal import print_json, print_labelled, print_table
from advisor.view.wording import change_in_words
from tools.data.simulated_traces import Workload, data_folder, read_workload
from tools.pages.page_experiment import described

ADVISED, TUNED_SLURM, PLAIN = "advised", "slurm.conf", "slurm"
CHOICES: Final[tuple[str, ...]] = (ADVISED, *Preset, TUNED_SLURM)
_HEADER: Final = ("over all", "mean JCT", "users worse", "beyond chance", "longer tail", "higher")


@dataclass(frozen=True, slots=True, kw_only=True)
class HalvedTrace:
    """What was chosen on the first half of a trace, and what it does on the second.

    Both map choices to points: those of the first half, and those of the same settings on the second half. A choice
    that is none is plain Slurm.
    """

    name: str
    chosen: Mapping[str, Point]
    judged: Mapping[str, Point]


def presets(
    trace: Annotated[list[str] | None, typer.Option("--trace", help="A published trace; default: all.")] = None,
    repeats: Annotated[int, typer.Option(min=2, help="Copies of each half.")] = 2,
    seed: Annotated[int, typer.Option(help="Seed of what is drawn.")] = 0,
    data: Annotated[Path | None, typer.Option("--data", help="Folder of the published data.")] = None,
    store: Annotated[Path | None, typer.Option("--store", help="Keep finished runs there.")] = None,
    workers: Annotated[int, typer.Option(min=1, help="Runs at once.")] = 1,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Judge what tune chooses on the first half of published traces by what it does on the second half."""
    names = trace or described("advice")["traces"]
    folder = data_folder(data)
    with progress_bar(len(names), "traces") as tell:
        halved = []
        for done, name in enumerate(names):
            halved.append(judge_halves(read_workload(folder, name), repeats, seed, store, workers))
            if tell is not None:
                tell(done + 1)
    if json:
        print_json({"traces": [_values(each) for each in halved], "over_all": _over_all_values(halved)})
        return
    print_table(("trace", "advised by the first half", *CHOICES), [_row(each) for each in halved])
    print_table(_HEADER, list(_over_all_rows(halved)))
    print_labelled("higher", "traces on which the mean JCT is clearly higher than under plain Slurm")


def judge_halves(workload: Workload, repeats: int, seed: int, store: Path | None, workers: int) -> HalvedTrace:
    """Choose on the first half of a trace, by number of jobs, and run the choices on the second."""
    cluster = workload.cluster()
    whole = drawn(workload.trace, cluster, seed)
    options = replace(SimulationOptions(), advise_every_s=DaemonSettings().interval_s)
    first, second = (
        Exploration.of(half, cluster, options, repeats=repeats, seed=seed, with_ceilings=False)
        for half in halves(whole)
    )

    def run_cells(cells: Sequence[Cell], _done: int) -> list[RunResult]:
        return run_sweep(cells, store=store, workers=workers)

    chosen = choices(first.outcome(run_cells))
    settings = {point.setting.name: point.setting for point in chosen.values()}
    settings.pop(PLAIN, None)
    judged = {point.setting.name: point for point in second.judged(list(settings.values()), run_cells)}
    return HalvedTrace(
        name=workload.trace.name,
        chosen=chosen,
        judged={choice: judged[point.setting.name] for choice, point in chosen.items()},
    )


def halves(trace: Trace) -> tuple[Trace, Trace]:
    """Split a trace into two with as many jobs each; times of the second count from its first submission."""
    middle = len(trace) // 2
    second = trace.jobs[middle:].copy()
    second["submit_time"] -= second["submit_time"][0]
    return (
        replace(trace, name=f"{trace.name} (first half)", jobs=trace.jobs[:middle]),
        replace(trace, name=f"{trace.name} (second half)", jobs=second),
    )


def choices(outcome: TuneOutcome) -> dict[str, Point]:
    """Map each choice to its point; plain Slurm where it is none."""
    plain = outcome.points[0]
    best = {str(preset): point or plain for preset, point in outcome.presets.items()}
    return {ADVISED: outcome.advised or plain, **best, TUNED_SLURM: outcome.tuned_slurm}


def _row(halved: HalvedTrace) -> list[str]:
    advised = halved.chosen[ADVISED].setting
    return [
        halved.name,
        f"{advised.preset or 'none'}: {advised.name}",
        *(f"{halved.judged[choice].change.percent:+.1f} %" for choice in CHOICES),
    ]


def _over_all_rows(halved: Sequence[HalvedTrace]) -> Iterator[list[str]]:
    for choice in CHOICES:
        points = [each.judged[choice] for each in halved]
        users = sum(len(point.losses) for point in points)
        yield [
            choice,
            change_in_words(over_traces(halved, choice)),
            f"{sum(point.users_worse for point in points)} of {users}",
            str(sum(point.users_beyond_chance for point in points)),
            str(sum(point.lengthens_tail for point in points)),
            str(sum(point.change.is_clear and point.change.percent > 0.0 for point in points)),
        ]


def over_traces(halved: Sequence[HalvedTrace], choice: str) -> RelativeChange:
    """Return the change of the mean JCT from plain Slurm on the second halves, every trace weighing the same."""
    ratios = {CellName(each.name, 0): 1.0 + each.judged[choice].change.percent / 100.0 for each in halved}
    return difference_of_figures(dict.fromkeys(ratios, 1.0), ratios, seed=0)


def _values(halved: HalvedTrace) -> dict[str, object]:
    return {
        "trace": halved.name,
        "choices": {
            choice: {
                "setting": halved.chosen[choice].setting.name,
                "preset": halved.chosen[choice].setting.preset,
                "first_half": asdict(halved.chosen[choice].change),
                "second_half": asdict(halved.judged[choice].change),
                "p99_wait_s": halved.judged[choice].p99_wait_s,
                "users_worse": halved.judged[choice].users_worse,
                "users_worse_beyond_chance": halved.judged[choice].users_beyond_chance,
                "users": len(halved.judged[choice].losses),
            }
            for choice in CHOICES
        },
    }


def _over_all_values(halved: Sequence[HalvedTrace]) -> dict[str, object]:
    return {choice: asdict(over_traces(halved, choice)) for choice in CHOICES}
