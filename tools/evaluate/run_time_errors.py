"""Judges forecasts of run times on jobs that were submitted after the fit or whose users it never saw."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import numpy as np
import typer
from numpy.typing import NDArray

from advisor.domain.probation import OrderProof
from advisor.domain.units import DAY_S, HOUR_S
from advisor.errors import ConfigError
from advisor.fit.fitted import bundled
from advisor.fit.run_time_fit import FEWEST_ROWS, fit_run_time
from advisor.predict.history import bursts_of, keys_of, runs_of
from advisor.predict.order_share import WaitedJobs, order_proof, ordered
from advisor.predict.run_time import WIDE_FACTOR, RunTimeForecaster, RunTimeQuantiles
from advisor.predict.run_time_curve import are_inside
from advisor.predict.run_time_features import GROUPS, LEVELS, EndedJobs
from advisor.predict.run_time_replay import asked_at, replay, steps
from tools.data.drac_tables import Tables, read_tables
from tools.evaluate.score_report import (
    Report,
    Score,
    TableFormat,
    counted,
    date_text,
    parsed_date,
    print_report,
    score,
)
from tools.fidelity.compare import spearman

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

LIMIT, RATIO, LAST_TWO, MEDIAN = "time limit", "median share of the limit", "user's last two runs", "user's median run"
# The parts of the wait of a job after which it is forecast.
MOMENTS: Final[Mapping[str, float]] = {"at submission": 0.0, "half-way": 0.5, "at the start": 1.0}
TEST_DAYS: Final = 21
# The share of the training rows that must have ended before the test begins, else all of them are fitted on.
_LEAST_SHARE: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class FitTrial:
    """All jobs, which of them to fit on and which to judge, both `(n_jobs,)`, and what to say of the choice.

    `left_out` counts the rows of the test that are not judged, by reason.
    """

    jobs: EndedJobs
    fitted_on: Mask
    judged: Mask
    left_out: Mapping[str, int]
    notes: tuple[str, ...]


def runtime(
    train: Annotated[list[Path], typer.Option("--train", help="Tables to fit on, .csv or .csv.gz.")],
    test: Annotated[list[Path], typer.Option("--test", help="Tables to be judged on; may be the same files.")],
    form: Annotated[TableFormat, typer.Option("--format", help="What the tables are.")] = TableFormat.DRAC,  # noqa: ARG001 - the only one
    split: Annotated[
        str | None, typer.Option(help="Fit on jobs that ended before this date, judge those submitted from it on.")
    ] = None,
    folds: Annotated[
        int | None, typer.Option("--unseen-users", metavar="N", help="Leave out the users, in N parts, not the weeks.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the fit.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Judge forecasts of run times, made while each job waits from the jobs that had ended by then."""
    if folds is not None and split is not None:
        raise ConfigError("--split and --unseen-users: the one leaves out weeks, the other users: give one of them")
    split_time = None if split is None else parsed_date(split)
    tables = read_tables([*train, *test])
    if folds is None:
        trials = [trial(tables, train, test, split_time=split_time)]
    else:
        trials = list(unseen_users(tables, folds=folds, seed=seed))
    print_report(judge(*trials, seed=seed), as_json=json)


def trial(tables: Tables, train: Sequence[Path], test: Sequence[Path], *, split_time: float | None = None) -> FitTrial:
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
    unjudged = {
        "without a run time, a time limit or a submission": of_test & ~judgeable,
        "submitted before the split, not fitted on": judgeable & ~judged & ~fitted_on,
        "fitted on": judgeable & ~judged & fitted_on,
    }
    faults = ", ".join(f"{count} {reason}" for reason, count in unusable.items())
    return FitTrial(
        jobs=jobs,
        fitted_on=fitted_on,
        judged=judged,
        left_out=counted(
            *(tables.left_out[path] for path in test),
            {reason: int(np.count_nonzero(rows)) for reason, rows in unjudged.items()},
        ),
        notes=(*([f"Neither fitted on nor history: {faults}."] if faults else []), choice),
    )


def _default_split(submitted: Floats, ended: Floats, *, same: bool) -> float:
    if not same:
        return float(np.min(submitted))
    at = float(np.max(submitted)) - TEST_DAYS * DAY_S
    # Of a short table the last 40 % are judged.
    return at if np.count_nonzero(ended < at) >= FEWEST_ROWS else float(np.quantile(submitted, 0.6))


