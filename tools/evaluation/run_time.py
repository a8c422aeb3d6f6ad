"""How far off forecasts of run times are, on jobs that were submitted after the fit."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import numpy as np
import typer
from numpy.typing import NDArray

from advisor.domain.units import DAY_S, HOUR_S
from advisor.errors import ConfigError
from advisor.fit.run_time_fit import FEWEST_ROWS, fit_run_time
from advisor.predict.history import REQUEST, keys_of, runs_of
from advisor.predict.run_time import RunTimeForecaster, RunTimeQuantiles
from advisor.predict.run_time_features import GROUPS, LEVELS
from advisor.predict.run_time_replay import replay, steps
from advisor.predict.run_time_table import EndedJobs
from tools.evaluation.drac import Tables, read_tables
from tools.evaluation.report import Report, Score, print_report, score
from tools.evaluation.served import Format, ManyFiles, bundled, date_text, parsed_date
from tools.fidelity.compare import spearman

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

LIMIT, RATIO, LAST_TWO, MEDIAN = "time limit", "median share of the limit", "user's last two runs", "user's median run"
TEST_DAYS: Final = 21
# The share of the training rows that must have ended before the test begins, else all of them are fitted on.
_LEAST_SHARE: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """All jobs, which of them to fit on and which to judge, both `(n_jobs,)`, and what to say of the choice."""

    jobs: EndedJobs
    fitted_on: Mask
    judged: Mask
    notes: tuple[str, ...]


def add_to(app: typer.Typer) -> None:
    """Register the command `runtime`."""
    app.command("runtime", cls=ManyFiles)(runtime)


def runtime(
    train: Annotated[list[Path], typer.Option("--train", help="Tables to fit on, .csv or .csv.gz.")],
    test: Annotated[list[Path], typer.Option("--test", help="Tables to be judged on; may be the same files.")],
    form: Annotated[Format, typer.Option("--format", help="What the tables are.")] = Format.DRAC,  # noqa: ARG001 - the only one
    split: Annotated[
        str | None, typer.Option(help="Fit on jobs that ended before this date, judge those submitted from it on.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the fit.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Judge forecasts of run times, made at each submission from the jobs that had ended by then."""
    split_time = None if split is None else parsed_date(split)
    tables = read_tables([*train, *test])
    print_report(judge(trial(tables, train, test, split_time=split_time), seed=seed), as_json=json)


def trial(tables: Tables, train: Sequence[Path], test: Sequence[Path], *, split_time: float | None = None) -> Trial:
    """Fit on what ended before the split, judge what was submitted from it on.

    Without `split_time` files that hold the same jobs are split three weeks before the last submission, others at the
    first submission of the test. Raises `ConfigError` where too little is left on either side.
    """
    jobs, of_train, of_test = tables.ended, tables.held_by(train), tables.held_by(test)
    usable, unusable = jobs.usable()
    judgeable = of_test & (jobs.run_s > 0) & (jobs.jobs.limit_s > 0) & np.isfinite(jobs.jobs.submit_time)
    if not judgeable.any():
        raise ConfigError("no job of the test has a run time and a time limit: give other --test files")
    same = bool(2 * np.count_nonzero(of_train & of_test) > np.count_nonzero(of_test))
    learnable = usable & of_train
    at = split_time
    if at is None:
        at = _default_split(jobs.jobs.submit_time[judgeable], jobs.end_time[learnable], same=same)
    fitted_on = learnable & (jobs.end_time < at)
    judged = judgeable & (jobs.jobs.submit_time >= at)
    apart = learnable & ~of_test
    shuffled = np.count_nonzero(fitted_on) < max(FEWEST_ROWS, _LEAST_SHARE * np.count_nonzero(apart))
    if split_time is None and not same and shuffled:
        fitted_on = apart
        choice = (
            f"CAUTION: hardly a job of the training had ended when the test began, so all {np.count_nonzero(apart)} "
            "were fitted on: the forest has seen jobs of the days it is judged on, which flatters it. The history "
            "behind each forecast still holds only what had ended. For an honest figure give --split, or files apart "
            "in time."
        )
    else:
        choice = (
            f"Split at {date_text(at)} UTC. Of the training {np.count_nonzero(learnable & ~fitted_on & ~judged)} jobs "
            "ended later: not fitted on, but part of the history from their ends on."
        )
    if not judged.any():
        raise ConfigError(f"no job of the test was submitted from {date_text(at)} on: give an earlier --split")
    if np.count_nonzero(fitted_on) < FEWEST_ROWS:
        raise ConfigError(
            f"{np.count_nonzero(fitted_on)} usable jobs of the training ended before {date_text(at)}, at least "
            f"{FEWEST_ROWS} are needed: give a later --split or more files"
        )
    left_out = {
        "Rows of the files that are no ended job": tables.left_out,
        "Neither fitted on nor history": unusable,
    }
    counted = [
        f"{what}: {', '.join(f'{count} {reason}' for reason, count in counts.items())}."
        for what, counts in left_out.items()
        if counts
    ]
    return Trial(jobs=jobs, fitted_on=fitted_on, judged=judged, notes=(*counted, choice))


def _default_split(submitted: Floats, ended: Floats, *, same: bool) -> float:
    if not same:
        return float(np.min(submitted))
    at = float(np.max(submitted)) - TEST_DAYS * DAY_S
    # Of a short table the last 40 % are judged.
    return at if np.count_nonzero(ended < at) >= FEWEST_ROWS else float(np.quantile(submitted, 0.6))


