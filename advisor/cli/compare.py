"""`sadvise compare`: traces times policies times seeds."""

import re
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from advisor.cli.options import ConfigFile, Json
from advisor.cli.simulation import (
    RUNS,
    Execution,
    ExecutionOf,
    FirstJobs,
    Policies,
    Report,
    SkipBad,
    Speeds,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from advisor.cli.simulation import Setting
    from advisor.sim.cell import Cell
    from advisor.sim.comparison import Difference, Results
    from advisor.sim.result import RunResult
    from advisor.sim.statistics import Change
    from advisor.sim.trace import Trace

SCHEMA = "sadvise.compare/1"
SWEEP = "How the runs are spread"
MOST_SEEDS = 10_000
_SEEDS = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")
# What is printed for people; JSON and the report hold every metric.
SHOWN = ("mean_jct_s", "p99_queueing_delay_s", "mean_bounded_slowdown", "makespan_s")


class Spread(StrEnum):
    """Where the runs of a comparison run."""

    LOCAL = "local"
    SLURM = "slurm"


def compare(
    traces: Annotated[list[Path], typer.Argument(metavar="TRACE", help="Traces, CSV as written by `sadvise import`.")],
    clusters: Annotated[
        list[str] | None,
        typer.Option(
            "--cluster",
            metavar="FILE|SHORT",
            envvar="SADVISE_SIM_CLUSTER",
            help="A cluster file, or a short form such as nodes=64,gpus=8,leaf=8; one for all, or one for each trace.",
            rich_help_panel=RUNS,
        ),
    ] = None,
    policies: Policies = None,
    seeds: Annotated[
        str,
        typer.Option(
            "--seeds",
            metavar="N|LIST",
            envvar="SADVISE_SIM_SEEDS",
            help="N for the seeds 0 to N-1, or a list such as 3,5 or 10-19.",
            rich_help_panel=RUNS,
        ),
    ] = "1",
    jobs: FirstJobs = None,
    execution: ExecutionOf = Execution.MEASURED,
    speeds: Speeds = "oracle",
    skip_bad: SkipBad = False,
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers",
            metavar="N",
            min=1,
            envvar="SADVISE_SIM_WORKERS",
            help="Runs at once. Default: one per core; with --engine slurm 64.",
            rich_help_panel=SWEEP,
        ),
    ] = None,
    engine: Annotated[
        Spread,
        typer.Option(
            "--engine",
            envvar="SADVISE_SIM_ENGINE",
            help="local: the cores of this machine; slurm: a job array, which takes partition, account, memory and "
            "time limit from sbatch's variables such as SBATCH_PARTITION.",
            rich_help_panel=SWEEP,
        ),
    ] = Spread.LOCAL,
    store: Annotated[
        Path | None,
        typer.Option(
            "--store",
            metavar="FOLDER",
            envvar="SADVISE_SIM_STORE",
            help="Keep every finished run there; the same command then goes on where it was interrupted.",
            rich_help_panel=SWEEP,
        ),
    ] = None,
    config: ConfigFile = None,
    report: Report = None,
    json: Json = False,
) -> None:
    """Compare policies over traces and seeds: on each trace and over all, each with the first, with 95 % intervals.

    Touches no cluster, except that --engine slurm submits the runs as jobs.
    """
    import os

    from advisor.cli.render import print_json
    from advisor.cli.simulation import (
        change_values,
        command_line,
        end_values,
        meta,
        run_values,
        setting_of,
        warn_if_slow,
    )
    from advisor.config import load_config
    from advisor.sim import comparison
    from advisor.sim.cell import Cell
    from advisor.sim.cluster import parse_cluster
    from advisor.sim.report import Origin, check_writable, write_report

    setting = setting_of(policies, execution, speeds, load_config(config, os.environ))
    numbers = seeds_of(seeds)
    cluster_texts = _one_for_each(traces, clusters or [])
    if report is not None:
        check_writable(report)
    parsed = {text: parse_cluster(text) for text in dict.fromkeys(cluster_texts)}
    loaded = _load(traces, jobs, skip_bad)
    cells = [
        Cell(trace=trace, cluster=parsed[text], policy=policy, seed=seed, options=setting.options)
        for trace, text in zip(loaded, cluster_texts, strict=True)
        for policy in setting.policies
        for seed in numbers
    ]
    warn_if_slow(sum(len(cell.trace) for cell in cells))
    results = _run(cells, store, engine, workers)
    differences = comparison.compare(results, seed=numbers[0])
    command = command_line(
        "compare",
        [str(path) for path in traces],
        setting,
        [
            *(("--cluster", text) for text in clusters or []),
            ("--seeds", seeds),
            ("--jobs", jobs),
            ("--skip-bad", skip_bad),
            ("--config", config),
        ],
    )
    names = [trace.name for trace in loaded]
    cluster_of = dict(zip(names, cluster_texts, strict=True))
    if report is not None:
        origin = Origin(
            command=command,
            traces=dict(zip(names, loaded, strict=True)),
            clusters=cluster_of,
            settings=setting.changed,
        )
        write_report(results, report, origin=origin, seed=numbers[0])
    if json:
        sampled = sorted({column for result in results for column in result.sampled})
        print_json(
            {
                "meta": {
                    **meta(SCHEMA, command, setting),
                    "traces": names,
                    "clusters": cluster_of,
                    "seeds": numbers,
                    "sampled": sampled,
                },
                "runs": [run_values(result.summary) for result in results],
                "ends": [end_values(result) for result in results],
                "changes": [change_values(difference) for difference in differences],
            }
        )
    else:
        _print(results, differences, loaded, cluster_of, setting)


