import math
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from advisor.backends.command_errors import late, refusal
from advisor.backends.process import Answer, SlurmCommands, Stream, printable, run, slurm_environment, text_of
from advisor.errors import (
    DecodeError,
    SlurmMissingError,
    SlurmRefusedError,
    SlurmTimeError,
    SlurmUnavailableError,
    SlurmUnreachableError,
)
from tests.programs import is_alive, wait_until_gone


def shell(script: str, *, timeout_s: float = 20.0, limit_bytes: int = 1 << 20) -> Answer:
    return run(("/bin/sh", "-c", script), timeout_s=timeout_s, limit_bytes=limit_bytes)


def test_output_and_complaints_are_returned_apart() -> None:
    answer = shell("echo out; echo err >&2")

    assert answer == Answer(output=b"out\n", complaints=b"err\n")


def test_program_has_no_input() -> None:
    assert shell("cat; echo end").output == b"end\n"


def test_argument_is_never_read_by_a_shell() -> None:
    assert run(("echo", "$(id); `id` *"), timeout_s=10).output == b"$(id); `id` *\n"


def test_hanging_program_is_killed_at_its_deadline(tmp_path: Path) -> None:
    script = f"sleep 60 & echo $! > {tmp_path}/child; echo $$ > {tmp_path}/self; sleep 60"

    with pytest.raises(SlurmUnavailableError, match=r"gave no answer within 0\.5 s: slurmctld is possibly overloaded"):
        shell(script, timeout_s=0.5)

    for name in ("self", "child"):
        wait_until_gone(int((tmp_path / name).read_text()))


def test_helper_that_keeps_the_output_open_is_killed(tmp_path: Path) -> None:
    answer = shell(f"sleep 60 & echo $! > {tmp_path}/child; echo done")

    assert answer.output == b"done\n"
    wait_until_gone(int((tmp_path / "child").read_text()))


def test_hundred_megabytes_of_output_are_refused() -> None:
    argv = (sys.executable, "-c", "import sys; [sys.stdout.write('x' * 1_000_000) for _ in range(100)]")

    with pytest.raises(DecodeError, match="more than 67108864 bytes"):
        run(argv, timeout_s=60)


def test_complaints_are_cut_and_do_not_end_the_program() -> None:
    answer = shell("head -c 200000 /dev/zero >&2; echo end")

    assert answer.output == b"end\n"
    assert len(answer.complaints) == 65536


def test_missing_program_says_what_to_install() -> None:
    with pytest.raises(SlurmMissingError, match="no-such-squeue is not on PATH here: install Slurm's client commands"):
        run(("no-such-squeue",), timeout_s=5)


def test_program_that_does_not_start_is_missing(tmp_path: Path) -> None:
    program = tmp_path / "squeue"
    program.write_text("not a program")
    program.chmod(0o644)

    with pytest.raises(SlurmMissingError, match="does not start"):
        run((str(program),), timeout_s=5)


