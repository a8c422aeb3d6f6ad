"""The actuator where squeue shows the lower end of a node range for both: only its JSON tells which end it is."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from advisor.backends.actuator import ANOTHER_VALUE, CHANGED_MEANWHILE, END_NOT_SHOWN, NOT_PENDING, ScontrolActuator
from advisor.backends.process import Answer
from advisor.domain.actions import NodeRange, SetNodeRange
from advisor.domain.plan import Outcome
from advisor.errors import SlurmError, SlurmRefusedError
from tests.backends.fake_slurm import FakeSlurm, Streaming, job_row

RELAX = SetNodeRange(job_id=7, before=NodeRange(low=1, high=2), after=NodeRange(low=1, high=4))
NO_JSON = SlurmRefusedError("squeue failed with exit status 1: squeue: unrecognized option '--json'")
NAMES = ("train", " NumNodes=1 ", " NumNodes=1-1 ", '"max_nodes": 0', "\n   NumNodes=1 NumCPUs=4")
SET_0, SET_1 = ({"set": True, "infinite": False, "number": number} for number in (0, 1))


@dataclass
class Slurm(Streaming):
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
    slurm = Slurm(max_nodes=unset, name=name)

    receipt = ScontrolActuator(slurm).apply(RELAX)

    assert receipt.outcome is Outcome.APPLIED
    assert slurm.updates == ["NumNodes=1-4"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("most", [1, SET_1], ids=["22.05", "later"])
def test_a_range_that_a_person_closed_is_not_overwritten_whatever_the_job_is_called(name: str, most: Any) -> None:
    slurm = Slurm(max_nodes=most, name=name)

    receipt = ScontrolActuator(slurm).apply(RELAX)

    assert (receipt.outcome, receipt.text, receipt.is_overruled) == (Outcome.FAILED, CHANGED_MEANWHILE, True)
    assert slurm.updates == []
    assert not ScontrolActuator(slurm).hides_range_end(7)


@pytest.mark.parametrize("told", [NO_JSON, None, {"set": False, "infinite": False, "number": 0}])
def test_where_nothing_tells_the_upper_end_nothing_is_sent_and_the_change_stays_ours(told: Any) -> None:
    slurm = Slurm(max_nodes=told)

    receipt = ScontrolActuator(slurm).apply(RELAX)

    assert (receipt.outcome, receipt.text, receipt.is_overruled) == (Outcome.FAILED, END_NOT_SHOWN, False)
    assert slurm.updates == []
    assert ScontrolActuator(slurm).hides_range_end(7)


def test_success_without_effect_on_a_range_that_is_shown_is_a_failure() -> None:
    slurm = Slurm(max_nodes=SET_1)
    closed = SetNodeRange(job_id=7, before=NodeRange(low=1, high=1), after=NodeRange(low=1, high=4))

    receipt = ScontrolActuator(slurm).apply(closed)

    assert (receipt.outcome, receipt.text, receipt.is_settled) == (Outcome.FAILED, ANOTHER_VALUE, False)
    assert slurm.updates == ["NumNodes=1-4"]


@pytest.mark.parametrize("state", ["RUNNING", "COMPLETING"])
def test_a_job_that_starts_before_the_read_back_leaves_it_open_what_came_of_the_change(state: str) -> None:
    receipt = ScontrolActuator(Slurm(max_nodes=SET_0, state_after=state)).apply(RELAX)

    assert (receipt.outcome, receipt.text, receipt.is_settled) == (Outcome.FAILED, NOT_PENDING, False)
