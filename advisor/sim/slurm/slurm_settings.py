"""Which settings of slurm.conf that order or limit a queue the model of slurmctld knows, and which it leaves out."""

import re
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final

from advisor.backends.site_config import further_settings
from advisor.domain.dataclass import dataclass
from advisor.domain.node import Node
from advisor.domain.site import Partition, SiteConfig
from advisor.domain.topology import TopologyKind
from advisor.sim.slurm.queue_tables import PreemptMode, PreemptType


class PriorityFlag(StrEnum):
    """A word of PriorityFlags that the model knows.

    CALCULATE_RUNNING and FAIR_TREE are accepted and change nothing: running jobs have no use for a priority, and the
    fair tree is Slurm's default.
    """

    ACCRUE_ALWAYS = "ACCRUE_ALWAYS"
    CALCULATE_RUNNING = "CALCULATE_RUNNING"
    FAIR_TREE = "FAIR_TREE"
    INCR_ONLY = "INCR_ONLY"
    NO_NORMAL_ALL = "NO_NORMAL_ALL"
    NO_NORMAL_ASSOC = "NO_NORMAL_ASSOC"
    NO_NORMAL_PART = "NO_NORMAL_PART"
    NO_NORMAL_QOS = "NO_NORMAL_QOS"
    NO_NORMAL_TRES = "NO_NORMAL_TRES"
    SMALL_RELATIVE_TO_TIME = "SMALL_RELATIVE_TO_TIME"


