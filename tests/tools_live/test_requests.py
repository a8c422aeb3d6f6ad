"""Options of sbatch, and the node ranges that follow from them."""

from typing import Any

import pytest

from tests.sim.building import make_trace
from tools.live.trace_jobs import as_asked, options_of

LARGE = {"gpus": 16, "nodes_max": 0, "gpus_min": 8, "gpus_max": 32}


def options(**job: Any) -> tuple[str, ...]:
    """Return the options of a job that asks for GPUs, nodes and nothing else."""
    return options_of(make_trace([{"time_limit_s": 120.0, **job}]), 0, 8)


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        ({"gpus": 1, "nodes_max": 0}, ("--nodes=1", "--gres=gpu:a100:1", "--ntasks-per-node=1")),
        ({"gpus": 16, "nodes_max": 2}, ("--nodes=2", "--gres=gpu:a100:8", "--ntasks-per-node=1")),
        ({"gpus": 9, "nodes_max": 2}, ("--nodes=2", "--gpus=a100:9", "--ntasks=2")),
        ({"gpus": 8, "nodes_max": 0}, ("--gpus=a100:8", "--ntasks=8")),
        (LARGE, ("--nodes=1-4", "--gpus=a100:16", "--ntasks=4")),
    ],
    ids=["one GPU", "whole nodes", "parts of nodes", "any nodes", "a range of sizes"],
)
def test_a_job_asks_for_its_size(job: dict[str, Any], expected: tuple[str, ...]) -> None:
    found = options(**job)

    assert found[-len(expected) :] == expected
    assert "--time=2" in found


def test_hints_are_in_the_comment() -> None:
    found = options(**LARGE, model="bert", checkpoint_interval_s=30.4)

    assert "--comment=sadvise: model=bert gpus=8-32 ckpt=30" in found


def test_the_simulator_binds_a_range_of_sizes_to_as_many_nodes_as_sbatch_does() -> None:
    trace = as_asked(make_trace([LARGE, {"gpus": 8, "nodes_max": 0}]), 8)

    assert trace.jobs["nodes_min"].tolist() == [1, 0]
    assert trace.jobs["nodes_max"].tolist() == [4, 0]
