"""The script of a job, run by a real shell with a real FIFO."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.programs import killed_after
from tools.live.arm import Began, Scripts


@pytest.fixture
def scripts(tmp_path: Path) -> Scripts:
    return Scripts(tmp_path / "scripts")


def begun(scripts: Scripts, job_id: int, starts: int = 0) -> subprocess.Popen[bytes]:
    """Start the script of a job as slurmd does."""
    env = {**os.environ, "SLURM_JOB_ID": str(job_id), **({"SLURM_RESTART_COUNT": str(starts)} if starts else {})}
    return subprocess.Popen(["sh", "-c", scripts.text], env=env)


def first_of(scripts: Scripts) -> Began:
    """Wait until a script has begun."""
    while True:
        for began in scripts.began():
            return began


def let_go(scripts: Scripts, job_id: int, starts: int = 0) -> None:
    """Let a script end as soon as it waits."""
    while not scripts.let_go(job_id, starts):
        pass


def test_a_script_shows_its_start_and_waits_until_it_is_let_go(scripts: Scripts) -> None:
    with killed_after(begun(scripts, 17)) as script:
        began = first_of(scripts)
        running = script.poll()
        let_go(scripts, 17)

        assert script.wait(10.0) == 0
    assert (began.job_id, began.starts, running) == (17, 0, None)
    assert list(scripts.began()) == []


def test_a_second_start_is_told_from_the_first(scripts: Scripts) -> None:
    with killed_after(begun(scripts, 17, starts=2)) as script:
        began = first_of(scripts)
        let_go(scripts, 17, starts=2)

        assert script.wait(10.0) == 0
    assert (began.job_id, began.starts) == (17, 2)


def test_a_script_that_has_not_begun_cannot_be_let_go(scripts: Scripts) -> None:
    assert not scripts.let_go(17, 0)
