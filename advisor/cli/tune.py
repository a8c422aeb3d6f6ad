"""`sadvise tune`: what other settings of the advisor and of slurm.conf would have cost and gained."""

import os
from dataclasses import replace

from rich.text import Text

from advisor.cli.options import ConfigFile, Json
from advisor.cli.simulation import (
    Study,
    drawn_in_words,
    meta_of,
    setting_of,
    shown_runs,
    spelled_command,
    study_of_one,
)
from advisor.cli.simulation_options import (
    DrawnRequests,
    Execution,
    ExecutionOf,
    FirstJobs,
    Repeats,
    Replayed,
    Report,
    RequestsMade,
    ShowsAll,
    SimulationSeed,
    SkipBad,
    Spread,
    SpreadOver,
    StoreFolder,
    VariesSlurm,
    Workers,
)
from advisor.config import Config, load_config
from advisor.domain.mode import Mode
from advisor.domain.units import duration, plural
from advisor.sim.study.exploration import Exploration
from advisor.sim.study.frontier import Point, TuneOutcome
from advisor.sim.study.statistics import RelativeChange
from advisor.sim.study.tried_settings import name_in_force
from advisor.sim.study.user_losses import LEAST_JOBS, UserLoss
from advisor.sim.traces.trace import Trace
from advisor.text import escaped
from advisor.view.frontier_report import (
    HEADER,
    drawn_notes,
    frontier_page,
    lines_of,
    next_steps,
    preset_rows,
    row_of,
    shown_points,
)
from advisor.view.html_report import write_page
from advisor.view.terminal import console, print_json, print_labelled, print_table

SCHEMA = "sadvise.tune/2"
# Of labels.
_WIDTH = 12


def tune(
    replayed: Replayed,
    repeats: Repeats = 4,
    slurm: VariesSlurm = True,
    seed: SimulationSeed = 0,
    jobs: FirstJobs = None,
    execution: ExecutionOf = Execution.MEASURED,
    requests: DrawnRequests = RequestsMade.USUAL,
    skip_bad: SkipBad = False,
    workers: Workers = None,
    engine: SpreadOver = Spread.LOCAL,
    store: StoreFolder = None,
    config: ConfigFile = None,
    report: Report = None,
    shows_all: ShowsAll = False,
    json: Json = False,
) -> None:
    """Replay a trace under other settings of the advisor and of slurm.conf, and compare each with plain Slurm.

    Prints what each setting gains, what it costs single users and jobs, and the lines to put into sadvise.toml or
    slurm.conf. Touches no cluster, except that --cluster live reads it and --engine slurm submits the runs as jobs.
    """
    settings = load_config(config, os.environ)
    setting = setting_of(["slurm", "lift"], execution, "oracle", settings, requests)
    options = replace(setting.options, advise_every_s=settings.daemon.interval_s)
    command = spelled_command(
        "tune",
        replayed.words,
        [
            ("--cluster", replayed.cluster),
            ("--repeats", repeats),
            ("--no-slurm", not slurm),
            ("--seed", seed),
            ("--jobs", jobs),
            ("--execution", execution.value),
            ("--requests", requests.value),
            ("--skip-bad", skip_bad),
            ("--config", config),
        ],
    )
    setting = replace(setting, options=options)
    study = study_of_one(command, replayed, seed, setting, settings, first=jobs, skip_bad=skip_bad, report=report)
    (read,) = study.traces
    exploration = Exploration.of(
        read,
        study.clusters[read.name],
        options,
        repeats=repeats,
        seed=seed,
        requests=requests.value,
        varies_slurm=slurm,
    )
    advice = ": with --store FOLDER it would be"
    shown = shown_runs(
        exploration.runs, "runs", advice=advice, store=store, engine=engine.value, workers=engine.at_once(workers)
    )
    with shown as run_cells:
        in_force = name_in_force(
            options, applies=settings.mode.farthest is Mode.APPLY, forecasts=settings.forecasts.enabled
        )
        outcome = exploration.outcome(run_cells, in_force)
    if report is not None:
        origin = replace(study.origin, traces={read.name: exploration.trace})
        write_page(frontier_page(exploration, outcome, origin, with_dominated=shows_all), report)
    if json:
        print_json(_document(study, exploration, outcome, settings))
    else:
        _print(study, exploration, outcome, with_dominated=shows_all)


