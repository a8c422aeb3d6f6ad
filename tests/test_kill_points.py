"""A killed child, and what it had started."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tools.kill_test.points import Points, in_a_child

# Newer Pythons warn of threads that a fork leaves behind, such as those of a worker; the child uses none of theirs.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")

SLOW = "import sys, time; time.sleep(0.5); open(sys.argv[1], 'w').close()"


@pytest.mark.parametrize("new_session", [False, True])
def test_what_a_killed_child_had_started_is_waited_for_and_nothing_else(tmp_path: Path, new_session: bool) -> None:
    other = subprocess.Popen(["sleep", "60"])

    def work(_: Points) -> None:
        subprocess.Popen([sys.executable, "-c", SLOW, str(tmp_path / "done")], start_new_session=new_session)
        os.kill(os.getpid(), signal.SIGKILL)

    try:
        fate = in_a_child(work, None)
        assert (fate.killed, fate.error, (tmp_path / "done").exists()) == (True, "", True)
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_a_child_that_is_done_or_raises_says_so() -> None:
    def fails(_: Points) -> None:
        raise ValueError("no such thing")

    done, failed = in_a_child(lambda _: None, None), in_a_child(fails, None)

    assert (done.killed, done.error) == (False, "")
    assert not failed.killed and failed.error.endswith("ValueError: no such thing\n")
