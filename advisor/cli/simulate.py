"""`sadvise simulate`: one trace under one or more policies."""

import os
from collections.abc import Sequence

from rich.text import Text

from advisor.cli.options import ConfigFile, Json
from advisor.cli.simulation import (
    Study,
    command_line,
    drawn_in_words,
    publish,
    setting_of,
    shown_runs,
    study_of_one,
)
from advisor.cli.simulation_options import (
    DrawnRequests,
    Execution,
    ExecutionOf,
    FirstJobs,
    PolicyNames,
    Replayed,
    Report,
    RequestsMade,
    SimulationSeed,
    SkipBad,
    SpeedSource,
)
from advisor.config import load_config
from advisor.domain.units import duration, plural
from advisor.sim.study.comparison import PairedDifference
from advisor.sim.study.result import RunResult
from advisor.text import escaped
from advisor.view.table_layout import TableForm
from advisor.view.terminal import console, print_labelled, print_table
from advisor.view.wording import LABELS, basis, change_in_words, ends_in_words, shown, verdict

SCHEMA = "sadvise.simulate/1"


def simulate(
    replayed: Replayed,
    policies: PolicyNames = None,
    seed: SimulationSeed = 0,
    jobs: FirstJobs = None,
    execution: ExecutionOf = Execution.MEASURED,
    speeds: SpeedSource = "oracle",
    requests: DrawnRequests = RequestsMade.USUAL,
    skip_bad: SkipBad = False,
    config: ConfigFile = None,
    report: Report = None,
    json: Json = False,
) -> None:
    """Simulate the jobs of a trace under policies, and compare their metrics.

    Touches no cluster, except that --cluster live reads it. Compares each policy with the first on the same jobs, with
    95 % intervals.
    """
    settings = load_config(config, os.environ)
    setting = setting_of(policies, execution, speeds, settings, requests)
    command = command_line(
        "simulate",
        replayed.words,
        setting,
        [
            ("--cluster", replayed.cluster),
            ("--seed", seed),
            ("--jobs", jobs),
            ("--skip-bad", skip_bad),
            ("--config", config),
        ],
    )
    study = study_of_one(command, replayed, seed, setting, settings, first=jobs, skip_bad=skip_bad, report=report)
    with shown_runs(len(study.cells), "policies") as run_cells:
        results = run_cells(study.cells, 0)
    subject = {
        "trace": study.traces[0].name,
        "cluster": replayed.cluster,
        "seed": seed,
        "sampled": list(results[0].sampled),
    }
    publish(study, results, schema=SCHEMA, subject=subject, report=report, json=json, show=_print)


def _print(study: Study, results: Sequence[RunResult], differences: Sequence[PairedDifference]) -> None:
    """Print for people: every metric of every policy, then the changes against the first."""
    out, setting, trace = console(), study.setting, study.traces[0]
    summaries = [result.summary for result in results]
    cluster = escaped(study.cluster_texts[trace.name])
    title = f"{escaped(trace.name)}, {plural(len(trace), 'job')} on {cluster}, {results[0].cluster_gpus} GPUs"
    out.print(Text(title, style="bold"), soft_wrap=True)
    print_labelled("runs", f"seed {study.seeds[0]}, execution {setting.execution}, speeds {setting.speeds}")
    for text in drawn_in_words(trace, results[0].sampled):
        print_labelled("drawn", text)
    out.print()
    rows = [
        [label, *(shown(metric, getattr(summary, metric)) for summary in summaries)] for metric, label in LABELS.items()
    ]
    ended = ["jobs that ended at their limit", *(f"{result.ends.time_limit:,}" for result in results)]
    rows.insert(1 + list(LABELS).index("finished"), ended)
    print_table(["", *setting.policies], rows, right=range(1, len(summaries) + 1))
    for policy in setting.policies[1:]:
        own = [difference for difference in differences if difference.policy == policy]
        out.print()
        header = [f"{policy} against {own[0].against}", "change (95 % interval)", "reads as"]
        print_table(
            header,
            [
                [LABELS[difference.metric], change_in_words(difference.change), verdict(difference.change)]
                for difference in own
            ],
            form=TableForm(whole=header),
        )
        print_labelled("paired", basis(own[0].change))
    for result in results:
        if (waits := result.interactive) is not None:
            text = (
                f"{result.summary.policy}: half of {plural(waits.jobs, 'interactive job')} start within "
                f"{duration(waits.p50_queueing_delay_s)}, nine of ten within {duration(waits.p90_queueing_delay_s)}; "
                f"the mean JCT of the others is {duration(waits.mean_jct_of_others_s)}"
            )
            print_labelled("interactive", text)
        if ends_in_words(result.ends):
            print_labelled("ends", f"{result.summary.policy}: {ends_in_words(result.ends)}")
