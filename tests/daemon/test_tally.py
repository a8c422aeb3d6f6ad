"""How many of the last commands Slurm did not answer."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pytest

from advisor.backends.process import Answer, Stream
from advisor.daemon.live_parts import CountedCommands, Tally
from advisor.errors import BudgetSpentError, SlurmError, SlurmRefusedError, SlurmUnavailableError
from tests.backends.fake_slurm import Streaming


@dataclass
class Saying(Streaming):
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


@pytest.mark.parametrize(
    ("fault", "failed"),
    [(None, (1, 0)), (SlurmRefusedError("denied"), (0, 0)), (SlurmUnavailableError("late"), (1, 1))],
)
def test_stream_counts_when_it_ends(fault: SlurmError | None, failed: tuple[int, int]) -> None:
    @dataclass
    class Broken:
        complaints: bytes = b"unknown field"

        def __iter__(self) -> Iterator[bytes]:
            yield b"yes"
            if fault is not None:
                raise fault

    class Streamed(Saying):
        def stream(self, program: str, *arguments: str, variables: Mapping[str, str]) -> Stream:  # noqa: ARG002
            return Broken()

    tally = Tally()
    stream = CountedCommands(commands=Streamed(), tally=tally).stream("squeue", variables={})
    chunks = iter(stream)

    assert (next(chunks), stream.complaints, tally.counts()) == (b"yes", b"unknown field", (0, 0))
    with contextlib.suppress(SlurmError):
        list(chunks)
    assert tally.counts() == failed


def test_a_hundred_commands_are_remembered() -> None:
    tally = Tally()
    for number in range(250):
        tally.add(failed=number < 200)

    assert tally.counts() == (100, 50)
