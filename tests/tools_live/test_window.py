"""Cuts of a trace in compressed time."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from advisor.errors import SimulationError
from advisor.fit.accounting import read_accounting
from advisor.sim.cluster import parse_cluster
from tests.sim.runs import random_trace
from tools.live.trace_jobs import accounting_of, fit_past
from tools.live.window import (
    LIMIT_STEP_S,
    SHORTEST_RUN_S,
    USERS,
    Cut,
    accounts_by_user,
    window_and_past,
    window_of,
)  # fmt: skip

CLUSTER = parse_cluster("nodes=4,gpus=8,leaf=2")
CUT = Cut(seed=3, load=1.5, span_s=4 * 3600.0, longest_s=6 * 3600.0, speedup=60.0)
TRACE = random_trace(600)


def test_a_cut_has_the_load_that_is_asked_for_and_runs_faster() -> None:
    window = window_of(TRACE, CLUSTER, CUT)

    jobs = window.jobs
    work_s = float((jobs["run_time_s"] * jobs["gpus"]).sum())
    assert work_s / CLUSTER.gpus / float(jobs["submit_time"][-1]) == pytest.approx(CUT.load, rel=0.05)
    assert float(jobs["submit_time"][-1]) * CUT.speedup == pytest.approx(CUT.span_s, rel=0.2)
    assert jobs["run_time_s"].min() >= SHORTEST_RUN_S
    assert (jobs["time_limit_s"] % LIMIT_STEP_S == 0.0).all()
    assert jobs["gpus"].max() <= CLUSTER.gpus // 2
    assert set(window.users) == set(USERS)


def test_equal_seeds_give_equal_cuts_and_others_give_others() -> None:
    first, again, other = (window_of(TRACE, CLUSTER, replace(CUT, seed=seed)) for seed in (3, 3, 4))

    assert first.jobs.tobytes() == again.jobs.tobytes()
    assert first.jobs.tobytes() != other.jobs.tobytes()


def test_a_number_of_jobs_can_be_asked_for() -> None:
    assert len(window_of(TRACE, CLUSTER, replace(CUT, jobs=50))) == 50


def test_the_user_with_most_jobs_comes_first() -> None:
    window = window_of(TRACE, CLUSTER, CUT)

    counts = np.bincount(window.jobs["user"], minlength=len(USERS))
    assert counts[0] == counts.max()
    assert {user for _, user in accounts_by_user(window)} == {USERS[code] for code in np.flatnonzero(counts)}


def test_a_trace_that_is_too_short_is_refused() -> None:
    with pytest.raises(SimulationError, match="too few"):
        window_of(TRACE, CLUSTER, replace(CUT, jobs=6000))


def test_the_past_are_the_latest_jobs_that_ended_before_the_cut_and_leaves_the_cut_as_it_is() -> None:
    without, window = window_of(TRACE, CLUSTER, CUT), window_and_past(TRACE, CLUSTER, replace(CUT, past_jobs=40))

    past = window.past.jobs
    assert window.trace.jobs.tobytes() == without.jobs.tobytes()
    assert 0 < len(past) <= 40
    assert (past["submit_time"] + past["run_time_s"]).max() <= 0.0
    assert (past["time_limit_s"] % LIMIT_STEP_S == 0.0).all()
    assert window.past.users == window.trace.users


def test_the_past_reads_as_accounting_of_jobs_that_started_at_once(tmp_path: Path) -> None:
    past = window_and_past(TRACE, CLUSTER, replace(CUT, past_jobs=40)).past
    file = tmp_path / "sacct.json"
    file.write_text(accounting_of(past, 2e9))

    read = read_accounting(file)

    assert read.left_out == {}
    assert read.ended.jobs.user == tuple(past.users[code] for code in past.jobs["user"])
    assert read.ended.run_s == pytest.approx(np.minimum(past.jobs["run_time_s"], past.jobs["time_limit_s"]), abs=0.5)
    assert read.ended.end_time == pytest.approx(2e9 + past.jobs["submit_time"] + read.ended.run_s, abs=1.5)
    assert read.ended.jobs.gpus.tolist() == past.jobs["gpus"].tolist()


def test_too_short_a_past_is_not_fitted(tmp_path: Path) -> None:
    past = window_and_past(TRACE, CLUSTER, replace(CUT, past_jobs=40)).past

    with pytest.raises(SimulationError, match="40 jobs of the trace ended before this part"):
        fit_past(past, tmp_path, zero_time=2e9)
