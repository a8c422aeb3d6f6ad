"""The page of what forecasts are worth compares each lever without them, with models, and with the truth."""

from dataclasses import replace

from advisor.sim.policies import POLICIES as KNOWN
from advisor.sim.study.result import result_of
from tests.sim.building import make_trace
from tests.sim.runs import make_run
from tools.pages.experiment import Experiment
from tools.pages.value import LEVERS, POLICIES, page

EXPERIMENT = Experiment(page="value", summary="", first_jobs=30, elastic_share=0.5)


def test_levers_name_policies_that_there_are() -> None:
    assert set(POLICIES) <= set(KNOWN)


def test_gain_with_models_is_a_share_of_the_gain_with_the_truth() -> None:
    traces = [replace(make_trace([{"gpus": 1}] * 30), name=name) for name in ("one", "two", "three")]
    # Logarithms of 0.81 and 0.729 are two and three steps of 0.9.
    ends = dict.fromkeys(POLICIES, 81.0) | {"slurm": 100.0, "lift": 90.0, "lift-oracle": 72.9}
    results = {
        trace.name: [result_of(make_run(trace, [(0.0, end)] * 30, policy=policy)) for policy, end in ends.items()]
        for trace in traces
    }

    rows = [line.split(" | ") for line in page(results, EXPERIMENT, "make the page").splitlines() if "| " in line]

    order = next(row for row in rows if row[0] == "| order")
    assert [cell.split(" %")[0] for cell in order[2:5]] == ["-10.0", "-19.0", "-27.1"]
    assert order[5].startswith("67 %")
    assert [row[0] for row in rows[1 : 1 + len(LEVERS)]] == [f"| {lever.name}" for lever in LEVERS]
