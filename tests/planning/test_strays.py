"""Pending jobs that look changed by sadvise: listed where the journal knows no change of them, and only there."""

from dataclasses import replace

import pytest

from advisor.domain.actions import Lever, NodeRange, SetNice, SetNodeRange
from advisor.domain.gang import SwitchRequest
from advisor.domain.job import ArrayRecord, HetRecord, Job
from advisor.domain.lease import intended
from advisor.planning.strays import Submitted, candidates, strays
from tests.builders import make_gang, make_job, make_snapshot

MARKED = make_job(4, gang=make_gang(2), nice=157)
HELD = make_job(5, gang=make_gang(2, nodes_min=1, nodes_max=1))
WAITING = make_job(6, gang=make_gang(2, switches=SwitchRequest(count=1, max_wait_s=600.0)))
NICE = SetNice(job_id=4, before=0, after=157)
HOLD = SetNodeRange(job_id=5, before=NodeRange(low=1, high=4), after=NodeRange(low=1, high=1))


def seen(job: Job, submitted: Submitted | None = None) -> list[tuple[Lever, str]]:
    """List what looks changed of one job, without any lease."""
    known = {} if submitted is None else {job.job_id: submitted}
    return [(stray.lever, stray.text) for stray in strays(make_snapshot([job]), (), known)]


def test_marked_nice_is_seen_without_accounting_and_not_where_the_user_asked_for_it() -> None:
    found = [(Lever.NICE, "nice 157 carries the mark of sadvise")]

    assert seen(MARKED) == seen(MARKED, Submitted()) == seen(MARKED, Submitted(nice=100)) == found
    assert seen(MARKED, Submitted(nice=157)) == seen(replace(MARKED, nice=150)) == []


def test_node_range_is_seen_where_it_differs_from_the_submit_line() -> None:
    asked = NodeRange(low=1, high=4)

    assert seen(HELD, Submitted(nodes=asked)) == [(Lever.NODE_RANGE, "accepts 1-1 nodes, submitted with 1-4")]
    assert seen(HELD, Submitted(nodes=NodeRange(low=1, high=1))) == seen(HELD, Submitted()) == seen(HELD) == []


@pytest.mark.parametrize(
    "job",
    [
        make_job(5, gang=make_gang(2, nodes_min=3, nodes_max=3)),
        make_job(5, gang=make_gang(2, nodes_min=1, nodes_max=1), het=HetRecord(het_job_id=5, offset=0)),
    ],
    ids=["more nodes for its tasks, by Slurm", "component with a line of all"],
)
def test_node_range_that_sadvise_would_not_set_is_none(job: Job) -> None:
    assert seen(job, Submitted(nodes=NodeRange(low=2, high=3))) == []


def test_switches_are_seen_where_the_submit_line_has_none() -> None:
    (found,) = seen(WAITING, Submitted())

    assert found[0] is Lever.SWITCHES and "its script can" in found[1]
    assert seen(WAITING, Submitted(has_switches=True)) == seen(WAITING) == []


@pytest.mark.parametrize("job", [MARKED, HELD], ids=["nice", "node range"])
def test_change_that_the_journal_knows_is_none(job: Job) -> None:
    lease = intended(NICE if job is MARKED else HOLD, 0.0)
    snapshot, submitted = make_snapshot([job]), {5: Submitted(nodes=NodeRange(low=1, high=4))}

    assert strays(snapshot, (lease,), submitted) == ()
    assert len(strays(snapshot, (), submitted)) == len(candidates(snapshot)) == 1


def test_lease_on_one_field_hides_no_other_field() -> None:
    snapshot, submitted = make_snapshot([replace(HELD, nice=157)]), {5: Submitted(nodes=NodeRange(low=1, high=4))}

    (of_nice,) = strays(snapshot, (intended(HOLD, 0.0),), submitted)
    (of_range,) = strays(snapshot, (intended(replace(NICE, job_id=5), 0.0),), submitted)

    assert of_nice.text == "nice 157 carries the mark of sadvise" and of_nice.action == replace(NICE, job_id=5)
    assert (of_range.job_id, of_range.lever) == (5, Lever.NODE_RANGE) and candidates(snapshot) == (5,)


def test_job_that_runs_is_none() -> None:
    running = make_job(4, gpus=2, running_on=["n01"], nice=157)

    assert strays(make_snapshot([running]), ()) == () == candidates(make_snapshot([running]))


def test_jobs_come_by_id() -> None:
    jobs = [replace(MARKED, job_id=number) for number in (9, 3, 7)]

    assert [stray.job_id for stray in strays(make_snapshot(jobs), ())] == [3, 7, 9]


def test_a_lift_is_a_nice_that_no_user_can_set_and_its_action_restores_that_of_the_submit_line() -> None:
    snapshot = make_snapshot([MARKED, make_job(7, nice=-1007), make_job(8, nice=-57)])

    found = strays(snapshot, (), {8: Submitted(nice=100)})

    assert [(stray.job_id, stray.is_lift) for stray in found] == [(4, False), (7, True), (8, True)]
    assert [stray.action for stray in found[1:]] == [
        SetNice(job_id=7, before=0, after=-1007),
        SetNice(job_id=8, before=100, after=-57),
    ]


def test_the_lease_of_an_array_covers_the_tasks_that_were_split_off() -> None:
    task = make_job(9, nice=-1007, array=ArrayRecord(array_job_id=7, task_id=3))
    lease = intended(SetNice(job_id=7, before=0, after=-1007), 0.0)

    assert strays(make_snapshot([task]), (lease,)) == ()
    assert len(strays(make_snapshot([task]), ())) == 1
