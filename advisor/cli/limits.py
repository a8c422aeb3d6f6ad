"""`sadvise limits`: how much sooner the jobs of each user would have started with shorter time limits."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final

import typer

from advisor.cli.options import OUTPUT, ConfigFile, JournalFile, Json, option
from advisor.cli.simulation import (
    Study,
    meta_of,
    setting_of,
    shown_runs,
    spelled_command,
    study_of_one,
)
from advisor.cli.simulation_options import (
    RUNS,
    CoreWorkers,
    Execution,
    FirstJobs,
    Repeats,
    Replayed,
    SimulationSeed,
    SkipBad,
    StoreFolder,
)
from advisor.clock import SystemClock
from advisor.config import Config, load_config
from advisor.domain.notice import ALL
from advisor.domain.units import DAY_S, plural
from advisor.errors import ConfigError, OptionsError
from advisor.journal import SqliteJournal
from advisor.sim.study.cell import drawn, perturbed
from advisor.sim.study.limit_advice import LimitAdvice, LimitStudy, NoAdvice, Suggestion, suggested, users_by_waste
from advisor.sim.traces.trace import Trace
from advisor.site.delivery import check_mail, mail_users
from advisor.text import escaped, named
from advisor.view.frontier_report import drawn_notes
from advisor.view.limit_words import (
    HEADER,
    advice_document,
    advice_row,
    advice_sentence,
    limit_notice,
    refusal_document,
)
from advisor.view.terminal import console, print_json, print_labelled, print_mailed, print_table
from advisor.watch.reading import journal_file

SCHEMA: Final = "sadvise.limits/1"


def limits(
    replayed: Replayed,
    users: Annotated[list[str] | None, option("-u --user NAME", "A user; repeat it for more.", RUNS)] = None,
    top: Annotated[
        int,
        option("--top N", "Without --user: the N users who ask the most GPU time that they do not use.", RUNS, min=1),
    ] = 5,
    max_killed: Annotated[
        float,
        option(
            "--max-killed PERCENT",
            "Suggest no limit that more than this share of the user's later jobs ran beyond.",
            RUNS,
            min=0.0,
            max=20.0,
        ),
    ] = 2.0,
    policy: Annotated[str, option("--policy NAME", "Policy of the replay: slurm, or lift.", RUNS)] = "slurm",
    repeats: Repeats = 8,
    seed: SimulationSeed = 0,
    jobs: FirstJobs = None,
    skip_bad: SkipBad = False,
    workers: CoreWorkers = None,
    store: StoreFolder = None,
    config: ConfigFile = None,
    journal: JournalFile = None,
    mail: Annotated[
        bool, option("--mail", "Mail each user who would clearly gain, as notify.users allows.", OUTPUT)
    ] = False,
    json: Json = False,
) -> None:
    """Replay a trace with a shorter time limit for the jobs of a user, and print how much sooner they would start.

    A limit is suggested from the earlier half of the trace and judged on the later half. Sends nothing without --mail.
    """
    if replayed.is_demo and mail:
        raise OptionsError("--mail excludes --demo: its users are made up")
    settings = load_config(config, os.environ)
    if mail:
        check_mail(settings.notify)
    # Run times are those that were recorded, whatever nodes the replay chooses.
    setting = setting_of([policy], Execution.IDEAL, "estimated", settings)
    command = spelled_command(
        "limits",
        replayed.words,
        [
            ("--cluster", replayed.cluster),
            ("--policy", policy),
            ("--repeats", repeats),
            ("--seed", seed),
            ("--jobs", jobs),
        ],
    )
    study = study_of_one(command, replayed, seed, setting, settings, first=jobs, skip_bad=skip_bad)
    (read,) = study.traces
    whole = drawn(read, study.clusters[read.name], seed)
    found = [suggested(whole, user, killed_ratio=max_killed / 100.0) for user in _chosen(whole, users, top)]
    suggestions = [each for each in found if isinstance(each, Suggestion)]
    limit_study = LimitStudy(
        trace=whole,
        cluster=study.clusters[read.name],
        policy=setting.policies[0],
        options=replace(setting.options, advise_every_s=settings.daemon.interval_s),
        copies=tuple(perturbed(whole, repeat, seed) for repeat in range(repeats)),
        seed=seed,
    )
    advice = _run(limit_study, suggestions, workers, store) if suggestions else []
    refusals = [each for each in found if isinstance(each, NoAdvice)]
    results = _mailed(advice, whole, settings, journal) if mail else {}
    if json:
        _print_json(study, limit_study, advice, refusals, results)
    else:
        _print(limit_study, advice, refusals, results)
    if any(results.values()):
        raise typer.Exit(1)


def _chosen(trace: Trace, names: list[str] | None, top: int) -> list[int]:
    """Return the codes of the users to advise; raises `ConfigError` for a name that the trace does not hold."""
    if not names:
        return users_by_waste(trace)[:top]
    codes = {name: code for code, name in enumerate(trace.users)}
    for name in names:
        if name not in codes:
            raise ConfigError(f"--user {named(name, longest=64)}: the trace has no job of this user")
    return [codes[name] for name in dict.fromkeys(names)]


def _run(
    study: LimitStudy, suggestions: Sequence[Suggestion], workers: int | None, store: Path | None
) -> list[LimitAdvice]:
    at_once = workers or len(os.sched_getaffinity(0))
    with shown_runs(study.runs(len(suggestions)), "runs", store=store, workers=at_once) as run_cells:
        return study.advice(suggestions, run_cells)


def _mailed(advice: Sequence[LimitAdvice], trace: Trace, settings: Config, journal: Path | None) -> dict[str, str]:
    """Mail the users who would clearly gain; map each to why it failed, "" if it did not."""
    now = SystemClock().now()
    notices = [limit_notice(each, trace, now=now, cluster="") for each in advice if each.helps]
    asked = _who_asked(settings, journal, now)
    return mail_users((each for each in notices if asked is None or each.user in asked), settings.notify)


def _who_asked(settings: Config, journal: Path | None, now: float) -> frozenset[str] | None:
    """Return the users who asked for mails on a job of the last 30 days; None where all get them."""
    if settings.notify.users == ALL:
        return None
    with SqliteJournal.read_only(journal_file(settings, journal)) as kept:
        outcomes = (*kept.outcomes(now - 30 * DAY_S), *kept.open_outcomes())
    return frozenset(outcome.user for outcome in outcomes if outcome.wants_mail)


def _print(
    study: LimitStudy, advice: Sequence[LimitAdvice], refusals: Sequence[NoAdvice], results: dict[str, str]
) -> None:
    out, trace = console(), study.trace
    name = escaped(trace.name)
    copies = f"{len(study.copies)} copies, policy {study.policy}"
    print_labelled("replay", f"{name}, {plural(len(trace), 'job')}, on {copies}")
    for note in drawn_notes(trace.sampled):
        print_labelled("mind", note)
    out.print()
    if advice:
        print_table(HEADER, [advice_row(each, trace) for each in advice], right=range(1, len(HEADER)))
        out.print()
    for each in advice:
        print_labelled(trace.users[each.suggestion.user], advice_sentence(each), width=12)
    for refusal in refusals:
        print_labelled(trace.users[refusal.user], f"no suggestion: {refusal.reason}", width=12)
    if not advice and not refusals:
        print_labelled("users", "none has enough jobs with a time limit that they do not use")
    print_mailed(results)


def _print_json(
    study: Study,
    limit_study: LimitStudy,
    advice: Sequence[LimitAdvice],
    refusals: Sequence[NoAdvice],
    results: dict[str, str],
) -> None:
    trace = limit_study.trace
    subject = {"trace": trace.name, "repeats": len(limit_study.copies), "policy": limit_study.policy}
    document: dict[str, object] = {
        "meta": {**meta_of(SCHEMA, study), **subject},
        "advice": [advice_document(each, trace) for each in advice],
        "no_advice": [refusal_document(refusal, trace) for refusal in refusals],
        "mailed": [{"user": user, "fault": fault} for user, fault in results.items()],
    }
    print_json(document)
