"""Runs programs: with an argument list, a deadline and an output limit, without a shell."""

import contextlib
import os
import re
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import IO, Final, NoReturn, Protocol

from advisor.backends.command_errors import late, refusal
from advisor.domain.dataclass import dataclass
from advisor.errors import SlurmError, SlurmMissingError, SlurmRefusedError, SlurmUnavailableError, TooLargeError
from advisor.text import escaped

OUTPUT_LIMIT_BYTES: Final = 64 << 20
COMPLAINT_LIMIT_BYTES: Final = 64 << 10

_CHUNK_BYTES = 1 << 16
# How long pipes can stay open after the program has ended; then the processes that still hold them are killed.
_DRAIN_S = 1.0
_COMPLAINT_LENGTH = 300
# How soon a command ends after it was cancelled.
_PATIENCE_STEP_S = 0.1
# How long a program that reads lines can run: less than an intent counts as undecided, also if this process is killed.
_FED_S = 60.0

# The variables that change the output of Slurm's commands, or the cluster that they address, are removed.
_DROPPED_VARIABLES = re.compile(
    r"(SQUEUE|SINFO|SPRIO|SCONTROL|SACCTMGR|SSHARE)_.*"
    r"|SLURM_(JSON|YAML|DATA_PARSER|DEBUG|DEBUG_FLAGS|TIME_FORMAT|BITSTR_LEN|CLUSTERS|STEP_.*)"
    r"|LANG|LANGUAGE|LC_.*"
)
_OWN_VARIABLES = {
    "LC_ALL": "C.UTF-8",
    "SLURM_TIME_FORMAT": "%s",
    # Otherwise the list of an array's waiting tasks ends after 64 characters.
    "SLURM_BITSTR_LEN": "0",
}
# scontrol reads lines with readline, which a user's key bindings could change.
_READERS_VARIABLES = {"INPUTRC": os.devnull}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The output of a program that succeeded."""

    output: bytes
    complaints: bytes = b""

    def __iter__(self) -> Iterator[bytes]:
        """Yield the output, so that an answer stands for a stream."""
        yield self.output


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramEnd:
    """How a program ended: its exit status, None if it was not done in time, and what it wrote.

    `overflowed` is whether it wrote more than was allowed.
    """

    status: int | None
    output: bytes
    complaints: bytes
    overflowed: bool = False


class Stream(Protocol):
    """The output of a program in chunks; iterating raises `SlurmError` if the program fails."""

    @property
    def complaints(self) -> bytes:
        """What the program had complained of when it wrote the last chunk."""

    def __iter__(self) -> Iterator[bytes]:
        """Yield the output as it comes."""


class Deadline(Protocol):
    """Limits how long commands can run, beside their own deadlines."""

    @property
    def until(self) -> float:
        """The deadline, on the monotonic clock."""

    def exhausted(self) -> str | None:
        """Return why the command is cancelled, in plain words; None while it is not."""


class Commands(Protocol):
    """Runs Slurm's commands for one cluster; recorded answers plug in here."""

    @property
    def cluster(self) -> str | None:
        """The cluster that commands go to, None for the one this host belongs to."""

    def ask(self, program: str, *arguments: str) -> Answer:
        """Run a command and return its output; raises `SlurmError` or `DecodeError`."""

    def stream(self, program: str, *arguments: str, variables: Mapping[str, str]) -> Stream:
        """Run a command with environment variables, which other users cannot read, and return its output in chunks."""