def _print(study: Study, exploration: Exploration, outcome: TuneOutcome, *, with_dominated: bool) -> None:
    """Print for people: the frontier, what to set for each point, and what to mind."""
    out, trace, points = console(), exploration.trace, outcome.points
    (read,) = study.traces
    cluster = escaped(study.cluster_texts[read.name])
    title = f"{escaped(trace.name)}, {plural(len(trace), 'job')} on {cluster}, {exploration.plain.cluster.gpus} GPUs"
    out.print(Text(title, style="bold"), soft_wrap=True)
    copies = f"{len(exploration.copies)} copies of the trace, jobs up to 5 min later in each"
    print_labelled("runs", f"{exploration.runs} in all: {len(points)} settings on {copies}; seed {exploration.seed}")
    for text in drawn_in_words(read, trace.sampled):
        print_labelled("drawn", text)
    for note in drawn_notes(trace.sampled):
        print_labelled("mind", note)
    out.print()
    visible = shown_points(outcome, with_dominated=with_dominated)
    print_table(HEADER, [row_of(point, trace) for point in visible], right=range(1, len(HEADER)))
    out.print()
    late = duration(exploration.plain.options.limits.max_added_delay_s)
    print_labelled("late", f"jobs that start more than {late} later; in the row of slurm by chance alone")
    hidden = len(points) - len(visible)
    if hidden:
        print_labelled("hidden", f"{plural(hidden, 'setting')} that another one beats in every column: see --all")
    for reason in exploration.left_out:
        print_labelled("fixed", reason)
    out.print()
    width = max(len(point.setting.name) for point in visible) + 2
    for point in visible[1:]:
        print_labelled(point.setting.name, lines_of(point), width=width)
    out.print()
    for label, text in [*preset_rows(outcome), *next_steps(outcome)]:
        print_labelled(label, text, width=_WIDTH)


def _document(study: Study, exploration: Exploration, outcome: TuneOutcome, settings: Config) -> dict[str, object]:
    """Return the frontier as published."""
    (read,) = study.traces
    options = exploration.plain.options
    subject = {
        "trace": read.name,
        "cluster": study.cluster_texts[read.name],
        "seed": exploration.seed,
        "repeats": len(exploration.copies),
        "sampled": list(exploration.trace.sampled),
        "advise_every_s": options.advise_every_s,
        "late_after_s": options.limits.max_added_delay_s,
        "least_jobs_of_user": LEAST_JOBS,
    }
    advised, now = outcome.advised, outcome.in_force
    move = outcome.move(settings.daemon.presets, forecasts=settings.forecasts.enabled)
    return {
        "meta": {**meta_of(SCHEMA, study), **subject},
        "jobs": len(exploration.trace),
        "points": [_point_values(point, exploration.trace) for point in outcome.points],
        "presets": {preset: _name(point) for preset, point in outcome.presets.items()},
        "advised": _name(advised),
        "in_force": now.setting.name,
        "against_in_force": None if advised is None else _change_values(outcome.beyond(now, advised)),
        "moves_to": None if move is None else _move_values(move, outcome),
        "tuned_slurm": outcome.tuned_slurm.setting.name,
        "not_varied": list(exploration.left_out),
    }


def _name(point: Point | None) -> str | None:
    return None if point is None else point.setting.name


def _move_values(move: Point, outcome: TuneOutcome) -> dict[str, object]:
    """Return the setting that a daemon can take up by itself, and its change against the one in force."""
    options = move.setting.options
    return {
        "setting": move.setting.name,
        "fairness": options.limits.fairness,
        "priority_decades": options.planning.priority_decades,
        "change": _change_values(outcome.beyond(outcome.in_force, move)),
    }


def _point_values(point: Point, trace: Trace) -> dict[str, object]:
    """Return a point as published."""
    change = point.change
    return {
        "setting": point.setting.name,
        "family": str(point.setting.family),
        "preset": point.setting.preset,
        "lines": point.setting.lines,
        "mean_jct_s": point.mean_jct_s,
        "change": _change_values(change),
        "p99_jct_s": point.p99_jct_s,
        "p99_wait_s": point.p99_wait_s,
        "longest_wait_s": point.longest_wait_s,
        "late_jobs": point.late_jobs,
        "users": len(point.losses),
        "users_worse": point.users_worse,
        "users_worse_beyond_chance": point.users_beyond_chance,
        "worst_users": [_loss_values(loss, trace) for loss in point.losses if loss.is_worse],
        "changes_per_job": point.changes_per_job,
        "dominated": point.is_dominated,
    }


def _change_values(change: RelativeChange) -> dict[str, object]:
    return {name: getattr(change, name) for name in ("percent", "low", "high", "pairs")}


def _loss_values(loss: UserLoss, trace: Trace) -> dict[str, object]:
    """Return the loss of a user as published."""
    return {
        "user": trace.users[loss.user],
        "jobs": loss.jobs,
        "mean_jct_before_s": loss.before_s,
        "mean_jct_after_s": loss.after_s,
        "percent": loss.percent,
        "error_s": loss.error_s,
        "beyond_chance": loss.is_beyond_chance,
    }
