"""QOS and association limits of the model of slurmctld."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from advisor.sim.cluster import Cluster, NodeGroup, SlurmParameters
from advisor.sim.run_outcome import End, Run
from advisor.sim.slurm.queue_tables import AssociationTable, PartitionTable, QosTable
from advisor.sim.slurm.slurm_builder import build_slurm
from advisor.sim.slurm.slurmctld import run_slurm
from advisor.sim.state import FAULT_DTYPE
from advisor.sim.traces.trace import Trace
from tests.sim.building import FIRST_COME, make_state, make_trace, model_of, run_of, starts_and_ends

ACCOUNTS = ("lab", "team", "other")


def cluster_of(*tables: QosTable | AssociationTable, slurm: SlurmParameters = FIRST_COME, **more: Any) -> Cluster:
    return Cluster(
        nodes=(NodeGroup(count=2, gpus=8),),
        slurm=slurm,
        qos=tuple(table for table in tables if isinstance(table, QosTable)),
        associations=tuple(table for table in tables if isinstance(table, AssociationTable)),
        **more,
    )


def trace_of(jobs: Sequence[Mapping[str, Any]]) -> Trace:
    """Return a trace with accounts lab (0), team (1) and other (2), QOS normal (0) and high (1)."""
    return replace(make_trace(jobs), accounts=ACCOUNTS, qos=("normal", "high"))


def starts(run: Run) -> list[float]:
    return [start for start, _ in starts_and_ends(run)]


LIMITS: Mapping[str, tuple[QosTable | AssociationTable, Mapping[str, Any], list[float]]] = {
    # Jobs of 4 GPUs, 8 CPUs and 100 s: ann, ann, bob and ann of account other; then the table, and what differs.
    "group_gpus": (QosTable(name="normal", group_gpus=8), {}, [0, 0, 100, 100]),
    "group_cpus": (QosTable(name="normal", group_cpus=16), {}, [0, 0, 100, 100]),
    "group_jobs": (QosTable(name="normal", group_jobs=1), {}, [0, 100, 200, 300]),
    "max_gpus_per_user": (QosTable(name="normal", max_gpus_per_user=4), {}, [0, 100, 0, 200]),
    "max_cpus_per_user": (QosTable(name="normal", max_cpus_per_user=8), {}, [0, 100, 0, 200]),
    "max_jobs_per_user": (QosTable(name="normal", max_jobs_per_user=2), {}, [0, 0, 0, 100]),
    "max_gpus_per_account": (QosTable(name="normal", max_gpus_per_account=4), {}, [0, 100, 200, 0]),
    "max_jobs_per_account": (QosTable(name="normal", max_jobs_per_account=2), {}, [0, 0, 100, 0]),
    "group_gpu_run_minutes": (QosTable(name="normal", group_gpu_run_minutes=20), {}, [0, 0, 100, 100]),
    "account": (AssociationTable(account="lab", group_gpus=4), {}, [0, 100, 200, 0]),
    "user of an account": (AssociationTable(account="lab", user="ann", group_gpus=4), {}, [0, 100, 0, 0]),
    "max_jobs": (AssociationTable(account="lab", max_jobs=1), {}, [0, 100, 0, 0]),
    "of another QOS": (QosTable(name="high", group_gpus=4), {}, [0, 0, 0, 0]),
    "not enforced": (
        QosTable(name="normal", group_gpus=8),
        {"slurm": replace(FIRST_COME, accounting_storage_enforce=("associations",))},
        [0, 0, 0, 0],
    ),
}


@pytest.mark.parametrize(("table", "more", "expected"), LIMITS.values(), ids=LIMITS)
def test_a_limit_counts_jobs_from_their_start_to_their_end(
    table: QosTable | AssociationTable, more: Mapping[str, Any], expected: list[float]
) -> None:
    job = {"gpus": 4, "cpus_per_gpu": 2, "time_limit_s": 150}
    jobs = [
        {**job, "user": "ann"},
        {**job, "user": "ann"},
        {**job, "user": "bob"},
        {**job, "user": "ann", "account": 2},
    ]

    assert starts(run_of(trace_of(jobs), cluster_of(table, **more), "slurm")) == expected


def test_counters_go_back_to_zero() -> None:
    tables = (
        QosTable(
            name="normal", group_gpus=8, group_jobs=3, max_jobs_per_user=2, group_submit=9, group_gpu_run_minutes=900
        ),
        AssociationTable(account="lab", group_cpus=99, max_submit=5),
    )
    trace = trace_of([{"gpus": 3, "submit_time": 7 * row, "time_limit_s": 150} for row in range(5)])
    state, slurm = model_of(trace, cluster_of(*tables))

    run_slurm(state, slurm, 20.0)
    during = slurm.counters["used"].copy()
    run_slurm(state, slurm, np.inf)

    assert during.any()
    assert slurm.counters["used"].tolist() == [0.0] * len(slurm.counters)


def test_a_limited_job_blocks_none_and_gets_no_reservation() -> None:
    jobs = [
        {"gpus": 8, "qos": 1, "run_time_s": 500, "time_limit_s": 500},
        {"gpus": 16, "qos": 1, "submit_time": 1, "nodes_min": 2, "nodes_max": 2, "time_limit_s": 600},
        {"gpus": 8, "submit_time": 2, "run_time_s": 900, "time_limit_s": 900},
    ]

    assert starts(run_of(trace_of(jobs), cluster_of(QosTable(name="high", group_gpus=16)), "slurm")) == [0, 902, 2]


def test_the_limit_of_a_qos_replaces_that_of_the_association() -> None:
    tables = (QosTable(name="high", group_gpus=12), AssociationTable(account="lab", group_gpus=4))
    jobs = [{"gpus": 4, "qos": 1}, {"gpus": 4, "qos": 1}, {"gpus": 4}]

    # The two of QOS high count in the account, too.
    assert starts(run_of(trace_of(jobs), cluster_of(*tables), "slurm")) == [0, 0, 100]


def test_limits_of_a_parent_account_count_the_accounts_below() -> None:
    tables = (
        AssociationTable(account="division", group_gpus=8),
        AssociationTable(account="lab", parent="division"),
        AssociationTable(account="team", parent="division"),
    )
    jobs = [{"gpus": 8, "account": 0}, {"gpus": 8, "account": 1}, {"gpus": 8, "account": 2}]

    assert starts(run_of(trace_of(jobs), cluster_of(*tables), "slurm")) == [0, 100, 0]


def test_the_qos_of_a_partition_goes_before_that_of_the_job() -> None:
    tables = (QosTable(name="part", max_gpus_per_user=8), QosTable(name="normal", max_gpus_per_user=2))
    partition = PartitionTable(name="gpu", default=True, qos="part")

    run = run_of(trace_of([{"gpus": 4}] * 3), cluster_of(*tables, partitions=(partition,)), "slurm")

    assert starts(run) == [0, 0, 100]


@pytest.mark.parametrize(
    "table",
    [
        QosTable(name="normal", max_gpus_per_job=4),
        QosTable(name="normal", max_nodes_per_job=1),
        QosTable(name="normal", max_wall_s=60.0),
        QosTable(name="normal", group_gpus=4),
        AssociationTable(account="lab", max_gpus_per_job=4),
    ],
)
def test_a_job_beyond_a_limit_by_itself_is_never_queued(table: QosTable | AssociationTable) -> None:
    jobs = [{"gpus": 16, "nodes_min": 2, "nodes_max": 2, "time_limit_s": 100}, {"submit_time": 1, "time_limit_s": 50}]

    run = run_of(trace_of(jobs), cluster_of(table), "slurm")

    assert run.outcomes["end"][0] == End.IMPOSSIBLE
    assert starts(run)[1] == 1


@pytest.mark.parametrize(
    "table",
    [
        QosTable(name="normal", group_submit=2),
        QosTable(name="normal", max_submit_per_user=2),
        AssociationTable(account="lab", max_submit=2),
        AssociationTable(account="lab", group_submit=2),
    ],
)
def test_a_submission_beyond_a_limit_is_refused_until_jobs_have_ended(table: QosTable | AssociationTable) -> None:
    jobs = [{"submit_time": when} for when in (0, 0, 50, 100.5)]

    run = run_of(trace_of(jobs), cluster_of(table), "slurm")

    assert run.outcomes["end"].tolist() == [End.FINISHED, End.FINISHED, End.IMPOSSIBLE, End.FINISHED]


def test_minutes_that_were_used_hold_jobs_back_until_they_have_decayed() -> None:
    slurm = replace(FIRST_COME, priority_calc_period_s=60.0, priority_decay_half_life_s=600.0)
    jobs = [{"gpus": 8, "run_time_s": 590, "time_limit_s": 600}, {"submit_time": 595, "time_limit_s": 60}]
    table = QosTable(name="normal", group_gpu_minutes=20)

    decaying = run_of(trace_of(jobs), cluster_of(table, slurm=slurm), "slurm")
    lasting = replace(slurm, priority_decay_half_life_s=0.0)
    for_good = run_of(trace_of(jobs), cluster_of(table, slurm=lasting), "slurm")

    # About 78 minutes less what decayed meanwhile are more than 20 for about a half-life more.
    assert 900 < starts(decaying)[1] < 1500
    assert for_good.outcomes["end"].tolist() == [End.FINISHED, End.NOT]


def test_safe_limits_leave_room_for_what_runs() -> None:
    jobs = [{"gpus": 1, "time_limit_s": 600, "run_time_s": 100}, {"gpus": 1, "time_limit_s": 600, "run_time_s": 100}]
    table = QosTable(name="normal", group_gpu_minutes=15)
    safe = replace(FIRST_COME, accounting_storage_enforce=("safe",))

    assert starts(run_of(trace_of(jobs), cluster_of(table), "slurm")) == [0, 0]
    assert starts(run_of(trace_of(jobs), cluster_of(table, slurm=safe), "slurm")) == [0, 100]


def test_a_requeued_job_leaves_its_counters_and_is_held_back() -> None:
    table = QosTable(name="normal", group_gpus=8, group_submit=2)
    trace = trace_of([{"gpus": 8, "run_time_s": 300}, {"gpus": 8, "submit_time": 1, "run_time_s": 300}])
    cluster = cluster_of(table)
    state = make_state(trace, cluster, loses_work=True, ideal=True)
    state = state._replace(faults=np.array([(100.0, 0, 0)], FAULT_DTYPE))
    slurm = build_slurm(state, trace, cluster)

    run_slurm(state, slurm, 150.0)
    during = sorted(slurm.counters["used"].tolist())
    run_slurm(state, slurm, np.inf)

    # The second starts at once in its place; the first is back in line at 221.
    assert during == [2.0, 8.0]
    assert state.jobs["start_time"].tolist() == [0.0, 100.0]
    assert state.jobs["since_time"][0] > 400.0
    assert slurm.counters["used"].tolist() == [0.0, 0.0]


def test_a_requeued_job_is_back_after_the_delay_with_a_new_age() -> None:
    slurm = replace(FIRST_COME, priority_weight_age=1000.0, priority_max_age_s=1000.0, requeue_delay_s=121.0)
    trace = make_trace([{"gpus": 1, "run_time_s": 300}])
    cluster = Cluster(nodes=(NodeGroup(count=2, gpus=1),), slurm=slurm)
    state = make_state(trace, cluster, ideal=True)
    state = state._replace(faults=np.array([(100.0, 0, 0)], FAULT_DTYPE))
    model = build_slurm(state, trace, cluster)

    run_slurm(state, model, 220.0)
    held = (int(model.control["lined"][0]), int(state.tally["pending"][0]))
    run_slurm(state, model, 230.0)

    assert held == (0, 1)
    assert state.jobs["since_time"].tolist() == [221.0]
    assert model.eligible_time.tolist() == [221.0]


def test_where_limits_are_enforced_the_use_of_a_job_is_charged_at_its_end() -> None:
    slurm = replace(FIRST_COME, priority_calc_period_s=300.0, priority_decay_half_life_s=0.0)
    trace = trace_of([{"gpus": 4}, {"submit_time": 100, "gpus": 1, "run_time_s": 150}])
    used = []
    for words in (("associations",), ("limits",)):
        state, model = model_of(trace, cluster_of(slurm=replace(slurm, accounting_storage_enforce=words)))
        run_slurm(state, model, 249.0)
        used.append(model.account_usage[0])

    assert used == [0.0, 400.0]
