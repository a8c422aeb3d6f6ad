"""`sadvise simulate`: one trace under one or more policies."""

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
    from collections.abc import Sequence

    from advisor.cli.simulation import Setting
    from advisor.sim.cluster import Cluster
    from advisor.sim.comparison import Difference
    from advisor.sim.result import RunResult
    from advisor.sim.trace import Trace

SCHEMA = "sadvise.simulate/1"
DEMO_CLUSTER = "nodes=16,gpus=8,leaf=4"


def simulate(
    trace: Annotated[
        Path | None, typer.Argument(metavar="TRACE", help="A trace, CSV as written by `sadvise import`.")
    ] = None,
    demo: Annotated[
        bool, typer.Option("--demo", help="Use the trace and the cluster that ship with sadvise.", rich_help_panel=RUNS)
    ] = False,
    cluster: Annotated[
        str | None,
        typer.Option(
            "--cluster",
            metavar="FILE|SHORT",
            envvar="SADVISE_SIM_CLUSTER",
            help="A cluster file, or a short form such as nodes=64,gpus=8,leaf=8.",
            rich_help_panel=RUNS,
        ),
    ] = None,
    policies: Policies = None,
    seed: Annotated[
        int,
        typer.Option(
            "--seed",
            metavar="N",
            min=0,
            envvar="SADVISE_SIM_SEED",
            help="What is drawn at random is drawn from it.",
            rich_help_panel=RUNS,
        ),
    ] = 0,
    jobs: FirstJobs = None,
    execution: ExecutionOf = Execution.MEASURED,
    speeds: Speeds = "oracle",
    skip_bad: SkipBad = False,
    config: ConfigFile = None,
    report: Report = None,
    json: Json = False,
) -> None:
    """Simulate the jobs of a trace under policies, and say what each would have come to.

    Touches no cluster. Compares each policy with the first on the same jobs, with 95 % intervals.
    """
    import os

    from advisor.cli.render import print_json
    from advisor.cli.simulation import (
        change_values,
        command_line,
        demo_trace_path,
        end_values,
        load_trace,
        meta,
        run_values,
        setting_of,
        spare_the_compiler,
        warn_if_slow,
    )

    spare_the_compiler(demo_trace_path() if trace is None else trace)
    from advisor.config import load_config
    from advisor.errors import ConfigError
    from advisor.sim.cell import drawn
    from advisor.sim.cluster import parse_cluster
    from advisor.sim.comparison import compare
    from advisor.sim.report import Origin, check_writable, write_report

    if demo == (trace is not None):
        raise ConfigError("give either a TRACE or --demo")
    if cluster is None and not demo:
        raise ConfigError("--cluster is missing: give a cluster file, or a short form such as nodes=64,gpus=8,leaf=8")
    setting = setting_of(policies, execution, speeds, load_config(config, os.environ))
    cluster_text = cluster or DEMO_CLUSTER
    parsed = parse_cluster(cluster_text)
    if report is not None:
        check_writable(report)
    told = load_trace(demo_trace_path() if trace is None else trace, first=jobs, skip_bad=skip_bad)
    warn_if_slow(len(told))
    filled = drawn(told, parsed, seed)
    results = _run(filled, parsed, setting, seed)
    differences = compare(results, seed=seed)
    command = command_line(
        "simulate",
        ["--demo"] if trace is None else [str(trace)],
        setting,
        [
            ("--cluster", cluster_text),
            ("--seed", seed),
            ("--jobs", jobs),
            ("--skip-bad", skip_bad),
            ("--config", config),
        ],
    )
    if report is not None:
        origin = Origin(
            command=command,
            traces={told.name: told},
            clusters={told.name: cluster_text},
            settings=setting.changed,
        )
        write_report(results, report, origin=origin, seed=seed)
    if json:
        print_json(
            {
                "meta": {
                    **meta(SCHEMA, command, setting),
                    "trace": told.name,
                    "cluster": cluster_text,
                    "seed": seed,
                    "sampled": list(filled.sampled),
                },
                "runs": [run_values(result.summary) for result in results],
                "ends": [end_values(result) for result in results],
                "changes": [change_values(difference) for difference in differences],
            }
        )
    else:
        _print(told, setting, cluster_text, results, differences)


def _run(trace: "Trace", cluster: "Cluster", setting: "Setting", seed: int) -> "list[RunResult]":
    """Simulate every policy in turn."""
    from advisor.cli.simulation import interrupted, progress_bar, terminated_as_interrupted
    from advisor.sim.cell import Cell, simulate_drawn
    from advisor.sim.sweep import SweepInterrupted, run_sweep

    cells = [
        Cell(trace=trace, cluster=cluster, policy=policy, seed=seed, options=setting.options)
        for policy in setting.policies
    ]
    try:
        with terminated_as_interrupted(), progress_bar(len(cells), "policies") as progress:
            return run_sweep(cells, store=None, simulate=simulate_drawn, progress=progress)
    except SweepInterrupted as err:
        raise interrupted("nothing is kept") from err


def _print(
    trace: "Trace",
    setting: "Setting",
    cluster: str,
    results: "Sequence[RunResult]",
    differences: "Sequence[Difference]",
) -> None:
    """Print for people."""
    from rich.text import Text

    from advisor.cli.render import console, print_labelled, print_table
    from advisor.cli.simulation import drawn_in_words
    from advisor.planning.words import plural
    from advisor.sim.wording import LABELS, basis, change_in_words, ends_in_words, shown, verdict
    from advisor.text import escaped

    out = console()
    summaries = [result.summary for result in results]
    title = f"{escaped(trace.name)}, {plural(len(trace), 'job')} on {escaped(cluster)}, {results[0].cluster_gpus} GPUs"
    out.print(Text(title, style="bold"), soft_wrap=True)
    print_labelled("runs", f"seed {summaries[0].seed}, execution {setting.execution}, speeds {setting.speeds}")
    for text in drawn_in_words(trace, results[0].sampled):
        print_labelled("drawn", text)
    for note in dict.fromkeys(note for result in results for note in result.notes):
        print_labelled("note", note)
    out.print()
    rows = [[LABELS[metric], *(shown(metric, getattr(each, metric)) for each in summaries)] for metric in LABELS]
    print_table(["", *setting.policies], rows, right=range(1, len(summaries) + 1))
    for policy in setting.policies[1:]:
        own = [difference for difference in differences if difference.policy == policy]
        out.print()
        header = [f"{policy} against {own[0].against}", "change (95 % interval)", "reads as"]
        print_table(header, [[LABELS[each.metric], change_in_words(each.change), verdict(each.change)] for each in own])
        print_labelled("paired", basis(own[0].change))
    for result in results:
        if ends_in_words(result.ends):
            print_labelled("ends", f"{result.summary.policy}: {ends_in_words(result.ends)}")