def judge(of: Trial, *, seed: int) -> Report:
    """Fit once, then forecast each judged job at its submission while the history grows; baselines likewise."""
    began = time.perf_counter()
    fitted = fit_run_time(of.jobs.take(np.flatnonzero(of.fitted_on)), seed=seed, keep_history=False)
    fit_s = time.perf_counter() - began
    forecaster = RunTimeForecaster.from_bundle(bundled(fitted))
    began = time.perf_counter()
    forecast = replay(forecaster, of.jobs, of.judged)
    predict_s = time.perf_counter() - began
    run_s, limit_s, _ = runs_of(of.jobs).T
    true_s = run_s[of.judged]
    scores = [_scored("sadvise", true_s, forecast.quantiles_s[:, 2], forecast.quantiles_s, known=forecast.known)]
    for name, said_s in baselines(of.jobs, of.fitted_on, of.fitted_on | of.judged).items():
        quantiles_s = quantiles_of(said_s, run_s, limit_s, of.fitted_on)[of.judged]
        scores.append(_scored(name, true_s, said_s[of.judged], quantiles_s))
        scores.append(_scored(f"{name}, its median", true_s, quantiles_s[:, 2], quantiles_s))
    return Report(
        what="run time, hours, none taken for more than its time limit",
        train_rows=int(np.count_nonzero(of.fitted_on)),
        test_rows=len(true_s),
        fit_s=fit_s,
        predict_s=predict_s,
        scores=tuple(scores),
        notes=(*of.notes, *_notes(of, forecast, true_s)),
    )


def _scored(name: str, true_s: Floats, said_s: Floats, quantiles_s: Floats, *, known: Mask | None = None) -> Score:
    further = {
        "pinball, h": pinball(true_s, quantiles_s) / HOUR_S,
        "pinball, log10": pinball(np.log10(true_s), np.log10(quantiles_s)),
        "rank correlation": float(np.nan_to_num(spearman(said_s, true_s))),
    }
    inside = _inside(true_s, quantiles_s)
    return score(name, "h", np.abs(said_s - true_s) / HOUR_S, inside=inside, known=known, further=further)


def _inside(true_s: Floats, quantiles_s: Floats) -> Mask:
    return (true_s >= quantiles_s[:, 0]) & (true_s <= quantiles_s[:, -1])


def pinball(true: Floats, quantiles: Floats) -> float:
    """Return the pinball loss of quantiles `(n_rows, 5)` of true values `(n_rows,)`, the mean over rows and levels."""
    level = np.array(LEVELS)
    short = true[:, None] - quantiles
    return float(np.mean(np.maximum(level * short, (level - 1) * short)))


def _notes(of: Trial, forecast: RunTimeQuantiles, true_s: Floats) -> Iterator[str]:
    judged = of.jobs.take(np.flatnonzero(of.judged))
    users = len(set(judged.jobs.user))
    days = (judged.jobs.submit_time // DAY_S).tolist()
    bursts = len({(day, of_job[REQUEST]) for day, of_job in zip(days, keys_of(judged.jobs), strict=True)})
    over = int(np.count_nonzero(judged.run_s > judged.jobs.limit_s))
    yield (
        f"The {len(true_s)} jobs judged are of {users} users and {bursts} bursts (same user, request and day); jobs of "
        "one burst are hardly independent, so a share among them is far less sure than the number of rows suggests."
    )
    yield (
        "Nothing is fitted again during the test: the history and the levels of the intervals grow with every job that "
        f"ended before a submission. {over} jobs outlived their limit by Slurm's grace; they count as the limit."
    )
    yield (
        "Each baseline appears twice: what it says, and that times the median ratio of the true run time to it in the "
        "training. Its quantiles are those of this ratio times what it says, capped at the limit."
    )
    inside = _inside(true_s, forecast.quantiles_s)
    for number, name in enumerate(GROUPS):
        rows = forecast.group == number
        if rows.any():
            yield f"Covered where {name}: {np.mean(inside[rows]) * 100:.1f} % of {np.count_nonzero(rows)}."


def baselines(jobs: EndedJobs, fitted_on: Mask, wanted: Mask) -> Mapping[str, Floats]:
    """Return what each baseline says of every `wanted` job, `(n_rows,)` in seconds, NaN for the others.

    The last two runs are the rule of Tsafrir, Etsion and Feitelson (2007). For a user without any run both rules of
    the user take the median share of the limit, which is kinder to them than the limit itself.
    """
    run_s, limit_s, _ = runs_of(jobs).T
    share = float(np.median(run_s[fitted_on] / limit_s[fitted_on]))
    last_two, median = np.full(len(jobs), np.nan), np.full(len(jobs), np.nan)
    runs_by_user: dict[str, list[float]] = {}
    for step in steps(jobs, wanted):
        for row in step.ended.tolist():
            runs_by_user.setdefault(jobs.jobs.user[row], []).append(run_s[row])
        for row in step.rows.tolist():
            runs = runs_by_user.get(jobs.jobs.user[row], [share * limit_s[row]])
            last_two[row], median[row] = np.mean(runs[-2:]), np.median(runs)
    return {
        LIMIT: np.where(wanted, limit_s, np.nan),
        RATIO: np.where(wanted, share * limit_s, np.nan),
        LAST_TWO: np.minimum(last_two, limit_s),
        MEDIAN: np.minimum(median, limit_s),
    }


def quantiles_of(said_s: Floats, run_s: Floats, limit_s: Floats, fitted_on: Mask) -> Floats:
    """Give a baseline quantiles `(n_rows, len(LEVELS))`: those of the true run time over it where it was fitted."""
    ratio = np.quantile(run_s[fitted_on] / said_s[fitted_on], LEVELS)
    quantiles: Floats = np.minimum(said_s[:, None] * ratio, limit_s[:, None])
    return quantiles