def unseen_users(tables: Tables, *, folds: int, seed: int) -> Iterator[FitTrial]:
    """Split the users of all files into parts, and judge all jobs of each by a fit on the jobs of the other users.

    Raises `ConfigError` if there are fewer users than parts.
    """
    jobs = tables.ended
    users, user = np.unique(jobs.jobs.user, return_inverse=True)
    if not 1 < folds <= len(users):
        raise ConfigError(f"--unseen-users {folds}: there are {len(users)} users: give a number from 2 to that")
    part = np.random.default_rng(seed).permutation(len(users))[user] % folds
    usable, unusable = jobs.usable()
    left_out = counted(*tables.left_out.values(), unusable)
    note = (
        f"Each of {len(users)} users is in one of {folds} parts; all jobs of a part are judged by a fit on the jobs of "
        "the other users, of the same weeks. Their own history begins empty."
    )
    for number in range(folds):
        yield FitTrial(
            jobs=jobs,
            fitted_on=usable & (part != number),
            judged=usable & (part == number),
            # What holds for all parts is stated once.
            left_out=left_out if number == 0 else {},
            notes=(note,) if number == 0 else (),
        )


def judge(*trials: FitTrial, seed: int) -> Report:
    """Fit once for each trial, then forecast each judged job at each moment while the history grows.

    Baselines likewise. The report is of the judged jobs of all trials together.
    """
    began = time.perf_counter()
    fits = [
        bundled(fit_run_time(of.jobs.take(np.flatnonzero(of.fitted_on)), seed=seed, keep_history=False))
        for of in trials
    ]
    fit_s, began = time.perf_counter() - began, time.perf_counter()
    forecasts = {
        name: [
            replay(RunTimeForecaster.from_bundle(fit), asked_at(of.jobs, moment), of.judged)
            for of, fit in zip(trials, fits, strict=True)
        ]
        for name, moment in MOMENTS.items()
    }
    predict_s = time.perf_counter() - began
    true_s = np.concatenate([runs_of(of.jobs)[of.judged, 0] for of in trials])
    burst = np.concatenate([_bursts(of) for of in trials])
    waited = _waited(trials, burst)
    scores, notes = [], list[str]()
    for name, moment in MOMENTS.items():
        ours = RunTimeQuantiles.join(forecasts[name])
        by_trial = [_baselines(of, moment) for of in trials]
        said = {
            baseline: tuple(np.concatenate(parts) for parts in zip(*(of[baseline] for of in by_trial), strict=True))
            for baseline in by_trial[0]
        }
        # Plans order by the mean.
        aside_s = np.where(ours.wide, said[RATIO][0], ours.mean_s)
        right, aside, *of_baselines = ordered(waited, true_s, [ours.mean_s, aside_s, *(at for at, _ in said.values())])
        known, median_s = ours.known & ~ours.wide, ours.quantiles_s[:, 2]
        scores.append(_scored(f"sadvise, {name}", true_s, median_s, ours.quantiles_s, burst, right, known=known))
        for (baseline, (said_s, quantiles_s)), share in zip(said.items(), of_baselines, strict=True):
            scores.append(_scored(f"{baseline}, {name}", true_s, said_s, quantiles_s, burst, share))
        limit_s = said[LIMIT][0]
        notes += [
            _gate(f"Gate {name}: the model", order_proof(waited, true_s, ours.mean_s, limit_s)),
            *_by_group(name, ours, true_s, aside),
        ]
    notes.append(_gate("Gate for comparison: the truth", order_proof(waited, true_s, true_s, limit_s)))
    return Report(
        what="run time, hours, none taken for more than its time limit",
        train_rows=sum(int(np.count_nonzero(of.fitted_on)) for of in trials),
        test_rows=len(true_s),
        fit_s=fit_s,
        predict_s=predict_s,
        left_out=counted(*(of.left_out for of in trials)),
        scores=tuple(scores),
        notes=(*(note for of in trials for note in of.notes), *_notes(trials), *notes),
    )


def _gate(who: str, proof: OrderProof) -> str:
    return f"{who} {proof.words}: for the order of jobs it {'counts' if proof.proves else 'does not count'}."


def _bursts(of: FitTrial) -> NDArray[np.int64]:
    """Return the bursts of the judged jobs, `(n_judged,)`; users of two trials differ, so that their bursts do."""
    return bursts_of(keys_of(of.jobs.jobs), of.jobs.jobs.submit_time)[of.judged]


