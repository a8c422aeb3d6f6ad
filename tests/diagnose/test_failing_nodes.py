"""Which nodes fail more often than chance makes, and what accounting says of the runs that ended with them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.backends.failures_reader import read_failed_runs
from advisor.diagnose.failing_nodes import failing_nodes, failure_checks
from advisor.diagnose.site_checks import Status
from advisor.domain.failing_node import FailedRun, FailingNode
from advisor.errors import DecodeError
from tests.backends.fake_slurm import FakeSlurm
from tests.builders import HOUR_S
from tests.examples import examples

NODES = 64


def run(nodes: str, hour: float, *, user: str = "ann", gpu_hours: float = 8.0) -> FailedRun:
    """Return a run that ended at an hour."""
    return FailedRun(nodes=tuple(nodes.split()), end_time=hour * HOUR_S, gpu_s=gpu_hours * HOUR_S, user=user)


def names(*runs: FailedRun, node_count: int = NODES) -> list[tuple[str, int]]:
    return [(node.name, node.failures) for node in failing_nodes(runs, node_count)]


def test_node_that_fails_again_and_again_is_named_with_what_it_ended() -> None:
    runs = [run("n1", 1), run("n1", 1.01, user="bob"), run("n1", 30), run("n1", 90, gpu_hours=2.0), run("n2", 40)]

    (node,) = failing_nodes(runs, NODES)

    assert node == FailingNode(name="n1", failures=3, runs=4, users=2, gpu_s=26 * HOUR_S)
    assert node.text == "n1 failed 3 times and ended 4 runs of 2 users with it, 26.0 GPU-hours"


@pytest.mark.parametrize(
    ("runs", "found"),
    [
        ([], []),
        # Once is what chance makes, however much ends with it.
        ([run("n1", 1), run("n1", 1, user="bob"), run("n1", 1.02, user="eve")], []),
        ([run("n1", 1), run("n1", 30)], [("n1", 2)]),
        # Where every node fails now and then, none is worse.
        ([run(f"n{number}", hour) for number in range(NODES) for hour in (number, number + 100)], []),
        # Which node of a gang failed is not known, unless a smaller run ends on one of them.
        ([run("n1 n2", 1), run("n1 n2", 30), run("n1 n2", 60)], []),
        ([run(nodes, hour) for hour in (1, 30, 60) for nodes in ("n1 n2", "n1")], [("n1", 3)]),
        ([run("n1 n2", 10 * hour) for hour in range(6)], [("n1", 3), ("n2", 3)]),
    ],
    ids=["none", "one failure", "two failures", "all alike", "gangs", "gangs and smaller runs", "many gangs"],
)
def test_only_what_chance_does_not_make_is_named(runs: list[FailedRun], found: list[tuple[str, int]]) -> None:
    assert names(*runs) == found


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 160)), max_size=40))
@settings(max_examples=examples(100))
def test_named_nodes_failed_and_are_fewer_than_those_that_did_not_on_a_large_site(
    ends: list[tuple[int, int]],
) -> None:
    runs = [run(f"n{number}", hour) for number, hour in ends]

    found = failing_nodes(runs, 1000)

    assert all(2 <= node.failures <= node.runs == sum(run.nodes == (node.name,) for run in runs) for node in found)
    assert failing_nodes(runs[::-1], 1000) == found


def test_check_has_the_command_that_drains_a_node() -> None:
    (check,) = failure_checks([run("n1", hour) for hour in (1, 20, 40)], NODES)
    (well,) = failure_checks([run("n1", 1)], NODES)

    assert check.status is Status.LACKS
    assert "scontrol update NodeName=n1 State=DRAIN Reason='ends jobs'" in check.cost
    assert (well.status, well.cost) == (Status.OK, "")
    assert well.text == "no node fails more often than chance makes; 1 run ended as a node failed in the last 7 days"


def sacct(*rows: tuple[str, ...]) -> FakeSlurm:
    """Return an accounting with rows of nodes, end, run time, resources and user."""
    fields = ("NodeList", "End", "ElapsedRaw", "AllocTRES", "User")
    return FakeSlurm(ended=[dict(zip(fields, row, strict=True)) for row in rows])


def test_runs_are_read_from_what_slurm_fills_in() -> None:
    held = "billing=2,cpu=2,gres/gpu=4,mem=2000M,node=2"
    slurm = sacct(("n[01-02]", "1000000", "3600", held, "ann"), ("None assigned", "1000000", "0", "", "bob"))

    assert read_failed_runs(slurm, "now-7days") == (
        FailedRun(nodes=("n01", "n02"), end_time=1e6, gpu_s=4 * HOUR_S, user="ann"),
    )
    assert slurm.asked[0][:6] == ("sacct", "-a", "-n", "-X", "-D", "-P")
    assert "NODE_FAIL,BOOT_FAIL" in slurm.asked[0]


@pytest.mark.parametrize(
    "row",
    [("n1|x", "1000000", "1", "", "ann"), ("n1", "1000000", "a while", "", "ann"), ("n[1", "1000000", "1", "", "ann")],
    ids=["columns", "time", "nodes"],
)
def test_what_is_no_answer_is_refused(row: tuple[str, ...]) -> None:
    with pytest.raises(DecodeError):
        read_failed_runs(sacct(row), "now-7days")
