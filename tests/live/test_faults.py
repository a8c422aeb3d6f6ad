"""A Slurm that does not answer gets one line that says what to do, never a traceback."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

from advisor.backends.process import SlurmCommands
from advisor.backends.site_reader import Identity, SiteReader
from advisor.clock import SystemClock
from advisor.errors import SlurmRefusedError
from tests.live.conftest import started
from tools.live_slurm import LiveCluster

pytestmark = pytest.mark.live


@pytest.fixture(scope="module")
def faulty(release: str) -> Iterator[LiveCluster]:
    """A cluster of its own, which hides jobs from ordinary users; tests may stop its controller."""
    with started(LiveCluster(release, extra_lines=("PrivateData=jobs",))) as live:
        yield live


def complaint(live: LiveCluster, *arguments: str, slurm_conf: str | None = None) -> str:
    """Run a command line that fails, and return the one line it leaves."""
    environment = live.env if slurm_conf is None else {**live.env, "SLURM_CONF": slurm_conf}
    argv = [sys.executable, "-m", "advisor.cli.main", *arguments]
    answer = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
    assert answer.returncode == 1
    assert answer.stdout == ""
    assert answer.stderr.count("\n") == 1
    return answer.stderr


def test_hidden_queue_is_refused_for_an_ordinary_user(faulty: LiveCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PATH", "SLURM_CONF"):
        monkeypatch.setenv(name, faulty.env[name])
    ordinary = Identity(uid=65534, name="nobody")

    with pytest.raises(SlurmRefusedError, match="PrivateData=jobs hides the queue from nobody"):
        SiteReader(SlurmCommands(timeout_s=30.0), SystemClock(), identity=ordinary).read()


@pytest.mark.parametrize("source", ["text", "json"])
def test_wrong_slurm_conf_is_named(faulty: LiveCluster, source: str) -> None:
    (faulty.folder / "wrong.conf").write_text("Nonsense=1\n")

    assert "wrong.conf" in complaint(
        faulty, "recommend", "--source", source, slurm_conf=str(faulty.folder / "wrong.conf")
    )
    assert "is not there" in complaint(faulty, "recommend", "--source", source, slurm_conf="/nonexistent.conf")


def test_stopped_controller_is_named_within_the_deadline(faulty: LiveCluster) -> None:
    faulty.stop_controller()
    try:
        assert "squeue gave no answer within 1 s" in complaint(faulty, "recommend", "--timeout", "1")
        assert "cannot reach slurmctld" in complaint(faulty, "explain", "1")
    finally:
        faulty.start_controller()


def test_missing_pyslurm_is_named(faulty: LiveCluster) -> None:
    assert "pyslurm" in complaint(faulty, "recommend", "--source", "pyslurm")
