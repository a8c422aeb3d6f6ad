"""Nodes that backfill keeps for pending jobs: what they close, what `check` says of them, and what an age opens."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live.conftest import started
from tests.live.reading import sadvise_on
from tests.post_office import post_office
from tools.stage import LiveCluster
from tools.stage.live_cluster import uniform_cluster

pytestmark = pytest.mark.live

AGE = "bf_min_age_reserve"
SERVICE = "ReservationName=service Users=root StartTime=now+2hours Duration=120 Nodes=ALL Flags=MAINT,IGNORE_JOBS"


@pytest.fixture(scope="module", params=["", f",{AGE}=259200"], ids=["as it is", "from an age on"])
def cluster(release: str, request: pytest.FixtureRequest) -> Iterator[tuple[LiveCluster, bool]]:
    """One node of eight GPUs, and whether young jobs keep nodes."""
    words = f"bf_interval=2,bf_resolution=60{request.param}"
    with started(uniform_cluster(release, node_count=1, scheduler_parameters=words)) as live:
        yield live, not request.param


def test_idle_gpus_kept_for_a_gang_are_counted_and_opened_by_an_age(
    cluster: tuple[LiveCluster, bool], release: str
) -> None:
    live, keeps = cluster
    live.submit("--gres=gpu:5", "-N1", "--time=60")
    live.wait_for(lambda: live.count("RUNNING") == 1, 30.0, what="the node is half busy")
    gang = live.submit("--gres=gpu:8", "-N1", "--time=60")
    late = live.submit("--gres=gpu:3", "-N1", "--time=300")
    # It ends before the gang could start, so that it shows when backfill has passed.
    short = live.submit("--gres=gpu:1", "-N1", "--time=1", "--begin=now+5")

    live.wait_for(lambda: live.state_of(late if not keeps else short) == "RUNNING", 60.0, what="backfill starts a job")
    told = sadvise_on(live, "check").out

    assert live.state_of(gang) == "PENDING"
    assert live.state_of(late) == ("PENDING" if keeps else "RUNNING")
    # 22.05 shows no plan for a node on which a job runs.
    assert (AGE in told) is (keeps and release != "22.05")


def test_jobs_that_a_maintenance_holds_up_start_with_the_limit_that_fits(release: str, tmp_path: Path) -> None:
    with started(uniform_cluster(release, node_count=2, scheduler_parameters="bf_interval=2")) as live:
        none = sadvise_on(live, "maintenance")
        live.run("scontrol", "create", "reservation", *SERVICE.split())
        held = live.submit("--gres=gpu:8", "-n8", "--time=1-0")
        by_slurm = live.submit("--gres=gpu:2", "-n2", "--time=1-0", "--time-min=30")
        live.wait_for(lambda: live.state_of(by_slurm) == "RUNNING", 40.0, what="backfill shortens a job by itself")

        listed = sadvise_on(live, "maintenance", "--json")
        shown = sadvise_on(live, "maintenance")
        refused = sadvise_on(live, "maintenance", "--mail")
        with post_office() as office:
            settings = {"SADVISE_NOTIFY__USERS": "all", "SADVISE_NOTIFY__SENDMAIL": str(office.sendmail(tmp_path))}
            mailed = sadvise_on(live, "maintenance", "--mail", settings=settings)
            [mail] = office.mails
        [job] = json.loads(listed.out)["jobs"]
        state = live.state_of(held)
        live.ask("scontrol", "update", f"JobId={held}", f"TimeLimit={round(job['fits_s'] / 60) - 1}")
        live.wait_for(lambda: live.state_of(held) == "RUNNING", 40.0, what="the shorter job runs")

    assert (none.exit_code, none.out) == (0, "maintenance  none is to come: scontrol show reservation\n")
    assert (job["job_id"], job["maintenance"], job["starts_now"], state) == (held, "service", True, "PENDING")
    assert 6_600 < job["fits_s"] < 7_200
    assert f"scontrol update JobId={held} TimeLimit=1:" in shown.out.replace("TimeLimit=0", "TimeLimit=")
    assert (refused.exit_code, "notify" in refused.err) == (1, True)
    assert (mailed.exit_code, mailed.out.splitlines()[-1]) == (0, "mail         root: accepted")
    assert f"JobId={held}" in mail.get_content()
    assert f"JobId={by_slurm}" not in mail.get_content()
