"""Counts how many of the last commands Slurm did not answer."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Final

from advisor.backends.process import Answer, FedCommands, Stream
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

    def forget(self) -> None:
        """Begin with none again."""
        self._failed.clear()

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

    def stream(self, program: str, *arguments: str, variables: Mapping[str, str]) -> Stream:
        """Run a command, and count its result when its output ends."""
        inner = self.commands.stream(program, *arguments, variables=variables)
        return _CountedStream(inner=inner, counted=self._counted)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        try:
            yield
        except SlurmUnavailableError:
            self.tally.add(failed=True)
            raise
        self.tally.add(failed=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class _CountedStream:
    """The output of a command, counted when it ends."""

    inner: Stream
    counted: Callable[[], AbstractContextManager[None]]

    @property
    def complaints(self) -> bytes:
        """What the command complained of."""
        return self.inner.complaints

    def __iter__(self) -> Iterator[bytes]:
        """Yield the output."""
        with self.counted():
            yield from self.inner
