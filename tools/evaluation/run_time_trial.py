"""Which jobs a judgement of run times fits on, and which it judges."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from advisor.errors import ConfigError
from advisor.fit.run_time_fit import FEWEST_ROWS
from advisor.predict.run_time_table import EndedJobs, RunTimeTable
from tools.evaluation.drac import Tables
from tools.evaluation.served import date_text

Mask = NDArray[np.bool_]

TEST_DAYS = 21
_DAY_S = 86400.0
# The share of the training rows that must have ended before the test begins, else all of them are fitted on.
_LEAST_SHARE = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """All jobs, which of them to fit on and which to judge, both `(n_jobs,)`, and what to say of the choice."""

    jobs: EndedJobs
    fitted_on: Mask
    judged: Mask
    notes: tuple[str, ...]


def trial(train: Tables, test: Tables, *, split_time: float | None = None) -> Trial:
    """Fit on what ended before the split, judge what was submitted from it on.

    Without `split_time` files that hold the same jobs are split three weeks before the last submission, others at the
    first submission of the test. Raises `ConfigError` where too little is left on either side.
    """
    jobs, of_train, of_test = _together(train, test)
    usable, unusable = jobs.usable()
    judgeable = of_test & (jobs.run_s > 0) & (jobs.jobs.limit_s > 0) & np.isfinite(jobs.jobs.submit_time)
    if not judgeable.any():
        raise ConfigError("no job of the test has a run time and a time limit: give other --test files")
    notes = list(_left_out(train, test, unusable))
    same = bool(2 * np.count_nonzero(of_train & of_test) > np.count_nonzero(of_test))
    learnable = usable & of_train
    at = split_time
    if at is None:
        submitted = jobs.jobs.submit_time[judgeable]
        at = _default_split(submitted, jobs.end_time[learnable], same=same)
    fitted_on = learnable & (jobs.end_time < at)
    judged = judgeable & (jobs.jobs.submit_time >= at)
    apart = learnable & ~of_test
    shuffled = np.count_nonzero(fitted_on) < max(FEWEST_ROWS, _LEAST_SHARE * np.count_nonzero(apart))
    if split_time is None and not same and shuffled:
        fitted_on = apart
        notes.append(
            f"CAUTION: hardly a job of the training had ended when the test began, so all {np.count_nonzero(apart)} "
            "were fitted on: the forest has seen jobs of the days it is judged on, which flatters it. The history "
            "behind each forecast still holds only what had ended. For an honest figure give --split, or files apart "
            "in time."
        )
    else:
        later = np.count_nonzero(learnable & ~fitted_on & ~judged)
        notes.append(
            f"Split at {date_text(at)} UTC. Of the training {later} jobs ended later: not fitted on, but part of the "
            "history from their ends on."
        )
    _check(int(np.count_nonzero(fitted_on)), int(np.count_nonzero(judged)), at)
    return Trial(jobs=jobs, fitted_on=fitted_on, judged=judged, notes=tuple(notes))


def _default_split(submitted: NDArray[np.float64], ended: NDArray[np.float64], *, same: bool) -> float:
    if not same:
        return float(np.min(submitted))
    at = float(np.max(submitted)) - TEST_DAYS * _DAY_S
    # Of a short table the last 40 % are judged.
    return at if np.count_nonzero(ended < at) >= FEWEST_ROWS else float(np.quantile(submitted, 0.6))


def _check(fitted_on: int, judged: int, at: float) -> None:
    if not judged:
        raise ConfigError(f"no job of the test was submitted from {date_text(at)} on: give an earlier --split")
    if fitted_on < FEWEST_ROWS:
        raise ConfigError(
            f"{fitted_on} usable jobs of the training ended before {date_text(at)}, at least {FEWEST_ROWS} are needed: "
            "give a later --split or more files"
        )


def _together(train: Tables, test: Tables) -> tuple[EndedJobs, Mask, Mask]:
    """Put the jobs of both into one table, each once; tell which are of the training and which of the test."""
    known, tested = frozenset(train.ids), frozenset(test.ids)
    new = [row for row, name in enumerate(test.ids) if name not in known]
    further = test.ended.take(np.array(new, dtype=np.int64))
    of_train = np.arange(len(train.ids) + len(new)) < len(train.ids)
    of_test = np.array([name in tested for name in train.ids] + [True] * len(new), dtype=np.bool_)
    return _joined(train.ended, further), of_train, of_test


def _joined(first: EndedJobs, second: EndedJobs) -> EndedJobs:
    a, b = first.jobs, second.jobs
    jobs = RunTimeTable(
        user=a.user + b.user,
        account=a.account + b.account,
        name=a.name + b.name,
        partition=a.partition + b.partition,
        qos=a.qos + b.qos,
        gpus=np.concatenate([a.gpus, b.gpus]),
        cpus=np.concatenate([a.cpus, b.cpus]),
        nodes=np.concatenate([a.nodes, b.nodes]),
        memory_mib=np.concatenate([a.memory_mib, b.memory_mib]),
        limit_s=np.concatenate([a.limit_s, b.limit_s]),
        submit_time=np.concatenate([a.submit_time, b.submit_time]),
        elapsed_s=np.concatenate([a.elapsed_s, b.elapsed_s]),
    )
    return EndedJobs(
        jobs=jobs,
        run_s=np.concatenate([first.run_s, second.run_s]),
        end_time=np.concatenate([first.end_time, second.end_time]),
        state=first.state + second.state,
    )


def _left_out(train: Tables, test: Tables, unusable: dict[str, int]) -> Iterator[str]:
    read = ", ".join(
        f"{count} {reason}"
        for tables in {id(train): train, id(test): test}.values()
        for reason, count in tables.left_out.items()
    )
    if read:
        yield f"Rows of the files that are no ended job: {read}."
    if unusable:
        yield f"Neither fitted on nor history: {', '.join(f'{count} {reason}' for reason, count in unusable.items())}."