def seeds_of(text: str) -> list[int]:
    """Read `--seeds`: a number of seeds, or a list of seeds and ranges; raises `ConfigError` for anything else."""
    from advisor.errors import ConfigError

    wrong = ConfigError(
        f"--seeds {text[:40]}: give a number of seeds from 1 to {MOST_SEEDS}, or a list of them such as 3,5 or 10-19"
    )
    found = [_SEEDS.fullmatch(word.strip()) for word in text.split(",") if word.strip()]
    ranges = [range(int(match[1]), int(match[2] or match[1]) + 1) for match in found if match is not None]
    if not found or len(ranges) < len(found):
        raise wrong
    if text.strip().isdecimal():
        ranges = [range(int(text))]
    if not all(0 < len(each) <= MOST_SEEDS for each in ranges):
        raise wrong
    return list(dict.fromkeys(seed for each in ranges for seed in each))


def _one_for_each(traces: "Sequence[Path]", clusters: "Sequence[str]") -> list[str]:
    """Return the cluster of each trace."""
    from advisor.errors import ConfigError

    if not clusters:
        raise ConfigError("--cluster is missing: give one for all traces, or one for each")
    if len(clusters) not in {1, len(traces)}:
        raise ConfigError(
            f"--cluster is given {len(clusters)} times for {len(traces)} traces: give one, or one for each"
        )
    return list(clusters) * len(traces) if len(clusters) == 1 else list(clusters)


def _load(paths: "Sequence[Path]", first: int | None, skip_bad: bool) -> "list[Trace]":
    """Read the traces; those with the same name are called by their paths."""
    from dataclasses import replace

    from advisor.cli.simulation import load_trace
    from advisor.errors import ConfigError

    again = [path for index, path in enumerate(paths) if path in paths[:index]]
    if again:
        raise ConfigError(f"{again[0]}: given twice: leave one")
    traces = [load_trace(path, first=first, skip_bad=skip_bad) for path in paths]
    names = [trace.name for trace in traces]
    return [
        replace(trace, name=str(path)) if names.count(trace.name) > 1 else trace
        for path, trace in zip(paths, traces, strict=True)
    ]


def _run(cells: "Sequence[Cell]", store: Path | None, engine: Spread, workers: int | None) -> "list[RunResult]":
    import os

    from advisor.cli.simulation import interrupted, progress_bar, terminated_as_interrupted
    from advisor.sim.sweep import SweepInterrupted, run_sweep

    at_once = workers or (64 if engine is Spread.SLURM else len(os.sched_getaffinity(0)))
    try:
        with terminated_as_interrupted(), progress_bar(len(cells), "runs") as progress:
            return run_sweep(cells, store=store, engine=engine.value, workers=at_once, progress=progress)
    except SweepInterrupted as err:
        if store is None:
            raise interrupted("nothing is kept: with --store FOLDER it would be") from err
        kept = f"{err.kept} of {err.cells} runs are kept in {store}"
        raise interrupted(f"{kept}: run the same command again to go on") from err