class FedCommands(Commands, Protocol):
    """Runs Slurm's commands, also many in one process."""

    def feed(self, program: str, lines: Sequence[str]) -> str:
        """Run a program that reads one command a line, and return its messages; raises `SlurmError`.

        A line that Slurm refuses is no error: the program goes on with the next one.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmCommands:
    """Slurm's own commands, as they are found on PATH.

    With `patience`, a command that outlasts it is killed, and none is started once it is exhausted.
    """

    timeout_s: float
    cluster: str | None = None
    limit_bytes: int = OUTPUT_LIMIT_BYTES
    patience: Deadline | None = None

    def ask(self, program: str, *arguments: str) -> Answer:
        """Run a command for the cluster."""
        argv = self._argv(program, arguments)
        return run(argv, timeout_s=self.timeout_s, limit_bytes=self.limit_bytes, patience=self.patience)

    def stream(self, program: str, *arguments: str, variables: Mapping[str, str]) -> Stream:
        """Run a command for the cluster, and return its output in chunks, of any number."""
        argv = self._argv(program, arguments)
        return _Running(argv, variables, timeout_s=self.timeout_s, patience=self.patience)

    def feed(self, program: str, lines: Sequence[str]) -> str:
        """Run a program for the cluster that reads one command a line."""
        argv = self._argv(program, ())
        answer = run(argv, timeout_s=min(self.timeout_s, _FED_S), patience=self.patience, lines=lines)
        return text_of(answer.complaints)

    def _argv(self, program: str, arguments: Sequence[str]) -> tuple[str, ...]:
        chosen = () if self.cluster is None else ("-M", self.cluster)
        return (program, *chosen, *arguments)


def run(
    argv: Sequence[str],
    *,
    timeout_s: float,
    limit_bytes: int = OUTPUT_LIMIT_BYTES,
    variables: Mapping[str, str] | None = None,
    patience: Deadline | None = None,
    lines: Sequence[str] = (),
    content: bytes = b"",
) -> Answer:
    """Run a program to its end and return its output.

    `variables` stands for the process's own environment, `content` for what the program reads, or `lines`; with lines a
    refusal is part of the answer. Raises `SlurmError`, or `DecodeError` for an answer above `limit_bytes`; whatever the
    program started is killed with it.
    """
    program = argv[0]
    environment = slurm_environment(os.environ if variables is None else variables)
    if lines:
        environment |= _READERS_VARIABLES
        content = "".join(f"{line}\n" for line in lines).encode()
    ended = run_to_end(
        argv, environment, timeout_s=timeout_s, limit_bytes=limit_bytes, patience=patience, content=content
    )
    if ended.status is None:
        raise late(program, timeout_s, printable(text_of(ended.complaints)), environment)
    if ended.overflowed:
        raise TooLargeError(
            f"{program} answered with more than {limit_bytes} bytes, which sadvise does not read: try another --source"
        )
    if ended.status != 0:
        error = failure(program, ended.status, ended.complaints, environment)
        if not lines or not isinstance(error, SlurmRefusedError):
            raise error
    return Answer(output=ended.output, complaints=ended.complaints)


def run_to_end(
    argv: Sequence[str],
    environment: Mapping[str, str],
    *,
    timeout_s: float,
    limit_bytes: int = OUTPUT_LIMIT_BYTES,
    patience: Deadline | None = None,
    content: bytes = b"",
) -> ProgramEnd:
    """Run any program, of Slurm or not, and return how it ended; whatever it started is killed with it.

    Raises `SlurmMissingError` where it does not start, and `SlurmUnavailableError` where it was cancelled.
    """
    _check_patience(argv[0], patience, "was not started")
    with _input_of(content) as given:
        process = _started([*_bound(timeout_s, content), *argv], environment, given=given)
    output = _Reader(process, process.stdout, limit_bytes, must_fit=True)
    complaints = _Reader(process, process.stderr, COMPLAINT_LIMIT_BYTES, must_fit=False)
    in_time = _wait(process, timeout_s, (output, complaints), patience)
    if not in_time:
        _check_patience(argv[0], patience, "was ended before it answered")
    return ProgramEnd(
        status=process.returncode if in_time else None,
        output=bytes(output.content),
        complaints=bytes(complaints.content),
        overflowed=output.overflowed,
    )


def _started(
    argv: Sequence[str], environment: Mapping[str, str], *, given: int = subprocess.DEVNULL
) -> subprocess.Popen[bytes]:
    """Start a program that reads `given` in a session of its own; raises `SlurmMissingError` where that fails."""
    try:
        return subprocess.Popen(
            list(argv),
            stdin=given,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(environment),
            start_new_session=True,
        )
    except FileNotFoundError as err:
        raise SlurmMissingError(
            f"{argv[0]} is not on PATH here: install Slurm's client commands, or run on a host that has them"
        ) from err
    except (OSError, ValueError) as err:
        raise SlurmMissingError(f"{argv[0]} does not start: {printable(str(err))}") from err


@contextlib.contextmanager
def _input_of(content: bytes) -> Iterator[int]:
    """Open what a program reads: nothing, or a file in memory, which never blocks and needs no disk."""
    if not content:
        yield subprocess.DEVNULL
        return
    with os.fdopen(os.memfd_create("input"), "w+b") as file:
        file.write(content)
        file.seek(0)
        yield file.fileno()


def _bound(timeout_s: float, content: bytes) -> tuple[str, ...]:
    """Return the command that ends a program which reads something, should this process be killed before it."""
    return ("timeout", "--signal=KILL", f"{timeout_s + 1.0:.3f}") if content else ()


def slurm_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for Slurm's commands: the caller's, less what would change their answers."""
    kept = {name: value for name, value in variables.items() if _DROPPED_VARIABLES.fullmatch(name) is None}
    return kept | _OWN_VARIABLES


