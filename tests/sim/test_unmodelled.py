"""What the simulator leaves out of a trace."""

from dataclasses import replace

from advisor.sim.cluster import parse_cluster
from advisor.sim.slurm.queue_tables import PartitionTable
from advisor.sim.traces.trace import Trace
from advisor.sim.unmodelled import unmodelled
from tests.sim.building import make_trace

PLAIN = parse_cluster("nodes=2,gpus=4")


def named_trace(*partitions: int, dependency: tuple[int, ...] = ()) -> Trace:
    """Return a trace of jobs in partitions by their codes, with dependencies by theirs."""
    depends = dependency or (0,) * len(partitions)
    rows = [{"partition": place, "dependency": text} for place, text in zip(partitions, depends, strict=True)]
    return replace(
        make_trace(rows), name="week", partitions=("", "gpu", "long"), dependencies=("", "afterok:1", "singleton")
    )


def test_one_partition_is_what_the_model_has() -> None:
    assert unmodelled(named_trace(1, 1, 0), PLAIN) == ""


def test_several_partitions_are_named() -> None:
    assert unmodelled(named_trace(1, 2, 0), PLAIN) == (
        "week: the cluster file has no partitions: jobs of gpu, long share all nodes and limits"
    )


def test_partitions_of_the_cluster_file_are_modelled() -> None:
    divided = replace(PLAIN, partitions=(PartitionTable(name="gpu"), PartitionTable(name="long")))

    assert unmodelled(named_trace(1, 2, 0), divided) == ""


def test_partitions_that_the_cluster_file_lacks_are_named_once() -> None:
    trace = replace(named_trace(1, 2, 3), partitions=("", "gpu", "long,gpu", "debug,long"))
    divided = replace(PLAIN, partitions=(PartitionTable(name="gpu", default=True),))

    assert unmodelled(trace, divided) == (
        "week: the cluster file has no partition long, debug: what jobs say of it does not count"
    )


def test_of_many_partitions_the_first_are_named() -> None:
    trace = make_trace([{"partition": code} for code in range(11)])
    names = tuple(f"p{code:02}" for code in range(11))

    note = unmodelled(replace(trace, partitions=names), PLAIN)

    assert note.endswith("jobs of p00, p01, p02, p03, p04, p05, p06, p07 and 3 more share all nodes and limits")


def test_jobs_with_a_dependency_are_counted_in_the_same_note() -> None:
    note = unmodelled(named_trace(1, 2, 1, dependency=(0, 1, 2)), PLAIN)

    assert note.count("\n") == 0
    assert note.endswith(
        "; policies other than Slurm's ignore dependencies, begin times and limits of arrays: under them 2 of 3 jobs"
        " enter the queue at their submit_time"
    )


def test_what_the_cluster_does_not_name_is_counted() -> None:
    trace = replace(make_trace([{"features": 1}, {}]), name="week", features=("", "new"))

    assert unmodelled(trace, parse_cluster("nodes=1,gpus=1")) == (
        "week: the cluster has no features: features of 1 of 2 jobs does not count"
    )