@pytest.mark.parametrize(
    ("said", "kind", "text"),
    [
        ("slurm_load_jobs error: Unable to contact slurm controller (connect failure)", SlurmUnavailableError, "ping"),
        ("error: connect: Connection refused", SlurmUnavailableError, "cannot reach slurmctld"),
        ("Socket timed out on send/recv operation", SlurmUnavailableError, "cannot reach slurmctld"),
        ("Munge encode failed: Failed to access socket", SlurmUnavailableError, "check that munged runs"),
        ("fatal: Could not establish a configuration source", SlurmRefusedError, "finds no Slurm configuration"),
        ("Access/permission denied", SlurmRefusedError, "denied access"),
        ("Invalid job id specified", SlurmRefusedError, "exit status 3: Invalid job id specified"),
        ("", SlurmRefusedError, "it gave no reason"),
    ],
)
def test_bad_end_is_told_apart(said: str, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        shell(f"echo '{said}' >&2; exit 3")


def test_wrong_slurm_conf_is_named() -> None:
    variables = {"PATH": os.environ["PATH"], "SLURM_CONF": "/nowhere/slurm.conf"}
    script = "echo 'fatal: Unable to process configuration file' >&2; exit 1"

    with pytest.raises(SlurmRefusedError, match=r"SLURM_CONF names /nowhere/slurm\.conf: check that this file"):
        run(("/bin/sh", "-c", script), timeout_s=5, variables=variables)


def test_command_that_waits_for_its_configuration_says_so() -> None:
    script = "echo 'error: s_p_parse_file: cannot stat file /x/slurm.conf, retrying' >&2; sleep 60"

    with pytest.raises(SlurmRefusedError, match="finds no Slurm configuration"):
        shell(script, timeout_s=0.5)


def test_program_ended_by_a_signal_can_be_asked_again() -> None:
    with pytest.raises(SlurmUnavailableError, match=f"ended by signal {int(signal.SIGTERM)}"):
        shell("kill -TERM $$")


def test_control_characters_of_a_complaint_are_escaped() -> None:
    with pytest.raises(SlurmRefusedError) as caught:
        shell("printf 'a\\033[31mb\\nc' >&2; exit 1")

    assert str(caught.value).endswith("a\\x1b[31mb; c")


def test_errors_are_one_line() -> None:
    with pytest.raises(SlurmRefusedError) as caught:
        shell("yes 'very long' | head -n 500 >&2; exit 1")

    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


def test_variables_that_change_answers_are_dropped() -> None:
    variables = {
        "PATH": "/bin",
        "SLURM_CONF": "/etc/slurm/slurm.conf",
        "SLURM_JWT": "token",
        "SLURM_CLUSTERS": "other",
        "SLURM_TIME_FORMAT": "relative",
        "SLURM_JSON": "1",
        "SQUEUE_FORMAT": "%i",
        "SINFO_ALL": "1",
        "SPRIO_FORMAT": "%i",
        "LC_TIME": "de_DE",
        "LANG": "de_DE",
    }

    assert slurm_environment(variables) == {
        "PATH": "/bin",
        "SLURM_CONF": "/etc/slurm/slurm.conf",
        "SLURM_JWT": "token",
        "LC_ALL": "C.UTF-8",
        "SLURM_TIME_FORMAT": "%s",
        "SLURM_BITSTR_LEN": "0",
    }


def test_bytes_that_are_no_utf8_can_be_written_as_json() -> None:
    assert text_of(b"a\xff\xc3\xa4") == "a\\xff\xe4"


@pytest.mark.parametrize(
    ("text", "shown"),
    [("a\nb", "a; b"), ("a\x00\x07b", "a\\x00\\x07b"), ("\n\n", ""), ("x" * 400, "x" * 300 + "...")],
    ids=["lines", "control", "blank", "long"],
)
def test_printable_text_stays_on_one_line(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_commands_name_the_cluster_they_ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    squeue = tmp_path / "squeue"
    squeue.write_text('#!/bin/sh\necho "$@"\n')
    squeue.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)

    here = SlurmCommands(timeout_s=5).ask("squeue", "-h")
    there = SlurmCommands(timeout_s=5, cluster="blue").ask("squeue", "-h")

    assert here.output == b"-h\n"
    assert there.output == b"-M blue -h\n"


@dataclass
class Waiting:
    """Patience that ends at an instant, or as soon as it is told to."""

    until: float = math.inf
    stopped: threading.Event = field(default_factory=threading.Event)

    def exhausted(self) -> str | None:
        """Say why nobody waits any more."""
        if self.stopped.is_set():
            return "stopping: told to end"
        return "deadline: the round is over" if time.monotonic() >= self.until else None


def test_command_is_killed_at_once_when_nobody_waits_for_it_any_more(tmp_path: Path) -> None:
    patience = Waiting()
    threading.Timer(0.3, patience.stopped.set).start()
    script = f"echo $$ > {tmp_path}/self; sleep 60"
    begun = time.monotonic()

    with pytest.raises(SlurmUnavailableError, match="/bin/sh was ended before it answered: stopping: told to end"):
        run(("/bin/sh", "-c", script), timeout_s=60.0, patience=patience)

    assert time.monotonic() - begun < 2.0
    wait_until_gone(int((tmp_path / "self").read_text()))


def test_command_is_killed_at_the_end_of_its_round() -> None:
    patience = Waiting(until=time.monotonic() + 0.3)

    with pytest.raises(SlurmUnavailableError, match="ended before it answered: deadline: the round is over"):
        run(("sleep", "60"), timeout_s=60.0, patience=patience)


def test_deadline_of_a_command_counts_where_it_comes_first() -> None:
    patience = Waiting(until=time.monotonic() + 60.0)

    with pytest.raises(SlurmUnavailableError, match=r"gave no answer within 0\.3 s"):
        run(("sleep", "60"), timeout_s=0.3, patience=patience)


def test_no_command_is_started_once_patience_is_exhausted(tmp_path: Path) -> None:
    patience = Waiting(until=time.monotonic())

    with pytest.raises(SlurmUnavailableError, match="touch was not started: deadline: the round is over"):
        run(("touch", str(tmp_path / "started")), timeout_s=5.0, patience=patience)

    assert not (tmp_path / "started").exists()


def test_patience_does_not_touch_what_ends_in_time() -> None:
    commands = SlurmCommands(timeout_s=20.0, patience=Waiting())

    assert commands.ask("sh", "-c", "sleep 0.3; echo out").output == b"out\n"


def streamed(script: str, *, timeout_s: float = 20.0, patience: Waiting | None = None) -> Stream:
    commands = SlurmCommands(timeout_s=timeout_s, patience=patience)
    return commands.stream("/bin/sh", "-c", script, variables={"SQUEUE_FORMAT2": "JobID:@x"})


def test_stream_comes_in_chunks_of_any_number() -> None:
    stream = streamed("head -c 100000000 /dev/zero")

    sizes = [len(chunk) for chunk in stream]

    assert sum(sizes) == 100_000_000
    assert max(sizes) <= 1 << 16


def test_what_a_program_complains_of_is_known_with_its_first_chunk() -> None:
    stream = streamed("echo 'Invalid job format specification: X' >&2; echo first; sleep 0.2; echo late >&2; echo last")
    chunks = iter(stream)

    first, heard = next(chunks), stream.complaints

    assert (first, heard) == (b"first\n", b"Invalid job format specification: X\n")
    assert list(chunks) == [b"last\n"]
    assert stream.complaints.endswith(b"late\n")


def test_variables_of_a_stream_are_set_and_those_of_the_caller_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SQUEUE_FORMAT2", "mine")
    monkeypatch.setenv("SQUEUE_SORT", "i")

    assert b"".join(streamed('echo "$SQUEUE_FORMAT2$SQUEUE_SORT"')) == b"JobID:@x\n"


def test_many_complaints_of_a_stream_are_cut_and_do_not_hold_it_up() -> None:
    stream = streamed("head -c 500000 /dev/zero >&2; echo end")

    assert list(stream) == [b"end\n"]
    assert len(stream.complaints) == 65536


def test_stream_of_a_program_that_fails_raises_at_its_end() -> None:
    chunks = iter(streamed("echo row; echo 'Invalid job id specified' >&2; exit 1"))

    assert next(chunks) == b"row\n"
    with pytest.raises(SlurmRefusedError, match="exit status 1: Invalid job id specified"):
        next(chunks)


@pytest.mark.parametrize("script", ["sleep 60", "echo row; sleep 60", "exec >&-; sleep 60"], ids=["all", "rest", "end"])
def test_stream_that_hangs_is_killed_at_its_deadline(tmp_path: Path, script: str) -> None:
    with pytest.raises(SlurmUnavailableError, match=r"gave no answer within 0\.5 s"):
        list(streamed(f"echo $$ > {tmp_path}/self; {script}", timeout_s=0.5))

    wait_until_gone(int((tmp_path / "self").read_text()))


def test_time_in_which_a_stream_is_not_read_does_not_count() -> None:
    taken = []
    for chunk in streamed("echo first; sleep 0.2; echo last", timeout_s=2.0):
        time.sleep(1.5)
        taken.append(chunk)

    assert taken == [b"first\n", b"last\n"]


def test_stream_ends_with_the_patience_of_its_round(tmp_path: Path) -> None:
    patience = Waiting()
    threading.Timer(0.3, patience.stopped.set).start()

    with pytest.raises(SlurmUnavailableError, match="ended before it answered: stopping: told to end"):
        list(streamed(f"echo $$ > {tmp_path}/self; sleep 60", timeout_s=60.0, patience=patience))

    wait_until_gone(int((tmp_path / "self").read_text()))


def test_program_whose_stream_is_given_up_is_killed(tmp_path: Path) -> None:
    chunks = iter(streamed(f"echo $$ > {tmp_path}/self; echo row; sleep 60"))
    next(chunks)

    del chunks

    wait_until_gone(int((tmp_path / "self").read_text()))


def test_helper_that_keeps_a_stream_open_is_killed(tmp_path: Path) -> None:
    assert list(streamed(f"sleep 60 & echo $! > {tmp_path}/child; echo done")) == [b"done\n"]

    wait_until_gone(int((tmp_path / "child").read_text()))


def test_stream_of_a_missing_program_says_what_to_install() -> None:
    with pytest.raises(SlurmMissingError, match="no-such-squeue is not on PATH here: install Slurm's client commands"):
        list(SlurmCommands(timeout_s=5).stream("no-such-squeue", variables={}))


def fake_scontrol(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> SlurmCommands:
    program = folder / "scontrol"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    return SlurmCommands(timeout_s=20.0)


def test_lines_are_read_whole_however_many_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = fake_scontrol(tmp_path, f"cat >{tmp_path}/read; echo $INPUTRC >&2", monkeypatch)
    lines = [f"update JobId={number} Nice={number}" for number in range(20_000)]

    complaints = commands.feed("scontrol", lines)

    assert (tmp_path / "read").read_text().splitlines() == lines
    assert complaints == "/dev/null\n"


def test_a_line_that_is_refused_is_part_of_the_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = fake_scontrol(tmp_path, "echo 'Invalid user id for job 7' >&2; exit 1", monkeypatch)

    assert commands.feed("scontrol", ["update JobId=7 Nice=1"]) == "Invalid user id for job 7\n"


def test_a_slurmctld_that_is_down_is_an_error_for_all_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = "Unable to contact slurm controller (connect failure) for job 7"
    commands = fake_scontrol(tmp_path, f"echo '{said}' >&2; exit 1", monkeypatch)

    with pytest.raises(SlurmUnavailableError, match="scontrol cannot reach slurmctld"):
        commands.feed("scontrol", ["update JobId=7 Nice=1"])


def test_a_program_that_reads_lines_ends_soon_after_a_killed_parent(tmp_path: Path) -> None:
    script = tmp_path / "scontrol"
    script.write_text(f"#!/bin/sh\necho $$ >{tmp_path}/pid\nexec sleep 60\n")
    script.chmod(0o755)
    parent = f"from advisor.backends.process import run; run(['{script}'], timeout_s=1.0, lines=['update'])"
    child = subprocess.Popen([sys.executable, "-c", parent])
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text().strip():
        time.sleep(0.01)
    pid = int((tmp_path / "pid").read_text())

    child.kill()
    child.wait()

    assert is_alive(pid)
    for _ in range(500):
        if not is_alive(pid):
            break
        time.sleep(0.01)
    assert not is_alive(pid)


REFUSED = "sacct: error: Problem talking to the database: Connection refused"


@pytest.mark.parametrize(
    ("program", "message", "kind", "words"),
    [
        ("sacct", REFUSED, SlurmUnreachableError, "sacct cannot reach slurmdbd: check that it runs (`sacctmgr show cl"),
        (
            "squeue",
            REFUSED,
            SlurmUnreachableError,
            "squeue cannot reach slurmctld: check that it runs (`scontrol ping`",
        ),
        (
            "sacct",
            "Slurm accounting storage is disabled",
            SlurmRefusedError,
            "keeps no accounting, which takes slurmdbd",
        ),
        ("sacct", "Invalid time specification (pos=0): yesterdy", SlurmTimeError, "such as 2026-01-31, now-90days"),
        ("sacct", "Start time (X) requested is after end time (Y).", SlurmTimeError, "give one in the past"),
    ],
    ids=["slurmdbd", "slurmctld", "no accounting", "no time", "time to come"],
)
def test_error_names_the_cause_and_a_remedy(program: str, message: str, kind: type[Exception], words: str) -> None:
    error = refusal(program, 1, message, {})

    assert type(error) is kind
    assert words in str(error)
    assert message in str(error)


@pytest.mark.parametrize(("program", "daemon"), [("sacct", "slurmdbd"), ("squeue", "slurmctld")])
def test_late_answer_names_the_daemon_that_was_asked(program: str, daemon: str) -> None:
    assert f"{daemon} is possibly overloaded" in str(late(program, 5.0, "", {}))