def text_of(answer: bytes) -> str:
    r"""Decode UTF-8; a byte that is none becomes `\xNN`, so that the text can be written as JSON."""
    return answer.decode("utf-8", "backslashreplace")


def ask_text(commands: Commands, program: str, *arguments: str) -> str:
    """Return what a command prints as text; raises `SlurmError` or `DecodeError`."""
    return text_of(commands.ask(program, *arguments).output)


def printable(text: str, length: int = _COMPLAINT_LENGTH) -> str:
    """Return a text on one line, control characters escaped and long ones cut."""
    line = "; ".join(part for part in (raw.strip() for raw in text.split("\n")) if part)
    shown = escaped(line)
    return shown if len(shown) <= length else shown[:length] + "..."


def failure(program: str, status: int, complaints: bytes, environment: Mapping[str, str]) -> SlurmError:
    """Return the error for a failed program, from its exit status and its messages."""
    message = printable(text_of(complaints))
    if status < 0:
        return SlurmUnavailableError(f"{program} was ended by signal {-status}: {message or 'it gave no reason'}")
    return refusal(program, status, message, environment)


def _check_patience(program: str, patience: Deadline | None, what: str) -> None:
    """Raise if the program was cancelled before its start."""
    reason = None if patience is None else patience.exhausted()
    if reason is not None:
        raise SlurmUnavailableError(f"{program} {what}: {reason}")


def _wait(
    process: subprocess.Popen[bytes], timeout_s: float, readers: "tuple[_Reader, ...]", patience: Deadline | None
) -> bool:
    """Wait for the program and its pipes to end, and return whether it ended in time; kill all that remains of it."""
    try:
        in_time = _ended(process, timeout_s, patience)
    finally:
        if process.returncode is None:
            _kill_group(process)
            process.wait()
    for reader in readers:
        reader.join(_DRAIN_S)
    # The group's number is not given to others while a member of it holds a pipe open.
    if any(reader.is_alive() for reader in readers):
        _kill_group(process)
        for reader in readers:
            reader.join(_DRAIN_S)
    return in_time


def _ended(process: subprocess.Popen[bytes], timeout_s: float, patience: Deadline | None) -> bool:
    """Wait for a program, and return whether it ended before its deadline and within patience."""
    deadline = time.monotonic() + timeout_s
    while patience is None or patience.exhausted() is None:
        left_s = max(0.0, deadline - time.monotonic())
        if patience is not None:
            left_s = min(left_s, _PATIENCE_STEP_S, max(0.0, patience.until - time.monotonic()))
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(left_s)
            return True
        if time.monotonic() >= deadline:
            return False
    return False


class _Reader(threading.Thread):
    """Reads one pipe to its end without keeping more than the limit; where all must fit, more ends the program."""

    def __init__(
        self, process: subprocess.Popen[bytes], pipe: IO[bytes] | None, limit_bytes: int, *, must_fit: bool
    ) -> None:
        super().__init__(daemon=True)
        assert pipe is not None  # noqa: S101  (every pipe was asked for)
        self.content = bytearray()
        self.overflowed = False
        self._process = process
        self._pipe = pipe
        self._limit_bytes = limit_bytes
        self._must_fit = must_fit
        self.start()

    def run(self) -> None:
        """Read until the pipe ends."""
        with contextlib.suppress(ValueError, OSError), self._pipe:
            while chunk := os.read(self._pipe.fileno(), _CHUNK_BYTES):
                room = self._limit_bytes - len(self.content)
                self.content += chunk[:room]
                if len(chunk) > room and self._must_fit:
                    self.overflowed = True
                    break
        if self.overflowed and self._process.poll() is None:
            _kill_group(self._process)


