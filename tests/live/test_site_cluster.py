"""A trace on the cluster of the site itself, read from a real slurmctld."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tools.stage import LiveCluster

pytestmark = pytest.mark.live


def test_trace_runs_on_the_cluster_of_the_site(fresh: LiveCluster, tmp_path: Path) -> None:
    trace = tmp_path / "month.csv"
    trace.write_text(
        "job_id,submit_time,run_time_s,gpus,time_limit_s,partition\n1,0,60,8,600,gpu\n2,0,60,16,600,debug\n",
        encoding="utf-8",
    )
    argv = [sys.executable, "-m", "advisor.cli.main", "simulate", str(trace), "--cluster", "live", "--json"]

    answer = subprocess.run(argv, env=fresh.env, capture_output=True, text=True, check=False)

    assert answer.returncode == 0, answer.stderr
    assert [run["finished"] for run in json.loads(answer.stdout)["runs"]] == [2, 2]
    # The test cluster has no accounting.
    assert "sadvise: --cluster live: slurmctld shows no associations" in answer.stderr
