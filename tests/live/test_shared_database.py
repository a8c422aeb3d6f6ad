"""Two clusters behind one slurmdbd are read side by side, and what is changed is changed on the one that was named."""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from advisor.journal import opened
from tests.live.conftest import started
from tests.live.test_advice import EAGER
from tests.live.test_apply import Administrator
from tests.programs import killed_after
from tools.advice_queue import PRIORITY_LINES
from tools.stage import LiveCluster

# slurmdbd is installed beside the host's own Slurm only.
pytestmark = [pytest.mark.live, pytest.mark.releases("22.05"), pytest.mark.needs("slurmdbd")]

NAMES = ("live", "other")
# The first job takes all GPUs, the second waits for all of them, and the third could run before it.
QUEUE = (("-N2", "--time=00:20:00"), ("-N2", "--time=2-00:00:00"), ("-N1", "--time=00:20:00"))
SHORT = len(QUEUE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Two clusters with the same queue, and a folder with the configuration of each."""

    live: LiveCluster
    folder: Path

    def sadvise(self, *arguments: str, code: int = 0) -> str:
        """Run a command, and return what it printed if it ended with a code."""
        answer = subprocess.run(self.argv(*arguments), env=self.env, capture_output=True, text=True, check=False)
        assert answer.returncode == code, answer.stderr
        return answer.stdout

    def argv(self, *arguments: str) -> list[str]:
        """Return a command line of sadvise with the configuration."""
        name, *others = arguments
        return [sys.executable, "-m", "advisor.cli.main", name, "--config", f"{self.folder}/sadvise.toml", *others]

    @property
    def env(self) -> dict[str, str]:
        """Return the environment of an administrator of the first cluster."""
        return {**self.live.env, **EAGER}

    def nices(self) -> dict[str, list[str]]:
        """Return the nice values of all jobs by cluster, as squeue reads them."""
        return {
            name: self.live.run("squeue", "-M", name, "-h", "-a", "-S", "i", "-o", "%A %y").splitlines()
            for name in NAMES
        }


@pytest.fixture
def site(release: str, tmp_path: Path) -> Iterator[Site]:
    (tmp_path / "clusters").mkdir()
    (tmp_path / "sadvise.toml").write_text("")
    for name in NAMES:
        (tmp_path / name).mkdir()
        text = f'[journal]\nfile = "{tmp_path}/{name}/journal.sqlite"\n[daemon]\nruntime_folder = "{tmp_path}/{name}"\n'
        (tmp_path / "clusters" / f"{name}.toml").write_text(text)
    shape: dict[str, Any] = {"node_count": 2, "gpu_types": ["h100"] * 2, "shards": {}, "extra_lines": PRIORITY_LINES}
    with (
        started(LiveCluster(release, accounting=True, **shape)) as live,
        started(LiveCluster(release, name="other", beside=live, **shape)) as other,
    ):
        for cluster in (live, other):
            for options in QUEUE:
                cluster.submit("--gpus-per-node=8", "--ntasks-per-node=8", *options)
        live.wait_for(lambda: considered(live) and considered(other), 60.0, what="Slurm has looked at every job")
        yield Site(live=live, folder=tmp_path)


def considered(cluster: LiveCluster) -> bool:
    """Return whether the first job runs, and Slurm knows why each of the others does not."""
    reasons = cluster.run("squeue", "-h", "-a", "-S", "i", "-o", "%T %r").splitlines()
    return reasons[0].startswith("RUNNING") and not any(line.endswith(" None") for line in reasons[1:])


def test_both_are_read_and_only_the_one_that_is_named_is_changed(site: Site) -> None:
    before, path = site.nices(), site.folder / "web.sock"
    web = {"ACTIONS": "true", "ADMIN_GROUP": "root", "USER_HEADER": "X-Remote-User", "LISTEN": f"unix:{path}"}
    settings = {**site.env, **{f"SADVISE_WEB__{name}": value for name, value in web.items()}}
    root = Administrator(path)

    def listed() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(root.get("/api/v1/clusters")[1])["clusters"]
        return found

    status = site.sadvise("status", "-M", "all", code=5)
    document = json.loads(site.sadvise("recommend", "-M", "all", "--json"))
    why = json.loads(site.sadvise("explain", "-M", "other", str(SHORT), "--json"))
    applied = json.loads(site.sadvise("apply", "-M", "other", "-j", str(SHORT), "--json"))["changes"]
    during = site.nices()
    lines = site.sadvise("recommend", "-M", "all", "-P", "-h", "-o", "cluster,job_id").splitlines()
    with killed_after(subprocess.Popen(site.argv("web", "-M", "all"), env=settings)) as process:
        site.live.wait_for(path.exists, 60.0, what="the web view listens")
        site.live.wait_for(lambda: all(row["taken_at"] for row in listed()), 60.0, what="both are read")
        shown, job = listed(), json.loads(root.get(f"/api/v1/clusters/other/jobs/{SHORT}")[1])
        reverted = root.confirm(f"/clusters/other/do/revert/{SHORT}")
        process.terminate()
        assert process.wait(30.0) == 0

    assert [line.split()[0] for line in status.splitlines()[1:]] == list(NAMES)
    for name, row in zip(NAMES, document["clusters"], strict=True):
        (change,) = row["advice"]["recommendations"]
        assert row["cluster"] == row["advice"]["meta"]["cluster"] == name
        assert (change["job_id"], change["command"][:3]) == (SHORT, ["scontrol", "-M", name])
    assert (why["meta"]["cluster"], why["diagnosis"]["job_id"]) == ("other", SHORT)
    assert [(row["job_id"], row["outcome"]) for row in applied] == [(SHORT, "applied")]
    assert during["live"] == before["live"]
    assert during["other"][: SHORT - 1] == before["other"][: SHORT - 1] and during["other"] != before["other"]
    # What is out on the other cluster is proposed on the first one alone.
    assert lines == [f"live|{SHORT}"]
    columns = ("name", "gpus", "gpus_in_use", "waiting_gpu_jobs", "recommendations", "changes_in_effect")
    assert [[row[column] for column in columns] for row in shown] == [
        ["live", 16, 16, 2, 1, 0],
        ["other", 16, 16, 2, 0, 1],
    ]
    assert [change["job_id"] for change in job["changes"]] == [SHORT] and job["meta"]["cluster"] == "other"
    assert "taken back" in reverted
    assert site.nices() == before
    with opened(site.folder / "other" / "journal.sqlite") as journal:
        assert journal.cluster() == "other" and journal.leases() == ()
    assert not (site.folder / "live" / "journal.sqlite").exists()
