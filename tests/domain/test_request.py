"""Requests: what counts as asking for more than before, and what moves by itself and does not."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from advisor.domain.actions import NodeRange, SetGpus, SetNice, SetNodeRange, SetTimeMin, SizeRequest
from advisor.domain.gang import GpuCount, GpuScope
from advisor.domain.job import ArrayRecord, Job
from advisor.domain.lease import LeaseState, intended, request_without
from advisor.domain.request import REQUEUED, request_of
from tests.builders import HOUR_S, TAKEN_AT, make_gang, make_job

ASKED = make_job(
    9,
    gang=replace(make_gang(4, nodes_min=2, nodes_max=2), tasks=4, cpus=8, memory_mib_per_node=1000),
    partitions=("gpu", "long"),
    account="lab",
    time_limit_s=HOUR_S,
)


def with_gang(**fields: object) -> Callable[[Job], Job]:
    return lambda job: replace(job, gang=replace(job.gang, **fields))  # type: ignore[arg-type]


def with_job(**fields: object) -> Callable[[Job], Job]:
    return lambda job: replace(job, **fields)  # type: ignore[arg-type]


SOME_GPUS = (GpuCount(count=5),)
WAITING = ArrayRecord(array_job_id=9, waiting="0-9")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        pytest.param(with_gang(per_job=SOME_GPUS, per_node=()), "asks for 5 GPUs, for 4 GPUs", id="GPUs"),
        pytest.param(with_gang(nodes_min=3, nodes_max=3), "asks for 3 nodes, for 2 nodes", id="nodes"),
        pytest.param(with_gang(nodes_max=8), "asks for at most 8 nodes, for at most 2 nodes", id="most nodes"),
        pytest.param(with_gang(cpus=9), "asks for 9 CPUs, for 8 CPUs", id="CPUs"),
        pytest.param(with_gang(cpus_per_node=5), "asks for 10 CPUs, for 8 CPUs", id="CPUs per node"),
        pytest.param(with_gang(memory_mib_per_node=1001), "asks for 2002 MiB of memory, for 2000 MiB", id="memory"),
        pytest.param(with_gang(memory_mib_per_node=None), "asks for all memory of its nodes", id="all memory"),
        pytest.param(with_job(time_limit_s=2 * HOUR_S), "asks for a time limit of 2.0 h, for a time", id="limit"),
        pytest.param(with_job(time_limit_s=None), "asks for no time limit", id="no limit"),
        pytest.param(with_job(partitions=("gpu", "debug")), "asks for another partition", id="partition"),
        pytest.param(with_job(account="other"), "has another account", id="account"),
        pytest.param(with_job(array=WAITING), "asks for 10 tasks at the same time, for 1 task", id="tasks"),
        pytest.param(with_job(submit_time=ASKED.submit_time + 1.0), REQUEUED, id="requeued"),
    ],
)
def test_more_is_named(change: Callable[[Job], Job], words: str) -> None:
    before, after = request_of(ASKED), request_of(change(ASKED))

    assert before.more_in(after).startswith(words)
    assert before.more_in(before) == ""


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(with_gang(per_job=(GpuCount(count=1),), per_node=()), id="GPUs"),
        pytest.param(with_gang(nodes_min=1, nodes_max=1), id="nodes"),
        pytest.param(with_gang(nodes_max=64, nodes_open=True), id="an estimate of an open node count"),
        pytest.param(with_gang(gpus_known=False, per_job=SOME_GPUS), id="GPUs that could not be read"),
        pytest.param(with_gang(cpus=1, memory_mib_per_node=10), id="CPUs and memory"),
        pytest.param(with_job(time_limit_s=60.0, partitions=("long",), nice=-50), id="limit and partition"),
    ],
)
def test_less_or_what_moves_by_itself_is_not_more(change: Callable[[Job], Job]) -> None:
    assert request_of(ASKED).more_in(request_of(change(ASKED))) == ""


def test_an_array_asks_for_more_if_its_throttle_is_raised_and_not_by_a_list_that_slurm_cuts() -> None:
    one, ten, cut = (
        request_of(replace(ASKED, array=array))
        for array in (replace(WAITING, max_running=1), WAITING, replace(WAITING, waiting="0,2,4..."))
    )

    assert one.more_in(ten).startswith("asks for 10 tasks at the same time, for 1 task")
    assert (ten.more_in(one), ten.more_in(cut), cut.more_in(ten)) == ("", "", "")


def test_a_request_is_without_the_changes_of_ours_that_the_job_holds() -> None:
    halved = SetGpus(
        job_id=9,
        scope=GpuScope.JOB,
        before=SizeRequest(gpus=ASKED.gang.per_job, time_limit_s=HOUR_S),
        after=SizeRequest(gpus=(GpuCount(count=2),), time_limit_s=2 * HOUR_S),
    )
    held = replace(intended(halved, TAKEN_AT), state=LeaseState.OUT)
    resized = with_gang(cpus=64)(halved.applied_to(ASKED))

    longer = replace(halved.applied_to(ASKED), time_limit_s=3 * HOUR_S)

    asked = request_of(ASKED)

    assert asked.more_in(request_of(resized)) != ""
    assert asked.more_in(request_without([held], resized)) == ""
    # A value of the user's stands.
    assert "limit of 3.0 h" in asked.more_in(request_without([held], longer))


@pytest.mark.parametrize(
    ("action", "favours"),
    [
        pytest.param(SetNice(job_id=9, before=0, after=-57), True, id="lift"),
        pytest.param(SetNice(job_id=9, before=0, after=57), False, id="place given"),
        pytest.param(SetTimeMin(job_id=9, before=None, after=60.0), True, id="soft limit"),
        pytest.param(
            SetNodeRange(job_id=9, before=NodeRange(low=1, high=4), after=NodeRange(low=1, high=1)), False, id="timer"
        ),
    ],
)
def test_changes_that_favour_a_job(action: SetNice | SetTimeMin | SetNodeRange, favours: bool) -> None:
    assert intended(action, TAKEN_AT).favours is favours
