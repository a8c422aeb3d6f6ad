"""`sadvise compare`: traces times policies times seeds."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

from rich.text import Text

from advisor.cli.options import ConfigFile, Json
from advisor.cli.simulation import (
    Study,
    command_line,
    drawn_in_words,
    finish_times_of,
    publish,
    setting_of,
    shown_runs,
    study_of,
)
from advisor.cli.simulation_options import (
    ClusterTexts,
    DrawnRequests,
    Execution,
    ExecutionOf,
    FirstJobs,
    PolicyNames,
    Report,
    RequestsMade,
    Seeds,
    SkipBad,
    SpeedSource,
    Spread,
    SpreadOver,
    StoreFolder,
    TraceFiles,
    Workers,
)
from advisor.config import load_config
from advisor.domain.units import plural
from advisor.errors import OptionsError
from advisor.sim.study.comparison import PairedDifference, Results, by_policy, ends_of, mean_of
from advisor.sim.study.result import RunResult
from advisor.sim.study.statistics import RelativeChange
from advisor.text import escaped
from advisor.view.table_layout import TableForm
from advisor.view.terminal import console, print_labelled, print_table
from advisor.view.wording import LABELS, basis, change_in_words, ends_in_words, shown, verdict

SCHEMA = "sadvise.compare/1"
MOST_SEEDS = 10_000
_SEEDS = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")
# The metrics printed for people; JSON and the report hold all of them.
SHOWN = ("mean_jct_s", "p99_queueing_delay_s", "mean_bounded_slowdown", "makespan_s")


def compare(
    traces: TraceFiles,
    clusters: ClusterTexts = None,
    policies: PolicyNames = None,
    seeds: Seeds = "1",
    jobs: FirstJobs = None,
    execution: ExecutionOf = Execution.MEASURED,
    speeds: SpeedSource = "oracle",
    requests: DrawnRequests = RequestsMade.USUAL,
    skip_bad: SkipBad = False,
    workers: Workers = None,
    engine: SpreadOver = Spread.LOCAL,
    store: StoreFolder = None,
    config: ConfigFile = None,
    report: Report = None,
    json: Json = False,
) -> None:
    """Compare policies over traces and seeds, each with the first, on each trace and over all, with 95 % intervals.

    Touches no cluster, except that --cluster live reads it and --engine slurm submits the runs as jobs.
    """
    settings = load_config(config, os.environ)
    setting = setting_of(policies, execution, speeds, settings, requests)
    numbers = seeds_of(seeds)
    cluster_texts = _one_for_each(traces, clusters or [])
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
    pairs = list(zip(traces, cluster_texts, strict=True))
    study = study_of(command, pairs, numbers, setting, settings, first=jobs, skip_bad=skip_bad, report=report)
    advice = ": with --store FOLDER it would be"
    shown_by = shown_runs(
        len(study.cells), "runs", advice=advice, store=store, engine=engine.value, workers=engine.at_once(workers)
    )
    with shown_by as run_cells:
        results = run_cells(study.cells, 0)
    subject = {
        "traces": [trace.name for trace in study.traces],
        "clusters": study.cluster_texts,
        "seeds": numbers,
        "sampled": sorted({column for result in results for column in result.sampled}),
    }
    publish(study, results, schema=SCHEMA, subject=subject, report=report, json=json, show=_print)


def seeds_of(text: str) -> list[int]:
    """Parse `--seeds`: a number of seeds, or a list of seeds and ranges; raises `OptionsError` for anything else."""
    wrong = OptionsError(
        f"--seeds {text[:40]}: give a number of seeds from 1 to {MOST_SEEDS}, or a list of them such as 3,5 or 10-19"
    )
    matches = [_SEEDS.fullmatch(word.strip()) for word in text.split(",") if word.strip()]
    ranges = [range(int(match[1]), int(match[2] or match[1]) + 1) for match in matches if match is not None]
    if not matches or len(ranges) < len(matches):
        raise wrong
    if text.strip().isdecimal():
        ranges = [range(int(text))]
    if not all(0 < len(numbers) <= MOST_SEEDS for numbers in ranges):
        raise wrong
    return list(dict.fromkeys(seed for numbers in ranges for seed in numbers))


def _one_for_each(traces: Sequence[Path], clusters: Sequence[str]) -> list[str]:
    """Return the cluster of each trace."""
    if not clusters:
        raise OptionsError("--cluster is missing: give one for all traces, or one for each")
    if len(clusters) not in {1, len(traces)}:
        raise OptionsError(
            f"--cluster is given {len(clusters)} times for {len(traces)} traces: give one, or one for each"
        )
    return list(clusters) * len(traces) if len(clusters) == 1 else list(clusters)


def _print(study: Study, results: Sequence[RunResult], differences: Sequence[PairedDifference]) -> None:
    """Print for people: every trace, then all together, then where each policy wins and where it loses."""
    out, setting = console(), study.setting
    change_of = {
        (difference.trace, difference.policy, difference.metric): difference.change for difference in differences
    }
    header = ["policy", *(LABELS[metric] for metric in SHOWN)]
    fared = [(result, found) for _, result, found in finish_times_of(study, results)]
    print_labelled("runs", f"{len(results)} in all, execution {setting.execution}, speeds {setting.speeds}")
    for trace in study.traces:
        name, cluster = trace.name, study.cluster_texts[trace.name]
        policies = by_policy([result for result in results if result.summary.trace == name])
        out.print()
        out.print(Text(f"{escaped(name)} on {escaped(cluster)}", style="bold"), soft_wrap=True)
        for text in drawn_in_words(trace, next(iter(policies[setting.policies[0]].values())).sampled):
            print_labelled("drawn", text)
        print_table(
            header,
            [[policy, *_fields(name, policy, own, change_of)] for policy, own in policies.items()],
            form=TableForm(whole=header),
        )
        _print_basis([difference for difference in differences if difference.trace == name])
        for policy, own in policies.items():
            text = ends_in_words(ends_of(own), seeds=len(own))
            if text:
                print_labelled("ends", f"{policy}: {text}")
            rho = [found for result, found in fared if (result.summary.trace, result.summary.policy) == (name, policy)]
            if rho:
                mean, worst = (fmean(getattr(of, key) for of in rho) for key in ("mean_rho", "worst_rho"))
                users = plural(rho[0].users, "user")
                print_labelled("rho", f"{policy}: {mean:.2f} in the mean of {users}, {worst:.2f} for the worst off")
    if len(setting.policies) > 1 and len(study.traces) > 1:
        out.print()
        out.print(Text("over all traces, every trace weighing the same", style="bold"))
        rows = [
            [policy, *(change_in_words(change_of[None, policy, metric]) for metric in SHOWN)]
            for policy in setting.policies[1:]
        ]
        print_table(header, rows, form=TableForm(whole=header))
        _print_basis([difference for difference in differences if difference.trace is None])
    if len(setting.policies) > 1:
        out.print()
        _print_record(differences)


def _fields(
    name: str, policy: str, own: Results, change_of: Mapping[tuple[str | None, str, str], RelativeChange]
) -> list[str]:
    """Return the metrics of a policy on a trace, with the changes against the first policy."""
    fields = []
    for metric in SHOWN:
        change = change_of.get((name, policy, metric))
        value = shown(metric, mean_of(metric, own))
        fields.append(value if change is None else f"{value}, {change_in_words(change)}")
    return fields


def _print_basis(differences: Sequence[PairedDifference]) -> None:
    """Print what the intervals of the mean JCT were drawn from; those of the other metrics are alike."""
    texts = {difference.policy: basis(difference.change) for difference in differences if difference.metric == SHOWN[0]}
    if len(set(texts.values())) == 1:
        print_labelled("paired", next(iter(texts.values())))
        return
    for policy, text in texts.items():
        print_labelled("paired", f"{policy}: {text}")


def _print_record(differences: Sequence[PairedDifference]) -> None:
    """Print on which traces the mean JCT of each policy is lower than the first one's, and on which it is higher."""
    traces_by_verdict: dict[tuple[str, str], dict[str, list[str]]] = {}
    for difference in differences:
        if difference.trace is not None and difference.metric == SHOWN[0]:
            verdicts = traces_by_verdict.setdefault((difference.policy, difference.against), {})
            verdicts.setdefault(verdict(difference.change), []).append(difference.trace)
    for (policy, against), verdicts in traces_by_verdict.items():
        record = "; ".join(f"{kind} on {', '.join(names)}" for kind, names in sorted(verdicts.items()))
        print_labelled("record", f"{LABELS[SHOWN[0]]} of {policy} against {against}: {record}")
