"""A model proves itself on jobs of this site before plans count with its run times."""

from dataclasses import replace
from fractions import Fraction
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.cycle import Cycle
from advisor.domain.forecast import Forecasts, Interval, JobForecast, Placement, RunTime
from advisor.domain.memory import Memory
from advisor.domain.probation import Coverage, Trust
from advisor.domain.snapshot import Snapshot
from advisor.domain.topology import LocalityTier
from advisor.settings import Limits
from tests.fake_cluster import fragmented

MODEL = "run_time default-1"
HOUR = RunTime(interval_s=Interval(low=1800.0, median=3600.0, high=7200.0), mean_s=3600.0)
FORESEEN = Forecasts(by_job={1: JobForecast(run_time=HOUR)}, models=(MODEL,), on_probation=(MODEL,))


class Foreseeing:
    """A model on probation that forecasts the run time of job 1."""

    def forecasts(self, _snapshot: Snapshot) -> Forecasts:
        return FORESEEN


def trust(*proven: str, drifted: bool = False) -> Trust:
    """Models that were proven, and whether the one in use drifted."""
    return Trust(proven=frozenset(proven), drifted=frozenset({MODEL} if drifted else ()))


@pytest.mark.parametrize(
    ("known", "least", "marked"),
    [
        (trust(), 100, (MODEL,)),
        (trust("run_time site-1"), 100, (MODEL,)),
        (trust(MODEL), 100, ()),
        (trust(), 0, ()),
        (trust(drifted=True), 100, (MODEL,)),
        (trust(drifted=True), 0, (MODEL,)),
        (None, 100, ()),
    ],
    ids=["new site", "another model", "proven", "turned off", "drifted", "drifted, turned off", "simulation"],
)
def test_models_are_on_probation_until_the_journal_knows_them_as_proven(
    known: Trust | None, least: int, marked: tuple[str, ...]
) -> None:
    cycle = Cycle(limits=Limits(probation_jobs=least), forecaster=Foreseeing())

    record = cycle.judge(fragmented().snapshot(), Memory(trust=known))

    assert record.forecasts == replace(FORESEEN, on_probation=marked)
    assert record.recommendations


def test_forecasts_that_plans_count_with_lack_the_run_times_of_models_on_probation_alone() -> None:
    speed = {Placement(gpus=1, tier=LocalityTier.NODE): Interval(low=0.5, median=1.0, high=1.0)}
    both = JobForecast(run_time=HOUR, speed_by_placement=speed, unknown=("neighbours",))
    forecasts = replace(FORESEEN, by_job={1: both}, models=(MODEL, "throughput 1"), notes=("start_time is missing",))

    assert forecasts.counted == Forecasts(
        by_job={1: replace(both, run_time=None)}, models=("throughput 1",), notes=("start_time is missing",)
    )
    assert (proven := replace(forecasts, on_probation=())).counted is proven


@pytest.mark.parametrize(
    ("jobs", "inside", "least", "proves"),
    [
        (100, 73, 100, True),
        (100, 72, 100, False),
        (99, 99, 100, False),
        (2000, 1570, 100, True),
        (2000, 1569, 100, False),
        (0, 0, 0, False),
    ],
)
def test_model_proves_itself_unless_too_few_lie_inside(jobs: int, inside: int, least: int, proves: bool) -> None:
    assert Coverage(jobs=jobs, inside=inside).proves(least) is proves


@given(jobs=st.integers(1, 60), share=st.floats(0.0, 1.0))
def test_test_is_that_of_a_binomial_distribution_of_four_fifths(jobs: int, share: float) -> None:
    inside = round(jobs * share)
    at_most = sum(
        comb(jobs, count) * Fraction(4, 5) ** count * Fraction(1, 5) ** (jobs - count) for count in range(inside + 1)
    )

    assert Coverage(jobs=jobs, inside=inside).proves(1) is (at_most > Fraction(1, 20))


def test_more_inside_than_there_are_is_no_coverage() -> None:
    with pytest.raises(ValueError, match="3 of 2 jobs are no coverage"):
        Coverage(jobs=2, inside=3)
