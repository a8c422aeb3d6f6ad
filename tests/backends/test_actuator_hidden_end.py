"""The actuator where squeue shows the lower end of a node range for both: it asks before it believes."""

from dataclasses import dataclass, field

import pytest

from advisor.backends.actuator import CHANGED_MEANWHILE, NOT_PENDING, ScontrolActuator
from advisor.backends.process import Answer
from advisor.domain.actions import NodeRange, SetNodeRange
from advisor.domain.plan import Outcome
from tests.backends.fake_slurm import FakeSlurm, Streaming, job_row

RELAX = SetNodeRange(job_id=7, before=NodeRange(low=1, high=2), after=NodeRange(low=1, high=4))


@dataclass
class Slurm(Streaming):
    """A Slurm that shows one node for a job, and tells both ends of its range, or one, to who asks for the job."""

    told: str
    state_after: str = "PENDING"
    updates: list[str] = field(default_factory=list)
    cluster: str | None = None

    def ask(self, program: str, *arguments: str) -> Answer:
        """Answer a command."""
        if "show" in arguments:
            return Answer(output=f"JobId=7 JobName=train {self.told} NumCPUs=4 NumTasks=4\n".encode())
        if program == "scontrol":
            self.updates.append(arguments[-1])
            return Answer(output=b"")
        state = self.state_after if self.updates else "PENDING"
        return FakeSlurm(jobs=[job_row(NumNodes="1", MaxNodes="1", State=state)]).ask(program, *arguments)


def test_a_hold_whose_upper_end_is_hidden_is_taken_back() -> None:
    slurm = Slurm(told="NumNodes=1")

    receipt = ScontrolActuator(slurm).apply(RELAX)

    assert receipt.outcome is Outcome.APPLIED
    assert slurm.updates == ["NumNodes=1-4"]


def test_a_range_that_a_person_closed_is_not_overwritten() -> None:
    slurm = Slurm(told="NumNodes=1-1")

    receipt = ScontrolActuator(slurm).apply(RELAX)

    assert (receipt.outcome, receipt.text, receipt.is_overruled) == (Outcome.FAILED, CHANGED_MEANWHILE, True)
    assert slurm.updates == []


@pytest.mark.parametrize("state", ["RUNNING", "COMPLETING"])
def test_a_job_that_starts_before_the_read_back_leaves_it_open_what_came_of_the_change(state: str) -> None:
    receipt = ScontrolActuator(Slurm(told="NumNodes=1", state_after=state)).apply(RELAX)

    assert (receipt.outcome, receipt.text, receipt.is_settled) == (Outcome.FAILED, NOT_PENDING, False)
