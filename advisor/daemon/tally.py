"""Counts how many of the last commands Slurm did not answer."""

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from advisor.backends.process import Answer, FedCommands
from advisor.errors import SlurmUnavailableError

_REMEMBERED: Final = 100


class Tally:
    """The results of the last commands: answered or not."""

    def __init__(self) -> None:
        """Begin with none."""
        self._failed: deque[bool] = deque(maxlen=_REMEMBERED)

    def add(self, *, failed: bool) -> None:
        """Count a command."""
        self._failed.append(failed)

    def counts(self) -> tuple[int, int]:
        """Return how many of the last commands there were, and how many of them failed."""
        return len(self._failed), sum(self._failed)


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedCommands:
    """Commands that count how many Slurm did not answer; a refusal is an answer."""

    commands: FedCommands
    tally: Tally = field(repr=False)

    @property
    def cluster(self) -> str | None:
        """The cluster that the commands address."""
        return self.commands.cluster

    def ask(self, program: str, *arguments: str) -> Answer:
        """Run a command and count its result."""
        with self._counted():
            return self.commands.ask(program, *arguments)

    def feed(self, program: str, lines: Sequence[str]) -> str:
        """Run a program that reads lines and count its result, once."""
        with self._counted():
            return self.commands.feed(program, lines)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        try:
            yield
        except SlurmUnavailableError:
            self.tally.add(failed=True)
            raise
        self.tally.add(failed=False)
