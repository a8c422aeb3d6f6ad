"""What the simulator leaves out of a trace."""

from dataclasses import replace

from advisor.sim.trace import Trace
from advisor.sim.unmodelled import unmodelled
from tests.sim.building import make_trace


def named_trace(*partitions: int, dependency: tuple[int, ...] = ()) -> Trace:
    """Return a trace of jobs in partitions by their codes, with dependencies by theirs."""
    depends = dependency or (0,) * len(partitions)
    rows = [{"partition": place, "dependency": text} for place, text in zip(partitions, depends, strict=True)]
    return replace(
        make_trace(rows), name="week", partitions=("", "gpu", "long"), dependencies=("", "afterok:1", "singleton")
    )


def test_one_partition_is_what_the_model_has() -> None:
    assert unmodelled(named_trace(1, 1, 0)) == ""


def test_several_partitions_are_named() -> None:
    assert unmodelled(named_trace(1, 2, 0)) == (
        "week: the model has one partition: jobs of gpu, long share all nodes and limits"
    )


def test_of_many_partitions_the_first_are_named() -> None:
    trace = make_trace([{"partition": code} for code in range(11)])
    names = tuple(f"p{code:02}" for code in range(11))

    note = unmodelled(replace(trace, partitions=names))

    assert note.endswith("jobs of p00, p01, p02, p03, p04, p05, p06, p07 and 3 more share all nodes and limits")


def test_jobs_with_a_dependency_are_counted_in_the_same_note() -> None:
    note = unmodelled(named_trace(1, 2, 1, dependency=(0, 1, 2)))

    assert note.count("\n") == 0
    assert note.endswith(
        "; the model has no dependencies: 2 of 3 jobs have one and enter the queue at their submit_time"
    )
