"""Nodes that backfill keeps for pending jobs: what they close, what `check` says of them, and what an age opens."""

import json
import shlex
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from advisor.domain.waiting_gangs import GangLook, StarvedGang
from advisor.site.status_file import status_after, write_status
from tests.live.conftest import started
from tests.live.reading import sadvise_on, taken
from tests.made_rounds import make_round, step
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


def test_a_gang_that_starves_starts_in_the_reservation_that_explain_prints(release: str, tmp_path: Path) -> None:
    with started(uniform_cluster(release, node_count=2, scheduler_parameters="bf_interval=2,bf_resolution=60")) as live:
        holder = live.submit("--gres=gpu:5", "-N1", "--time=60")
        live.wait_for(lambda: live.count("RUNNING") == 1, 30.0, what="a node is half busy")
        gang = live.submit("--gres=gpu:8", "-N2", "--time=300", user="games")
        live.wait_for(lambda: gang in taken(live).jobs_by_id, 30.0, what="the gang is pending")
        published(tmp_path, gang, taken(live).config.cluster)
        explained = sadvise_on(live, "explain", str(gang), settings={"SADVISE_DAEMON__RUNTIME_FOLDER": str(tmp_path)})
        [line] = [line for line in explained.out.splitlines() if "scontrol create reservation" in line]
        created = live.run(*shlex.split(line))
        # Root may use any reservation, on 26.05 without asking for it.
        long = live.submit("--gres=gpu:1", "-N1", "--time=120", user="mail")
        short = live.submit("--gres=gpu:1", "-N1", "--time=10", user="mail")
        live.wait_for(lambda: live.state_of(short) == "RUNNING", 40.0, what="a job that ends before it runs")
        states = live.state_of(long), live.state_of(gang)
        live.run("scancel", str(holder), str(short))
        live.wait_for(lambda: live.state_of(gang) == "RUNNING", 60.0, what="the gang runs before it begins")
        shown = live.run("scontrol", "-o", "show", "reservation")

    assert "3 runs of 2 other users, eligible later, had 2.0 GPU-hours" in explained.out
    assert (created.strip(), states) == (f"Reservation created: gang_{gang}", ("PENDING", "PENDING"))
    assert "State=INACTIVE" in shown


def published(folder: Path, job_id: int, cluster: str) -> None:
    """Write a status by which a gang of two nodes starves."""
    now = time.time()
    gang = StarvedGang(
        job_id=job_id, gpus=16, eligible_time=now - 90_000.0, since_time=now, work_gpu_s=7200.0, passed_gpu_s=7200.0,
        passed_by=3, users=2,
    )  # fmt: skip
    last = status_after(replace(make_round(step()), gangs=GangLook(looked_time=now, starved=(gang,))))
    assert last.planned is not None
    planned = last.planned.model_copy(update={"cluster": cluster})
    assert write_status(folder, last.model_copy(update={"planned": planned})) == ""
