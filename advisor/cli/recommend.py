"""`sadvise recommend`: one dry-run cycle."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from advisor.cli.options import (
    Accounts,
    Cluster,
    ConfigFile,
    Demo,
    Format,
    Jobs,
    JournalFile,
    Json,
    Nodes,
    NoHeader,
    Parsable,
    Partitions,
    SnapshotFile,
    Source,
    Timeout,
    Users,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from advisor.config import Config
    from advisor.cycle import CycleRecord
    from advisor.domain.plan import Kind
    from advisor.planning.plan_trial import PlanTrial
    from advisor.watch.reading import Planned

NO_REVERT = "none: Slurm restarts the job from its last checkpoint when resources are free"


def recommend(
    snapshot: SnapshotFile = None,
    demo: Demo = False,
    source: Source = None,
    cluster: Cluster = None,
    timeout: Timeout = None,
    config: ConfigFile = None,
    journal: JournalFile = None,
    policy: Annotated[
        str | None,
        typer.Option(
            "--policy",
            metavar="NAME[@VERSION]",
            help="Choose with this learned policy, of the site or the package; default: the rules.",
        ),
    ] = None,
    rollout: Annotated[
        bool,
        typer.Option(
            "--rollout",
            help="Simulate the next 12 h with and without the plan, and print what it and each change gain.",
        ),
    ] = False,
    partitions: Partitions = None,
    users: Users = None,
    accounts: Accounts = None,
    jobs: Jobs = None,
    nodes: Nodes = None,
    json: Json = False,
    parsable: Parsable = False,
    noheader: NoHeader = False,
    format_: Format = None,
    top: Annotated[
        int | None,
        typer.Option("--top", metavar="N", min=1, help="Only the N changes that should save most job completion time."),
    ] = None,
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help="Exit with 3 if there is something to recommend.")
    ] = False,
) -> None:
    """Print which GPU jobs to reorder, resize, consolidate or stop, why, and how to do and undo it by hand.

    Starts with the state of the cluster. Read-only: nothing is changed.
    """
    from dataclasses import asdict

    from advisor.cli.filters import job_filter
    from advisor.cli.plan_simulation import trial_of
    from advisor.domain.probation import NOTHING_PROVEN
    from advisor.errors import OptionsError
    from advisor.planning.survey import overview
    from advisor.view.breaker_words import probation_values, stop_values
    from advisor.view.documents import (
        FIELDS,
        SCHEMA,
        about_jobs,
        cluster_values,
        meta,
        recommendation,
        skipped,
    )
    from advisor.view.terminal import chosen_fields, print_json, print_rows
    from advisor.watch.reading import Reading

    if json and (parsable or format_ is not None):
        raise OptionsError("--json excludes -P and -o: give one")
    wanted = job_filter(partitions, users, accounts, jobs, nodes)
    fields, widths = chosen_fields(format_ or ",".join(FIELDS), list(FIELDS))
    reading = Reading(
        snapshot=snapshot,
        demo=demo,
        source=source,
        cluster=cluster,
        timeout_s=timeout,
        config=config,
        policy=policy,
        tries_plans=True,
    )
    settings = reading.load_config()
    opened = reading.open(settings)
    seen = opened.snapshot()
    planned = reading.plan(settings, journal, seen)
    record = planned.record
    wanted.check(seen)
    trial = trial_of(record, settings) if rollout else None
    named = cluster if snapshot is None and not demo else None
    shown = [
        recommendation(change, named) | about_jobs(change, seen)
        for change in record.recommendations
        if wanted.keeps(seen.jobs_by_id[change.job_id], seen)
    ]
    shown = _most_saving(shown, top)
    left_alone = [job for job in skipped(record) if wanted.keeps(seen.jobs_by_id[job["job_id"]], seen)]
    unused = _unused(record, settings)
    if json:
        print_json(
            {
                "meta": meta(seen, SCHEMA, opened.name),
                "cluster": cluster_values(overview(seen)),
                "forecasts": {
                    "models": list(record.forecasts.models),
                    "notes": list(record.forecasts.notes),
                    "on_probation": probation_values(
                        record.forecasts.on_probation, planned.coverage, record.memory.trust or NOTHING_PROVEN
                    ),
                },
                "paused": None if planned.pause is None else asdict(planned.pause),
                "stops": [stop_values(breaker) for breaker in planned.stops],
                **({} if policy is None else {"policy": {"name": policy, "fault": record.policy_fault or None}}),
                **({} if trial is None else {"rollout": asdict(trial)}),
                "recommendations": shown,
                "skipped": left_alone,
                "unused": {str(kind): text for kind, text in unused.items()},
            }
        )
    elif parsable or format_ is not None:
        rows = [[FIELDS[field](row) for field in fields] for row in shown]
        print_rows(fields, rows, as_parsable=parsable, noheader=noheader, widths=widths)
    else:
        _print(record, shown, left_alone, source=None if noheader else opened.name)
        _print_unused(unused)
        _print_trust(planned, settings)
        _print_rest(planned, policy, trial)
    if exit_code and shown:
        raise typer.Exit(3)


def _most_saving(rows: "list[dict[str, Any]]", top: int | None) -> "list[dict[str, Any]]":
    """Return the rows that are expected to save most, in their order; all without a number."""
    if top is None:
        return rows
    best = sorted(range(len(rows)), key=lambda place: -sum(rows[place]["expected"]["jct_saved_s"]))[:top]
    return [rows[place] for place in sorted(best)]


def _unused(record: "CycleRecord", settings: "Config") -> "Mapping[Kind, str]":
    """Return why the plan holds no delay timer, or no new size."""
    from advisor.domain.permits import Permits
    from advisor.planning.case import Case
    from advisor.planning.unused import why_unused

    case = Case(
        snapshot=record.snapshot,
        settings=settings.planning,
        limits=settings.guard,
        forecasts=record.forecasts.counted,
        memory=record.memory,
        permits=Permits(left_alone=record.left_alone),
    )
    return why_unused(case, record.judged)


def _print(
    record: "CycleRecord",
    shown: "Sequence[Mapping[str, Any]]",
    left_alone: "list[dict[str, Any]]",
    *,
    source: str | None,
) -> None:
    """Print for people; without `source`, leave out the state of the cluster."""
    from advisor.planning.levers import missing_by_lever
    from advisor.planning.survey import overview
    from advisor.view.documents import rules_in_words
    from advisor.view.terminal import console, print_labelled, print_overview

    out = console()
    if source is not None:
        print_overview(record.snapshot, overview(record.snapshot), source)
        out.print()
    for number, row in enumerate(shown, start=1):
        _print_one(number, row, record)
    out.print(
        "These commands change pending jobs; once a job has started there is nothing to revert."
        if shown
        else "Nothing to recommend."
    )
    for lever, missing in sorted(missing_by_lever(record.snapshot).items()):
        print_labelled("no lever", f"{lever}: {missing}", width=10)
    if record.forecasts.counted.models:
        print_labelled("forecasts", f"by {', '.join(record.forecasts.counted.models)}", width=11)
    for note in record.forecasts.notes:
        print_labelled("refused", f"{note}; rules serve instead", width=11)
    if left_alone:
        print_labelled("left alone", rules_in_words(left_alone), width=12)


def _print_unused(unused: "Mapping[Kind, str]") -> None:
    """Print why the plan holds no delay timer, or no new size."""
    from advisor.view.terminal import print_labelled

    for kind, text in unused.items():
        print_labelled("unused", f"{kind}: {text}", width=10)


def _print_trust(planned: "Planned", settings: "Config") -> None:
    """Print what keeps the daemon from applying, and which models are on probation."""
    from advisor.daemon.round_state import least_jobs
    from advisor.daemon.status_words import pause_line
    from advisor.domain.probation import NOTHING_ENDED, NOTHING_PROVEN
    from advisor.view.breaker_words import probation_line, stop_line
    from advisor.view.terminal import print_labelled

    if planned.pause is not None:
        print_labelled("stopped", pause_line(planned.pause), width=11)
    for breaker in planned.stops:
        print_labelled("stopped", f"{breaker.name}: {stop_line(breaker)}", width=11)
    for model in planned.record.forecasts.on_probation:
        coverage = planned.coverage.get(model, NOTHING_ENDED)
        drifted = model in (planned.record.memory.trust or NOTHING_PROVEN).drifted
        line = probation_line(model, coverage, least_jobs(settings), drifted=drifted)
        print_labelled("probation", line, width=11)


def _print_rest(planned: "Planned", policy: str | None, trial: "PlanTrial | None") -> None:
    """Print what a simulation of the plan, a learned policy and the journal add."""
    from advisor.cli.plan_simulation import print_trial
    from advisor.view.terminal import print_labelled

    if trial is not None:
        print_trial(trial)
    if policy is not None:
        print_labelled("policy", policy)
    if planned.record.policy_fault:
        print_labelled("refused", f"{planned.record.policy_fault}; rules serve instead", width=11)
    if planned.is_broken:
        print_labelled("journal", planned.note)


def _print_one(number: int, row: "Mapping[str, Any]", record: "CycleRecord") -> None:
    from rich.text import Text

    from advisor.domain.units import duration
    from advisor.text import escaped
    from advisor.view.documents import in_words, saving_in_words, shell
    from advisor.view.terminal import console, print_labelled

    out = console()
    revert = NO_REVERT if row["revert"] is None else shell(row["revert"])
    job = record.snapshot.jobs_by_id[row["job_id"]]
    after_s = row["expected"]["revert_after_s"]
    when = "" if after_s is None else f"   # due {duration(after_s)} after the change, if it has not started"
    heading = f"{number}. {row['kind']} job {row['job_id']}"
    change = f"  {escaped(job.name)}, user {escaped(job.user)}: {in_words(row, 'before')} -> {in_words(row, 'after')}"
    out.print(Text.assemble((heading, "bold"), change), soft_wrap=True)
    print_labelled("why", f"{row['text']} ({row['reason']})", indent=3)
    print_labelled("gain", f"{saving_in_words(row['expected'])}, assuming: {row['expected']['assumes']}", indent=3)
    # Not wrapped or cut: these lines are meant to be copied.
    out.print(Text(f"   apply   {shell(row['command'])}"), soft_wrap=True)
    out.print(Text(f"   revert  {revert}{when}"), soft_wrap=True)
    out.print()
