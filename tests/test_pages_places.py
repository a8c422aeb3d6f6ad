"""What the page of nodes for gangs runs, and which models its jobs train."""

from dataclasses import replace

from advisor.sim.study.result import result_of
from advisor.sim.study.statistics import CellName
from tests.sim.building import make_trace
from tests.sim.runs import make_run
from tools.pages.experiment import Experiment
from tools.pages.places import PlaceGroup, heavy_models, page, tasks_of
from tools.simulated_traces import Workload

LIFT, PLACE = "lift", "lift+place"
EXPERIMENT = Experiment(
    page="places",
    summary="",
    policies=(LIFT, PLACE),
    over_all=("mean_jct_s", "communication_overhead_ratio"),
    oversubscription=(1.0, 10.0),
    nic=50.0,
    least_exposed_ratio=0.1,
)


def test_models_are_those_that_wait_for_the_network() -> None:
    some, all_models = (
        heavy_models(EXPERIMENT.model_copy(update={"least_exposed_ratio": ratio})) for ratio in (0.1, 0.0)
    )
    slower_links = heavy_models(EXPERIMENT.model_copy(update={"nic": 1.0}))

    assert 0 < len(some) < len(all_models)
    assert set(some) < set(slower_links)
    assert "neutral" not in all_models


def test_all_policies_run_the_same_drawn_trace_with_heavy_models_on_each_network() -> None:
    workload = Workload(trace=make_trace([{"gpus": 16}] * 20), nodes=16)

    tasks = list(tasks_of(EXPERIMENT, [workload]))

    assert [(task.group.oversubscription, task.cell.policy) for task in tasks] == [
        (ratio, policy) for ratio in (1.0, 10.0) for policy in (LIFT, PLACE)
    ]
    (trace,) = {id(task.cell.trace): task.cell.trace for task in tasks}.values()
    assert {trace.models[code] for code in trace.jobs["model"]} <= set(heavy_models(EXPERIMENT))
    assert {task.cell.cluster.network.nic_gbps for task in tasks} == {50.0}


def test_page_compares_the_policies_on_each_network() -> None:
    traces = [replace(make_trace([{"gpus": 16}] * 30), name=name) for name in ("one", "two", "three")]
    ends = {LIFT: 100.0, PLACE: 80.0}
    results = {
        PlaceGroup(oversubscription=ratio, trace=trace.name): [
            result_of(make_run(trace, [(0.0, end)] * 30, policy=policy)) for policy, end in ends.items()
        ]
        for trace in traces
        for ratio in EXPERIMENT.oversubscription
    }
    users = {CellName(trace.name, 0): trace.jobs["user"] for trace in traces}

    text = page(EXPERIMENT, [Workload(trace=trace, nodes=16) for trace in traces], results, users, "the command")

    assert [line for line in text.splitlines() if line.startswith("## ")] == [
        "## Oversubscription 1:1",
        "## Oversubscription 10:1",
    ]
    assert text.count("| lift+place | -20.0 % (-20.0 to -20.0) |") == 2
    assert text.count("| two | 30 | 2 min | -20.0 %") == 2
