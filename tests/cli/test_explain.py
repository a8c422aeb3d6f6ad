"""`sadvise explain`: the timers that the journal knows of, the place in line, and what forecasts rest on."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from advisor.backends.snapshot_file import read_snapshot, write_snapshot
from advisor.domain.actions import SetNice, SetSwitches
from advisor.domain.gang import SwitchRequest
from advisor.domain.job import JobHints
from advisor.domain.lease import Lease, LeaseState
from advisor.domain.memory import Wait
from advisor.domain.topology import LocalityTier
from advisor.journal import opened
from advisor.watch.reading import demo_path
from tests.builders import make_gang, make_stretch
from tests.cli.conftest import Sadvise
from tests.planning.test_placement import half_idle_nodes, waiting

NOW = read_snapshot(demo_path()).taken_at
ASKED = SetSwitches(job_id=10, before=None, after=SwitchRequest(count=1, max_wait_s=840.0))


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """A journal that knows of one timer and of three waits."""
    path = tmp_path / "journal.sqlite"
    with opened(path) as held:
        held.claim("live")
        held.keep(Lease(action=ASKED, undo=ASKED.swapped(), applied_time=NOW - 300.0, state=LeaseState.OUT))
        waits = (
            Wait(gpus=16, tier=LocalityTier.LEAF, waited_s=120.0, got=got, ended_time=NOW - 60.0)
            for got in (True, True, False)
        )
        held.add_waits(waits, NOW)
    return path


def test_timer_that_is_out_explains_itself(sadvise: Sadvise, journal: Path) -> None:
    told = sadvise("explain", "--demo", "10", "--journal", str(journal)).out
    document = json.loads(sadvise("explain", "--demo", "10", "--journal", str(journal), "--json").out)["diagnosis"]

    (timer,) = document["timers"]
    assert timer["text"] in told and "timer   since " in told
    assert timer["text"].startswith("It waits up to 14 min for one leaf switch, as spread out it would run ")
    assert "Of the last 3 gangs of 9 to 16 GPUs, 2 got there" in timer["text"]
    assert (timer["began_time"], timer["ends_time"]) == (NOW - 300.0, NOW + 540.0)
    assert document["notes"] == []


def test_pinned_gang_says_why_it_waits_for_one_node_until_when_and_what_that_saves(
    sadvise: Sadvise, tmp_path: Path
) -> None:
    gang = replace(waiting(make_gang(8, nodes_max=1)), hints=JobHints(pinned=1))
    write_snapshot(half_idle_nodes(gang), tmp_path / "queue.json")
    write_snapshot(half_idle_nodes(replace(gang, time_limit_s=60.0)), tmp_path / "short.json")

    told = sadvise("explain", "--snapshot", str(tmp_path / "queue.json"), "1").out
    of_short = sadvise("explain", "--snapshot", str(tmp_path / "short.json"), "1").out

    assert "hints   job_submit.lua holds it to the fewest nodes" in told and "hints   job_submit.lua" in of_short
    assert "It waits up to 2.2 h for one node, as spread out it would run 18 min to 4.8 h longer" in told
    assert "2.2 h of the wait are left" in told
    assert "It waits" not in of_short


@pytest.fixture
def compared(journal: Path) -> Path:
    """The journal after a run of plain Slurm beside the cluster, which started job 10 ten minutes ago."""
    with opened(journal) as held:
        stretch = make_stretch(
            anchor_time=NOW - 7200.0, until=NOW - 60.0, waited_s=7200.0, plain_s=(3600.0,), user="root"
        )
        held.keep_stretch(replace(stretch, late=((10, NOW - 600.0),)))
    return journal


def test_job_stands_in_line_against_no_advice_and_with_what_its_user_gave(sadvise: Sadvise, compared: Path) -> None:
    told = sadvise("explain", "--demo", "10", "--journal", str(compared)).out
    document = json.loads(sadvise("explain", "--demo", "10", "--journal", str(compared), "--json").out)["diagnosis"]

    turn = document["turn"]
    assert (turn["place"]["place"], turn["place"]["place_as_submitted"]) == (2, 2)
    assert (turn["place"]["gpus"], turn["place"]["is_lifted"], turn["place"]["passed_by"]) == (16, False, 0)
    assert "place   2 of 11 jobs that wait for these GPUs, as in the site's own order" in told
    assert f"size    {turn['place']['gpu_s'] / 3600:.1f} GPU-hours expected: 16 GPUs for " in told
    without = turn["without_advice"]
    assert (without["start_time"], without["late_s"], without["is_late"]) == (NOW - 600.0, 600.0, False)
    assert "10 min ago; once it is 14.0 d late, it goes before all others" in told
    week = turn["user_week"]
    assert (week["user"], week["jobs"], week["difference_s"]["median"], week["owed"]) == ("root", 1, 3600.0, 2.0)
    assert "user    root gave in the last week: wait +1.0 h (+1.0 h to +1.0 h) in all by the advice, 1 job" in told
    assert week["credit"] == week["max_credit"] == 3.0
    assert "credit  jobs weigh 3.0 times as much until that is repaid (planning.max_credit = 3)" in told


def test_without_a_comparison_and_for_a_started_job_nothing_is_said_of_it(sadvise: Sadvise, journal: Path) -> None:
    turn = json.loads(sadvise("explain", "--demo", "10", "--journal", str(journal), "--json").out)["diagnosis"]["turn"]
    running = next(job.job_id for job in read_snapshot(demo_path()).jobs if not job.is_pending)
    started = json.loads(sadvise("explain", "--demo", str(running), "--json").out)["diagnosis"]["turn"]

    assert (turn["without_advice"], turn["user_week"], started) == (None, None, None)


def test_hostile_user_name_is_escaped(sadvise: Sadvise, compared: Path, tmp_path: Path) -> None:
    hostile = "a\x1b[2J\nplace   1 of 1"
    snapshot = read_snapshot(demo_path())
    jobs = tuple(replace(job, user=hostile) if job.job_id == 10 else job for job in snapshot.jobs)
    write_snapshot(replace(snapshot, jobs=jobs), tmp_path / "queue.json")
    with opened(compared) as held:
        held.keep_stretch(make_stretch(anchor_time=NOW - 3600.0, until=NOW - 50.0, user=hostile))

    told = sadvise("explain", "--snapshot", str(tmp_path / "queue.json"), "10", "--journal", str(compared)).out

    (line,) = (line for line in told.splitlines() if line.startswith("user    "))
    assert "\x1b" not in told and "place   1 of 1 gained in the last week" in line


def test_change_of_which_nobody_knows_whether_it_took_effect_is_not_told(sadvise: Sadvise, journal: Path) -> None:
    with opened(journal) as held:
        (lease,) = held.leases()
        held.keep(Lease(action=lease.action, undo=lease.undo, applied_time=NOW, state=LeaseState.INTENDED))

    told = sadvise("explain", "--demo", "10", "--journal", str(journal)).out

    assert "advice  none: left alone by rule no_change_outstanding" in told
    assert "timer" not in told


def test_without_a_journal_explain_goes_on(sadvise: Sadvise, tmp_path: Path) -> None:
    (tmp_path / "broken").write_text("no journal of ours, but long enough to be looked at")
    (tmp_path / "plain").write_text("")

    missing, broken, inside = (
        sadvise("explain", "--demo", "10", "--journal", str(tmp_path / name))
        for name in ("missing", "broken", "plain/journal")
    )

    assert "note    " in missing.out and "no such journal" in missing.out
    assert "is not a journal of sadvise" in broken.out
    assert {each.exit_code for each in (missing, broken, inside)} == {0}
    assert all("advice  consolidate:" in each.out for each in (missing, broken, inside))
    assert not (tmp_path / "missing").exists()


def test_journal_of_another_cluster_is_not_believed(sadvise: Sadvise, journal: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    other.write_text(demo_path().read_text().replace('"cluster":"live"', '"cluster":"elsewhere"'))

    told = sadvise("explain", "--snapshot", str(other), "10", "--journal", str(journal)).out

    assert "holds the changes made on cluster 'live', not those on 'elsewhere'" in told
    assert "timer   since" not in told


def test_forecasts_say_what_they_rest_on_and_what_would_make_them_better(sadvise: Sadvise) -> None:
    shown = sadvise("explain", "--demo", "11", "--long").out
    bases = json.loads(sadvise("explain", "--demo", "11", "--json").out)["diagnosis"]["forecast"]["bases"]

    assert [basis["forecast"] for basis in bases] == ["run time", "speed", "neighbours"]
    speed = "its model as measured elsewhere, or step times of too few sizes here; better with running jobs"
    assert f"basis   speed, step 2 of 4: {speed}" in shown


def test_without_forecasts_nothing_is_said_of_what_they_rest_on(sadvise: Sadvise, tmp_path: Path) -> None:
    config = tmp_path / "sadvise.toml"
    config.write_text("[forecasts]\nenabled = false\n")

    assert "basis" not in sadvise("explain", "--demo", "11", "--config", str(config)).out


def test_job_whose_lift_is_due_stands_in_line_with_it_until_it_is_taken_back(sadvise: Sadvise, tmp_path: Path) -> None:
    demo = read_snapshot(demo_path())
    lift = SetNice(job_id=12, before=demo.jobs_by_id[12].nice, after=-1007)
    jobs = tuple(lift.applied_to(job) if job.job_id == 12 else job for job in demo.jobs)
    queue, journal = tmp_path / "queue.json", tmp_path / "journal.sqlite"
    write_snapshot(replace(demo, jobs=jobs), queue)
    with opened(journal) as held:
        held.claim("live")
        out = Lease(action=lift, undo=lift.swapped(), applied_time=NOW - 7200.0, state=LeaseState.OUT)
        held.keep(replace(out, due_time=NOW - 60.0))

    answer = json.loads(sadvise("explain", "--snapshot", str(queue), "12", "--journal", str(journal), "--json").out)

    diagnosis = answer["diagnosis"]
    assert [change["lever"] for change in diagnosis["changes"]] == ["nice"]
    assert diagnosis["turn"]["place"]["is_lifted"]
