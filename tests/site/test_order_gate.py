"""Run times count for the order of jobs only where they order the jobs of this site better than the time limits do."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

from advisor.domain.forecast import Forecasts, Interval, JobForecast, RunTime
from advisor.domain.job import Job, JobState
from advisor.domain.mode import Mode
from advisor.domain.outcome import JobOutcome, SeenForecast
from advisor.domain.probation import NO_ORDER, NOTHING_PROVEN, OrderProof
from advisor.domain.snapshot import Snapshot
from advisor.journal import SqliteJournal
from advisor.journal.base import ORDER_SEEN
from advisor.settings import Limits
from advisor.site.round_state import OrderLooks, read_look
from advisor.trial.accuracy import order_of
from tests.builders import DAY_S, HOUR_S, TAKEN_AT, make_job
from tests.daemon.rounds import Site
from tests.fake_cluster import fragmented

MODEL = "run_time site-1"
ROUND_S = 1800.0
USERS = 12


@dataclass
class Drawn:
    """A forecaster whose intervals hold, and whose means are the run times of jobs times a factor of chance."""

    run_s: Mapping[int, float]
    spread: float
    knows: bool
    is_tried: bool
    factors: dict[int, float] = field(default_factory=dict)
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(7))

    def run_time(self, job_id: int) -> RunTime:
        """Return the run time of a job; a model that knows nothing says the same of each, times chance."""
        factor = self.factors.setdefault(job_id, float(np.exp(self.spread * self.rng.normal())))
        mean_s = min(max((self.run_s[job_id] if self.knows else HOUR_S) * factor, 60.0), DAY_S)
        return RunTime(interval_s=Interval(low=1.0, median=HOUR_S, high=DAY_S), mean_s=mean_s)

    def forecasts(self, snapshot: Snapshot) -> Forecasts:
        """Forecast the jobs that were drawn."""
        by_job = {
            job.job_id: JobForecast(run_time=self.run_time(job.job_id))
            for job in snapshot.jobs
            if job.job_id in self.run_s
        }
        return Forecasts(by_job=by_job, models=(MODEL,), on_probation=(MODEL,) if self.is_tried else ())

    def with_starts(self, forecasts: Forecasts, _snapshot: Snapshot, _job_ids: Collection[int]) -> Forecasts:
        """Return the forecasts as they are."""
        return forecasts


def live_through(
    site: Site, days: float, *, knows: bool, is_tried: bool, limit_spread: float = 0.7
) -> list[tuple[str, ...]]:
    """Run rounds of a daemon while users submit jobs that wait, run and end; return what each round set aside.

    Limits are three times the run times, times chance: with a spread of 0.7 they order 92 % of the GPU-time right.
    """
    rng, run_s, jobs = np.random.default_rng(3), dict[int, float](), dict[int, Job]()
    usual_s = np.exp(rng.normal(np.log(2 * HOUR_S), 1.0, USERS))
    site.mode, site.forecaster = Mode.RECOMMEND, Drawn(run_s, 0.2 if knows else 1.0, knows, is_tried)
    service, aside = site.service(), list[tuple[str, ...]]()
    service.reconfigure(site.config(guard=Limits(probation_jobs=100)))
    for number in range(int(days * DAY_S / ROUND_S)):
        now = site.cluster.now = TAKEN_AT + number * ROUND_S
        for job_id in range(1000 + 3 * number, 1003 + 3 * number):
            user = int(rng.integers(USERS))
            run_s[job_id] = float(np.clip(usual_s[user] * np.exp(rng.normal(0.0, 0.5)), 900.0, 10 * HOUR_S))
            limit_s = run_s[job_id] * max(1.0, 3.0 * float(np.exp(limit_spread * rng.normal())))
            jobs[job_id] = make_job(job_id, user=f"user{user}", submit_time=now - 1.0, time_limit_s=limit_s)
        for job_id, job in list(jobs.items()):
            start_time = job.submit_time + 1.0 + (1 + job_id % 6) * ROUND_S
            if now >= start_time + run_s[job_id]:
                del jobs[job_id]
            elif now >= start_time and job.is_pending:
                jobs[job_id] = replace(job, state=JobState.RUNNING, start_time=start_time, reason="None")
        site.cluster.jobs = dict(jobs)
        done = service.round()
        assert done.step is not None and not done.fault
        aside.append(done.step.record.forecasts.on_probation)
    service.leave(4.0)
    return aside


def test_site_with_a_bad_model_that_was_trusted_ends_with_limits_within_three_days(site: Site) -> None:
    aside = live_through(site, 3.0, knows=False, is_tried=False)

    assert aside[0] == () and aside[-1] == (MODEL,)
    assert site.told[-1].order is not None and site.told[-1].order.order.is_worse
    assert f"{MODEL} no longer holds here, so plans rest on time limits" in site.told[-1].on_probation[MODEL]


def test_bad_model_never_counts_and_a_good_one_does_after_enough_jobs(tmp_path: Path) -> None:
    (tmp_path / "bad").mkdir()
    (tmp_path / "good").mkdir()
    bad, good = (Site(folder=tmp_path / name, cluster=fragmented()) for name in ("bad", "good"))

    without = live_through(bad, 3.0, knows=False, is_tried=True)
    proven = live_through(good, 3.0, knows=True, is_tried=True, limit_spread=3.0)

    assert set(without) == {(MODEL,)}
    assert proven[0] == (MODEL,) and proven[-1] == ()
    assert bad.told[-1].order is not None and not bad.told[-1].order.order.proves


def test_good_model_stays_in_use(site: Site) -> None:
    assert set(live_through(site, 3.0, knows=True, is_tried=False)) == {()}


def ended(job_id: int, **fields: object) -> JobOutcome:
    """Return a job of a user of its own that waited for an hour and ran for `job_id` minutes, as was forecast."""
    run_s = 60.0 * job_id
    hour = Interval(low=60.0, median=600.0, high=HOUR_S)
    start_time = TAKEN_AT + HOUR_S
    outcome = JobOutcome(
        job_id=job_id, user=f"user{job_id}", submit_time=TAKEN_AT, gpus=1, time_limit_s=HOUR_S, start_time=start_time,
        last_start_time=start_time, end_time=start_time + run_s, last_seen_time=start_time + run_s,
        first_forecast=SeenForecast(made_time=TAKEN_AT, run_time_s=hour, run_mean_s=run_s, models=(MODEL,)),
    )  # fmt: skip
    return replace(outcome, **fields)  # type: ignore[arg-type]  # a test's own


def test_jobs_are_ordered_by_means_and_by_limits() -> None:
    order = order_of(map(ended, range(1, 9)))

    assert (order.jobs, order.users, order.ordered_ratio, order.limit_ratio) == (8, 8, 1.0, 0.5)
    assert order.proves


@pytest.mark.parametrize(
    "fields",
    [
        {"time_limit_s": None},
        {"time_limit_s": 0.0},
        {"start_time": None},
        {"requeues": 1},
        {"first_forecast": None},
        {"first_forecast": SeenForecast(made_time=TAKEN_AT)},
        {"last_seen_time": None},
    ],
    ids=["no limit", "limit of nothing", "no start", "requeued", "no forecast", "earlier release", "no end"],
)
def test_jobs_of_which_something_is_missing_say_nothing_of_the_order(fields: dict[str, object]) -> None:
    assert order_of([ended(job_id, **fields) for job_id in range(1, 9)]) is NO_ORDER
    assert order_of([*map(ended, range(1, 9)), ended(20, **fields)]).jobs == 8


def test_look_that_cannot_be_read_counts_as_none(tmp_path: Path) -> None:
    with SqliteJournal(tmp_path / "journal.sqlite") as journal:
        assert read_look(journal) is None
        details: list[Mapping[str, str | int]] = [
            {"jobs": 3},
            {"model": MODEL, "jobs": -1},
            {"model": MODEL, "jobs": "x"},
            {"model": MODEL, "what": 1},
        ]
        for detail in details:
            journal.note(TAKEN_AT, ORDER_SEEN, detail)
            assert read_look(journal) is None


@pytest.mark.parametrize(
    ("is_tried", "jobs"),
    [(True, [8, None, None, 8, 8]), (False, [8, 8, 0, 8, 8])],
    ids=["on probation", "in use"],
)
def test_looks_are_one_a_week_on_probation_whatever_the_version_and_one_a_day_in_use(
    is_tried: bool, jobs: list[int | None], tmp_path: Path
) -> None:
    with SqliteJournal(tmp_path / "journal.sqlite") as journal:
        journal.keep_outcomes(map(ended, range(1, 9)))
        looks, now = OrderLooks(), TAKEN_AT + DAY_S
        looks.begin(journal)
        asked = [(MODEL, now), (MODEL, now + DAY_S), ("run_time site-2", now + DAY_S), (MODEL, now - HOUR_S)]

        found = [looks.look(journal, model, NOTHING_PROVEN, at, is_tried=is_tried) for model, at in asked]
        found.append(
            looks.look(journal, MODEL, NOTHING_PROVEN, now + (7 if is_tried else 1) * DAY_S, is_tried=is_tried)
        )

        assert [None if order is None else order.jobs for order in found] == jobs
        again = OrderLooks()
        again.begin(journal)
        assert again.last == looks.last


@pytest.mark.parametrize(
    "fields", [{"ordered_ratio": 1.5}, {"gain_ratio": float("nan")}, {"error_ratio": -0.1}, {"jobs": -1}]
)
def test_impossible_figures_are_no_order(fields: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="are no order"):
        OrderProof(**fields)  # type: ignore[arg-type]