class _Running:
    """A program that is run when its output is iterated over; whatever it started is killed with it.

    Nothing is kept but the head of its complaints, so that an output of any length takes no more memory.
    """

    def __init__(
        self, argv: Sequence[str], variables: Mapping[str, str], *, timeout_s: float, patience: Deadline | None
    ) -> None:
        self._argv = argv
        self._environment = {**slurm_environment(os.environ), **variables}
        self._timeout_s = timeout_s
        self._patience = patience
        self._complaints = bytearray()

    @property
    def complaints(self) -> bytes:
        """The head of what the program wrote to standard error so far."""
        return bytes(self._complaints)

    def __iter__(self) -> Iterator[bytes]:
        """Yield the output; raise `SlurmError` if the program fails or outlasts its deadline."""
        _check_patience(self._argv[0], self._patience, "was not started")
        deadline = time.monotonic() + self._timeout_s
        process = _started(self._argv, self._environment)
        assert process.stdout is not None  # noqa: S101  (every pipe was asked for)
        assert process.stderr is not None  # noqa: S101
        with process.stdout as output, process.stderr as complaints:
            try:
                os.set_blocking(complaints.fileno(), False)
                deadline = yield from self._chunks(process, output.fileno(), complaints.fileno(), deadline)
                if not _ended(process, max(0.0, deadline - time.monotonic()), self._patience):
                    self._stop()
                self._hear(complaints.fileno())
            finally:
                if process.returncode is None:
                    _kill_group(process)
                    process.wait()
        if process.returncode != 0:
            raise failure(self._argv[0], process.returncode, self.complaints, self._environment)

    def _chunks(
        self, process: subprocess.Popen[bytes], output: int, complaints: int, deadline: float
    ) -> Generator[bytes, None, float]:
        """Yield what comes through a pipe until it ends; once the program is gone, what is left in it.

        Return the deadline, which is later by the time for which the program was not waited for.
        """
        with selectors.DefaultSelector() as pipes:
            pipes.register(output, selectors.EVENT_READ)
            pipes.register(complaints, selectors.EVENT_READ)
            while True:
                is_gone = process.poll() is not None
                ready = {key.fd for key, _ in pipes.select(self._wait_s(deadline))}
                # Complaints first: a program complains of a field before it prints the rows that lack it.
                if complaints in ready and not self._hear(complaints):
                    pipes.unregister(complaints)
                if output in ready:
                    chunk = os.read(output, _CHUNK_BYTES)
                    if not chunk:
                        return deadline
                    read_at = time.monotonic()
                    yield chunk
                    deadline += time.monotonic() - read_at
                elif is_gone and not ready:
                    # A member of the group holds the pipe open, so its number is not given to others.
                    _kill_group(process)
                    return deadline

    def _wait_s(self, deadline: float) -> float:
        """Return for how long the next output is waited for; raise `SlurmUnavailableError` at the deadline."""
        left_s = deadline - time.monotonic()
        if left_s <= 0 or (self._patience is not None and self._patience.exhausted() is not None):
            self._stop()
        return min(left_s, _DRAIN_S if self._patience is None else _PATIENCE_STEP_S)

    def _hear(self, complaints: int) -> bool:
        """Read what the program has complained of so far; return False at the end of the pipe."""
        with contextlib.suppress(BlockingIOError):
            while chunk := os.read(complaints, _CHUNK_BYTES):
                self._complaints += chunk[: COMPLAINT_LIMIT_BYTES - len(self._complaints)]
            return False
        return True

    def _stop(self) -> NoReturn:
        """Raise why the program was not waited for any longer."""
        _check_patience(self._argv[0], self._patience, "was ended before it answered")
        raise late(self._argv[0], self._timeout_s, printable(text_of(self.complaints)), self._environment)


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
