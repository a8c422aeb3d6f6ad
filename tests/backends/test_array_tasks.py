"""Addresses of the waiting tasks of arrays: all of them, none that runs, and none with a nice of its own."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.backends.actuator import LONGEST_ADDRESS, WaitingTask, addresses, longest_address, waiting_tasks
from advisor.backends.process import Answer
from advisor.errors import SlurmError, SlurmRefusedError, SlurmUnavailableError
from tests.backends.fake_slurm import Streaming


@dataclass
class Queue(Streaming):
    """A squeue that prints one text, or refuses."""

    text: str = ""
    merged: str | None = None
    against: SlurmError | None = None
    cluster: str | None = None
    asked: list[tuple[str, ...]] = field(default_factory=list)

    def ask(self, program: str, *arguments: str) -> Answer:
        """Answer every command alike."""
        self.asked.append((program, *arguments))
        if self.against is not None:
            raise self.against
        is_merged = self.merged is not None and "-r" not in arguments
        return Answer(output=(self.merged if is_merged else self.text).encode())  # type: ignore[union-attr]


def task(task_id: int, *, job_id: int = 7, array_job_id: int = 7, nice: int = 0) -> WaitingTask:
    return WaitingTask(job_id=job_id, array_job_id=array_job_id, task_id=task_id, nice=nice)


def test_tasks_are_read_as_every_release_prints_them() -> None:
    slurm = Queue(text="CLUSTER: here\n7 7_5 -1000\n7 7_6 -1000\n9 7_0 0\n20 20_[4%2] 3\n11 11 0\n")

    tasks = waiting_tasks(slurm, [20, 7, 11, 7])

    assert tasks == [
        task(5, nice=-1000),
        task(6, nice=-1000),
        task(4, job_id=20, array_job_id=20, nice=3),
        task(0, job_id=9),
    ]
    assert [command[command.index("-j") + 1] for command in slurm.asked] == ["7,11,20"] * 2


def test_last_task_of_an_array_in_steps_is_read_although_squeue_does_not_print_it() -> None:
    each = "".join(f"7 7_{task_id} -57\n" for task_id in range(0, 98, 2)) + "9 7_101 50\n"
    slurm = Queue(text=each, merged="7 7_[0-98:2,101%4] -57\n")

    tasks = waiting_tasks(slurm, [7])

    assert tasks == [*(task(task_id, nice=-57) for task_id in range(0, 100, 2)), task(101, job_id=9, nice=50)]


def test_a_list_that_is_cut_names_no_task() -> None:
    assert waiting_tasks(Queue(text="7 7_0 0\n", merged="7 7_[0,2,4,...] 0\n"), [7]) == []


def test_an_array_that_slurm_no_longer_knows_has_no_tasks() -> None:
    assert waiting_tasks(Queue(against=SlurmRefusedError("slurm_load_jobs error: Invalid job id specified")), [7]) == []


@pytest.mark.parametrize("fault", [SlurmRefusedError("denied"), SlurmUnavailableError("no answer")])
def test_other_faults_are_errors(fault: SlurmError) -> None:
    with pytest.raises(type(fault)):
        waiting_tasks(Queue(against=fault), [7])


@pytest.mark.parametrize(
    ("tasks", "named"),
    [
        pytest.param([task(4), task(6), task(5)], ("7_[4-6]",), id="run"),
        pytest.param([task(0), task(2), task(4), task(5)], ("7_[0,2,4-5]",), id="no steps"),
        pytest.param([task(9)], ("7_[9]",), id="last task"),
        pytest.param([task(5), task(0, job_id=9)], ("7_[0,5]",), id="requeued task with the nice of the array"),
        pytest.param([task(5), task(0, job_id=9, nice=30)], ("7_[5]",), id="requeued task with a nice of its own"),
        pytest.param([task(5), task(6, job_id=8, array_job_id=8)], ("7_[5]",), id="another array"),
        pytest.param([task(0, job_id=9)], (), id="only a requeued task"),
        pytest.param([], (), id="none waits"),
    ],
)
def test_address_names_the_waiting_tasks_that_hold_the_nice(tasks: list[WaitingTask], named: tuple[str, ...]) -> None:
    assert addresses(tasks, 7, 0) == named


def test_a_list_longer_than_one_request_goes_as_several_that_name_every_task_once() -> None:
    tasks = [task(task_id) for task_id in range(100_000, 160_000, 2)]

    named = addresses(tasks, 7, 0)

    assert len(named) > 1 and max(map(len, named)) <= LONGEST_ADDRESS
    assert [int(part) for text in named for part in text[3:-1].split(",")] == [each.task_id for each in tasks]


@given(st.sets(st.integers(min_value=0, max_value=3000), min_size=1), st.data())
def test_no_choice_of_waiting_tasks_has_a_longer_address_than_the_longest(ids: set[int], data: st.DataObject) -> None:
    left = data.draw(st.sets(st.sampled_from(sorted(ids)), min_size=1))

    (named,) = addresses(map(task, sorted(left)), 7, 0)

    assert len(named) <= longest_address(map(task, ids), 7)


def test_record_of_the_array_is_named_whatever_it_holds() -> None:
    # Its value was compared before; a part of its tasks would be split off.
    assert addresses([task(5, nice=3), task(6, nice=3)], 7, 0) == ("7_[5-6]",)
