"""Multifactor priority and the fair tree, computed by hand."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from advisor.sim.cluster import Cluster, NodeGroup, SlurmParameters
from advisor.sim.priority import charge, insert, priority_of, recalculate, reprioritise, sort_line, strike
from advisor.sim.slurm_state import Slurm, build_slurm
from advisor.sim.state import State
from tests.sim.building import make_state, make_trace, place

NO_WEIGHTS = SlurmParameters(
    priority_weight_age=0.0, priority_weight_fairshare=0.0, priority_decay_half_life_s=0.0, priority_max_age_s=1000.0
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A cluster of four nodes with 4 GPUs and 16 CPUs each."""

    state: State
    slurm: Slurm

    def priority(self, row: int, now: float) -> float:
        return float(priority_of(self.state, self.slurm, row, now))

    def line(self) -> list[int]:
        count = int(self.state.tally["pending"][0])
        return [int(row) for row in self.slurm.line[:count]]


def site(jobs: list[dict[str, Any]], slurm: SlurmParameters, *, accounts: tuple[str, ...] = ("",)) -> Site:
    trace = replace(make_trace(jobs), accounts=accounts, qos=("normal", "high"))
    cluster = Cluster(nodes=(NodeGroup(count=4, gpus=4, cpus=16),), slurm=slurm)
    state = make_state(trace, cluster)
    return Site(state=state, slurm=build_slurm(state, trace, cluster))


def test_age_counts_up_to_its_maximum() -> None:
    here = site([{"submit_time": 100}], replace(NO_WEIGHTS, priority_weight_age=500.0))

    points = [here.priority(0, now) for now in (100.0, 350.5, 1100.0, 9999.0)]

    # 250.5 s of 1000 are worth 125.25 points, cut to whole ones; no job has less than one.
    assert points == [1.0, 125.0, 500.0, 500.0]


@pytest.mark.parametrize(
    ("job", "points"),
    [
        pytest.param({"gpus": 4, "cpus_per_gpu": 4}, 250, id="one node of four, 16 CPUs of 64"),
        pytest.param({"gpus": 8, "nodes_min": 2, "nodes_max": 2, "cpus_per_gpu": 2}, 375, id="two nodes, 16 CPUs"),
        pytest.param({"gpus": 8, "nodes_max": 0, "cpus_per_gpu": 2}, 250, id="an open node count is one node"),
        pytest.param({"gpus": 1}, 132, id="a CPU at least: half of 1/4 and of 1/64"),
    ],
)
def test_size_is_the_mean_share_of_nodes_and_cpus(job: dict[str, int], points: float) -> None:
    here = site([job], replace(NO_WEIGHTS, priority_weight_job_size=1000.0))

    assert here.priority(0, 0.0) == points


def test_a_qos_counts_by_its_share_of_the_highest() -> None:
    slurm = replace(NO_WEIGHTS, priority_weight_qos=100.0, qos_priority={"normal": 10.0, "high": 40.0})
    here = site([{"qos": 0}, {"qos": 1}], slurm)

    assert [here.priority(row, 0.0) for row in (0, 1)] == [25.0, 100.0]


def test_nice_is_taken_off_as_far_as_one() -> None:
    here = site([{"qos": 1, "nice": 30}, {"nice": 30}], replace(NO_WEIGHTS, priority_weight_age=100.0))

    assert [here.priority(row, 1000.0) for row in (0, 1)] == [70.0, 70.0]
    assert here.priority(1, 10.0) == 1.0


def test_the_line_stands_by_priority_then_by_submission() -> None:
    here = site([{}, {}, {}, {}], NO_WEIGHTS)
    here.state.jobs["priority"] = [5.0, 9.0, 5.0, 7.0]

    for row in (2, 1, 0, 3):
        insert(here.state, here.slurm, row)

    assert here.line() == [1, 3, 0, 2]


def test_a_job_struck_off_leaves_the_others_in_order() -> None:
    here = site([{}, {}, {}], NO_WEIGHTS)
    for row in range(3):
        insert(here.state, here.slurm, row)

    strike(here.state, here.slurm, 1)
    here.state.tally["pending"] -= 1

    assert here.line() == [0, 2]


