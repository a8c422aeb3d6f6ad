"""What every action must do, from the job that it changes to the journal and the report; one example for each lever."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

from advisor.backends.commands import apply_argv, revert_argv
from advisor.domain.actions import (
    ACTIONS,
    Action,
    Lever,
    NodeRange,
    SetGpus,
    SetNice,
    SetNodeList,
    SetNodeRange,
    SetSwitches,
    SetTimeMin,
    SizeRequest,
    raised_limit_s,
)
from advisor.domain.gang import GpuCount, GpuScope, SwitchRequest
from advisor.domain.job import Job
from advisor.domain.lease import Lease, LeaseState, intended
from advisor.domain.plan import Outcome
from advisor.domain.request import request_of
from advisor.journal.rows import PastStop, action_of, action_text, lease_of, lease_row, past_action_of
from advisor.view.documents import in_words
from tests.builders import TAKEN_AT, gpu_counts, make_gang, make_job, size_of
from tests.fake_cluster import FakeCluster

Value = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Example:
    """An action, a job that holds its `before`, and what the action comes to wherever it is written.

    `undo` is the command that takes it back; `stored` is the row of the journal.
    """

    name: str
    action: Action
    job: Job
    command: str
    undo: str
    published: tuple[Value, Value]
    words: tuple[str, str]
    stored: str

    def __str__(self) -> str:
        return self.name


EXAMPLES = (
    Example(
        name="nice",
        action=SetNice(job_id=7, before=0, after=50),
        job=make_job(7),
        command="update JobId=7 Nice=50",
        undo="update JobId=7 Nice=0",
        published=({"nice": 0}, {"nice": 50}),
        words=("nice 0", "nice 50"),
        stored='{"job_id":7,"before":0,"after":50,"exchanged_with":null}',
    ),
    Example(
        name="switches asked for",
        action=SetSwitches(job_id=7, before=None, after=SwitchRequest(count=1, max_wait_s=600.0)),
        job=make_job(7),
        command="update JobId=7 Switches=1@10",
        undo="update JobId=7 Switches=0@0",
        published=({"switches": None}, {"switches": {"count": 1, "max_wait_s": 600.0}}),
        words=("no switch wait", "1 leaf switch for up to 10 min"),
        stored='{"job_id":7,"before":null,"after":{"count":1,"max_wait_s":600.0}}',
    ),
    Example(
        name="node range",
        action=SetNodeRange(job_id=7, before=NodeRange(low=1, high=4), after=NodeRange(low=1, high=1)),
        job=make_job(7, gang=make_gang(4, nodes_min=1, nodes_max=4)),
        command="update JobId=7 NumNodes=1-1",
        undo="update JobId=7 NumNodes=1-4",
        published=({"nodes_min": 1, "nodes_max": 4}, {"nodes_min": 1, "nodes_max": 1}),
        words=("1-4 nodes", "1 node"),
        stored='{"job_id":7,"before":{"low":1,"high":4},"after":{"low":1,"high":1}}',
    ),
    Example(
        name="GPUs of the job",
        action=SetGpus(job_id=7, scope=GpuScope.JOB, before=size_of(*gpu_counts(8)), after=size_of(*gpu_counts(4))),
        job=make_job(7, gpus=8),
        command="update JobId=7 TresPerJob=gres:gpu:4",
        undo="update JobId=7 TresPerJob=gres:gpu:8",
        published=({"per_job": [{"gpu_type": None, "count": 8}]}, {"per_job": [{"gpu_type": None, "count": 4}]}),
        words=("per job 8 GPUs", "per job 4 GPUs"),
        stored='{"job_id":7,"scope":"per_job","before":{"gpus":[{"gpu_type":null,"count":8}],"time_limit_s":null},'
        '"after":{"gpus":[{"gpu_type":null,"count":4}],"time_limit_s":null}}',
    ),
    Example(
        name="GPUs with the time limit",
        action=SetGpus(
            job_id=7,
            scope=GpuScope.JOB,
            before=size_of(*gpu_counts(8), limit_s=3600.0),
            after=size_of(*gpu_counts(4), limit_s=6780.0),
        ),
        job=make_job(7, gpus=8, time_limit_s=3600.0),
        command="update JobId=7 TresPerJob=gres:gpu:4 TimeLimit=113",
        undo="update JobId=7 TresPerJob=gres:gpu:8 TimeLimit=60",
        published=(
            {"per_job": [{"gpu_type": None, "count": 8}], "time_limit_s": 3600.0},
            {"per_job": [{"gpu_type": None, "count": 4}], "time_limit_s": 6780.0},
        ),
        words=("per job 8 GPUs, limit 60 min", "per job 4 GPUs, limit 113 min"),
        stored='{"job_id":7,"scope":"per_job","before":{"gpus":[{"gpu_type":null,"count":8}],"time_limit_s":3600.0},'
        '"after":{"gpus":[{"gpu_type":null,"count":4}],"time_limit_s":6780.0}}',
    ),
    Example(
        name="GPUs of one type per node",
        action=SetGpus(
            job_id=7, scope=GpuScope.NODE, before=size_of(*gpu_counts(8, "a100")), after=size_of(*gpu_counts(4, "a100"))
        ),
        job=make_job(7, gang=make_gang(8, scope=GpuScope.NODE, gpu_type="a100")),
        command="update JobId=7 TresPerNode=gres:gpu:a100:4",
        undo="update JobId=7 TresPerNode=gres:gpu:a100:8",
        published=(
            {"per_node": [{"gpu_type": "a100", "count": 8}]},
            {"per_node": [{"gpu_type": "a100", "count": 4}]},
        ),
        words=("per node 8 a100", "per node 4 a100"),
        stored='{"job_id":7,"scope":"per_node","before":{"gpus":[{"gpu_type":"a100","count":8}],"time_limit_s":null},'
        '"after":{"gpus":[{"gpu_type":"a100","count":4}],"time_limit_s":null}}',
    ),
    Example(
        name="soft limit",
        action=SetTimeMin(job_id=7, before=None, after=1800.0),
        job=make_job(7),
        command="update JobId=7 TimeMin=30",
        undo="update JobId=7 TimeMin=0",
        published=({"time_min_s": None}, {"time_min_s": 1800.0}),
        words=("no soft limit", "soft limit 30 min"),
        stored='{"job_id":7,"before":null,"after":1800.0}',
    ),
    Example(
        name="nodes named",
        action=SetNodeList(job_id=7, before=(), after=("n01", "n03")),
        job=make_job(7, gang=make_gang(16, nodes_min=2, nodes_max=2)),
        command="update JobId=7 ReqNodeList=n01,n03",
        undo="update JobId=7 ReqNodeList=",
        published=({"nodes": []}, {"nodes": ["n01", "n03"]}),
        words=("on any nodes", "on n01, n03"),
        stored='{"job_id":7,"before":[],"after":["n01","n03"]}',
    ),
)

of_every_example = pytest.mark.parametrize("example", EXAMPLES, ids=str)


def test_every_lever_has_an_action_and_an_example() -> None:
    assert set(ACTIONS) == set(Lever)
    assert all(ACTIONS[lever].lever is lever for lever in Lever)
    assert {example.action.lever for example in EXAMPLES} == set(Lever)


@of_every_example
def test_applied_action_leaves_its_after_value(example: Example) -> None:
    action, job = example.action, example.job

    changed = action.applied_to(job)

    assert action.before != action.after
    assert action.held_by(job) == action.before and action.can_hold(job, action.before)
    assert action.held_by(changed) == action.after and action.can_hold(changed, action.after)
    assert not action.can_hold(job, action.after)
    assert changed.job_id == job.job_id == action.job_id


@of_every_example
def test_inverse_gives_the_user_back_what_they_had(example: Example) -> None:
    action, job = example.action, example.job

    inverse = action.swapped()

    assert (inverse.before, inverse.after) == (action.after, action.before)
    assert inverse.applied_to(action.applied_to(job)) == job
    assert inverse.swapped() == action


@of_every_example
def test_action_has_one_command_and_one_to_take_it_back(example: Example) -> None:
    undo = example.undo.split()

    assert apply_argv(example.action) == ["scontrol", *example.command.split()]
    assert apply_argv(example.action, "far") == ["scontrol", "-M", "far", *example.command.split()]
    assert revert_argv(example.action) == ["scontrol", *undo]
    assert revert_argv(example.action, "far") == ["scontrol", "-M", "far", *undo]


@of_every_example
def test_action_is_published_as_values_and_as_words(example: Example) -> None:
    before, after = example.action.published()
    row = json.loads(json.dumps({"lever": example.action.lever, "before": before, "after": after}))

    assert (before, after) == example.published
    assert (row["before"], row["after"]) == example.published
    assert (in_words(row["lever"], row["before"]), in_words(row["lever"], row["after"])) == example.words


@of_every_example
def test_action_comes_back_from_the_journal_as_it_was_stored(example: Example) -> None:
    asked = request_of(example.job)
    lease = intended(example.action, TAKEN_AT, after_s=600.0, job=example.job, added_delay_s=30.0, request=asked)
    lease = replace(lease, lost="was requeued")

    assert action_text(example.action) == example.stored
    assert action_of(example.action.lever, example.stored) == example.action
    assert lease_of(lease_row(lease)) == lease


def test_nice_stored_before_there_were_exchanges_is_read() -> None:
    action = action_of(Lever.NICE, '{"job_id":7,"before":0,"after":50}')

    assert action == SetNice(job_id=7, before=0, after=50)


@pytest.mark.parametrize("gpus", ["null", "8"])
def test_stop_by_an_earlier_version_is_read_as_past_alone(gpus: str) -> None:
    stored = f'{{"job_id":7,"for_job_id":9,"before":1.0,"after":null,"gpus_after":{gpus}}}'

    assert past_action_of("checkpoint_requeue", stored) == PastStop(job_id=7, before=1.0, after=None)
    with pytest.raises(ValueError, match="checkpoint_requeue"):
        action_of("checkpoint_requeue", stored)


def test_size_stored_before_limits_changed_with_it_is_read_and_says_nothing_of_the_limit() -> None:
    action = action_of(
        Lever.GPU_COUNT,
        '{"job_id":7,"scope":"per_job","before":[{"gpu_type":null,"count":8}],"after":[{"gpu_type":null,"count":4}]}',
    )

    assert isinstance(action, SetGpus)
    assert (action.before, action.after) == (size_of(*gpu_counts(8)), size_of(*gpu_counts(4)))
    assert action.arguments() == ("TresPerJob=gres:gpu:4",)
    assert action.held_by(make_job(7, gpus=4, time_limit_s=3600.0)) == action.after


@pytest.mark.parametrize("text", ["[]", "7", '{"job_id":7}', "{"])
def test_size_that_is_no_action_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"validation error|Expecting"):
        action_of(Lever.GPU_COUNT, text)


def test_size_that_leaves_the_limit_alone_does_not_write_it_and_notices_a_change_of_it() -> None:
    four, eight = (size_of(*gpu_counts(count), limit_s=3600.0) for count in (4, 8))
    action = SetGpus(job_id=7, scope=GpuScope.JOB, before=four, after=eight)

    job = make_job(7, gpus=4, time_limit_s=3600.0)

    assert action.arguments() == ("TresPerJob=gres:gpu:8",)
    assert (action.shrinks, action.changes_limit) == (False, False)
    assert action.published() == (
        {"per_job": [{"gpu_type": None, "count": 4}]},
        {"per_job": [{"gpu_type": None, "count": 8}]},
    )
    assert action.applied_to(job).time_limit_s == 3600.0
    assert action.held_by(job) == action.before
    assert action.held_by(make_job(7, gpus=4, time_limit_s=1800.0)) != action.before


@pytest.mark.parametrize(
    ("limit_s", "stretch", "raised_s"),
    [
        (3600.0, 1.866, 6720.0),
        (3600.0, 2.0, 7200.0),
        (3600.0, 0.5, 3600.0),
        (90.0, 0.5, 90.0),
        (math.inf, 2.0, math.inf),
    ],
)
def test_raised_limit_is_in_whole_minutes_and_never_lower(limit_s: float, stretch: float, raised_s: float) -> None:
    assert raised_limit_s(limit_s, stretch) == raised_s


@pytest.mark.parametrize(
    ("size", "text"),
    [(size_of(*gpu_counts(4)), "gpu:4"), (size_of(*gpu_counts(4, "a100"), limit_s=3600.0), "a100:4@3600s")],
)
def test_size_in_short(size: SizeRequest, text: str) -> None:
    assert str(size) == text


@of_every_example
def test_action_is_carried_out_once_and_can_be_taken_back(example: Example) -> None:
    action, cluster = example.action, FakeCluster(jobs={7: example.job})

    outcomes = [cluster.apply(action).outcome, cluster.apply(action).outcome]
    changed = cluster.jobs[7]
    taken_back = cluster.apply(action.swapped()).outcome

    assert outcomes == [Outcome.APPLIED, Outcome.ALREADY_SO]
    assert changed == action.applied_to(example.job)
    assert taken_back is Outcome.APPLIED
    assert cluster.jobs[7] == example.job


@of_every_example
def test_lease_of_an_action_knows_its_lever_and_what_the_user_had(example: Example) -> None:
    lease = Lease(action=example.action, undo=example.action.swapped(), applied_time=TAKEN_AT, state=LeaseState.OUT)

    assert lease.lever is example.action.lever
    assert (lease.undo.after, lease.earlier) == (example.action.before, None)


@pytest.mark.parametrize(("priority", "after"), [(100, 95), (3, 1), (None, None)])
def test_nice_lowers_the_priority_but_never_below_one(priority: int | None, after: int | None) -> None:
    job = make_job(1, priority=priority)

    assert SetNice(job_id=1, before=0, after=5).applied_to(job).priority == after


@pytest.mark.parametrize(("soft_s", "argument"), [(60.0, "TimeMin=1"), (1801.0, "TimeMin=31"), (None, "TimeMin=0")])
def test_soft_limit_is_rounded_up_to_minutes(soft_s: float | None, argument: str) -> None:
    assert SetTimeMin(job_id=7, before=3600.0, after=soft_s).arguments() == (argument,)


def test_several_gpu_types_are_asked_for_in_one_argument() -> None:
    mixed = (GpuCount(gpu_type="a100", count=2), GpuCount(gpu_type="h100", count=1))
    action = SetGpus(job_id=7, scope=GpuScope.TASK, before=size_of(*gpu_counts(1)), after=size_of(*mixed))

    _, after = action.published()

    assert action.arguments() == ("TresPerTask=gres:gpu:a100:2,gres:gpu:h100:1",)
    assert action.in_words(after) == "per task 2 a100+1 h100"


def test_hidden_upper_end_of_a_node_range_can_be_any() -> None:
    action = SetNodeRange(job_id=7, before=NodeRange(low=2, high=8), after=NodeRange(low=2, high=3))
    one_end = make_job(7, gang=make_gang(8, nodes_min=2, nodes_max=2))
    open_end = make_job(7, gang=make_gang(8, nodes_min=2))

    assert action.can_hold(one_end, action.before) and action.can_hold(one_end, action.after)
    assert not action.can_hold(one_end, NodeRange(low=1, high=8))
    assert not action.can_hold(open_end, action.before)
