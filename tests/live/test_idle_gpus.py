"""Idle GPUs of running jobs on a live cluster, by a real Prometheus whose series name its nodes."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import advisor.cli.check
import advisor.cli.idle  # noqa: F401  (both are imported before the clock of the reader of the queue is replaced)
from advisor.clock import SystemClock
from tests.live.conftest import started
from tests.live.reading import sadvise_on
from tests.measured_gpus import GpuSeries, prometheus_with, stand_in
from tests.post_office import post_office
from tests.promtool import promtool
from tools.stage import LiveCluster
from tools.stage.live_cluster import uniform_cluster

__all__ = ["promtool"]

pytestmark = [pytest.mark.live, pytest.mark.needs("prometheus", "promtool")]

# The process that asks has the lowest priority, and other tests run beside.
PATIENT = {"SADVISE_UTILISATION__TIMEOUT_S": "100"}
EVIL = "evil\n   Nodes=n01 GRES=gpu:8(IDX:0-7)"


class LaterClock(SystemClock):
    """A clock that goes before by three hours, for which the jobs have then run."""

    def now(self) -> float:
        return time.time() + 3 * 3600.0


def constant(percent: float) -> Callable[[float], float]:
    return lambda _: percent


def series_of(node: str, percents: list[float], jobs: dict[int, int]) -> list[GpuSeries]:
    """Return a series for each GPU of a node; `jobs` maps indices to the job that an exporter names there."""
    return [
        GpuSeries(
            labels=f'Hostname="{node}.example.org",gpu="{index}",hpc_job="{jobs.get(index, "")}"',
            percent=constant(percent),
        )
        for index, percent in enumerate(percents)
    ]


def submitted(live: LiveCluster, *arguments: str) -> int:
    job = live.submit("-N1", "--time=300", *arguments)
    live.wait_for(lambda: live.state_of(job) == "RUNNING", 60.0, what="the job runs")
    return job


def document_of(live: LiveCluster, settings: dict[str, str]) -> dict[str, Any]:
    outcome = sadvise_on(live, "idle", "--json", settings=settings)
    assert (outcome.exit_code, outcome.err) == (0, "")
    document: dict[str, Any] = json.loads(outcome.out)
    return document


def test_jobs_with_idle_gpus_are_named_and_their_user_gets_a_mail(
    release: str, need: Callable[[str], Path], promtool: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with started(uniform_cluster(release, node_count=3)) as live:
        whole = submitted(live, "-w", "n01", "--gres=gpu:8")
        part = submitted(live, "-w", "n02", "--gres=gpu:2")
        busy = submitted(live, "-w", "n02", "--gres=gpu:1", f"--job-name={EVIL}")
        submitted(live, "-w", "n03", "--gres=gpu:8")
        series = [
            *series_of("n01", [0.0] * 8, dict.fromkeys(range(8), whole)),
            *series_of("n02", [0.0, 0.0, 95.0, 0.0, 0.0, 0.0, 0.0, 0.0], {2: busy}),
        ]
        early = sadvise_on(live, "idle", settings={**PATIENT, "SADVISE_UTILISATION__PROMETHEUS": "http://127.0.0.1:1"})
        monkeypatch.setattr("advisor.clock.SystemClock", LaterClock)
        with prometheus_with(series, tmp_path, need("prometheus"), promtool) as url, post_office() as office:
            settings = {
                "SADVISE_UTILISATION__PROMETHEUS": url,
                **PATIENT,
                "SADVISE_NOTIFY__USERS": "all",
                "SADVISE_NOTIFY__SENDMAIL": str(office.sendmail(tmp_path)),
            }
            listed = document_of(live, settings)
            by_label = {**settings, "SADVISE_UTILISATION__JOB_LABEL": "hpc_job"}
            labelled = document_of(live, by_label)
            checked = sadvise_on(live, "check", settings=settings)
            mailed = sadvise_on(live, "idle", "--mail", "-u", "root", settings=settings)
            [mail] = office.mails
            unknown = sadvise_on(live, "idle", settings={**settings, "SADVISE_UTILISATION__METRIC": "no_such"})
        still = [live.state_of(job) for job in (whole, part, busy)]

    found = {job["job_id"]: (job["idle_gpus"], job["gpus"], job["user"]) for job in listed["jobs"]}
    assert found == {whole: (8, 8, "root"), part: (2, 2, "root")}
    assert (listed["measured"], listed["gpus"], listed["unmapped_jobs"]) == (16, 24, [])
    assert [(job["job_id"], job["idle_gpus"]) for job in labelled["jobs"]] == [(whole, 8)]
    assert "16 of 24 GPUs where GPU jobs run are measured" in " ".join(checked.out.split())
    assert (mailed.exit_code, mailed.out.splitlines()[-1]) == (0, "mail    root: accepted")
    text = mail.get_content()
    assert f"your job {whole} has held 8 GPUs at 1 % or less for 3.0 h, of 8 in all" in " ".join(text.split())
    assert f"job {busy}" not in text and "cancel" not in text
    assert still == ["RUNNING"] * 3
    assert (unknown.exit_code, unknown.err.count("\n")) == (1, 1)
    assert early.err == (
        "sadvise: error: prometheus: 127.0.0.1: [Errno 111] Connection refused: check utilisation.prometheus\n"
    )


@pytest.mark.parametrize("answer", [b"<!doctype html><title>Sign in</title>", b" " * (17 << 20)], ids=["HTML", "huge"])
def test_what_is_no_prometheus_is_one_line(cluster: LiveCluster, release: str, answer: bytes) -> None:
    with stand_in() as peer:
        peer.answers = [answer]
        outcome = sadvise_on(cluster, "idle", settings={**PATIENT, "SADVISE_UTILISATION__PROMETHEUS": peer.url})

    assert (outcome.exit_code, outcome.out, outcome.err.count("\n")) == (1, "", 1)
    assert "prometheus: 127.0.0.1" in outcome.err and "check utilisation.prometheus" in outcome.err
