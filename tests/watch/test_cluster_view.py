"""The view of a cluster shows what was read and planned: nodes, the line, advice, and changes in effect."""

from advisor.cycle import CycleRecord
from advisor.domain.forecast import NO_FORECASTS, Forecasts, Interval, JobForecast
from advisor.domain.memory import Memory
from advisor.watch.cluster_view import cluster_view, waiting_gpu_jobs
from advisor.watch.planned import Planned, plan_now
from advisor.watch.reading import Reading, open_queue
from tests.builders import TAKEN_AT, make_cluster, make_gang, make_job
from tests.made_rounds import change, lease, step

WAITS_LONG = make_job(1, priority=10, gang=make_gang(16), user="ann")
SMALL = make_job(2, priority=20, gang=make_gang(2), user="bob")


def test_line_is_slurms_order_with_starts_advice_and_changes() -> None:
    held = lease(job_id=2)
    record = step(jobs=[WAITS_LONG, SMALL], judged=[change(job_id=1)]).record
    planned = Planned(record=record, memory=Memory(leases=(held,)))
    starts = Forecasts(by_job={1: JobForecast(start_s=Interval(low=60.0, median=120.0, high=600.0))})

    view = cluster_view(planned, starts, source="file", cluster=None, daemon=None)

    first, second = view.line
    assert [first.job_id, second.job_id] == [2, 1]
    assert (first.place, first.in_effect, first.start) == (1, (str(held.lever),), None)
    assert second.start == Interval(low=TAKEN_AT + 60.0, median=TAKEN_AT + 120.0, high=TAKEN_AT + 600.0)
    assert [str(kind) for kind in second.advice] == [row.kind for row in view.advice]
    assert (second.gpus, second.gpu_type, second.user) == (16, "", "ann")
    assert [(row.job_id, row.lever) for row in view.in_effect] == [(2, str(held.lever))]


def test_nodes_show_their_leaf_and_what_is_in_use() -> None:
    cluster = make_cluster([make_job(3, gpus=8, running_on=["n1"])], leaves={"leaf1": ("n1", "n2")})
    record = CycleRecord(snapshot=cluster, forecasts=NO_FORECASTS, judged=(), left_alone={})

    view = cluster_view(
        Planned(record=record, memory=record.memory), NO_FORECASTS, source="file", cluster=None, daemon=None
    )

    assert [(use.name, use.leaf, use.gpus, use.in_use) for use in view.nodes] == [
        ("n1", "leaf1", 8, 8),
        ("n2", "leaf1", 8, 0),
    ]


def test_demo_has_a_view_with_the_advice_of_recommend_by_gain() -> None:
    reading = Reading(demo=True)
    config = reading.load_config()
    snapshot = open_queue(reading, config).snapshot()
    planned = plan_now(reading, config, None, snapshot)

    view = cluster_view(planned, planned.record.forecasts, source="demo", cluster=None, daemon=None)

    gains = [row.expected.jct_saved_expected_s for row in view.advice]
    assert gains == sorted(gains, reverse=True)
    assert {row.job_id for row in view.advice} == {change.job_id for change in planned.record.recommendations}
    assert {job.job_id for job in view.line} == set(waiting_gpu_jobs(snapshot))
