"""The cluster of a site, from recorded snapshots and what slurmctld shows of limits, and what of it is left out."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from advisor.backends.assoc_text import QueueLimits, decode_associations, read_queue_limits
from advisor.backends.site_config import further_settings, site_config
from advisor.domain.gang import ShareCount
from advisor.domain.site import SiteConfig
from advisor.domain.snapshot import Snapshot
from advisor.domain.topology import TopologyKind
from advisor.errors import SimulationError
from advisor.sim.cluster import NodeState
from advisor.sim.slurm.queue_tables import AssociationTable
from advisor.sim.slurm.site_cluster import parameters_of, site_cluster
from advisor.sim.slurm.slurm_settings import settings_left_out, unknown_settings
from tests.backends import recorded
from tests.backends.fake_slurm import FakeSlurm
from tests.builders import make_config, make_node, make_partition, make_snapshot, make_topology

ENFORCED = ("associations", "limits")


def shown_limits() -> QueueLimits:
    """Return what a real slurmctld of 22.05 showed."""
    text = (recorded.RECORDED / "22.05" / "assoc_mgr.txt").read_text()
    return QueueLimits(state=decode_associations(text))


def enforcing(snapshot: Snapshot, *words: str) -> Snapshot:
    return replace(snapshot, config=replace(snapshot.config, accounting_enforce=words))


@pytest.mark.parametrize("release", recorded.LIVE_RELEASES)
def test_cluster_has_the_nodes_partitions_and_weights_of_a_recording(release: str) -> None:
    snapshot = recorded.printed_snapshot(release)

    cluster = site_cluster(snapshot).cluster

    assert cluster.node_names == tuple(f"n{number:02d}" for number in range(1, 9))
    assert [group.switch for group in cluster.group_by_node] == ["leaf1"] * 4 + ["leaf2"] * 4
    assert [group.type_name for group in cluster.group_by_node] == ["a100"] * 6 + ["v100"] * 2
    assert {(group.gpus, group.cpus, group.memory_mib) for group in cluster.nodes} == {(8, 16, 64_000)}
    drained = [group.names for group in cluster.nodes if group.state is NodeState.DRAINED]
    assert drained == [node.name for node in snapshot.nodes if not node.is_usable]
    assert [
        (table.name, table.priority_job_factor, table.max_time_s, table.default) for table in cluster.partitions
    ] == [
        ("debug", 10, 3600.0, False),
        ("gpu", 1, None, True),
    ]
    slurm = cluster.slurm
    assert (slurm.priority_weight_age, slurm.priority_weight_job_size, slurm.priority_weight_qos) == (1000.0, 1000.0, 0)
    assert (slurm.bf_interval_s, slurm.sched_interval_s, slurm.max_switch_wait_s) == (5.0, 5.0, 86_400.0)


def test_nodes_of_a_group_keep_the_order_of_their_numbers() -> None:
    names = ["n2", "n10", "n9", "n1"]
    snapshot = make_snapshot(
        nodes=[make_node(name) for name in names],
        partitions=[make_partition(nodes=names)],
        topology=make_topology({"leaf": ("n1", "n2", "n9", "n10")}),
    )

    cluster = site_cluster(snapshot).cluster

    assert cluster.node_names == ("n1", "n2", "n9", "n10")
    assert {group.switch for group in cluster.nodes} == {"leaf"}


def test_limits_are_those_that_slurmctld_shows_and_enforces() -> None:
    snapshot = enforcing(recorded.printed_snapshot("22.05"), *ENFORCED)

    cluster = site_cluster(snapshot, shown_limits()).cluster

    accounts = {table.account: table for table in cluster.associations if not table.user}
    assert (accounts["top"].group_gpus, accounts["vision"].group_cpus, accounts["vision"].parent) == (12, 20, "top")
    assert AssociationTable(account="sub", user="mail", max_gpus_per_job=5) in cluster.associations
    normal, part = cluster.qos
    assert (normal.max_gpus_per_user, normal.max_gpus_per_account) == (7, 9)
    assert (part.group_gpus, part.max_gpus_per_job) == (16, 5)


def test_limits_that_are_not_enforced_are_left_out_and_shares_are_kept() -> None:
    site = site_cluster(enforcing(recorded.printed_snapshot("22.05")), shown_limits())

    assert {table.group_gpus for table in site.cluster.associations} == {None}
    assert {table.account for table in site.cluster.associations} == {"root", "top", "vision", "sub"}
    assert "AccountingStorageEnforce has no limits: those that are set do not count" in site.notes


def test_limits_that_the_model_does_not_know_are_named() -> None:
    text = (recorded.RECORDED / "22.05" / "assoc_mgr.txt").read_text()
    state = decode_associations(
        text.replace("MaxWallPJ= ", "MaxWallPJ=90 ").replace("GrpWall=N(0.00)", "GrpWall=60(0.00)")
    )
    snapshot = enforcing(recorded.printed_snapshot("22.05"), *ENFORCED)

    site = site_cluster(snapshot, QueueLimits(state=state))

    assert {table.max_wall_s for table in site.cluster.associations} == {5400.0}
    assert any("limits that the what-if model does not know are left out: GrpWall" in note for note in site.notes)


def test_default_partition_that_is_not_shown_is_the_widest_without_a_short_limit() -> None:
    partitions = [
        make_partition("debug", ("n01",), max_time_s=3600.0),
        make_partition("gpu", ("n01",), max_time_s=None),
    ]
    site = site_cluster(make_snapshot([], [make_node("n01")], partitions=partitions))

    assert {table.name: table.default for table in site.cluster.partitions} == {"debug": False, "gpu": True}
    assert "the snapshot does not show the default partition: jobs without one go to gpu" in site.notes


def test_parameters_come_from_the_configuration_and_default_to_those_of_slurm() -> None:
    words = {"bf_interval": "60", "bf_max_job_test": "1000", "default_queue_depth": "x", "bf_window": "2880"}
    config = make_config(
        scheduler_parameters=words, priority_weights={"age": 500, "fair_share": 9}, slurm_version="24.11.5"
    )

    parameters = parameters_of(config)

    assert parameters.release == "24.11"
    assert (parameters.bf_interval_s, parameters.bf_max_job_test, parameters.bf_window_s) == (60.0, 1000, 172_800.0)
    assert (parameters.default_queue_depth, parameters.max_switch_wait_s) == (100, 300.0)
    assert (parameters.priority_weight_age, parameters.priority_weight_fairshare) == (500.0, 9.0)


@pytest.mark.parametrize(
    ("shown", "times"), [({}, (0.0, 30.0, 10.0)), ({"killwait": "5 sec", "messagetimeout": "60"}, (0.0, 5.0, 60.0))]
)
def test_times_of_preemption_come_from_slurm_conf(shown: Mapping[str, str], times: tuple[float, ...]) -> None:
    parameters = parameters_of(replace(make_config(), further_settings=further_settings(shown)))

    assert (parameters.preempt_exempt_s, parameters.kill_wait_s, parameters.message_timeout_s) == times


def test_snapshot_without_gpus_is_refused() -> None:
    snapshot = make_snapshot(nodes=[make_node("n01", gpus=0)], partitions=[make_partition(nodes=["n01"])])

    with pytest.raises(SimulationError, match="no nodes with GPUs"):
        site_cluster(snapshot)


@pytest.mark.parametrize(
    ("answer", "config", "sentence"),
    [
        ("Current Association Manager state\n", make_config(), "slurmctld shows no associations: there are no shares"),
        ("slurm_load_assoc: Access denied", make_config(), "limits and shares cannot be read, so there are none"),
        (None, make_config(private_data=("users",)), "PrivateData=users can hide limits and shares of other users"),
    ],
)
def test_limits_that_are_hidden_or_absent_are_a_sentence(answer: str | None, config: SiteConfig, sentence: str) -> None:
    folder = recorded.RECORDED / "22.05"
    state = (folder / "assoc_mgr.txt").read_text() if answer is None else answer
    commands = FakeSlurm(
        texts={
            "scontrol -o show assoc_mgr flags=assoc,qos": state,
            "scontrol -o -a show partition": (folder / "partition.txt").read_text(),
        }
    )

    limits = read_queue_limits(commands, config)

    assert [note for note in limits.notes if note.startswith(sentence)]
    assert set(limits.partitions) == {"debug", "gpu"}


def test_settings_that_change_nothing_are_not_named() -> None:
    parameters = {
        "PriorityFlags": "CALCULATE_RUNNING,SMALL_RELATIVE_TO_TIME",
        "SchedulerParameters": "bf_continue,bf_interval=30,max_switch_wait=300",
        "PreemptType": "preempt/qos",
        "PreemptMode": "REQUEUE",
        "PreemptExemptTime": "00:10:00",
        "EnforcePartLimits": "NO",
    }

    assert settings_left_out(parameters) == ()


def test_settings_without_a_model_are_named_with_their_values() -> None:
    parameters = {
        "PriorityFlags": "NO_FAIR_TREE,INCR_ONLY",
        "SchedulerParameters": "bf_one_resv_per_job,bf_interval=30,max_rpc_cnt=100",
        "PreemptType": "preempt/partition_prio",
        "PreemptMode": "GANG,SUSPEND",
    }

    assert settings_left_out(parameters) == (
        "PriorityFlags=NO_FAIR_TREE",
        "SchedulerParameters=bf_one_resv_per_job",
        "SchedulerParameters=max_rpc_cnt",
        "PreemptMode=GANG,SUSPEND",
    )


def test_settings_of_a_site_without_a_model_are_listed_with_what_they_change() -> None:
    raw = {
        "schedulerparameters": "defer,bf_continue",
        "prioritytype": "priority/multifactor",
        "priorityflags": "MAX_TRES,FAIR_TREE",
        "priorityweighttres": "GRES/gpu=1000,billing=5",
        "selecttypeparameters": "CR_CORE,CR_LLN",
        "preempttype": "preempt/job_prio",
        "preemptmode": "REQUEUE",
        "licenses": "matlab:10",
        "completewait": "0 sec",
        "suspendtime": "INFINITE",
        "topologyplugin": "topology/tree",
    }
    nodes = [make_node(gpu_type="1g.5gb", shares=(ShareCount(kind="shard", count=8),))]
    partitions = [replace(make_partition("busy"), over_subscribe="FORCE:4"), make_partition()]

    unknown = unknown_settings(site_config(raw, version="24.11.5"), TopologyKind.TREE, partitions, nodes)

    assert [each.setting for each in unknown] == [
        "SchedulerParameters=defer",
        "PreemptType=preempt/job_prio",
        "Licenses=matlab:10",
        "PriorityFlags=MAX_TRES",
        "PriorityWeightTRES=billing",
        "SelectTypeParameters=CR_LLN",
        "SelectTypeParameters=CR_CORE,CR_LLN",
        "OverSubscribe=FORCE:4 of partition busy",
        "Gres=shard",
        "Gres=gpu:1g.5gb",
    ]
    assert str(unknown[0]) == (
        "the what-if model does not know SchedulerParameters=defer: nothing is tried at submission"
    )


def test_settings_of_a_plain_site_are_all_known() -> None:
    raw = {"selecttypeparameters": "CR_CORE_MEMORY", "topologyplugin": "topology/tree", "preemptmode": "OFF"}
    config = site_config(raw, version="24.11.5")

    assert unknown_settings(config, TopologyKind.TREE, [make_partition()], [make_node()]) == ()
