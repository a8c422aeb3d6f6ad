"""The actuator against answers of Slurm: what it believes, what it says, and what it never sends."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from advisor.backends.actuator import ScontrolActuator
from advisor.backends.process import Answer
from advisor.domain.actions import Action, NodeRange, SetNice, SetNodeRange, SetSwitches
from advisor.domain.gang import SwitchRequest
from advisor.domain.plan import Outcome
from advisor.errors import DecodeError, SlurmError, SlurmRefusedError, SlurmUnavailableError
from tests.backends.fake_slurm import JOB_ROW, FakeSlurm, Streaming, job_row

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