def _waited(trials: Sequence[FitTrial], burst: NDArray[np.int64]) -> WaitedJobs:
    """Return when the judged jobs waited; those of two trials are users of the same weeks."""
    judged = [of.jobs.take(np.flatnonzero(of.judged)) for of in trials]
    return WaitedJobs(
        submit_time=np.concatenate([jobs.jobs.submit_time for jobs in judged]),
        start_time=np.concatenate([jobs.end_time - jobs.run_s for jobs in judged]),
        gpus=np.concatenate([jobs.jobs.gpus for jobs in judged]),
        burst=burst,
        user=np.unique([user for jobs in judged for user in jobs.jobs.user], return_inverse=True)[1],
    )


def _baselines(of: FitTrial, moment: float) -> Mapping[str, tuple[Floats, Floats]]:
    """Return what each baseline says of the judged jobs at a moment, and its quantiles."""
    run_s, limit_s, _ = runs_of(of.jobs).T
    said_by_name = baselines(asked_at(of.jobs, moment), of.fitted_on, of.fitted_on | of.judged)
    return {
        name: (said_s[of.judged], quantiles_of(said_s, run_s, limit_s, of.fitted_on)[of.judged])
        for name, said_s in said_by_name.items()
    }


def _scored(
    name: str,
    true_s: Floats,
    said_s: Floats,
    quantiles_s: Floats,
    burst: NDArray[np.int64],
    right: float,
    *,
    known: Mask | None = None,
) -> Score:
    inside = are_inside(true_s, quantiles_s)
    further = {
        "covered, bursts": by_burst(inside, burst),
        "pinball, h": pinball(true_s, quantiles_s) / HOUR_S,
        "pinball, log10": pinball(np.log10(true_s), np.log10(quantiles_s)),
        "ordered": right,
        "rank correlation": float(np.nan_to_num(spearman(said_s, true_s))),
    }
    return score(name, "h", np.abs(said_s - true_s) / HOUR_S, inside=inside, known=known, further=further)


def by_burst(inside: Mask, burst: NDArray[np.int64]) -> float:
    """Return the mean over bursts of the share of jobs inside their interval."""
    _, number = np.unique(burst, return_inverse=True)
    return float(np.mean(np.bincount(number, inside) / np.bincount(number)))


def pinball(true: Floats, quantiles: Floats) -> float:
    """Return the pinball loss of quantiles `(n_rows, 5)` of true values `(n_rows,)`, the mean over rows and levels."""
    level = np.array(LEVELS)
    short = true[:, None] - quantiles
    return float(np.mean(np.maximum(level * short, (level - 1) * short)))


def _notes(trials: Sequence[FitTrial]) -> Iterator[str]:
    judged = [of.jobs.take(np.flatnonzero(of.judged)) for of in trials]
    users = {user for jobs in judged for user in jobs.jobs.user}
    rows, bursts = sum(len(jobs) for jobs in judged), len(np.unique(np.concatenate([_bursts(of) for of in trials])))
    over = sum(int(np.count_nonzero(jobs.run_s > jobs.jobs.limit_s)) for jobs in judged)
    yield (
        f"The {rows} jobs judged are of {len(users)} users and {bursts} bursts (same user, request and day); jobs of "
        "one burst are hardly independent, so a share among them is far less sure than the number of rows suggests."
    )
    yield (
        "Every job is judged at its submission, when half of its wait is over, and at its start, by whatever had ended "
        "by then. Nothing is fitted again during the test: the history and the levels of the intervals grow with every "
        f"job that ended. {over} jobs outlived their limit by Slurm's grace; they count as the limit."
    )
    yield (
        "Ordered: of the GPU-time by which two jobs of different bursts differ that waited at the same time, the share "
        "that a forecast puts in the right order, the shorter first; a tie counts half. Of sadvise it is the mean that "
        "orders, as in plans."
    )
    yield (
        "The quantiles of a baseline are those of the ratio of the true run time to what it says in the training, at "
        "the same moment, times what it says, capped at the limit."
    )


def _by_group(name: str, forecast: RunTimeQuantiles, true_s: Floats, aside: float) -> Iterator[str]:
    inside = are_inside(true_s, forecast.quantiles_s)
    wide, outlived = np.mean(forecast.wide) * 100, np.mean(true_s > forecast.quantiles_s[:, -1]) * 100
    yield f"Interval {name} wider than a factor of {WIDE_FACTOR:g}: {wide:.1f} %; outlived by {outlived:.1f} % of jobs."
    yield f"With a share of the limit in place of wide ones, {aside * 100:.1f} % is ordered right."
    for number, group in enumerate(GROUPS):
        rows = forecast.group == number
        if rows.any():
            yield f"Covered {name} where {group}: {np.mean(inside[rows]) * 100:.1f} % of {np.count_nonzero(rows)}."


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