def test_sorting_tells_whether_the_order_changed() -> None:
    here = site([{"submit_time": 0}, {"submit_time": 10, "nice": 5}], replace(NO_WEIGHTS, priority_weight_age=1000.0))
    for row in range(2):
        insert(here.state, here.slurm, row)

    first = reprioritise(here.state, here.slurm, 100.0)
    here.state.jobs["priority"][1] = 200.0
    second = sort_line(here.state, here.slurm)

    assert (first, second) == (False, True)
    assert here.line() == [1, 0]


def test_usage_is_charged_once_and_fades() -> None:
    here = site([{"gpus": 4}], replace(NO_WEIGHTS, priority_decay_half_life_s=600.0))
    place(here.state, 0, {0: 4}, 100.0)

    charge(here.state, here.slurm, 0, 150.0)
    charge(here.state, here.slurm, 0, 150.0)
    here.slurm.control["calc_time"] = 100.0
    recalculate(here.state, here.slurm, 160.0)

    # 4 GPUs for 50 s, then for 10 s more; all of it fades for 60 s, as Slurm approximates a half-life.
    faded = 4 * 60.0 * (1.0 - 0.693 / 600.0) ** 60.0
    assert here.slurm.associations["usage"] == pytest.approx([faded])
    assert here.slurm.account_usage == pytest.approx([faded])
    # Nothing weighs fair-share, so nobody is ranked.
    assert here.slurm.associations["factor"].tolist() == [1.0]


def factors(here: Site) -> list[float]:
    recalculate(here.state, here.slurm, 0.0)
    by_job = here.slurm.associations["factor"][here.slurm.association]
    return [float(factor) for factor in by_job]


FAIR = replace(NO_WEIGHTS, priority_weight_fairshare=1000.0)


def test_of_three_users_the_one_who_used_anything_comes_last_and_the_others_keep_the_first_rank() -> None:
    jobs = [{"user": name, "account": row} for row, name in enumerate(("ann", "bob", "cy"))]
    here = site(jobs, FAIR, accounts=("one", "two", "three"))

    unused = factors(here)
    here.slurm.associations["usage"] = [0.0, 50.0, 0.0]
    here.slurm.account_usage[:] = [0.0, 50.0, 0.0]
    used = factors(here)

    # As observed: root, who uses nothing, counts as a fourth user.
    assert unused == [1.0, 1.0, 1.0]
    assert used == [1.0, 0.25, 1.0]


def test_users_of_an_account_that_was_used_do_not_share_the_rank_of_root() -> None:
    here = site([{"user": "ann"}, {"user": "bob"}, {"user": "cy"}], FAIR)
    here.slurm.associations["usage"] = [0.0, 50.0, 0.0]
    here.slurm.account_usage[0] = 50.0

    assert factors(here) == [0.75, 0.25, 0.75]


def test_accounts_stand_by_usage_over_shares() -> None:
    slurm = replace(FAIR, account_shares={"big": 10.0, "small": 1.0})
    jobs = [{"user": "ann", "account": 0}, {"user": "bob", "account": 1}, {"user": "cy", "account": 1}]
    here = site(jobs, slurm, accounts=("small", "big"))
    here.slurm.associations["usage"] = [20.0, 60.0, 40.0]
    here.slurm.account_usage[:] = [20.0, 100.0]

    # The large account used 10 per share, the small one 20; within it the user who used less goes first.
    assert factors(here) == [0.25, 0.5, 0.75]


def test_users_with_the_same_use_of_an_account_share_a_rank() -> None:
    here = site([{"user": "ann"}, {"user": "bob"}, {"user": "cy"}], FAIR)
    here.slurm.associations["usage"] = [30.0, 30.0, 10.0]
    here.slurm.account_usage[0] = 70.0

    assert factors(here) == [0.5, 0.5, 0.75]


def test_accounts_with_equal_usage_stand_in_their_own_order() -> None:
    jobs = [{"user": "ann", "account": 1}, {"user": "bob", "account": 0}]
    here = site(jobs, FAIR, accounts=("one", "other"))
    here.slurm.associations["usage"] = [5.0, 5.0]
    here.slurm.account_usage[:] = [5.0, 5.0]

    found = factors(here)

    assert np.allclose(sorted(found), [1 / 3, 2 / 3])
