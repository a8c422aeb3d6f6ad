"""A model proves itself on jobs of this site before changes rest on its forecasts."""

from dataclasses import replace
from fractions import Fraction
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.cycle import Cycle
from advisor.domain.forecast import Forecasts, Interval, JobForecast, RunTime
from advisor.domain.memory import Memory
from advisor.domain.plan import Plan
from advisor.domain.probation import Coverage
from advisor.domain.snapshot import Snapshot
from advisor.guard.circumstances import circumstances
from advisor.guard.rules import judge
from advisor.settings import Limits
from tests.builders import make_snapshot
from tests.fake_cluster import fragmented
from tests.guard.proposals import PLAIN, timer

MODEL = "run_time default-1"
HOUR = RunTime(interval_s=Interval(low=1800.0, median=3600.0, high=7200.0), mean_s=3600.0)
FORESEEN = Forecasts(by_job={1: JobForecast(run_time=HOUR)}, models=(MODEL,), on_probation=(MODEL,))


class Foreseeing:
    """A model on probation that forecasts the run time of job 1."""

    def forecasts(self, _snapshot: Snapshot) -> Forecasts:
        return FORESEEN


@pytest.mark.parametrize(
    ("forecasts", "rule"),
    [
        (FORESEEN, "forecast_proven"),
        (replace(FORESEEN, on_probation=()), None),
        # The speeds of a job say nothing that an ended job could prove.
        (replace(FORESEEN, by_job={1: JobForecast(unknown=("run time",))}), None),
        (replace(FORESEEN, by_job={}), None),
    ],
    ids=["on probation", "proven", "no run time", "time limits only"],
)
def test_change_that_rests_on_a_forecast_on_probation_is_refused(forecasts: Forecasts, rule: str | None) -> None:
    snapshot = make_snapshot([PLAIN])

    (change,) = judge(
        Plan(recommendations=(timer(),)), snapshot, circumstances(snapshot, Limits(), forecasts=forecasts)
    )

    assert change.refused_by == rule


@pytest.mark.parametrize(
    ("proven", "least", "marked"),
    [
        (frozenset(), 100, (MODEL,)),
        (frozenset({"run_time site-1"}), 100, (MODEL,)),
        (frozenset({MODEL}), 100, ()),
        (frozenset(), 0, ()),
        (None, 100, ()),
    ],
    ids=["new site", "another model", "proven", "turned off", "simulation"],
)
def test_models_are_on_probation_until_the_journal_knows_them_as_proven(
    proven: frozenset[str] | None, least: int, marked: tuple[str, ...]
) -> None:
    cycle = Cycle(limits=Limits(probation_jobs=least), forecaster=Foreseeing())

    record = cycle.judge(fragmented().snapshot(), Memory(proven=proven))

    assert record.forecasts.on_probation == marked
    assert record.judged and bool(record.recommendations) is not bool(marked)


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
