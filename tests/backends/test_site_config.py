import pytest

from advisor.backends.site_config import config_lines, site_config, topology_kind
from advisor.domain.site import SiteConfig
from advisor.domain.topology import TopologyKind
from advisor.errors import DecodeError
from tests.backends import recorded

ALWAYS_COUNTED = ("billing", "cpu", "energy", "fs/disk", "mem", "node", "pages", "vmem")


def config(version: str = "25.11.7", **raw: str) -> SiteConfig:
    return site_config({key.lower(): value for key, value in raw.items()}, version=version)


def test_file_and_running_configuration_come_to_the_same() -> None:
    shown = config_lines(recorded.text("config.txt"))
    said = {
        "clustername": "t25",
        "schedulerparameters": "max_switch_wait=86400,bf_interval=5",
        "selecttypeparameters": "CR_Core",
        "topologyplugin": "topology/tree",
    }

    assert site_config(said, version="25.11.7") == site_config(shown, version="25.11.7")


@pytest.mark.parametrize(
    ("name", "said", "shown"),
    [
        ("CompleteWait", "32", "32 sec"),
        ("CompleteWait", "0", "0 sec"),
        ("OverTimeLimit", "5", "5 min"),
        ("OverTimeLimit", "UNLIMITED", "UNLIMITED"),
        ("SuspendTime", "600", "600 sec"),
        ("SuspendTime", "-1", "INFINITE"),
        ("SuspendTime", "NONE", "INFINITE"),
        ("EnforcePartLimits", "YES", "ALL"),
        ("PreemptMode", "requeue,gang", "GANG,REQUEUE"),
        ("Licenses", "matlab:4,abaqus:2", "abaqus:2,matlab:4"),
        ("BurstBufferType", "burst_buffer/lua", "burst_buffer/lua"),
        ("PriorityDecayHalfLife", "0", "00:00:00"),
        ("PriorityMaxAge", "1-0", "1-00:00:00"),
    ],
)
def test_settings_are_compared_by_what_they_mean(name: str, said: str, shown: str) -> None:
    assert config(**{name: said}) == config(**{name: shown})


def test_zero_is_zero_and_no_default() -> None:
    without_decay = config(PriorityType="priority/multifactor", PriorityDecayHalfLife="0", SuspendTime="0")

    assert without_decay.priority_decay_half_life_s == 0.0
    assert without_decay.further_settings == {"SuspendTime": "0"}


@pytest.mark.parametrize(
    ("version", "priority_type"),
    [("22.05.8", "priority/basic"), ("23.11.4", ""), ("24.11.5", "priority/multifactor"), ("", "priority/multifactor")],
)
def test_default_priority_type_depends_on_the_release(version: str, priority_type: str) -> None:
    assert config(version).priority_type == priority_type


def test_weights_belong_to_the_multifactor_plugin() -> None:
    weighted = config(PriorityType="priority/multifactor", PriorityWeightAge="1000", PriorityCalcPeriod="1")
    basic = config(PriorityType="priority/basic", PriorityWeightAge="1000")

    assert weighted.priority_weights["age"] == 1000
    assert weighted.priority_weights["qos"] == 0
    assert (weighted.priority_calc_period_s, weighted.priority_max_age_s) == (60.0, 604800.0)
    assert (basic.priority_weights, basic.priority_calc_period_s, basic.priority_max_age_s) == ({}, None, None)


@pytest.mark.parametrize(
    ("said", "enforced"),
    [
        ("", ()),
        ("none", ()),
        ("0", ()),
        ("1", ("associations",)),
        ("limits,qos", ("associations", "limits", "qos")),
        ("safe", ("associations", "limits", "safe")),
        ("all", ("associations", "limits", "qos", "safe", "wckeys")),
        ("nojobs", ("nojobs", "nosteps")),
    ],
)
def test_enforcement_names_what_it_implies(said: str, enforced: tuple[str, ...]) -> None:
    assert config(AccountingStorageEnforce=said).accounting_enforce == enforced


def test_counted_tres_are_always_those_and_what_the_site_adds() -> None:
    assert config().accounting_tres == ALWAYS_COUNTED
    added = config(AccountingStorageTRES="gres/gpu,Memory,gres/gpu:a100").accounting_tres
    assert added == tuple(sorted((*ALWAYS_COUNTED, "gres/gpu", "gres/gpu:a100")))


@pytest.mark.parametrize(
    ("plugin", "kind"),
    [
        ("topology/tree", TopologyKind.TREE),
        ("topology/block", TopologyKind.BLOCK),
        ("topology/none", TopologyKind.FLAT),
        ("topology/default", TopologyKind.FLAT),
        ("", TopologyKind.FLAT),
        ("topology/3d_torus", TopologyKind.OTHER),
    ],
)
def test_topology_plugin_has_a_kind(plugin: str, kind: TopologyKind) -> None:
    assert topology_kind(config(TopologyPlugin=plugin)) is kind


def test_plugins_that_do_nothing_are_none() -> None:
    assert config(PreemptType="preempt/none").preempt_type == ""
    assert config(PrioritySiteFactorPlugin="site_factor/none").site_factor_plugin == ""
    assert config(PreemptType="preempt/qos").preempt_type == "preempt/qos"


def test_private_data_are_words() -> None:
    assert config(PrivateData="Jobs,usage").private_data == ("jobs", "usage")
    assert config(PrivateData="none").private_data == ()


@pytest.mark.parametrize("raw", [{"PriorityMaxAge": "UNLIMITED"}, {"PriorityWeightAge": "much"}])
def test_value_that_cannot_be_read_is_refused(raw: dict[str, str]) -> None:
    with pytest.raises(DecodeError, match="priority"):
        config(**raw)


@pytest.mark.parametrize("text", ["", "ClusterName = x\n", "scontrol: error"])
def test_incomplete_configuration_is_refused(text: str) -> None:
    with pytest.raises(DecodeError, match="names no ClusterName"):
        config_lines(text)
