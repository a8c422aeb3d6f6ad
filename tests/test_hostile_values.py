"""One job's values, or the forecasts of one job, cost that job's advice and nothing else."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.backends.records import JobRecord, jobs_and_unread
from advisor.cycle import Cycle
from advisor.diagnose.causes import diagnose
from advisor.diagnose.survey import overview
from advisor.domain.forecast import Forecasts, Interval, JobForecast, Placement, RunTime
from advisor.domain.gang import MOST, GangRequest, GpuScope
from advisor.domain.job import ArrayRecord, Job
from advisor.domain.snapshot import Snapshot
from advisor.domain.topology import LocalityTier
from advisor.features.nodes import node_table
from advisor.features.queue import queue_table
from advisor.journal.cycle_record import Recorder, outcome_of
from advisor.predict.intervals import Intervals, listed
from advisor.settings import PlanningSettings
from advisor.view.documents import change_document
from tests.builders import DAY_S, HOUR_S, TAKEN_AT, make_cluster, make_gang, make_hints, make_job

# 1e11 is the latest time, 1e6 the largest ratio.
NUMBERS = (0.0, 1e-300, 1e-6, 0.5, 1.0, 59.0, HOUR_S, 1e6, 1e9, 1e11, 1e300, math.inf, -1.0, -1e11, math.nan)
COUNTS = (1, 2, 8, 10**4, MOST)


@dataclass(frozen=True)
class Oracle:
    """Forecasts that were made up beforehand."""

    by_job: Mapping[int, JobForecast] = field(default_factory=dict)

    def forecasts(self, _snapshot: Snapshot) -> Forecasts:
        return Forecasts(by_job=self.by_job)


@st.composite
def hostile_gangs(draw: st.DrawFn) -> GangRequest:
    """Draw a request with numbers up to the largest that a reader lets in."""
    count = st.sampled_from(COUNTS)
    return make_gang(
        draw(count),
        scope=draw(st.sampled_from(GpuScope)),
        gpu_type=draw(st.sampled_from([None, "a100"])),
        nodes_min=draw(st.sampled_from([1, MOST])),
        nodes_max=draw(st.sampled_from([None, MOST])),
        tasks=draw(count),
        cpus=draw(st.sampled_from([0, 1, MOST])),
        cpus_per_gpu=draw(st.sampled_from([None, 0, 1, MOST])),
        memory_mib_per_node=draw(st.sampled_from([None, 0, MOST**2])),
    )


@st.composite
def hostile_jobs(draw: st.DrawFn, job_id: int) -> Job | None:
    """Draw a job with values that no sane user asks for; None for one that cannot be."""
    number = st.none() | st.sampled_from(NUMBERS)
    try:
        return make_job(
            job_id,
            gang=draw(hostile_gangs()),
            time_limit_s=draw(number),
            time_min_s=draw(number),
            eligible_time=draw(number),
            submit_time=draw(st.sampled_from(NUMBERS)),
            priority=draw(st.sampled_from([None, 0, 1, 1000, 2**53])),
            nice=draw(st.sampled_from([0, 2**53, -(2**53)])),
            hints=make_hints(
                draw(st.sampled_from([None, "bert", "\ud800\x00"])),
                gpus=draw(st.sampled_from([None, (1, MOST), (MOST, MOST)])),
                checkpoint_s=draw(st.sampled_from([None, 0.0, 1e9])),
            ),
            array=draw(st.sampled_from([None, ArrayRecord(array_job_id=job_id, waiting="0-999999999,\u0663:0")])),
            name=draw(st.sampled_from(["a", "\ud800", "\x00"])),
            running_on=draw(st.sampled_from([(), (), ("n01",)])),
        )
    except ValueError:
        return None


@st.composite
def hostile_forecasts(draw: st.DrawFn) -> JobForecast:
    """Draw what a forecaster claims of a job; nothing for what no forecast can be."""

    def interval() -> Interval:
        low, median, high = sorted(draw(st.sampled_from(NUMBERS)) for _ in range(3))
        return Interval(low=low, median=median, high=high)

    try:
        return JobForecast(
            run_time=draw(
                st.none() | st.builds(RunTime, interval_s=st.builds(interval), mean_s=st.sampled_from(NUMBERS))
            ),
            start_s=draw(st.none() | st.builds(interval)),
            speed_by_placement={
                Placement(gpus=gpus, tier=tier): interval()
                for gpus in draw(st.sampled_from([(), (4, 8)]))
                for tier in LocalityTier
            },
            inflation_beside=draw(st.none() | st.builds(interval)),
        )
    except ValueError:
        return JobForecast()


@st.composite
def ordinary_lines(draw: st.DrawFn) -> list[Job]:
    """Draw jobs that wait for their GPUs behind one that runs."""
    sizes = st.sampled_from([1, 2, 4, 8, 16])
    pending = [
        make_job(
            job_id,
            gpus=draw(sizes),
            time_limit_s=draw(st.sampled_from([600.0, HOUR_S, DAY_S])),
            priority=draw(st.integers(1, 3000)),
            hints=make_hints(gpus=draw(st.sampled_from([None, (1, 16)]))),
        )
        for job_id in range(1, draw(st.integers(3, 7)))
    ]
    return [*pending, make_job(20, gpus=8, running_on=("n02",))]


def cycle(forecasts: Mapping[int, JobForecast]) -> Cycle:
    return Cycle(planning=PlanningSettings(min_saving_s=0.0), forecaster=Oracle(forecasts))


@settings(deadline=None)
@given(
    line=ordinary_lines(),
    odd=st.lists(st.integers(30, 40), unique=True, max_size=4).flatmap(
        lambda ids: st.tuples(*(hostile_jobs(job_id) for job_id in ids))
    ),
    claims=st.dictionaries(st.sampled_from([1, 2, 3, 20, 30, 31, 32]), hostile_forecasts(), max_size=5),
    soft=st.booleans(),
)
def test_no_value_of_a_job_or_a_forecast_raises_in_a_cycle(
    line: list[Job], odd: tuple[Job | None, ...], claims: dict[int, JobForecast], soft: bool
) -> None:
    made = [job for job in odd if job is not None]
    snapshot = make_cluster([*line, *(job for job in made if job.allocation is None)])
    if soft:
        parameters = {"time_min_as_soft_limit": ""}
        snapshot = replace(snapshot, config=replace(snapshot.config, scheduler_parameters=parameters))
    planned = cycle(claims)

    record = planned.judge(snapshot)

    assert outcome_of(record)
    Recorder().packed(1, record, planned)
    assert overview(snapshot).jobs.running >= 1
    assert [change_document(change, snapshot, None).job_id for change in record.recommendations] == [
        change.job_id for change in record.recommendations
    ]
    assert all(diagnose(snapshot, job.job_id) for job in snapshot.jobs)


@settings(deadline=None)
@given(
    line=ordinary_lines(),
    impossible=st.sampled_from(
        [
            {"eligible_time": 1e12},
            {"eligible_time": math.nan},
            {"submit_time": 2e11},
            {"limit_s": -5.0},
            {"limit_min_s": 1e300},
            {"priority": 2**60},
            {"nice": -(2**60)},
        ]
    ),
)
def test_a_job_that_cannot_be_costs_its_own_advice_only(line: list[Job], impossible: dict[str, float]) -> None:
    values = {
        "job_id": 30,
        "state": "PENDING",
        "partitions": ("gpu",),
        "submit_time": TAKEN_AT - 60.0,
        **impossible,
    }
    snapshot = make_cluster(line)
    jobs, unread = jobs_and_unread([*line, JobRecord(**values)], snapshot.nodes)  # type: ignore[arg-type]  # checked by the class

    without, beside = (cycle({}).judge(replace(snapshot, jobs=listed)) for listed in (snapshot.jobs, jobs))

    assert [job.job_id for job in unread] == [30]
    assert (beside.judged, beside.left_alone) == (without.judged, without.left_alone)


@pytest.mark.parametrize("mean_s", [1e11, 0.0])
def test_no_job_is_expected_to_use_more_than_its_limit_or_nothing(mean_s: float) -> None:
    known = RunTime(interval_s=Interval(low=0.0, median=mean_s, high=mean_s), mean_s=mean_s)
    snapshot = make_cluster([make_job(1), make_job(2)])

    run = queue_table(snapshot, node_table(snapshot), 9, Forecasts(by_job={1: JobForecast(run_time=known)})).run

    assert 0.0 < run.low_s[1] <= run.expected_s[1] <= run.high_s[1] == DAY_S


@pytest.mark.parametrize(
    "make",
    [
        lambda: RunTime(interval_s=Interval(low=-1.0, median=1.0, high=2.0), mean_s=1.0),
        lambda: RunTime(interval_s=Interval(low=0.0, median=1.0, high=2.0), mean_s=math.nan),
        lambda: RunTime(interval_s=Interval(low=0.0, median=1.0, high=math.inf), mean_s=1.0),
        lambda: JobForecast(start_s=Interval(low=0.0, median=1.0, high=1e12)),
        lambda: JobForecast(inflation_beside=Interval(low=0.0, median=1.0, high=2.0)),
        lambda: JobForecast(
            speed_by_placement={Placement(gpus=1, tier=LocalityTier.NODE): Interval(low=1.0, median=1.0, high=1e7)}
        ),
    ],
)
def test_forecast_that_cannot_be_is_refused(make: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match=r" is no "):
        make()


def test_rows_of_a_model_that_cannot_be_are_not_known() -> None:
    low, median, high = np.array([[1.0, 2.0, 3.0], [-1.0, 2.0, 3.0], [1.0, math.nan, 3.0], [1.0, 2.0, 1e7]]).T
    intervals = Intervals(low=low, median=median, high=high, known=np.ones(4, dtype=np.bool_))

    assert listed(intervals, least=0.0, most=1e6) == [Interval(low=1.0, median=2.0, high=3.0), None, None, None]
