"""What the errors of Slurm's commands say: which daemon to look at, and what to type instead."""

import pytest

from advisor.backends.command_errors import late, refusal
from advisor.errors import SlurmRefusedError, SlurmTimeError, SlurmUnavailableError

REFUSED = "sacct: error: Problem talking to the database: Connection refused"


@pytest.mark.parametrize(
    ("program", "message", "kind", "words"),
    [
        ("sacct", REFUSED, SlurmUnavailableError, "sacct cannot reach slurmdbd: check that it runs (`sacctmgr show cl"),
        (
            "squeue",
            REFUSED,
            SlurmUnavailableError,
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
