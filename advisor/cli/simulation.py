"""Simulate traces under policies and seeds, and publish the results: what `simulate` and `compare` share."""

import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Literal

import typer

from advisor.cli.progress import progress_bar, terminated_as_interrupted
from advisor.cli.simulation_options import Execution, OneTrace, RequestsMade
from advisor.cli.site_history import cluster_of, site_trace
from advisor.config import DEFAULT, Config, effective_values
from advisor.domain.dataclass import dataclass
from advisor.errors import OptionsError, SimulationError
from advisor.sim.cluster import Cluster
from advisor.sim.runner import SimulationOptions, known_policy
from advisor.sim.study.cell import Cell
from advisor.sim.study.comparison import PairedDifference, compare
from advisor.sim.study.result import RunResult
from advisor.sim.study.sweep import SweepInterrupted, run_sweep
from advisor.sim.study.user_losses import FinishTimes, finish_times, jct_alone_s
from advisor.sim.traces.trace import Trace
from advisor.sim.traces.trace_file import read_trace
from advisor.sim.unmodelled import check_gpu_types, unmodelled
from advisor.text import one_line
from advisor.view.html_report import Origin, check_writable, names_users, write_report
from advisor.view.terminal import print_json, tool_meta

BASELINE = ("slurm", "rules")
INTERRUPTED = 130


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The options of every run of a command; `changed` holds the settings that differ from the defaults.

    `requests` names how requests that the traces lack are drawn.
    """

    policies: tuple[str, ...]
    execution: Execution
    speeds: str
    options: SimulationOptions
    changed: tuple[str, ...]
    requests: RequestsMade


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """Traces to simulate under policies and seeds, and the command that repeats it.

    `clusters` and `cluster_texts`, their spelling on the command line, are by the name of the trace.
    """

    command: str
    traces: tuple[Trace, ...]
    clusters: Mapping[str, Cluster]
    cluster_texts: Mapping[str, str]
    seeds: Sequence[int]
    setting: Setting

    @property
    def cells(self) -> list[Cell]:
        """The runs: every trace under every policy with every seed."""
        return [
            Cell(
                trace=trace,
                cluster=self.clusters[trace.name],
                policy=policy,
                seed=seed,
                options=self.setting.options,
                requests=self.setting.requests.value,
            )
            for trace in self.traces
            for policy in self.setting.policies
            for seed in self.seeds
        ]

    @property
    def origin(self) -> Origin:
        """Where the figures of a report come from."""
        return Origin(
            command=self.command,
            traces={trace.name: trace for trace in self.traces},
            clusters=self.cluster_texts,
            settings=self.setting.changed,
        )


RunCells = Callable[[Sequence[Cell], int], list[RunResult]]
Show = Callable[[Study, Sequence[RunResult], Sequence[PairedDifference]], None]


def setting_of(
    policies: Sequence[str] | None,
    execution: Execution,
    speeds: str,
    config: Config,
    requests: RequestsMade = RequestsMade.USUAL,
) -> Setting:
    """Check the options; raises `OptionsError` for an unknown policy or source of speeds."""
    try:
        names = tuple(dict.fromkeys(known_policy(name).name for name in policies or BASELINE))
        options = SimulationOptions(
            execution=execution.value, speeds=speeds, planning=config.planning, limits=config.guard
        )
    except SimulationError as err:
        raise OptionsError(str(err)) from err
    return Setting(
        policies=names,
        execution=execution,
        speeds=speeds,
        options=options,
        requests=requests,
        changed=tuple(
            f"{value.key} = {value.value} ({value.origin})"
            for value in effective_values(config)
            if value.origin != DEFAULT and not value.key.startswith("source.")
        ),
    )


def study_of(
    command: str,
    replayed: Sequence[tuple[Path, str]],
    seeds: Sequence[int],
    setting: Setting,
    config: Config,
    *,
    first: int | None,
    skip_bad: bool,
    report: Path | None = None,
    since: str | None = None,
) -> Study:
    """Read traces, each with the text of its cluster; note on standard error jobs that never run and facts left out.

    `config` says how to read the site; with `since` the trace is its accounting from then on. Raises `SimulationError`
    for a file that cannot be read or written, and for several GPU types on unnamed GPUs.
    """
    paths, cluster_texts = [path for path, _ in replayed], [text for _, text in replayed]
    parsed = {text: cluster_of(text, config) for text in dict.fromkeys(cluster_texts)}
    if report is not None:
        check_writable(report)
    traces = _load(paths, first, skip_bad, since)
    text_by_trace = {trace.name: text for trace, text in zip(traces, cluster_texts, strict=True)}
    for trace in traces:
        text = text_by_trace[trace.name]
        for note in (check_gpu_types(trace, parsed[text], text), unmodelled(trace, parsed[text])):
            if note:
                sys.stderr.write(f"sadvise: {one_line(note)}\n")
    return Study(
        command=command,
        traces=traces,
        clusters={name: parsed[text] for name, text in text_by_trace.items()},
        cluster_texts=text_by_trace,
        seeds=seeds,
        setting=setting,
    )


def study_of_one(
    command: str,
    replayed: OneTrace,
    seed: int,
    setting: Setting,
    config: Config,
    *,
    first: int | None,
    skip_bad: bool,
    report: Path | None = None,
) -> Study:
    """Read one trace or the accounting of the site, as `study_of` does."""
    return study_of(
        command,
        [replayed.pair],
        [seed],
        setting,
        config,
        first=first,
        skip_bad=skip_bad,
        report=report,
        since=replayed.since,
    )


@contextmanager
def shown_runs(
    total: int,
    noun: str,
    *,
    advice: str = "",
    store: Path | None = None,
    engine: Literal["local", "slurm"] = "local",
    workers: int = 1,
) -> Iterator[RunCells]:
    """Yield what simulates the cells that `store` does not hold, after as many as are done, and show their progress.

    `noun` is what the progress bar counts, up to `total`. An interruption exits with what is kept in `store`; `advice`
    follows the message that nothing is.
    """
    try:
        with terminated_as_interrupted(), progress_bar(total, noun) as progress:

            def run_cells(cells: Sequence[Cell], done: int) -> list[RunResult]:
                more = None if progress is None else lambda share: progress(done + share)
                return run_sweep(cells, store=store, engine=engine, workers=workers, progress=more)

            yield run_cells
    except SweepInterrupted as err:
        kept = f"{err.kept} of {err.cells} runs are kept in {store}: run the same command again to continue"
        sys.stderr.write(f"sadvise: interrupted: {kept if store else f'nothing is kept{advice}'}\n")
        raise typer.Exit(INTERRUPTED) from err


def publish(
    study: Study,
    results: Sequence[RunResult],
    *,
    schema: str,
    subject: Mapping[str, object],
    report: Path | None,
    json: bool,
    show: Show,
) -> None:
    """Write the report, if any, and print a JSON document or what `show` prints; `subject` says what was simulated."""
    differences = compare(results, seed=study.seeds[0])
    interactive = [values for result in results if (values := _interactive_values(result))]
    if report is not None:
        write_report(results, report, origin=study.origin, seed=study.seeds[0])
    if json:
        print_json(
            {
                "meta": {**meta_of(schema, study), **subject},
                "runs": [result.summary for result in results],
                "ends": [_end_values(result) for result in results],
                "changes": [_change_values(difference) for difference in differences],
                **({"interactive": interactive} if interactive else {}),
                "finish_times": [_finish_values(*each) for each in finish_times_of(study, results)],
            }
        )
    else:
        show(study, results, differences)


def command_line(command: str, words: Sequence[str], setting: Setting, more: Sequence[tuple[str, object]]) -> str:
    """Return a command with every option in force, also from variables and defaults, without None and False."""
    policies = [("--policy", policy) for policy in setting.policies]
    chosen = [
        ("--execution", setting.execution.value),
        ("--speeds", setting.speeds),
        ("--requests", setting.requests.value),
    ]
    return spelled_command(command, words, [*policies, *chosen, *more])


def spelled_command(command: str, words: Sequence[str], options: Sequence[tuple[str, object]]) -> str:
    """Return a command as a shell runs it, without the options that are None or False."""
    spelled = ["sadvise", command, *words]
    for name, value in options:
        if value is True:
            spelled.append(name)
        elif value is not None and value is not False:
            spelled += [name, str(value)]
    return shlex.join(spelled)


def drawn_in_words(trace: Trace, sampled: Sequence[str]) -> list[str]:
    """Return which columns were drawn at random, when the trace was made and now."""
    now = [column for column in sampled if column not in trace.sampled]
    earlier = [f"{', '.join(trace.sampled)}: when the trace was made"] if trace.sampled else []
    return [*earlier, *([f"{', '.join(now)}: not in the trace, now from the seed"] if now else [])]


def _load(paths: Sequence[Path], first: int | None, skip_bad: bool, since: str | None) -> tuple[Trace, ...]:
    """Read the traces, or their first jobs; traces with equal names are named by their paths."""
    again = [path for index, path in enumerate(paths) if path in paths[:index]]
    if again:
        raise OptionsError(f"{again[0]}: given twice: leave one")
    if since is not None:
        traces = [site_trace(since, skip_bad=skip_bad)]
    else:
        traces = [read_trace(path, skip_bad=skip_bad) for path in paths]
    if first is not None:
        traces = [replace(trace, jobs=trace.jobs[:first]) for trace in traces]
    names = [trace.name for trace in traces]
    return tuple(
        replace(trace, name=str(path)) if names.count(trace.name) > 1 else trace
        for path, trace in zip(paths, traces, strict=True)
    )


def meta_of(schema: str, study: Study) -> dict[str, object]:
    """Return the metadata of a published document."""
    setting = study.setting
    return tool_meta(
        schema,
        command=study.command,
        execution=setting.execution.value,
        speeds=setting.speeds,
        requests=setting.requests.value,
        settings=list(setting.changed),
    )


def _end_values(result: RunResult) -> dict[str, object]:
    """Return how the jobs of a run ended, as published."""
    summary = result.summary
    return {"policy": summary.policy, "trace": summary.trace, "seed": summary.seed, **asdict(result.ends)}


def _interactive_values(result: RunResult) -> dict[str, object]:
    """Return the waits of the interactive jobs of a run as published; empty where there are none."""
    summary, waits = result.summary, result.interactive
    if waits is None:
        return {}
    return {"policy": summary.policy, "trace": summary.trace, "seed": summary.seed, **asdict(waits)}


def finish_times_of(study: Study, results: Sequence[RunResult]) -> Iterator[tuple[Trace, RunResult, FinishTimes]]:
    """Yield how each user fared against an equal share, for each run on a trace that names users."""
    for trace in study.traces:
        own = [result for result in results if result.summary.trace == trace.name]
        if not names_users(trace, {result.cell: result for result in own}):
            continue
        alone_s = jct_alone_s(trace.jobs, study.clusters[trace.name].gpus)
        for result in own:
            found = finish_times(result.jct_s, alone_s, trace.jobs["user"])
            if found is not None:
                yield trace, result, found


def _finish_values(trace: Trace, result: RunResult, found: FinishTimes) -> dict[str, object]:
    """Return the finish-time fairness of a run as published."""
    summary = result.summary
    worst = {"worst_user": trace.users[found.worst_user]}
    return {"policy": summary.policy, "trace": summary.trace, "seed": summary.seed, **found._asdict(), **worst}


def _change_values(difference: PairedDifference) -> dict[str, object]:
    """Return a change against the first policy as published."""
    return {
        "trace": difference.trace,
        "policy": difference.policy,
        "against": difference.against,
        "metric": difference.metric,
        **asdict(difference.change),
    }
