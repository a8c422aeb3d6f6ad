"""What one user gains by gaming the lifts, beside what plain Slurm gives for the same submissions."""

from functools import cache
from typing import Final

import numpy as np
import pytest

from advisor.domain.units import HOUR_S
from advisor.sim.cluster import parse_cluster
from advisor.sim.traces.trace import Trace
from tests.sim.building import make_trace
from tools.bench.gaming import PLAIN, measured, players
from tools.bench.strategies import STRATEGIES, honest, submitted, with_accounts

ONE_NODE: Final = parse_cluster("nodes=1,gpus=4")
USERS: Final = ("ann", "bob", "cy", "dan", "eve")
# Percentage points of the time until the work of a user is done.
MOST_BEYOND_PLAIN: Final = 25.0


@cache
def saturated() -> Trace:
    """Return two days of jobs of five users for more GPUs than there are, with limits two to five times too long."""
    rng = np.random.default_rng(5)
    count = 150
    run_time_s = np.round(np.clip(HOUR_S * np.exp(rng.normal(0.0, 1.0, count)), 300.0, 12 * HOUR_S))
    limit_s = np.ceil(run_time_s * rng.uniform(2.0, 5.0, count) / HOUR_S) * HOUR_S
    submit_time = np.sort(rng.uniform(0.0, 48 * HOUR_S, count))
    return with_accounts(
        make_trace(
            [
                {
                    "submit_time": float(submit_time[row]),
                    "run_time_s": float(run_time_s[row]),
                    "time_limit_s": float(limit_s[row]),
                    "gpus": int(rng.choice((1, 2, 4), p=(0.6, 0.3, 0.1))),
                    "user": USERS[int(rng.integers(len(USERS)))],
                }
                for row in range(count)
            ],
            users=USERS,
        )
    )


@pytest.mark.parametrize("name", ["split", "chain", "both"])
def test_dividing_work_neither_adds_to_it_nor_takes_from_it(name: str) -> None:
    trace = saturated()
    user = players(trace, 1)[0]

    game = submitted(trace, user, name)

    jobs, before = game.trace.jobs, trace.jobs
    assert len(jobs) > len(before)
    work_s = np.bincount(game.piece, jobs["run_time_s"] * jobs["gpus"])
    assert np.allclose(work_s, before["run_time_s"] * before["gpus"])
    others = before["user"][game.piece] != user
    assert np.array_equal(jobs["job_id"][others], before["job_id"][before["user"] != user])


def test_a_limit_that_is_too_short_is_doubled_until_the_job_ends_within_it() -> None:
    job = {"run_time_s": 3 * HOUR_S, "time_limit_s": 16 * HOUR_S}
    trace = make_trace([job])

    jobs = submitted(trace, 0, "short").trace.jobs

    assert (jobs["time_limit_s"] / HOUR_S).tolist() == [2.0, 4.0]
    assert (jobs["run_time_s"] == 3 * HOUR_S).all()


def test_nodes_and_cpus_that_are_kept_without_their_gpus_are_the_same() -> None:
    trace = make_trace([{"gpus": 16, "nodes_min": 2}, {"gpus": 4}, {"gpus": 1}])

    whole, shared = (submitted(trace, 0, name).trace.jobs for name in ("exclusive", "cpus"))

    assert whole[["gpus", "nodes_min", "nodes_max", "exclusive"]].tolist()[0] == (2, 2, 2, 1)
    assert whole["gpus"].tolist() == [2, 4, 1] and whole["exclusive"].tolist() == [1, 0, 0]
    assert shared["gpus"].tolist() == [16, 1, 1]
    assert shared["cpus"].tolist()[1:] == [64, 0]


def test_a_piece_of_work_is_done_when_its_last_part_has_ended() -> None:
    trace = make_trace([{"submit_time": 10, "run_time_s": 8 * HOUR_S, "time_limit_s": 16 * HOUR_S}, {"user": "bob"}])
    game = submitted(trace, 0, "split")

    done_s = game.done_s(np.where(game.piece == 0, 100.0 + np.arange(len(game.piece)), 7.0))

    assert done_s.tolist() == [100.0 + np.flatnonzero(game.piece == 0)[-1] - 10.0, 7.0]
    assert np.array_equal(honest(trace).done_s(np.array([5.0, 6.0])), [-5.0, 6.0])


@pytest.mark.slow
def test_what_gaming_gains_beyond_plain_slurm_is_bounded() -> None:
    trace = saturated()

    effects = measured(trace, ONE_NODE, players(trace, 3), tuple(STRATEGIES), ("trade",), copies=2, every_s=1800.0)

    beyond = {name: float(effects[name, "trade"].beyond(effects[name, PLAIN]).mean()) for name in STRATEGIES}
    assert max(beyond.values()) <= MOST_BEYOND_PLAIN, beyond
    assert beyond["hints"] == 0.0
    assert max(beyond["exclusive"], beyond["cpus"]) <= 5.0, beyond


@pytest.mark.slow
def test_lifts_by_size_alone_can_be_gamed_more_than_those_that_weigh_users() -> None:
    trace = saturated()

    effects = measured(trace, ONE_NODE, players(trace, 3), ("both",), ("trade", "site"), copies=2, every_s=1800.0)

    assert effects["both", "site"].gain.mean() > effects["both", "trade"].gain.mean()
