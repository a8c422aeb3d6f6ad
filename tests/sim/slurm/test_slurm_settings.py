"""Which settings of a site the model of slurmctld leaves out."""

from dataclasses import replace

from advisor.backends.site_config import site_config
from advisor.domain.gang import ShareCount
from advisor.domain.topology import TopologyKind
from advisor.sim.slurm.slurm_settings import settings_left_out, unknown_settings
from tests.builders import make_node, make_partition


def test_settings_that_change_nothing_are_not_named() -> None:
    parameters = {
        "PriorityFlags": "CALCULATE_RUNNING,SMALL_RELATIVE_TO_TIME",
        "SchedulerParameters": "bf_continue,bf_interval=30,max_switch_wait=300",
        "PreemptMode": "OFF",
        "EnforcePartLimits": "NO",
    }

    assert settings_left_out(parameters) == ()


def test_settings_without_a_model_are_named_with_their_values() -> None:
    parameters = {
        "PriorityFlags": "NO_FAIR_TREE,INCR_ONLY",
        "SchedulerParameters": "bf_one_resv_per_job,bf_interval=30,max_rpc_cnt=100",
        "PreemptMode": "REQUEUE",
    }

    assert settings_left_out(parameters) == (
        "PriorityFlags=NO_FAIR_TREE",
        "SchedulerParameters=bf_one_resv_per_job",
        "SchedulerParameters=max_rpc_cnt",
        "PreemptMode=REQUEUE",
    )


def test_settings_of_a_site_without_a_model_are_listed_with_what_they_change() -> None:
    raw = {
        "schedulerparameters": "defer,bf_continue",
        "prioritytype": "priority/multifactor",
        "priorityflags": "MAX_TRES,FAIR_TREE",
        "priorityweighttres": "GRES/gpu=1000,billing=5",
        "selecttypeparameters": "CR_CORE,CR_LLN",
        "preempttype": "preempt/qos",
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
        "PreemptType=preempt/qos",
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
