"""The fit of what lifts promise: what is noted of simulated and live lifts, and how shares are chosen."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from advisor.apply.applier import Applier
from advisor.apply.rehearsal import RehearsedCluster
from advisor.cycle import Cycle
from advisor.journal import SqliteJournal
from advisor.planning.lift import StartsNext
from advisor.planning.lift_gain import SHARES, GainShares, Outlook
from tests.builders import HOUR_S, make_job
from tests.planning.queues import busy, shorts
from tests.published_traces import write_traces
from tests.tools_live.made_arms import keep_made, made_run, made_trace
from tools.data.simulated_traces import read_workload
from tools.fit_lift_gain import (
    HELD,
    FittedPart,
    cluster_of,
    fit,
    main,
    mean_share,
    part_of,
    quantile_shares,
    replanned,
    shares_table,
    simulated_part,
)
from tools.live.savings import promises_of

ROWS = 400


def outlook(passed_s: float, *, own_s: float = 0.0, jobs_passed: int = 1) -> Outlook:
    """Return the outlook of a job that passes some work, and has nothing ahead of it then."""
    return Outlook(
        site_ahead_s=passed_s, ahead_s=0.0, own_s=own_s, advised_s=60.0, run_s=600.0, jobs_passed=jobs_passed
    )


def made_part(seed: int, unit_s: float) -> FittedPart:
    """Return lifts that bring from 0 to all of the work that they pass, and cost up to half of the wait."""
    rng = np.random.default_rng(seed)
    losses_s, gains_s = unit_s * rng.uniform(1.0, 2.0, (ROWS, 2)), unit_s * rng.uniform(1.0, 2.0, (ROWS, 2))
    gained = rng.uniform(size=ROWS) < 0.5
    share = rng.uniform(size=ROWS)
    came_s = np.where(gained, share * gains_s[:, 0], -0.5 * share * losses_s[:, 1])
    return FittedPart(name="made", losses_s=losses_s, gains_s=gains_s, came_s=came_s, later_share=0.0)


def test_shares_are_those_of_the_column_that_decides_whatever_the_scale_of_a_part() -> None:
    parts = [made_part(seed, unit_s) for seed, unit_s in enumerate((1.0, 60.0, 3600.0, 1e5))]

    # Half of the lifts bring nothing: nine of ten bring up to four fifths of what they pass.
    passed, run = quantile_shares([(part.gains_s, part.came_s) for part in parts], 0.9)

    assert passed + run == pytest.approx(0.8, abs=0.1)
    assert passed > 3 * run


def test_fit_takes_the_narrowest_intervals_that_hold_enough() -> None:
    parts = [made_part(seed, 60.0) for seed in range(4)]

    shares, level = fit(parts)

    held = [1.0 - sum(part.outside(shares)) for part in parts]
    assert np.mean(held) >= HELD
    assert level == 0.1 or np.mean(held) < 0.9


def test_mean_share_is_what_lifts_bring_of_the_work_that_they_pass() -> None:
    parts = [made_part(seed, unit_s) for seed, unit_s in enumerate((1.0, 3600.0))]
    brought = [replace(part, came_s=0.4 * part.gains_s[:, 0]) for part in parts]

    share = mean_share(brought)

    assert share == pytest.approx(0.4)
    assert brought[0].mean_s(replace(SHARES, mean=share)) == pytest.approx(brought[0].came_s)


def test_ends_of_a_part_are_those_of_the_planner() -> None:
    outlooks = {0: outlook(600.0), 1: outlook(60.0)}
    runs = (made_run(made_trace(2), [100.0] * 2), made_run(made_trace(2), [60.0] * 2))

    part = part_of("made", *runs, outlooks)

    assert [tuple(ends) for ends in np.transpose(part.ends_s(SHARES))] == [
        pytest.approx(one.sooner_s) for one in outlooks.values()
    ]


def test_jobs_that_were_never_lifted_are_later_by_a_share_of_the_work_that_passed_them() -> None:
    trace = made_trace(3)
    plain, advised = made_run(trace, [100.0, 100.0, 100.0]), made_run(trace, [40.0, 105.0, 115.0])

    part = part_of("made", plain, advised, {0: outlook(600.0, own_s=50.0, jobs_passed=2)}, speedup=60.0)

    assert part.came_s.tolist() == [60.0 * 60.0]
    assert part.later_share == pytest.approx(20.0 / 100.0)
    assert part.gains_s.tolist() == [[600.0 * 60.0, 600.0 * 60.0]]


def test_first_lifts_of_a_simulated_part_are_noted(tmp_path: Path) -> None:
    trace = read_workload(write_traces(tmp_path, jobs=300), "itp 04").trace

    part = simulated_part(trace, cluster_of(4), seed=1, load=2.0)

    assert len(part.came_s) > 5
    assert (part.gains_s > 0.0).any() and (part.losses_s >= 0.0).all()
    assert "itp 04 | 1 |" in shares_table("A part", [part], SHARES)


def test_lifts_of_a_journal_are_planned_again(tmp_path: Path) -> None:
    long = make_job(1, gpus=16, priority=1000, time_limit_s=40 * HOUR_S)
    cluster, journal = RehearsedCluster(busy(long, *shorts(1))), SqliteJournal(tmp_path / "journal")
    step = Applier(source=cluster, actuator=cluster, cycle=Cycle(), journal=journal).step()
    journal.close_file()

    found, (promise,) = replanned(tmp_path / "journal"), promises_of(tmp_path / "journal")

    facts = step.record.recommendations[0].facts
    assert isinstance(facts, StartsNext)
    assert found == {10: facts.outlook}
    assert (promise.low_s, promise.high_s) == pytest.approx((facts.sooner_s_low, facts.sooner_s_high), abs=1e-3)


def test_live_run_without_a_daemon_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep_made(tmp_path / "run", "none-1", made_run(made_trace(), [1.0] * 12))

    assert main(["--live", str(tmp_path / "run")]) == 1
    assert "none with a daemon" in capsys.readouterr().err


def test_all_is_held_by_intervals_without_end() -> None:
    endless = GainShares(ahead=1e9, advised=1e9, passed=1e9, run=1e9, mean=0.5)

    assert made_part(1, 60.0).outside(endless) == (0.0, 0.0)
    assert replace(made_part(1, 60.0), came_s=np.full(ROWS, -1.0)).outside(
        replace(endless, ahead=0.0, advised=0.0)
    ) == (
        1.0,
        0.0,
    )
