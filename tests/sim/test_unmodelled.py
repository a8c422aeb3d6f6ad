"""What the simulator leaves out of a trace."""

from dataclasses import replace

import pytest

from advisor.errors import SimulationError
from advisor.sim.cluster import Cluster, NodeGroup, parse_cluster
from advisor.sim.run_outcome import End
from advisor.sim.slurm.queue_tables import PartitionTable
from advisor.sim.traces.trace import Trace
from advisor.sim.unmodelled import check_gpu_types, jobs_by_gpu_type, unmodelled
from tests.sim.building import make_trace, run_of

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


def typed(*codes: int, names: tuple[str, ...] = ("v100", "a100", "h100")) -> Trace:
    """Return a trace of one-GPU jobs, one for each code; -1 is a job of any type."""
    return replace(make_trace([{"gpu_type": code} for code in codes]), name="week", gpu_types=names)


def test_jobs_are_counted_by_the_types_in_use_the_most_frequent_first() -> None:
    counts = jobs_by_gpu_type(typed(0, 1, 1, -1, -1, -1))

    assert list(counts.items()) == [("a100", 2), ("v100", 1)]


def test_two_types_on_unnamed_gpus_are_refused_with_their_counts_and_what_to_write() -> None:
    with pytest.raises(SimulationError) as refused:
        check_gpu_types(typed(0, 1, 1, -1), parse_cluster("nodes=2,gpus=8"), "nodes=2,gpus=8")

    message = str(refused.value)
    assert message.startswith(
        "week: its jobs ask for 2 GPU types (a100: 2, v100: 1), but --cluster nodes=2,gpus=8 names none: "
    )
    assert "type=a100" in message
    assert "type=any" in message


def test_of_many_types_the_most_frequent_are_named() -> None:
    names = tuple(f"t{number}" for number in range(12))

    with pytest.raises(SimulationError, match=r"12 GPU types \(t0: 1, .*, t5: 1, and 4 more types\)"):
        check_gpu_types(typed(*range(12), names=names), parse_cluster("nodes=2,gpus=8"), "c")


@pytest.mark.parametrize("codes", [(-1, -1), (0, 0, -1)])
def test_unnamed_gpus_are_of_the_one_type_that_a_trace_names(codes: tuple[int, ...]) -> None:
    assert check_gpu_types(typed(*codes), parse_cluster("nodes=2,gpus=8"), "c") == ""


def test_types_are_merged_on_request_and_every_job_runs() -> None:
    trace, cluster = typed(0, 1, -1), parse_cluster("nodes=1,gpus=1,type=any,restart_s=0")

    assert check_gpu_types(trace, cluster, "c") == ""
    assert run_of(trace, cluster, "fifo").outcomes["end"].tolist() == [End.FINISHED] * 3


def test_the_merged_types_run_as_unnamed_gpus_do() -> None:
    trace = typed(0, 1, -1, 2, 0)

    merged, unnamed = (
        run_of(trace, parse_cluster(text), "slurm").outcomes for text in ("nodes=1,gpus=2,type=any", "nodes=1,gpus=2")
    )

    assert merged.tobytes() == unnamed.tobytes()


def test_jobs_of_a_type_the_cluster_lacks_are_counted() -> None:
    cluster = Cluster(nodes=(NodeGroup(count=1, gpus=1, gpu_type="v100"), NodeGroup(count=1, gpus=1)))

    warning = check_gpu_types(typed(0, 1, 1, 2, -1), cluster, "site.toml")

    assert warning == "week: 3 of 5 jobs can never run: site.toml has no GPUs of their type (a100: 2, h100: 1)"
    ends = run_of(typed(0, 1, 1, 2, -1), cluster, "fifo").outcomes["end"].tolist()
    assert ends.count(End.IMPOSSIBLE) == 3


def test_a_cluster_that_names_every_type_needs_no_warning() -> None:
    cluster = Cluster(nodes=tuple(NodeGroup(count=1, gpus=1, gpu_type=name) for name in ("v100", "a100")))

    assert check_gpu_types(typed(0, 1, -1), cluster, "site.toml") == ""
