"""The actuator against answers of Slurm: what it believes, what it says, and what it never sends."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.backends import actuator as at_work
from advisor.backends.actuator import (
    ANOTHER_VALUE,
    CHANGED_MEANWHILE,
    END_NOT_SHOWN,
    LONGEST_ADDRESS,
    NOT_A_WORD,
    NOT_PENDING,
    TOO_MANY_TASKS,
    ScontrolActuator,
    WaitingTask,
    addresses,
    longest_address,
    waiting_tasks,
)
from advisor.backends.named_jobs import UNREADABLE
from advisor.backends.process import Answer
from advisor.domain.actions import Action, NodeRange, SetGpus, SetNice, SetNodeRange, SetSwitches, SetTimeMin
from advisor.domain.gang import GpuCount, GpuScope, SwitchRequest
from advisor.domain.plan import Outcome
from advisor.errors import DecodeError, SlurmError, SlurmRefusedError, SlurmUnavailableError
from tests.backends.fake_slurm import JOB_ROW, FakeSlurm, Streaming, job_row
from tests.builders import size_of

NICE = SetNice(job_id=7, before=0, after=25)
HOLD = SetNodeRange(job_id=7, before=NodeRange(low=1, high=4), after=NodeRange(low=1, high=1))
RELAX = SetNodeRange(job_id=7, before=NodeRange(low=1, high=1), after=NodeRange(low=1, high=4))
OTHERS = "read back another value than the one written"


@dataclass
class Slurm(Streaming):
    """A Slurm that shows one job before and after an update, and answers the update."""

    before: Mapping[str, str] | SlurmError | None = field(default_factory=lambda: JOB_ROW)
    after: Mapping[str, str] | SlurmError | None = field(default_factory=lambda: JOB_ROW)
    answer: str | SlurmError = ""
    cluster: str | None = None
    sent: list[tuple[str, ...]] = field(default_factory=list)

    def ask(self, program: str, *arguments: str) -> Answer:
        """Answer a command."""
        if program == "scontrol":
            self.sent.append((program, *arguments))
            if isinstance(self.answer, SlurmError):
                raise self.answer
            return Answer(output=b"", complaints=self.answer.encode())
        if "--json" in arguments:
            raise SlurmRefusedError("squeue failed with exit status 1: it knows no JSON")
        shown = self.after if self.sent else self.before
        if isinstance(shown, SlurmError):
            raise shown
        answer = FakeSlurm(jobs=[] if shown is None else [shown]).ask(program, *arguments)
        named = b"" if self.cluster is None else f"CLUSTER: {self.cluster}\n".encode()
        return Answer(output=named + answer.output)

    def feed(self, program: str, lines: Sequence[str]) -> str:
        """Answer the update."""
        self.sent += [(program, *line.split(" ")) for line in lines]
        if isinstance(self.answer, SlurmUnavailableError):
            raise self.answer
        return str(self.answer)


def outcome_of(slurm: Slurm, action: Action = NICE) -> tuple[Outcome, str]:
    """Apply an action, and return what the receipt says."""
    receipt = ScontrolActuator(slurm).apply(action)
    assert receipt.action is action
    return receipt.outcome, receipt.text


@pytest.mark.parametrize("cluster", [None, "far"])
def test_a_change_that_is_read_back_is_applied(cluster: str | None) -> None:
    slurm = Slurm(after=job_row(Nice="25"), cluster=cluster)

    assert outcome_of(slurm) == (Outcome.APPLIED, "")
    assert slurm.sent == [("scontrol", "update", "JobId=7", "Nice=25")]


def test_what_is_so_already_is_not_sent() -> None:
    slurm = Slurm(before=job_row(Nice="25"))

    assert outcome_of(slurm) == (Outcome.ALREADY_SO, "")
    assert slurm.sent == []


def test_a_value_that_somebody_else_set_is_not_overwritten() -> None:
    slurm = Slurm(before=job_row(Nice="3"))

    assert outcome_of(slurm) == (Outcome.FAILED, "somebody else has changed the field meanwhile")
    assert slurm.sent == []


GONE = SlurmRefusedError("squeue failed with exit status 1: slurm_load_jobs error: Invalid job id specified")


@pytest.mark.parametrize("shown", [None, GONE, job_row(State="RUNNING", NodeList="n01"), job_row(State="CANCELLED")])
def test_a_job_that_does_not_wait_is_a_receipt(shown: Mapping[str, str] | SlurmError | None) -> None:
    early, late = Slurm(before=shown), Slurm(after=shown)

    assert outcome_of(early) == outcome_of(late) == (Outcome.FAILED, "the job is not pending")
    assert (early.sent, len(late.sent)) == ([], 1)


def test_success_without_effect_is_a_failure() -> None:
    assert outcome_of(Slurm()) == (Outcome.FAILED, OTHERS)
    assert outcome_of(Slurm(answer="ignored:\x1b[31m it\n")) == (Outcome.FAILED, "ignored:\\x1b[31m it")


def test_failure_with_effect_is_a_success() -> None:
    slurm = Slurm(answer=SlurmRefusedError("scontrol failed with exit status 1"), after=job_row(Nice="25"))

    assert outcome_of(slurm) == (Outcome.APPLIED, "")


def test_what_slurm_refuses_is_told_in_its_words() -> None:
    said = "scontrol failed with exit status 1: slurm_update error: Requested node configuration is not available"

    assert outcome_of(Slurm(answer=SlurmRefusedError(said))) == (Outcome.FAILED, said)


@pytest.mark.parametrize(
    "said",
    ["slurm_update error: Access/permission denied", "slurm_update error: Invalid user id", "User not permitted"],
)
def test_what_slurm_denies_says_who_may(said: str) -> None:
    outcome, text = outcome_of(Slurm(answer=SlurmRefusedError(said)))

    assert outcome is Outcome.FAILED
    assert text.endswith("the owner of the job, a coordinator of its account or an Operator")


@pytest.mark.parametrize("when", ["before", "answer", "after"])
def test_slurmctld_that_does_not_answer_is_an_error(when: str) -> None:
    slurm = Slurm(**{when: SlurmUnavailableError("no answer within 30 s")})  # type: ignore[arg-type]

    with pytest.raises(SlurmUnavailableError, match="no answer within 30 s"):
        ScontrolActuator(slurm).apply(NICE)


def test_other_refusals_to_read_are_errors() -> None:
    with pytest.raises(SlurmRefusedError, match="denied access"):
        ScontrolActuator(Slurm(before=SlurmRefusedError("squeue was denied access"))).apply(NICE)


def test_switches_that_slurm_cut_short_are_a_failure() -> None:
    asked = SetSwitches(job_id=7, before=None, after=SwitchRequest(count=1, max_wait_s=600.0))

    assert outcome_of(Slurm(after=job_row(ReqSwitch="1", Wait4Switch="5:00")), asked) == (Outcome.FAILED, OTHERS)
    assert outcome_of(Slurm(after=job_row(ReqSwitch="1", Wait4Switch="10:00")), asked) == (Outcome.APPLIED, "")


def test_a_node_range_is_read_back() -> None:
    wide, tight = job_row(MaxNodes="4"), job_row(MaxNodes="1")

    assert outcome_of(Slurm(before=wide, after=tight), HOLD) == (Outcome.APPLIED, "")
    assert outcome_of(Slurm(before=tight, after=wide), RELAX) == (Outcome.APPLIED, "")
    assert outcome_of(Slurm(before=wide, after=wide), HOLD) == (Outcome.FAILED, OTHERS)
    assert outcome_of(Slurm(before=tight, after=job_row(MaxNodes="3")), RELAX) == (Outcome.FAILED, OTHERS)


def test_an_answer_cut_short_is_an_error() -> None:
    @dataclass
    class Cut(Slurm):
        def ask(self, program: str, *arguments: str) -> Answer:
            return Answer(output=super().ask(program, *arguments).output[:-9])

    with pytest.raises(DecodeError, match="squeue gave an incomplete answer"):
        ScontrolActuator(Cut()).apply(NICE)


WIDEN = SetNodeRange(job_id=7, before=NodeRange(low=1, high=2), after=NodeRange(low=1, high=4))
NO_JSON = SlurmRefusedError("squeue failed with exit status 1: squeue: unrecognized option '--json'")
NAMES = ("train", " NumNodes=1 ", " NumNodes=1-1 ", '"max_nodes": 0', "\n   NumNodes=1 NumCPUs=4")
SET_0, SET_1 = ({"set": True, "infinite": False, "number": number} for number in (0, 1))


@dataclass
class Hiding(Streaming):
    """A Slurm whose squeue shows one node for a job, and whose JSON holds `max_nodes`, or cannot be had."""

    max_nodes: Any
    name: str = "train"
    state_after: str = "PENDING"
    updates: list[str] = field(default_factory=list)
    cluster: str | None = None

    def ask(self, program: str, *arguments: str) -> Answer:
        """Answer a command."""
        assert program == "squeue"
        state = self.state_after if self.updates else "PENDING"
        if "--json" in arguments:
            if isinstance(self.max_nodes, SlurmError):
                raise self.max_nodes
            # 22.05 lists all jobs, whichever were asked for.
            other = {"job_id": 8, "name": self.name, "job_state": "PENDING", "max_nodes": 0}
            job = {"job_id": 7, "name": self.name, "job_state": state, "max_nodes": self.max_nodes}
            return Answer(output=json.dumps({"jobs": [other, job]}).encode())
        row = job_row(NumNodes="1", MaxNodes="1", State=state, Name=self.name)
        return FakeSlurm(jobs=[row]).ask(program, *arguments)

    def feed(self, program: str, lines: Sequence[str]) -> str:
        """Take the updates."""
        assert program == "scontrol"
        self.updates += [line.rpartition(" ")[2] for line in lines]
        return ""


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("unset", [0, SET_0], ids=["22.05", "later"])
def test_a_hold_whose_upper_end_is_hidden_is_taken_back(name: str, unset: Any) -> None:
    slurm = Hiding(max_nodes=unset, name=name)

    receipt = ScontrolActuator(slurm).apply(WIDEN)

    assert receipt.outcome is Outcome.APPLIED
    assert slurm.updates == ["NumNodes=1-4"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("most", [1, SET_1], ids=["22.05", "later"])
def test_a_range_that_a_person_closed_is_not_overwritten_whatever_the_job_is_called(name: str, most: Any) -> None:
    slurm = Hiding(max_nodes=most, name=name)

    receipt = ScontrolActuator(slurm).apply(WIDEN)

    assert (receipt.outcome, receipt.text, receipt.is_overruled) == (Outcome.FAILED, CHANGED_MEANWHILE, True)
    assert slurm.updates == []
    assert not ScontrolActuator(slurm).hides_range_end(7)


@pytest.mark.parametrize("told", [NO_JSON, None, {"set": False, "infinite": False, "number": 0}])
def test_where_nothing_tells_the_upper_end_nothing_is_sent_and_the_change_stays_ours(told: Any) -> None:
    slurm = Hiding(max_nodes=told)

    receipt = ScontrolActuator(slurm).apply(WIDEN)

    assert (receipt.outcome, receipt.text, receipt.is_overruled) == (Outcome.FAILED, END_NOT_SHOWN, False)
    assert slurm.updates == []
    assert ScontrolActuator(slurm).hides_range_end(7)


def test_success_without_effect_on_a_range_that_is_shown_is_a_failure() -> None:
    slurm = Hiding(max_nodes=SET_1)
    closed = SetNodeRange(job_id=7, before=NodeRange(low=1, high=1), after=NodeRange(low=1, high=4))

    receipt = ScontrolActuator(slurm).apply(closed)

    assert (receipt.outcome, receipt.text, receipt.is_settled) == (Outcome.FAILED, ANOTHER_VALUE, False)
    assert slurm.updates == ["NumNodes=1-4"]


@pytest.mark.parametrize("state", ["RUNNING", "COMPLETING"])
def test_a_job_that_starts_before_the_read_back_leaves_it_open_what_came_of_the_change(state: str) -> None:
    receipt = ScontrolActuator(Hiding(max_nodes=SET_0, state_after=state)).apply(WIDEN)

    assert (receipt.outcome, receipt.text, receipt.is_settled) == (Outcome.FAILED, NOT_PENDING, False)


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


@dataclass
class Waiting(Streaming):
    """A queue of waiting jobs with a nice value each; `against` maps jobs to what scontrol says of their line.

    `tasks` are the waiting tasks of its arrays as `squeue -r` prints them.
    """

    nices: dict[int, int]
    against: dict[int, str] = field(default_factory=dict)
    fields: dict[int, dict[str, str]] = field(default_factory=dict)
    ignored: frozenset[int] = frozenset()
    complaints: str = ""
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
    slurm = Waiting(nices=dict.fromkeys(range(1, 301), 0))

    receipts = ScontrolActuator(slurm).apply_all(nices(*range(1, 301)))

    assert [receipt.outcome for receipt in receipts] == [Outcome.APPLIED] * 300
    assert [command[0] for command in slurm.processes] == ["squeue", "scontrol", "squeue"]
    assert slurm.nices == {job_id: job_id + 100 for job_id in range(1, 301)}
    assert slurm.processes[1][1:3] == ("update JobId=1 Nice=101", "update JobId=2 Nice=102")


def test_nothing_to_change_asks_nothing() -> None:
    slurm = Waiting(nices={})

    assert ScontrolActuator(slurm).apply_all([]) == () and slurm.processes == []


def test_each_change_has_its_own_outcome_in_the_order_asked_for() -> None:
    slurm = Waiting(
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
    slurm = Waiting(nices={1: 0, 2: 0}, ignored=frozenset({2}), complaints="Request aborted")

    receipts = ScontrolActuator(slurm).apply_all(nices(1, 2))

    assert [(receipt.outcome, receipt.is_settled) for receipt in receipts] == [
        (Outcome.APPLIED, True),
        (Outcome.FAILED, False),
    ]


def test_two_changes_of_one_job_follow_each_other() -> None:
    slurm = Waiting(nices={1: 0, 2: 0})
    changes: list[Action] = [*nices(1, 2), SetNice(job_id=1, before=101, after=5)]

    receipts = ScontrolActuator(slurm).apply_all(changes)

    assert [receipt.outcome for receipt in receipts] == [Outcome.APPLIED] * 3
    assert slurm.nices == {1: 5, 2: 102}


def test_batches_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(at_work, "LINES_PER_COMMAND", 2)
    slurm = Waiting(nices=dict.fromkeys(range(1, 6), 0))

    receipts = ScontrolActuator(slurm).apply_all(nices(1, 2, 3, 4, 5))

    assert [receipt.outcome for receipt in receipts] == [Outcome.APPLIED] * 5
    assert [len(command) - 1 for command in slurm.processes if command[0] == "scontrol"] == [2, 2, 1]


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
    slurm = Waiting(nices={1: 0, 7: 0})
    hostile = SetGpus(job_id=7, scope=GpuScope.JOB, before=size_of(*held), after=size_of(*wanted))

    refused, applied = ScontrolActuator(slurm).apply_all([hostile, *nices(1)])

    assert (refused.outcome, refused.text, applied.outcome) == (Outcome.FAILED, NOT_A_WORD, Outcome.APPLIED)
    assert slurm.processes[1] == ("scontrol", "update JobId=1 Nice=101")


def test_a_job_whose_fields_cannot_be_read_holds_up_no_other() -> None:
    slurm = Waiting(nices={1: 0, 2: 0, 3: 0}, fields={2: {"NumNodes": "many"}})

    receipts = ScontrolActuator(slurm).apply_all(
        [*nices(1, 2), SetTimeMin(job_id=2, before=None, after=60.0), *nices(3)]
    )

    assert [receipt.text for receipt in receipts] == ["", UNREADABLE, UNREADABLE, ""]
    assert not any(receipt.is_overruled for receipt in receipts)
    assert slurm.nices == {1: 101, 2: 0, 3: 103}


def test_a_nice_is_written_to_the_waiting_tasks_of_an_array_alone() -> None:
    slurm = Waiting(
        nices={7: 0, 8: 0}, fields={7: {"JobArrayID": "7_[0,4-6%2]"}}, tasks="7 7_4 0\n7 7_5 0\n7 7_6 0\n9 7_0 3\n"
    )

    receipts = ScontrolActuator(slurm).apply_all(nices(8, 7))

    assert [receipt.outcome for receipt in receipts] == [Outcome.APPLIED] * 2
    assert slurm.processes[3] == ("scontrol", "update JobId=8 Nice=108", "update JobId=7_[4-6] Nice=107")
    assert [command[0] for command in slurm.processes] == ["squeue", "squeue", "squeue", "scontrol", "squeue"]


def test_a_requeued_task_is_named_by_its_own_id() -> None:
    slurm = Waiting(nices={9: 0}, fields={9: {"JobArrayID": "7_0"}})

    ScontrolActuator(slurm).apply_all(nices(9))

    assert slurm.processes[1] == ("scontrol", "update JobId=9 Nice=109")


def test_other_fields_of_an_array_are_written_by_its_id() -> None:
    slurm = Waiting(nices={7: 0}, fields={7: {"JobArrayID": "7_[4-6]"}})

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
    slurm = Waiting(nices={7: 0}, fields={7: {"JobArrayID": "7_[4-6]"}}, tasks=tasks)

    (receipt,) = ScontrolActuator(slurm).apply_all(nices(7))

    assert (receipt.outcome, receipt.text, receipt.is_settled) == (Outcome.FAILED, text, True)
    assert all(command[0] == "squeue" for command in slurm.processes)


@pytest.mark.parametrize(("tasks", "requests"), [(4000, 1), (60_000, 2)], ids=["one request", "several"])
def test_a_revert_of_a_long_list_of_tasks_is_sent_as_arguments(tasks: int, requests: int) -> None:
    waiting = "".join(f"7 7_{task} 107\n" for task in range(0, tasks, 2))
    slurm = Waiting(nices={7: 107}, fields={7: {"JobArrayID": "7_[4-6]"}}, tasks=waiting)

    (receipt,) = ScontrolActuator(slurm).apply_all([SetNice(job_id=7, before=107, after=0)])

    sent = [command for command in slurm.processes if command[0] == "scontrol"]
    assert (receipt.outcome, slurm.nices[7], len(sent)) == (Outcome.APPLIED, 0, requests)
    assert all((command[1], command[3]) == ("update", "Nice=0") for command in sent)
    assert sum(command[2].count(",") + 1 for command in sent) == tasks / 2
    assert max(len(command[2]) for command in sent) < 128 << 10


def test_an_objection_to_a_long_list_of_tasks_is_that_of_its_array() -> None:
    waiting = "".join(f"7 7_{task} 107\n" for task in range(0, 4000, 2))
    slurm = Waiting(
        nices={7: 107, 8: 0}, fields={7: {"JobArrayID": "7_[4-6]"}}, tasks=waiting, against={7: "Requested node busy"}
    )

    refused, applied = ScontrolActuator(slurm).apply_all([SetNice(job_id=7, before=107, after=0), *nices(8)])

    assert (refused.outcome, "Requested node busy" in refused.text) == (Outcome.FAILED, True)
    assert applied.outcome is Outcome.APPLIED


def test_what_slurm_says_of_tasks_it_did_write_to_is_no_objection() -> None:
    slurm = Waiting(
        nices={7: 0, 8: 0},
        fields={7: {"JobArrayID": "7_[4-6]"}},
        tasks="7 7_4 0\n",
        against={7: "7_4: Access/permission denied\n7_5-6: No error"},
    )

    receipts = ScontrolActuator(slurm).apply_all(nices(7, 8))

    assert receipts[0].text.startswith("Slurm denies it")
    assert [receipt.outcome for receipt in receipts] == [Outcome.FAILED, Outcome.APPLIED]
