"""How many of the last commands Slurm did not answer."""

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from advisor.backends.process import Answer
from advisor.daemon.tally import CountedCommands, Tally
from advisor.errors import BudgetSpentError, SlurmError, SlurmRefusedError, SlurmUnavailableError


@dataclass
class Saying:
    """Commands that answer, or fail as told."""

    fault: SlurmError | None = None
    cluster: str | None = "here"

    def ask(self, program: str, *arguments: str) -> Answer:  # noqa: ARG002  (the protocol's)
        """Answer, or fail."""
        if self.fault is not None:
            raise self.fault
        return Answer(output=b"yes")

    def feed(self, program: str, lines: Sequence[str]) -> str:
        """Answer, or fail."""
        return self.ask(program, *lines).output.decode()


@pytest.mark.parametrize(
    ("fault", "failed"),
    [
        (None, 0),
        (SlurmRefusedError("denied"), 0),
        (SlurmUnavailableError("no answer"), 1),
        (BudgetSpentError("spent"), 0),
    ],
)
def test_only_what_was_not_answered_counts_as_failed(fault: SlurmError | None, failed: int) -> None:
    tally = Tally()
    commands = CountedCommands(commands=Saying(fault), tally=tally)

    if fault is None:
        assert commands.ask("squeue", "-h").output == b"yes"
    else:
        with pytest.raises(type(fault)):
            commands.feed("scontrol", ["update JobId=7 Nice=1", "update JobId=8 Nice=1"])

    assert commands.cluster == "here"
    assert tally.counts()[1] == failed


def test_a_hundred_commands_are_remembered() -> None:
    tally = Tally()
    for number in range(250):
        tally.add(failed=number < 200)

    assert tally.counts() == (100, 50)
