"""`sadvise explain`: the timers that the journal knows of."""

import json
from pathlib import Path

import pytest

from advisor.backends.snapshot_file import read_snapshot
from advisor.cli.reading import demo_path
from advisor.domain.actions import SetSwitches
from advisor.domain.gang import SwitchRequest
from advisor.domain.lease import Lease, LeaseState
from advisor.domain.topology import LocalityTier
from advisor.domain.waits import Wait
from advisor.journal import opened
from tests.cli.conftest import Sadvise

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
    assert "waits up to 14 min for one leaf switch: 2 of the last 3 gangs of 9 to 16 GPUs got there" in timer["text"]
    assert (timer["began_time"], timer["ends_time"]) == (NOW - 300.0, NOW + 540.0)
    assert document["notes"] == []


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
