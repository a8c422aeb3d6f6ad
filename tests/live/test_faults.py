"""A Slurm that does not answer gets one line that says what to do, never a traceback."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.cli.conftest import Outcome
from tests.live.conftest import started
from tests.live.reading import sadvise_on
from tests.live.watching import as_user
from tools.stage import LiveCluster

pytestmark = pytest.mark.live

USER = "games"


@pytest.fixture(scope="module")
def faulty(release: str) -> Iterator[LiveCluster]:
    """A cluster of its own, which hides jobs from ordinary users; tests may stop its controller."""
    with started(LiveCluster(release, extra_lines=("PrivateData=jobs",))) as live:
        yield live


def complaint(live: LiveCluster, *arguments: str, slurm_conf: str | None = None, user: str | None = None) -> str:
    """Run a command line that fails, as root or another user, and return the one line it leaves."""
    if user is None:
        answer = sadvise_on(live, *arguments, settings={} if slurm_conf is None else {"SLURM_CONF": slurm_conf})
    else:
        argv = [*as_user(user), sys.executable, "-m", "advisor.cli.main", *arguments]
        typed = subprocess.run(argv, env=live.env, capture_output=True, text=True, check=False)
        answer = Outcome(exit_code=typed.returncode, out=typed.stdout, err=typed.stderr)
    assert (answer.exit_code, answer.out) == (1, "")
    assert answer.err.count("\n") == 1
    return answer.err


@pytest.mark.parametrize("command", [("recommend",), ("recommend", "--json"), ("explain", "{job}"), ("check",)])
def test_ordinary_user_who_sees_only_own_jobs_gets_one_plain_line(
    faulty: LiveCluster, command: tuple[str, ...]
) -> None:
    job = faulty.submit("--hold", "-n1", user=USER)
    theirs = faulty.submit("--hold", "-n1")
    listed = faulty.ask("squeue", "-h", "-a", "-o", "%A", user=USER).stdout.split()

    error = complaint(faulty, *(word.format(job=job) for word in command), user=USER)
    faulty.run("scancel", str(job), str(theirs))

    assert str(job) in listed and str(theirs) not in listed
    assert error.startswith(
        f"sadvise: error: Slurm shows {USER} only their own jobs (PrivateData=jobs), so there is no advice"
    )


def test_wrong_slurm_conf_is_named(faulty: LiveCluster) -> None:
    (faulty.folder / "wrong.conf").write_text("Nonsense=1\n")

    assert "wrong.conf" in complaint(faulty, "recommend", slurm_conf=str(faulty.folder / "wrong.conf"))
    assert "is not there" in complaint(faulty, "recommend", slurm_conf="/nonexistent.conf")


def test_stopped_controller_is_named_within_the_deadline(faulty: LiveCluster) -> None:
    faulty.stop_controller()
    try:
        assert "squeue gave no answer within 1 s" in complaint(faulty, "recommend", "--timeout", "1")
        assert "cannot reach slurmctld" in complaint(faulty, "explain", "1")
    finally:
        faulty.start_controller()


def test_missing_pyslurm_is_named(faulty: LiveCluster) -> None:
    assert "pyslurm" in complaint(faulty, "recommend", "--source", "pyslurm")