# Words of PriorityFlags that the model leaves out, and what each of the settings below would change.
FLAGS_LEFT_OUT: Final[Mapping[str, str]] = {
    "DEPTH_OBLIVIOUS": "fair share counts all levels of the account tree alike",
    "MAX_TRES": "usage counts the largest of a job's resources on each node",
    "MAX_TRES_GRES": "usage counts the largest of a job's resources on each node, and its GPUs",
    "NO_FAIR_TREE": "fair share follows the classic formula, in which accounts above count",
}
# Words of SchedulerParameters that decide which jobs start, and that the model leaves out.
SCHEDULER_WORDS_LEFT_OUT: Final[Mapping[str, str]] = {
    "assoc_limit_stop": "a job that waits for a limit holds up those behind it",
    "bf_allow_magnetic_slot": "backfill considers magnetic reservations",
    "bf_hetjob_immediate": "backfill starts heterogeneous jobs at once",
    "bf_hetjob_prio": "backfill orders heterogeneous jobs in another way",
    "bf_licenses": "backfill reserves licences",
    "bf_max_job_array_resv": "backfill reserves for fewer or more tasks of an array",
    "bf_max_time": "a run of backfill ends earlier or later",
    "bf_node_space_size": "backfill keeps fewer or more reservations",
    "bf_one_resv_per_job": "backfill reserves in one partition for a job of several",
    "bf_running_job_reserve": "backfill reserves for whole nodes of running jobs",
    "bf_topopt_enable": "backfill can delay a job for a better placement",
    "bf_window_linear": "backfill looks at fewer instants of its window",
    "defer": "nothing is tried at submission",
    "defer_batch": "nothing is tried at the submission of batch jobs",
    "delay_boot": "nodes are rebooted for features later",
    "max_rpc_cnt": "scheduling stops while many requests are in progress",
    "max_sched_time": "a pass of the main scheduler ends earlier or later",
    "nohold_on_prolog_fail": "a job whose prolog fails is requeued without a hold",
    "pack_serial_at_end": "jobs of one CPU go to the last nodes",
    "preempt_reorder_count": "jobs to preempt are tried in other orders",
    "preempt_strict_order": "jobs to preempt are tried in another order",
    "preempt_youngest_first": "the youngest jobs are preempted first",
    "sched_max_job_start": "a pass of the main scheduler starts a limited number of jobs",
    "sched_min_interval": "passes of the main scheduler are further apart",
}
_PREEMPT_TYPES: Final[Mapping[str, PreemptType]] = {
    "": "none",
    "(null)": "none",
    "preempt/none": "none",
    "preempt/partition_prio": "partition_prio",
    "preempt/qos": "qos",
}
_PREEMPT_MODES: Final[Mapping[str, PreemptMode]] = {"": "off", "OFF": "off", "REQUEUE": "requeue", "CANCEL": "cancel"}
_PREEMPTION: Final = "jobs are preempted in another way, in the model they never are"
OTHERS_LEFT_OUT: Final[Mapping[str, str]] = {
    "BurstBufferType": "jobs wait until their data is staged in",
    "CompleteWait": "nothing starts for a while after jobs end",
    "EnforcePartLimits": "jobs beyond a partition's limits are refused, in the model they pend",
    "FairShareDampeningFactor": "fair share falls more slowly with usage",
    "FederationParameters": "jobs can start on other clusters",
    "Licenses": "jobs wait for licences",
    "OverTimeLimit": "jobs run beyond their time limits",
    "PreemptParameters": "jobs to preempt are chosen in another way",
    "PriorityUsageResetPeriod": "usage is cleared from time to time",
    "SelectType": "nodes are chosen in another way",
    "SuspendTime": "idle nodes are powered down, and jobs wait until they are up",
}
SELECT_WORDS_LEFT_OUT: Final[Mapping[str, str]] = {
    "CR_LLN": "jobs go to the least loaded nodes",
    "CR_PACK_NODES": "tasks are packed onto few nodes",
    "CR_SOCKET": "jobs get whole sockets",
    "CR_SOCKET_MEMORY": "jobs get whole sockets",
    "ENFORCE_BINDING_GRES": "jobs get GPUs and CPUs of the same sockets only",
    "LL_SHARED_GRES": "shares of GPUs are taken from the least loaded ones",
}
# The TRES of PriorityWeightTRES that the model knows.
MODELLED_TRES: Final = frozenset({"cpu", "mem", "gres/gpu"})
_MIG_TYPE: Final = re.compile(r"(?:.*[_.-])?\d+g\.\d+gb.*", re.ASCII | re.IGNORECASE)
_TOPOLOGIES: Final[Mapping[TopologyKind, str]] = {
    TopologyKind.BLOCK: "blocks count as leaf switches",
    TopologyKind.FLAT: "nodes are chosen in the order of their names, as below one leaf switch",
    TopologyKind.OTHER: "nodes are chosen as below one leaf switch",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownSetting:
    """A setting of a site that the model of slurmctld does not know, and what it changes."""

    setting: str
    effect: str

    def __str__(self) -> str:
        """Return a plain sentence."""
        return f"the what-if model does not know {self.setting}: {self.effect}"


def unknown_settings(
    config: SiteConfig, topology: TopologyKind, partitions: Sequence[Partition], nodes: Sequence[Node]
) -> tuple[UnknownSetting, ...]:
    """List the settings of a site that the model does not know, each with what it changes."""
    return tuple(
        UnknownSetting(setting=setting, effect=effect)
        for settings in (
            _of_scheduler(config),
            _of_priority(config),
            _of_selection(config, topology),
            _of_partitions(partitions),
            _of_nodes(nodes),
        )
        for setting, effect in settings
    )


def _of_scheduler(config: SiteConfig) -> Iterator[tuple[str, str]]:
    if config.scheduler_type not in ("", "sched/backfill"):
        yield f"SchedulerType={config.scheduler_type}", "the model has backfill"
    for word in config.scheduler_parameters:
        if word in SCHEDULER_WORDS_LEFT_OUT:
            yield f"SchedulerParameters={word}", SCHEDULER_WORDS_LEFT_OUT[word]
    for setting in _preemption_left_out(config.preempt_type, config.further_settings.get("PreemptMode", "")):
        yield setting, _PREEMPTION
    for name, value in config.further_settings.items():
        if name in OTHERS_LEFT_OUT:
            yield f"{name}={value}", OTHERS_LEFT_OUT[name]


def _of_priority(config: SiteConfig) -> Iterator[tuple[str, str]]:
    for word in config.priority_flags:
        if word in FLAGS_LEFT_OUT:
            yield f"PriorityFlags={word}", FLAGS_LEFT_OUT[word]
    for name in config.tres_weights:
        if name not in MODELLED_TRES:
            yield f"PriorityWeightTRES={name}", "it adds to priorities"
    if config.site_factor_plugin:
        yield f"PrioritySiteFactorPlugin={config.site_factor_plugin}", "it adds to priorities"


def _of_selection(config: SiteConfig, topology: TopologyKind) -> Iterator[tuple[str, str]]:
    for word in config.select_parameters:
        if word in SELECT_WORDS_LEFT_OUT:
            yield f"SelectTypeParameters={word}", SELECT_WORDS_LEFT_OUT[word]
    if config.select_parameters and not any("MEMORY" in word for word in config.select_parameters):
        words = ",".join(config.select_parameters)
        yield f"SelectTypeParameters={words}", "jobs share memory, in the model each keeps what it asks for"
    if topology in _TOPOLOGIES:
        yield f"TopologyPlugin={config.topology_plugin or topology}", _TOPOLOGIES[topology]


def _of_partitions(partitions: Sequence[Partition]) -> Iterator[tuple[str, str]]:
    for partition in partitions:
        word = partition.over_subscribe.partition(":")[0]
        if word in ("FORCE", "YES"):
            effect = "jobs share CPUs and run in turns, in the model they do not"
        elif word == "EXCLUSIVE":
            effect = "jobs get whole nodes, in the model only those that ask for them"
        else:
            continue
        yield f"OverSubscribe={partition.over_subscribe} of partition {partition.name}", effect


def _of_nodes(nodes: Sequence[Node]) -> Iterator[tuple[str, str]]:
    if shares := sorted({share.kind for node in nodes for share in node.shares}):
        yield f"Gres={','.join(shares)}", "jobs share GPUs, in the model each GPU has one job"
    types = sorted({pool.gpu_type for node in nodes for pool in node.gpus if pool.gpu_type})
    if slices := [name for name in types if _MIG_TYPE.fullmatch(name)]:
        yield f"Gres=gpu:{slices[0]}", "MIG slices count as whole GPUs"


def settings_left_out(parameters: Mapping[str, str]) -> tuple[str, ...]:
    """List the settings of a site that order or limit its queue and that the model leaves out.

    `parameters` are those of `scontrol show config`, by name.
    """
    flags = [word.strip() for word in parameters.get("PriorityFlags", "").split(",")]
    words = [word.partition("=")[0].strip() for word in parameters.get("SchedulerParameters", "").split(",")]
    raw = {name.lower(): value for name, value in parameters.items()}
    plugin = raw.get("prioritysitefactorplugin", "")
    return (
        *(f"PriorityFlags={word}" for word in flags if word in FLAGS_LEFT_OUT),
        *(f"SchedulerParameters={word}" for word in words if word in SCHEDULER_WORDS_LEFT_OUT),
        *(f"{name}={value}" for name, value in further_settings(raw).items() if name in OTHERS_LEFT_OUT),
        *(_preemption_left_out(raw.get("preempttype", ""), further_settings(raw).get("PreemptMode", ""))),
        *([f"PrioritySiteFactorPlugin={plugin}"] if plugin not in ("", "(null)") else []),
    )


def preempt_type_of(plugin: str) -> PreemptType:
    """Return the type that PreemptType of slurm.conf names; none for one that the model does not know."""
    return _PREEMPT_TYPES.get(plugin, "none")


def preempt_mode_of(words: str) -> PreemptMode:
    """Return the mode that PreemptMode of slurm.conf names; off for one that the model does not know."""
    return _PREEMPT_MODES.get(words.upper(), "off")


def _preemption_left_out(plugin: str, words: str) -> Iterator[str]:
    """Return what of PreemptType and PreemptMode the model does not know."""
    if plugin not in _PREEMPT_TYPES:
        yield f"PreemptType={plugin}"
    if words.upper() not in _PREEMPT_MODES:
        yield f"PreemptMode={words}"
