"""The exact command lines; each form was run on live releases."""

import pytest

from advisor.backends.commands import apply_argv, revert_argv
from advisor.domain.actions import Action, NodeRange, Requeue, SetGpus, SetNice, SetNodeRange, SetSwitches, SetTimeMin
from advisor.domain.gang import GpuScope, SwitchRequest
from tests.builders import gpu_counts

WAIT = SwitchRequest(count=1, max_wait_s=600.0)


@pytest.mark.parametrize(
    ("action", "field", "undo"),
    [
        (SetNice(job_id=7, before=0, after=50), "Nice=50", "Nice=0"),
        (SetSwitches(job_id=7, before=None, after=WAIT), "Switches=1@10", "Switches=0@0"),
        (
            SetNodeRange(job_id=7, before=NodeRange(low=1, high=4), after=NodeRange(low=1, high=1)),
            "NumNodes=1-1",
            "NumNodes=1-4",
        ),
        (
            SetGpus(job_id=7, scope=GpuScope.JOB, before=gpu_counts(8), after=gpu_counts(4)),
            "TresPerJob=gres:gpu:4",
            "TresPerJob=gres:gpu:8",
        ),
        (
            SetGpus(job_id=7, scope=GpuScope.NODE, before=gpu_counts(8, "a100"), after=gpu_counts(4, "a100")),
            "TresPerNode=gres:gpu:a100:4",
            "TresPerNode=gres:gpu:a100:8",
        ),
        (SetTimeMin(job_id=7, before=None, after=1800.0), "TimeMin=30", "TimeMin=0"),
        (SetTimeMin(job_id=7, before=60.0, after=1801.0), "TimeMin=31", "TimeMin=1"),
    ],
)
def test_each_action_has_one_field_to_do_and_one_to_undo(action: Action, field: str, undo: str) -> None:
    assert apply_argv(action) == ["scontrol", "update", "JobId=7", field]
    assert revert_argv(action) == ["scontrol", "update", "JobId=7", undo]


def test_requeue_is_for_jobs_that_have_not_ended_and_nothing_takes_it_back() -> None:
    action = Requeue(job_id=7, for_job_id=9, before=1000.0)

    assert apply_argv(action) == ["scontrol", "requeue", "incomplete", "7"]
    assert apply_argv(action, "far") == ["scontrol", "-M", "far", "requeue", "incomplete", "7"]
    assert revert_argv(action) is None


def test_another_cluster_is_named_before_the_command() -> None:
    argv = apply_argv(SetNice(job_id=7, before=0, after=1), "far")

    assert argv == ["scontrol", "-M", "far", "update", "JobId=7", "Nice=1"]
