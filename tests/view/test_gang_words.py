"""What is said of gangs that starve, and of GPUs that idle because small jobs are scattered."""

import shlex
from dataclasses import replace

import pytest

from advisor.diagnose.starving import Passing
from advisor.domain.units import DAY_S, HOUR_S
from advisor.domain.waiting_gangs import GangLook, StarvedGang, WeekOfGangs
from advisor.view.gang_words import scattered_sentence, starved_lines, starved_sentence, week_lines
from advisor.view.terminal import instant
from tests.builders import TAKEN_AT, make_job

GANG = StarvedGang(
    job_id=7,
    gpus=16,
    eligible_time=TAKEN_AT - 5 * DAY_S,
    since_time=TAKEN_AT - 3 * DAY_S,
    work_gpu_s=192 * HOUR_S,
    passed_gpu_s=200 * HOUR_S,
    passed_by=1,
    users=1,
)
SAYS_1 = "`sadvise explain 1` says who passed it and what would end it"
FIRST_ALONE = "it keeps some for the first job of each partition alone (bf_job_part_count_reserve)"
NOTHING = Passing(
    running=(),
    planned_time=None,
    fits_time=None,
    depth=None,
    low=None,
    young_s=None,
    kept=None,
    window_s=None,
    nodes=(),
)


@pytest.mark.parametrize(
    ("look", "starved", "scattered"),
    [
        (GangLook(looked_time=TAKEN_AT), "", ""),
        (
            GangLook(looked_time=TAKEN_AT, starved=(GANG,), scattered=(("n1", 5), ("n2", 3))),
            "job 7 (for 3.0 d); `sadvise explain 7` says who passed it and what would end it",
            "8 GPUs idle beside small jobs on n1, n2: gangs would start if these stood on fewer nodes",
        ),
        (
            GangLook(
                looked_time=TAKEN_AT,
                starved=tuple(replace(GANG, job_id=number) for number in range(1, 6)),
                scattered=tuple((f"n{number}", 2) for number in range(1, 6)),
            ),
            f"{', '.join(f'job {number} (for 3.0 d)' for number in (1, 2, 3))} and 2 more; {SAYS_1}",
            "10 GPUs idle beside small jobs on n1, n2, n3 and others: gangs would start if these stood on fewer nodes",
        ),
    ],
    ids=["nothing", "some", "many"],
)
def test_a_look_is_one_line_of_each(look: GangLook, starved: str, scattered: str) -> None:
    assert (starved_sentence(look), scattered_sentence(look)) == (starved, scattered)


def test_a_starved_gang_is_explained_by_who_passed_it_and_what_lets_them() -> None:
    seen = replace(
        NOTHING,
        running=(("eve", 2, 11), ("ben", 1, 1), ("ida", 1, 1), ("tom", 1, 1)),
        depth=500,
        low=9000,
        young_s=14 * DAY_S,
        kept=1,
        window_s=DAY_S,
    )

    lines = [text for _, text in starved_lines(GANG, seen, make_job(7), TAKEN_AT)]

    had = "1 run of 1 other user, eligible later, had 200.0 GPU-hours on its nodes, and it asks for 192.0 GPU-hours"
    assert lines == [
        f"since {instant(GANG.since_time)}: eligible for 5.0 d; {had}",
        "running now of those: eve (2 jobs, 11 GPUs), ben (1 job, 1 GPU), ida (1 job, 1 GPU) and 1 more user",
        "backfill keeps no nodes for it: it looks at the first 500 jobs alone (bf_max_job_test)",
        "backfill keeps no nodes for it: the priority of the job is below 9000 (bf_min_prio_reserve)",
        "backfill keeps no nodes for it: the job is younger than 14.0 d (bf_min_age_reserve)",
        f"backfill keeps no nodes for it: {FIRST_ALONE}",
        "backfill keeps no nodes for it: it looks 24.0 h ahead, and the job fits later (bf_window)",
    ]


def test_the_reservation_is_one_command_whatever_the_name_of_the_user() -> None:
    seen = replace(NOTHING, planned_time=TAKEN_AT, fits_time=TAKEN_AT, nodes=("n1", "n2"))

    *_, planned, to_do, command = starved_lines(GANG, seen, make_job(7, user="eve; rm -rf /"), TAKEN_AT)

    assert planned == ("", f"Slurm plans its start for {instant(TAKEN_AT)}")
    assert to_do[0] == "to do" and "2 nodes" in to_do[1] and instant(TAKEN_AT) in to_do[1]
    assert shlex.split(command[1])[3:] == [
        "ReservationName=gang_7",
        "Users=eve; rm -rf /",
        "Nodes=n1,n2",
        f"StartTime={instant(TAKEN_AT)}",
        "Duration=30",
        "Flags=FLEX,MAGNETIC,PURGE_COMP=00:05:00",
    ]


def test_the_digest_names_jobs_and_nodes_and_no_user() -> None:
    week = WeekOfGangs(
        starved=((7, "ada"), (8, "ben"), (9, "ben"), (10, "ben")), scattered=(("n1", 30.0), ("n2", 12.5))
    )

    gangs, fragments = week_lines(week)

    assert gangs == "Gangs: 4 starved, jobs 7, 8, 9 and others; `sadvise explain` says of one who passed it."
    assert fragments.startswith("Fragments: 42.5 GPU-hours idle beside small jobs, ")
    assert fragments.endswith("; most on n1 (30), n2 (12).")
    assert list(week_lines(WeekOfGangs())) == []
