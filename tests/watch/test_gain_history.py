"""The history of gains holds one row for each day on which plain Slurm was run beside the cluster."""

from pathlib import Path

from advisor.domain.units import DAY_S, HOUR_S
from advisor.journal import opened
from advisor.watch.daemon_state import read_gains
from tests.builders import TAKEN_AT, make_stretch


def test_days_follow_each_other_and_older_ones_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    with opened(path) as held:
        held.claim("live")
        for anchor_time, waited_s in ((0.0, 60.0), (2.0, 30.0), (2.0 + 1 / 24, 50.0), (4.0, 90.0)):
            held.keep_stretch(make_stretch(anchor_time=TAKEN_AT + anchor_time * DAY_S, waited_s=waited_s))

    gains = read_gains(path, TAKEN_AT + 4.0 * DAY_S + 2.0 * HOUR_S, days=3)

    assert [(gain.standing.jobs, gain.standing.waited_s) for gain in gains.days] == [(2, 80.0), (1, 90.0)]
    assert sorted(gain.day for gain in gains.days) == [gain.day for gain in gains.days]
    assert gains.whole.total is not None and gains.whole.total.waited_s == 170.0


def test_without_runs_of_plain_slurm_the_history_is_empty(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    with opened(path) as held:
        held.claim("live")

    gains = read_gains(path, TAKEN_AT)

    assert gains.days == ()
    assert gains.whole.total is None
