"""Many changes in one batch: what is sent, in how many processes, and what each receipt says."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from advisor.backends import actuator as at_work
from advisor.backends.actuator import (
    ANOTHER_VALUE,
    CHANGED_MEANWHILE,
    NOT_A_WORD,
    NOT_PENDING,
    TOO_MANY_TASKS,
    ScontrolActuator,
)
from advisor.backends.named_jobs import UNREADABLE
from advisor.backends.process import Answer
from advisor.domain.actions import Action, SetGpus, SetNice, SetTimeMin
from advisor.domain.gang import GpuCount, GpuScope
from advisor.domain.plan import Outcome
from advisor.errors import SlurmRefusedError, SlurmUnavailableError
from tests.backends.fake_slurm import FakeSlurm, Streaming, job_row
from tests.builders import size_of


@dataclass
class Slurm(Streaming):
    """A queue of waiting jobs with a nice value each; `against` maps jobs to what scontrol says of their line.

    `tasks` are the waiting tasks of its arrays as `squeue -r` prints them.
    """

    nices: dict[int, int]
    against: dict[int, str] = field(default_factory=dict)
    fields: dict[int, dict[str, str]] = field(default_factory=dict)
    ignored: frozenset[int] = frozenset()
    complaints: str = ""
    lost: bool = False
    tasks: str = ""
    cluster: str | None = None
    processes: list[tuple[str, ...]] = field(default_factory=list)

    def ask(self, program: str, *arguments: str) -> Answer:
        """Show the jobs asked for."""
        self.processes.append((program, *arguments))
        if program == "scontrol":
            job_id = int(arguments[1].partition("=")[2].partition("_")[0])
            if job_id in self.against:
                raise SlurmRefusedError(f"scontrol failed with exit status 1: {self.against[job_id]}")
            self.nices[job_id] = int(arguments[2].partition("=")[2])
            return Answer(output=b"")
        if "-t" in arguments:
            return Answer(output=self.tasks.encode())
        asked = arguments[arguments.index("-j") + 1].split(",")
        rows = [
            job_row(JobID=str(job_id), JobArrayID=str(job_id), Nice=str(nice)) | self.fields.get(job_id, {})
            for job_id, nice in self.nices.items()
            if str(job_id) in asked
        ]
        return FakeSlurm(jobs=rows).ask(program, *arguments)

    def feed(self, program: str, lines: Sequence[str]) -> str:
        """Carry out the lines, or object."""
        self.processes.append((program, *lines))
        if self.lost:
            raise SlurmUnavailableError("no answer")
        messages = [self.complaints] if self.complaints else []
        for line in lines:
            job_id = int(line.partition("JobId=")[2].partition(" ")[0].partition("_")[0])
            if job_id in self.against:
                messages.append(self.against[job_id])
            elif job_id not in self.ignored and "Nice=" in line:
                self.nices[job_id] = int(line.rpartition("=")[2])
        return "".join(f"{message}\n" for message in messages)


def nices(*job_ids: int) -> list[Action]:
    return [SetNice(job_id=job_id, before=0, after=job_id + 100) for job_id in job_ids]


def test_three_hundred_changes_take_three_processes() -> None:
    slurm = Slurm(nices=dict.fromkeys(range(1, 301), 0))

    receipts = ScontrolActuator(slurm).apply_all(nices(*range(1, 301)))

    assert [receipt.outcome for receipt in receipts] == [Outcome.APPLIED] * 300
    assert [command[0] for command in slurm.processes] == ["squeue", "scontrol", "squeue"]
    assert slurm.nices == {job_id: job_id + 100 for job_id in range(1, 301)}
    assert slurm.processes[1][1:3] == ("update JobId=1 Nice=101", "update JobId=2 Nice=102")


def test_nothing_to_change_asks_nothing() -> None:
    slurm = Slurm(nices={})

    assert ScontrolActuator(slurm).apply_all([]) == () and slurm.processes == []


def test_each_change_has_its_own_outcome_in_the_order_asked_for() -> None:
    slurm = Slurm(
        nices={1: 0, 2: 7, 3: 103, 4: 0, 5: 0, 6: 0},
        against={4: "Invalid user id for job 4", 5: "5_[1-4]: Requested node configuration is not available"},
        ignored=frozenset({6}),
    )

    receipts = ScontrolActuator(slurm).apply_all(nices(6, 5, 4, 3, 2, 1, 9))

    assert [(receipt.action.job_id, receipt.outcome, receipt.is_settled) for receipt in receipts] == [
        (6, Outcome.FAILED, False),
        (5, Outcome.FAILED, True),
        (4, Outcome.FAILED, True),
        (3, Outcome.ALREADY_SO, True),
        (2, Outcome.FAILED, True),
        (1, Outcome.APPLIED, True),
        (9, Outcome.FAILED, True),
    ]
    assert receipts[0].text == ANOTHER_VALUE
    assert receipts[1].text == "5_[1-4]: Requested node configuration is not available"
    assert receipts[2].text.startswith("Slurm denies it")
    assert (receipts[4].text, receipts[4].is_overruled, receipts[6].text) == (CHANGED_MEANWHILE, True, NOT_PENDING)
    # What is so already, somebody else's or gone is not sent.
    assert slurm.processes[1] == (
        "scontrol",
        "update JobId=6 Nice=106",
        "update JobId=5 Nice=105",
        "update JobId=4 Nice=104",
        "update JobId=1 Nice=101",
    )


def test_an_objection_that_names_no_job_settles_nothing() -> None:
    slurm = Slurm(nices={1: 0, 2: 0}, ignored=frozenset({2}), complaints="Request aborted")

    receipts = ScontrolActuator(slurm).apply_all(nices(1, 2))

    assert [(receipt.outcome, receipt.is_settled) for receipt in receipts] == [
        (Outcome.APPLIED, True),
        (Outcome.FAILED, False),
    ]


def test_two_changes_of_one_job_follow_each_other() -> None:
    slurm = Slurm(nices={1: 0, 2: 0})
    changes: list[Action] = [*nices(1, 2), SetNice(job_id=1, before=101, after=5)]

    receipts = ScontrolActuator(slurm).apply_all(changes)

    assert [receipt.outcome for receipt in receipts] == [Outcome.APPLIED] * 3
    assert slurm.nices == {1: 5, 2: 102}


def test_batches_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(at_work, "LINES_PER_COMMAND", 2)
    slurm = Slurm(nices=dict.fromkeys(range(1, 6), 0))

    receipts = ScontrolActuator(slurm).apply_all(nices(1, 2, 3, 4, 5))

    assert [receipt.outcome for receipt in receipts] == [Outcome.APPLIED] * 5
    assert [len(command) - 1 for command in slurm.processes if command[0] == "scontrol"] == [2, 2, 1]


def test_a_slurmctld_that_does_not_answer_leaves_all_of_a_batch_unknown() -> None:
    with pytest.raises(SlurmUnavailableError, match="no answer"):
        ScontrolActuator(Slurm(nices={1: 0, 2: 0}, lost=True)).apply_all(nices(1, 2))


@pytest.mark.parametrize(
    "gpu_type",
    [
        "a100 Nice=-1000",
        "a100 TimeLimit=1",
        "a100\nupdate JobId=8 Nice=-1000",
        "a100;b",
        "!!",
        "a\tb",
        '"a"',
        "ü",
        "a\\b",
    ],
)
def test_no_text_of_a_user_reaches_a_line(gpu_type: str) -> None:
    held, wanted = ((GpuCount(gpu_type=gpu_type, count=count),) for count in (1, 2))
    slurm = Slurm(nices={1: 0, 7: 0})
    hostile = SetGpus(job_id=7, scope=GpuScope.JOB, before=size_of(*held), after=size_of(*wanted))

    refused, applied = ScontrolActuator(slurm).apply_all([hostile, *nices(1)])

    assert (refused.outcome, refused.text, applied.outcome) == (Outcome.FAILED, NOT_A_WORD, Outcome.APPLIED)
    assert slurm.processes[1] == ("scontrol", "update JobId=1 Nice=101")


def test_a_job_whose_fields_cannot_be_read_holds_up_no_other() -> None:
    slurm = Slurm(nices={1: 0, 2: 0, 3: 0}, fields={2: {"NumNodes": "many"}})

    receipts = ScontrolActuator(slurm).apply_all(
        [*nices(1, 2), SetTimeMin(job_id=2, before=None, after=60.0), *nices(3)]
    )

    assert [receipt.text for receipt in receipts] == ["", UNREADABLE, UNREADABLE, ""]
    assert not any(receipt.is_overruled for receipt in receipts)
    assert slurm.nices == {1: 101, 2: 0, 3: 103}


def test_a_nice_is_written_to_the_waiting_tasks_of_an_array_alone() -> None:
    slurm = Slurm(
        nices={7: 0, 8: 0}, fields={7: {"JobArrayID": "7_[0,4-6%2]"}}, tasks="7 7_4 0\n7 7_5 0\n7 7_6 0\n9 7_0 3\n"
    )

    receipts = ScontrolActuator(slurm).apply_all(nices(8, 7))

    assert [receipt.outcome for receipt in receipts] == [Outcome.APPLIED] * 2
    assert slurm.processes[3] == ("scontrol", "update JobId=8 Nice=108", "update JobId=7_[4-6] Nice=107")
    assert [command[0] for command in slurm.processes] == ["squeue", "squeue", "squeue", "scontrol", "squeue"]


def test_a_requeued_task_is_named_by_its_own_id() -> None:
    slurm = Slurm(nices={9: 0}, fields={9: {"JobArrayID": "7_0"}})

    ScontrolActuator(slurm).apply_all(nices(9))

    assert slurm.processes[1] == ("scontrol", "update JobId=9 Nice=109")


def test_other_fields_of_an_array_are_written_by_its_id() -> None:
    slurm = Slurm(nices={7: 0}, fields={7: {"JobArrayID": "7_[4-6]"}})

    ScontrolActuator(slurm).apply_all([SetTimeMin(job_id=7, before=None, after=600.0)])

    assert slurm.processes[1] == ("scontrol", "update JobId=7 TimeMin=10")


@pytest.mark.parametrize(
    ("tasks", "text"),
    [
        pytest.param("9 7_0 0\n", NOT_PENDING, id="the last task has just started"),
        pytest.param("".join(f"7 7_{task} 0\n" for task in range(40_000)), TOO_MANY_TASKS, id="too many tasks"),
    ],
)
def test_an_array_that_cannot_be_addressed_is_not_sent(tasks: str, text: str) -> None:
    slurm = Slurm(nices={7: 0}, fields={7: {"JobArrayID": "7_[4-6]"}}, tasks=tasks)

    (receipt,) = ScontrolActuator(slurm).apply_all(nices(7))

    assert (receipt.outcome, receipt.text, receipt.is_settled) == (Outcome.FAILED, text, True)
    assert all(command[0] == "squeue" for command in slurm.processes)


@pytest.mark.parametrize(("tasks", "requests"), [(4000, 1), (60_000, 2)], ids=["one request", "several"])
def test_a_revert_of_a_long_list_of_tasks_is_sent_as_arguments(tasks: int, requests: int) -> None:
    waiting = "".join(f"7 7_{task} 107\n" for task in range(0, tasks, 2))
    slurm = Slurm(nices={7: 107}, fields={7: {"JobArrayID": "7_[4-6]"}}, tasks=waiting)

    (receipt,) = ScontrolActuator(slurm).apply_all([SetNice(job_id=7, before=107, after=0)])

    sent = [command for command in slurm.processes if command[0] == "scontrol"]
    assert (receipt.outcome, slurm.nices[7], len(sent)) == (Outcome.APPLIED, 0, requests)
    assert all((command[1], command[3]) == ("update", "Nice=0") for command in sent)
    assert sum(command[2].count(",") + 1 for command in sent) == tasks / 2
    assert max(len(command[2]) for command in sent) < 128 << 10


def test_an_objection_to_a_long_list_of_tasks_is_that_of_its_array() -> None:
    waiting = "".join(f"7 7_{task} 107\n" for task in range(0, 4000, 2))
    slurm = Slurm(
        nices={7: 107, 8: 0}, fields={7: {"JobArrayID": "7_[4-6]"}}, tasks=waiting, against={7: "Requested node busy"}
    )

    refused, applied = ScontrolActuator(slurm).apply_all([SetNice(job_id=7, before=107, after=0), *nices(8)])

    assert (refused.outcome, "Requested node busy" in refused.text) == (Outcome.FAILED, True)
    assert applied.outcome is Outcome.APPLIED


def test_what_slurm_says_of_tasks_it_did_write_to_is_no_objection() -> None:
    slurm = Slurm(
        nices={7: 0, 8: 0},
        fields={7: {"JobArrayID": "7_[4-6]"}},
        tasks="7 7_4 0\n",
        against={7: "7_4: Access/permission denied\n7_5-6: No error"},
    )

    receipts = ScontrolActuator(slurm).apply_all(nices(7, 8))

    assert receipts[0].text.startswith("Slurm denies it")
    assert [receipt.outcome for receipt in receipts] == [Outcome.FAILED, Outcome.APPLIED]
