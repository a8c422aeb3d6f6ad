"""Gangs that leave their node count open: how slurmctld spreads them, and what a bound on their nodes does."""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from advisor.domain.actions import NodeRange
from advisor.domain.lease import Ending, Lease
from advisor.journal import SqliteJournal
from tests.live.conftest import started
from tools.stage import LiveCluster
from tools.stage.daemon import daemon, write_config
from tools.stage.live_cluster import uniform_cluster
from tools.stage.submit_scripts import install_scripts

pytestmark = pytest.mark.live

PINS = "return { pin_gangs = true, gpus_per_node = { default = 8 } }"
FORMS = {
    "one task": ("--gpus=8",),
    "several tasks": ("--gpus=8", "-n8"),
    "by task": ("-n8", "--gpus-per-task=1"),
}
# A user who does not mind where the job runs.
INSENSITIVE = "--comment=sadvise: sensitivity=low"


@pytest.fixture(scope="module")
def half_busy(release: str) -> Iterator[LiveCluster]:
    """Two nodes of eight GPUs, half of which are busy on each."""
    with started(uniform_cluster(release, node_count=2)) as live:
        install_scripts(live, PINS)
        yield live


@pytest.fixture(autouse=True)
def blocked(half_busy: LiveCluster) -> dict[str, int]:
    """Keep half of each node busy."""
    half_busy.reset()
    jobs = {node: half_busy.submit("--gres=gpu:4", "-N1", f"--nodelist={node}") for node in ("n01", "n02")}
    half_busy.wait_for(lambda: half_busy.count("RUNNING") == 2, 30.0, what="both nodes are half busy")
    return jobs


def nodes_of(live: LiveCluster, job_id: int) -> str:
    """Return the nodes of a running job; nothing while it pends."""
    return live.run("squeue", "-h", "-t", "RUNNING", "-j", str(job_id), "-o", "%N").strip()


def leases_ended(folder: Path, job_id: int) -> Sequence[Lease]:
    """Return a job's changes that have ended, by the daemon's journal in a folder."""
    with SqliteJournal.read_only(folder / "journal.sqlite") as journal:
        return journal.closed([job_id])


def nodes_asked(live: LiveCluster, job_id: int) -> str:
    """Return the nodes that a job asks for, as scontrol prints them."""
    (nodes,) = {word for word in live.run("scontrol", "show", "job", str(job_id)).split() if "NumNodes=" in word}
    return nodes.removeprefix("NumNodes=")


@pytest.mark.parametrize("form", FORMS)
def test_open_gang_is_spread_over_what_is_free(half_busy: LiveCluster, form: str) -> None:
    gang = half_busy.submit(*FORMS[form], INSENSITIVE)

    half_busy.wait_for(lambda: nodes_of(half_busy, gang) != "", 30.0, what="the gang runs")

    assert nodes_of(half_busy, gang) == "n[01-02]"


@pytest.mark.parametrize("form", FORMS)
def test_pinned_gang_waits_for_one_node(half_busy: LiveCluster, blocked: dict[str, int], form: str) -> None:
    gang = half_busy.submit(*FORMS[form])
    # Submitted later and spread, so that slurmctld has tried the gang before.
    single = half_busy.submit("--gres=gpu:1", "-N1", "--time=1")
    half_busy.wait_for(lambda: nodes_of(half_busy, single) != "", 60.0, what="a job behind it runs")
    waited = nodes_of(half_busy, gang)

    half_busy.run("scancel", *(str(job_id) for job_id in (single, blocked["n02"])))
    half_busy.wait_for(lambda: nodes_of(half_busy, gang) != "", 60.0, what="the gang runs")

    assert waited == ""
    assert nodes_of(half_busy, gang) == "n02"


def test_bound_is_taken_off_again_by_newer_releases_alone(half_busy: LiveCluster, release: str) -> None:
    # Slurm shows an estimate for a job that it never considered, so it does not wait for a release, but for GPUs.
    half_busy.submit("--gres=gpu:4", "-N2")
    half_busy.wait_for(lambda: half_busy.count("RUNNING") == 3, 30.0, what="both nodes are busy")
    gang = half_busy.submit("--gpus=8", INSENSITIVE)

    half_busy.run("scontrol", "update", f"JobId={gang}", "NumNodes=1-1")
    bound = nodes_asked(half_busy, gang)
    half_busy.run("scontrol", "update", f"JobId={gang}", "NumNodes=1-0")

    assert (bound, nodes_asked(half_busy, gang)) == ("1-1", "1-1" if release == "22.05" else "1")


@pytest.mark.parametrize("form", FORMS)
def test_a_range_up_to_the_gpus_gives_the_open_request_back_on_every_release(half_busy: LiveCluster, form: str) -> None:
    gang = half_busy.submit(*FORMS[form])
    half_busy.wait_for(lambda: "Resources" in half_busy.run("squeue", "-h", "-o", "%r"), 30.0, what="the gang waits")
    asked = half_busy.run("scontrol", "show", "job", str(gang))

    half_busy.run("scontrol", "update", f"JobId={gang}", "NumNodes=1-8")
    given_back = half_busy.run("scontrol", "show", "job", str(gang))
    half_busy.wait_for(lambda: nodes_of(half_busy, gang) != "", 30.0, what="the gang runs")

    assert "Comment=sadvise: pinned=1" in asked
    assert given_back.split("NumNodes=")[1].split()[0] == "1-8"
    same = [part.split("NumNodes=")[1].split()[1:6] for part in (asked, given_back)]
    assert same[0] == same[1]
    assert nodes_of(half_busy, gang) == "n[01-02]"


def test_daemon_gives_a_gang_back_that_would_wait_for_longer_than_one_node_saves(
    half_busy: LiveCluster, tmp_path: Path
) -> None:
    config = write_config(tmp_path, 1.0, {"daemon": {"interval_max_s": 2.0}})
    gang = half_busy.submit("--gpus=8", "--time=10")
    half_busy.wait_for(lambda: nodes_asked(half_busy, gang) == "1-1", 30.0, what="the gang is pinned")

    with daemon(half_busy, config, tmp_path / "log"):
        half_busy.wait_for(lambda: nodes_of(half_busy, gang) != "", 90.0, what="the gang runs")
        # The gang can start before the daemon has written down that it gave it back.
        half_busy.wait_for(lambda: bool(leases_ended(tmp_path, gang)), 30.0, what="the change has ended")
    (lease,) = leases_ended(tmp_path, gang)

    assert nodes_of(half_busy, gang) == "n[01-02]"
    assert (lease.action.before, lease.action.after) == (NodeRange(low=1, high=8), NodeRange(low=1, high=1))
    assert lease.ending is Ending.TAKEN_BACK


def test_newer_releases_show_a_fixed_count_as_open_after_a_restart_and_keep_it(
    half_busy: LiveCluster, release: str
) -> None:
    fixed = half_busy.submit("--gpus=8", "-N1")
    before = nodes_asked(half_busy, fixed)

    half_busy.stop_controller()
    half_busy.start_controller()
    time.sleep(5.0)

    assert before == "1-1"
    assert nodes_asked(half_busy, fixed) == ("1-1" if release == "22.05" else "1")
    assert nodes_of(half_busy, fixed) == ""