def _print(
    results: "Sequence[RunResult]",
    differences: "Sequence[Difference]",
    traces: "Sequence[Trace]",
    cluster_of: "Mapping[str, str]",
    setting: "Setting",
) -> None:
    """Print for people: every trace, then over all, then where each policy wins and where it loses."""
    from rich.text import Text

    from advisor.cli.render import console, print_labelled, print_table
    from advisor.cli.simulation import drawn_in_words
    from advisor.sim.comparison import by_policy, ends_of
    from advisor.sim.wording import LABELS, change_in_words, ends_in_words
    from advisor.text import escaped

    out = console()
    change_of = {(each.trace, each.policy, each.metric): each.change for each in differences}
    header = ["policy", *(LABELS[metric] for metric in SHOWN)]
    print_labelled("runs", f"{len(results)} in all, execution {setting.execution}, speeds {setting.speeds}")
    for trace in traces:
        name, cluster = trace.name, cluster_of[trace.name]
        policies = by_policy([result for result in results if result.summary.trace == name])
        out.print()
        out.print(Text(f"{escaped(name)} on {escaped(cluster)}", style="bold"), soft_wrap=True)
        for text in drawn_in_words(trace, next(iter(policies[setting.policies[0]].values())).sampled):
            print_labelled("drawn", text)
        print_table(header, [[policy, *_fields(name, policy, own, change_of)] for policy, own in policies.items()])
        _print_basis([each for each in differences if each.trace == name])
        for policy, own in policies.items():
            text = ends_in_words(ends_of(own), seeds=len(own))
            if text:
                print_labelled("ends", f"{policy}: {text}")
    if len(setting.policies) > 1 and len(cluster_of) > 1:
        out.print()
        out.print(Text("over all traces, every trace weighing the same", style="bold"))
        rows = [
            [policy, *(change_in_words(change_of[None, policy, metric]) for metric in SHOWN)]
            for policy in setting.policies[1:]
        ]
        print_table(header, rows)
        _print_basis([each for each in differences if each.trace is None])
    if len(setting.policies) > 1:
        out.print()
        _print_record(differences)


def _fields(
    name: str, policy: str, own: "Results", change_of: "Mapping[tuple[str | None, str, str], Change]"
) -> list[str]:
    """Return the metrics of a policy on a trace, with the changes against the first policy."""
    from advisor.sim.comparison import mean_of
    from advisor.sim.wording import change_in_words, shown

    fields = []
    for metric in SHOWN:
        change = change_of.get((name, policy, metric))
        value = shown(metric, mean_of(metric, own))
        fields.append(value if change is None else f"{value}, {change_in_words(change)}")
    return fields


def _print_basis(differences: "Sequence[Difference]") -> None:
    """Say what the intervals were drawn from; that of the mean JCT speaks for the others."""
    from advisor.cli.render import print_labelled
    from advisor.sim.wording import basis

    texts = {each.policy: basis(each.change) for each in differences if each.metric == SHOWN[0]}
    if len(set(texts.values())) == 1:
        print_labelled("paired", next(iter(texts.values())))
        return
    for policy, text in texts.items():
        print_labelled("paired", f"{policy}: {text}")


def _print_record(differences: "Sequence[Difference]") -> None:
    """Say on which traces the mean JCT of each policy is lower than the first one's, and on which it is higher."""
    from advisor.cli.render import print_labelled
    from advisor.sim.wording import LABELS, verdict

    found: dict[tuple[str, str], dict[str, list[str]]] = {}
    for each in differences:
        if each.trace is not None and each.metric == SHOWN[0]:
            verdicts = found.setdefault((each.policy, each.against), {})
            verdicts.setdefault(verdict(each.change), []).append(each.trace)
    for (policy, against), verdicts in found.items():
        said = "; ".join(f"{kind} on {', '.join(names)}" for kind, names in sorted(verdicts.items()))
        print_labelled("record", f"{LABELS[SHOWN[0]]} of {policy} against {against}: {said}")
