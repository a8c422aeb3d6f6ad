"""Multifactor priority and the fair tree, computed by hand."""

from dataclasses import dataclass, replace
from typing import Any

import pytest

from advisor.sim.cluster import Cluster, NodeGroup, SlurmParameters
from advisor.sim.slurm.queue_tables import AssociationTable, QosTable
from advisor.sim.slurm.slurm_builder import build_slurm
from advisor.sim.slurm.slurm_settings import PriorityFlag
from advisor.sim.slurm.slurm_state import Slurm
from advisor.sim.slurm.slurmctld import recalculate, sort_line
from advisor.sim.state import State
from tests.sim.building import make_state, make_trace, place
from tests.sim.internals import charge, insert, priority_of, reprioritise, strike

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
        count = int(self.slurm.control["lined"][0])
        return [int(row) for row in self.slurm.line[:count]]


def site(
    jobs: list[dict[str, Any]], slurm: SlurmParameters, *, accounts: tuple[str, ...] = ("",), **tables: Any
) -> Site:
    trace = replace(make_trace(jobs), accounts=accounts, qos=("normal", "high"))
    cluster = Cluster(nodes=(NodeGroup(count=4, gpus=4, cpus=16),), slurm=slurm, **tables)
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
    slurm = replace(NO_WEIGHTS, priority_weight_qos=100.0)
    qos = (QosTable(name="normal", priority=10.0), QosTable(name="high", priority=40.0))
    here = site([{"qos": 0}, {"qos": 1}], slurm, qos=qos)

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
    shares = (AssociationTable(account="big", shares=10.0), AssociationTable(account="small"))
    jobs = [{"user": "ann", "account": 0}, {"user": "bob", "account": 1}, {"user": "cy", "account": 1}]
    here = site(jobs, FAIR, accounts=("small", "big"), associations=shares)
    here.slurm.associations["usage"] = [20.0, 60.0, 40.0]
    here.slurm.account_usage[:] = [20.0, 100.0]

    # The large account used 10 per share, the small one 20; within it the user who used less goes first.
    assert factors(here) == [0.25, 0.5, 0.75]


def test_users_with_the_same_use_of_an_account_share_a_rank() -> None:
    here = site([{"user": "ann"}, {"user": "bob"}, {"user": "cy"}], FAIR)
    here.slurm.associations["usage"] = [30.0, 30.0, 10.0]
    here.slurm.account_usage[0] = 70.0

    assert factors(here) == [0.5, 0.5, 0.75]


def test_first_users_of_accounts_with_equal_use_share_a_rank() -> None:
    jobs = [{"user": "ann", "account": 1}, {"user": "bob", "account": 0}]
    here = site(jobs, FAIR, accounts=("one", "other"))
    here.slurm.associations["usage"] = [5.0, 5.0]
    here.slurm.account_usage[:] = [5.0, 5.0]

    assert factors(here) == [pytest.approx(2 / 3), pytest.approx(2 / 3)]


def test_fair_tree_of_two_levels_ranks_divisions_before_their_accounts_and_users() -> None:
    tables = (
        AssociationTable(account="science", shares=3.0),
        AssociationTable(account="arts", shares=1.0),
        AssociationTable(account="physics", parent="science", shares=1.0),
        AssociationTable(account="biology", parent="science", shares=2.0),
        AssociationTable(account="music", parent="arts"),
        AssociationTable(account="physics", user="bob", shares=4.0),
    )
    jobs = [
        {"user": "ann", "account": 0},
        {"user": "bob", "account": 0},
        {"user": "cy", "account": 1},
        {"user": "ann", "account": 2},
    ]
    here = site(jobs, FAIR, accounts=("physics", "biology", "music"), associations=tables)
    usage = {("ann", "physics"): 30.0, ("bob", "physics"): 60.0, ("cy", "biology"): 120.0, ("ann", "music"): 80.0}
    here.slurm.associations["usage"] = list(usage.values())
    # physics, biology, music and, above them, science and arts.
    here.slurm.account_usage[:] = [90.0, 120.0, 80.0, 210.0, 80.0]

    # science used 70 per share, arts 80; biology 60, physics 90; bob 15, ann 30. Root counts as a fifth user.
    assert factors(here) == [pytest.approx(rank / 5) for rank in (2, 3, 4, 1)]


def test_use_counts_in_all_accounts_above() -> None:
    tables = (AssociationTable(account="lab", parent="division"), AssociationTable(account="division", parent="site"))
    here = site([{"gpus": 2}], FAIR, accounts=("lab",), associations=tables)
    place(here.state, 0, {0: 2}, 100.0)

    charge(here.state, here.slurm, 0, 150.0)

    assert here.slurm.account_usage.tolist() == [100.0, 100.0, 100.0]
    assert here.slurm.account_depth.tolist() == [3, 2, 1]


SIZED = replace(NO_WEIGHTS, priority_weight_job_size=1000.0)
WIDE: dict[str, Any] = {"gpus": 8, "nodes_min": 2, "nodes_max": 2, "cpus_per_gpu": 2, "time_limit_s": 600.0}


@pytest.mark.parametrize(
    ("slurm", "points"),
    [
        (replace(SIZED, priority_favor_small=True), 625.0),  # 2 of 4 nodes, 16 of 64 CPUs
        (replace(SIZED, priority_flags=(PriorityFlag.SMALL_RELATIVE_TO_TIME,)), 50.0),  # half the CPUs, 10 min
        (replace(SIZED, priority_favor_small=True, priority_flags=(PriorityFlag.SMALL_RELATIVE_TO_TIME,)), 950.0),
        (replace(NO_WEIGHTS, priority_weight_tres={"cpu": 100.0, "gres/gpu": 10.0}), 30.0),  # a quarter, a half
        (
            replace(NO_WEIGHTS, priority_weight_tres={"cpu": 2.0}, priority_flags=(PriorityFlag.NO_NORMAL_TRES,)),
            32.0,
        ),
    ],
    ids=["favor small", "relative to time", "small and relative", "TRES", "TRES as numbers"],
)
def test_size_and_tres_of_a_job(slurm: SlurmParameters, points: float) -> None:
    assert site([WIDE], slurm).priority(0, 0.0) == points


def test_an_association_has_its_own_priority_or_that_of_its_account() -> None:
    tables = (
        AssociationTable(account="lab", priority=10.0),
        AssociationTable(account="lab", user="bob", priority=40.0),
    )
    slurm = replace(NO_WEIGHTS, priority_weight_assoc=100.0)
    jobs = [{"user": "ann"}, {"user": "bob"}]

    normal = site(jobs, slurm, accounts=("lab",), associations=tables)
    raw = replace(slurm, priority_flags=(PriorityFlag.NO_NORMAL_ASSOC,))
    as_they_are = site(jobs, raw, accounts=("lab",), associations=tables)

    assert [normal.priority(row, 0.0) for row in (0, 1)] == [25.0, 100.0]
    assert [as_they_are.priority(row, 0.0) for row in (0, 1)] == [1000.0, 4000.0]


def test_with_incr_only_priorities_do_not_fall() -> None:
    flags = (PriorityFlag.INCR_ONLY,)
    here = site([{}], replace(FAIR, priority_flags=flags))
    insert(here.state, here.slurm, 0)
    reprioritise(here.state, here.slurm, 0.0)
    here.slurm.associations["factor"] = 0.5

    reprioritise(here.state, here.slurm, 10.0)

    assert here.state.jobs["priority"].tolist() == [1000.0]
