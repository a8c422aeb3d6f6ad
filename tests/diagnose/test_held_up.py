"""Which pending jobs a maintenance holds up, and with which time limits they would fit before it."""

from dataclasses import replace

import pytest

from advisor.diagnose.held_up import HeldUp, held_up
from advisor.domain.job import Job
from advisor.domain.particulars import Reservation
from advisor.domain.units import DAY_S, HOUR_S
from advisor.view.maintenance_words import maintenance_notice, maintenance_sentence
from tests.builders import TAKEN_AT, make_gang, make_job, make_nodes, make_partition, make_snapshot

NODES = ("n1", "n2")
BEGINS = TAKEN_AT + 12 * HOUR_S
SERVICE = Reservation(name="service", start_time=BEGINS, end_time=BEGINS + DAY_S, nodes=NODES, is_maintenance=True)


def found(*jobs: Job, maintenance: Reservation = SERVICE) -> list[HeldUp]:
    snapshot = make_snapshot(jobs=jobs, nodes=make_nodes(NODES, jobs), partitions=[make_partition(nodes=NODES)])
    return held_up(snapshot, [maintenance])


def test_a_job_that_would_still_run_when_its_nodes_are_needed_is_held_up() -> None:
    [each] = found(make_job(1, gpus=8, time_limit_s=DAY_S), make_job(2, gpus=8, time_limit_s=HOUR_S))

    assert (each.job.job_id, each.maintenance, each.fits_s) == (1, SERVICE, 12 * HOUR_S - 60.0)
    assert each.starts_now
    assert not each.by_slurm


def test_a_job_without_a_limit_is_held_up_and_one_that_waits_for_nodes_too() -> None:
    full = [make_job(number, gpus=8, running_on=[name]) for number, name in enumerate(NODES, start=10)]

    [each] = found(*full, make_job(1, gpus=8, time_limit_s=None))

    assert (each.job.job_id, each.starts_now) == (1, False)


@pytest.mark.parametrize(
    "maintenance",
    [
        pytest.param(replace(SERVICE, nodes=("n1",)), id="another node is left"),
        pytest.param(replace(SERVICE, is_maintenance=False), id="no maintenance"),
        pytest.param(replace(SERVICE, start_time=TAKEN_AT - 1.0), id="it has begun"),
        pytest.param(replace(SERVICE, start_time=TAKEN_AT + 100.0), id="no time is left"),
    ],
)
def test_no_other_reservation_holds_it_up(maintenance: Reservation) -> None:
    assert found(make_job(1, gpus=8), maintenance=maintenance) == []


@pytest.mark.parametrize(
    "job",
    [
        pytest.param(make_job(1, gang=make_gang(8, excluded_nodes=NODES)), id="no node"),
        pytest.param(make_job(1, gpus=8, held=True), id="held"),
        pytest.param(make_job(1, gpus=8, reservation="service"), id="it names the reservation"),
        pytest.param(make_job(1, gpus=8, running_on=["n1"]), id="it runs"),
    ],
)
def test_a_job_that_could_not_start_anyway_is_not_listed(job: Job) -> None:
    assert found(job) == []


def test_backfill_shortens_a_job_whose_least_time_fits() -> None:
    [each] = found(make_job(1, gpus=8, time_min_s=HOUR_S))

    assert each.by_slurm


def test_a_mail_names_each_job_and_its_command_and_no_job_name() -> None:
    snapshot = make_snapshot()
    listed = found(make_job(1, gpus=8, name="secret"), make_job(2, gpus=8, time_limit_s=None))

    notice = maintenance_notice(listed, snapshot)

    assert notice.user == "alice"
    assert "job 1 has a limit of 24.0 h" in notice.text
    assert "job 2 has no limit" in notice.text
    assert "scontrol update JobId=1 TimeLimit=11:59:00" in notice.text
    assert "secret" not in notice.text
    sentence = maintenance_sentence(SERVICE, listed, TAKEN_AT)
    assert sentence.endswith("on 2 nodes; 2 pending jobs of 1 user would fit before it with a shorter limit")
    assert maintenance_sentence(SERVICE, [], TAKEN_AT).endswith("; it holds up no pending job")
