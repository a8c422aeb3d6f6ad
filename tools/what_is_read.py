"""Writes docs/what-is-read.md: what sadvise reads of requests and settings, from the constants of its decoders.

Every field that a decoder reads stands in one row here; a test compares both. What no decoder reads is written by hand.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from advisor.backends.assoc_text import COUNTS
from advisor.backends.association_limits import CHECKED
from advisor.backends.text_decode import UNCOUNTED
from advisor.features.capacity import Doubt, Fit
from advisor.sim.slurm.slurm_settings import (
    FLAGS_LEFT_OUT,
    OTHERS_LEFT_OUT,
    SCHEDULER_WORDS_LEFT_OUT,
    SELECT_WORDS_LEFT_OUT,
)
from tools.pages.page_text import table


class Word(StrEnum):
    """The three answers of the page."""

    READ = "read"
    DOUBTED = "doubted"
    NOT_READ = "not read"


@dataclass(frozen=True, slots=True)
class Input:
    """A request or setting, and the fields that hold it: of squeue or sinfo, of pyslurm."""

    name: str
    text: str = ""
    pyslurm: str = ""
    remark: str = ""

    @property
    def remarks(self) -> str:
        """Return the remark, and which of the two readers has no field for it."""
        readers = {"text": self.text, "pyslurm": self.pyslurm}
        lacking = ", ".join(f"`{reader}`" for reader, fields in readers.items() if not fields)
        return "; ".join(part for part in (self.remark, f"not by the reader {lacking}" if lacking else "") if part)


# Fields of a job, node or partition that are no request or setting, or bar nothing.
DESCRIBING: Final = Input(
    "",
    "JobID State Reason Name UserName Comment NodeList SubmitTime StartTime EndTime Requeue",
    "id state state_reason name user_name comment allocated_nodes submit_time start_time end_time is_requeueable",
)
DESCRIBING_NODES: Final = Input("", "NodeList PartitionName Reason", "name partitions reason")
DESCRIBING_PARTITIONS: Final = Input("", "PartitionName", "name")

REQUESTS: Final = (
    Input("--account", "Account", "account"),
    Input("--array", "JobArrayID", "array_id array_task_id array_tasks_parallel array_tasks_waiting"),
    Input("--begin", "EligibleTime", "eligible_time", "such a job is left alone until then"),
    Input("--constraint=A, --constraint=A&B", "Feature", "constraints"),
    Input("--cpus-per-gpu", "cpus-per-tres", "cpus_per_gpu cpus_per_task"),
    Input("--ntasks, --cpus-per-task", "NumTasks NumCPUs", "ntasks cpus",
          "on 24.11 one task with more --gpus than a node has is doubted, as neither reader shows whether it was "
          "asked for"),
    Input("--ntasks-per-node", "NTPerNode", "",
          "doubted above the number of tasks, and with --gpus or --gpus-per-task where that is no multiple of it: "
          "26.05 never starts these"),
    Input("--mincpus", "MinCPUs", "",
          "as CPUs that every node must have; doubted with --gpus-per-task and --ntasks-per-node, and beside several "
          "nodes where it is no multiple of --cpus-per-task"),
    Input("--dependency", "Dependency", "dependencies", "such a job is left alone"),
    Input("--exclude", "ExcNodes", "excluded_nodes", "22.05: not by the reader `text`"),
    Input("--exclusive", "OverSubscribe Exclusive", "resource_sharing",
          "26.05, and `--exclusive=user`: not by the reader `pyslurm`"),
    Input("--gpus, --tres-per-job", "tres-per-job", "tres_per_job",
          "with `pyslurm` only where AccountingStorageTRES counts gres/gpu"),
    Input("--gpus-per-node, --gres", "tres-per-node", "gres_per_node"),
    Input("--gpus-per-task, --tres-per-task", "tres-per-task", "tres_per_task"),
    Input("heterogeneous jobs", "HetJobID HetJobOffset", "heterogeneous_id heterogeneous_offset",
          "they are left alone"),
    Input("--hold, --priority", "PriorityLong", "priority"),
    Input("--mem, --mem-per-cpu", "tres-alloc", "allocated_tres requested_tres"),
    Input("--nice", "Nice", "nice"),
    Input("--nodelist", "ReqNodes", "required_nodes"),
    Input("--nodes", "NumNodes MaxNodes", "num_nodes max_nodes"),
    Input("--partition", "Partition", "partition"),
    Input("--qos", "QOS", "qos"),
    Input("--reservation", "Reservation", "reservation", "such a job is left alone"),
    Input("scrontab jobs", "CronJob", "is_cronjob", "they are left alone; 22.05 and 24.11: not by the reader `text`"),
    Input("--switches", "ReqSwitch Wait4Switch", "required_switches max_wait_time_switches"),
    Input("--time", "TimeLimit", "time_limit"),
    Input("--time-min", "MinTime", "time_limit_min"),
    Input("--tmp", "MinTmpDisk", "", "see below"),
)  # fmt: skip
# By doubt: the requests that raise it, and the fields that no row above has.
DOUBTS: Final[Mapping[Doubt, Input]] = {
    Doubt.FEATURES: Input("--constraint in any other form", "Feature", "constraints"),
    Doubt.SHARES: Input("--gres=shard, --gres=mps", "tres-per-node", "gres_per_node"),
    Doubt.OPTIONS: Input("GRES other than GPUs per task or job", "tres-per-task", "tres_per_task"),
    Doubt.BARRED_NODES: Input(
        "GRES other than GPUs per node, --tmp",
        "tres-per-node",
        "gres_per_node",
        "counted; where only some nodes have it, the job is left alone (`no_bar`)",
    ),
    Doubt.SOCKETS: Input("--gpus-per-socket", "tres-per-socket", "tres_per_socket sockets_per_node"),
    Doubt.MEMORY: Input("no --mem", "tres-alloc", "requested_tres", "no memory is assumed"),
    Doubt.NODE_COUNT: Input(
        "--ntasks or an open node count, where only more nodes than tasks, or than Slurm estimates, would do now",
        "NumTasks NumNodes",
        "ntasks num_nodes",
    ),
    Doubt.NODE_LIMIT: Input(
        "as many --nodes at most as --ntasks, above MaxNodes of the partition",
        "MaxNodes",
        "max_nodes",
        "26.05 shows the tasks of other jobs so, too",
    ),
    Doubt.UNEQUAL_NODES: Input(
        "--gpus or --gpus-per-task and --nodes of at least two, where fewer nodes have all GPUs and others have less",
        "tres-per-job tres-per-task",
        "tres_per_job tres_per_task",
        "22.05, which can give the first nodes all of them and then has none for the others",
    ),
    Doubt.GPUS_UNKNOWN: Input("forms of --gpus that pyslurm hides", "tres-per-job", "tres_per_job", "left alone"),
    Doubt.PARTITION_UNKNOWN: Input("a partition that is not shown", "Partition", "partition"),
}
# Options that have a name of their own in the constant of the decoders.
_SPELLED: Final = {
    "--exclusive": "--exclusive=mcs",
    "--sockets-per-node": "--sockets-per-node, --extra-node-info",
    "--threads-per-core": "--threads-per-core, --hint=nomultithread",
}
_UNSEEN_SINCE: Final = {"OverSubscribe": "not on 26.05, where the field Exclusive is read for NODE and USER alone; "}
_OPTION: Final = re.compile(r"--[a-z-]+(=[\w&]+)?")
_ABOUT_THREADS: Final = frozenset(("--threads-per-core", "--ntasks-per-core"))

_SIMULATED: Final = "in simulations only"
NODES: Final = (
    Input("State", "StateComplete", "state", "[what each state means](node-states.md)"),
    Input("CPUs", "CPUs CPUsState", "total_cpus allocated_cpus"),
    Input("RealMemory", "Memory AllocMem", "real_memory allocated_memory"),
    Input("Gres", "Gres GresUsed", "configured_gres allocated_tres"),
    Input("Features", "features_act", "active_features", "the active ones"),
    Input("TmpDisk", "Disk"),
    Input("ThreadsPerCore", "Threads"),
    Input("Weight", "Weight", "weight", _SIMULATED),
)
FOR_SYSTEM: Final = Input(
    "CoreSpecCount, CpuSpecList, MemSpecLimit",
    "",
    "",
    "by `scontrol show node`, which is asked where slurm.conf has one of them: not of dynamic nodes "
    "beside a slurm.conf without any",
)
PARTITIONS: Final = (
    Input("State", "Available", "state"),
    Input("Nodes", "NodeList", "nodes"),
    Input("MaxTime", "Time", "max_time"),
    Input("DefaultTime", "DefaultTime", "default_time", "counted nowhere yet"),
    Input("MaxNodes", "Size", "max_nodes"),
    Input("MinNodes", "Size", "min_nodes"),
    Input("MaxCPUsPerNode", "MaxCPUsPerNode", "max_cpus_per_node"),
    Input("OverSubscribe", "OverSubscribe", "oversubscribe"),
    Input("PriorityTier", "PriorityTier", "priority_tier"),
    Input("PriorityJobFactor", "PriorityJobFactor", "priority_job_factor", _SIMULATED),
    Input("Default", "Partition", "is_default"),
    Input("QOS", "", "qos", "by `scontrol show partition`, before a job is resized, and in simulations"),
)
SETTINGS: Final[Mapping[str, str]] = {
    "ClusterName": "",
    "SchedulerType": "",
    "SchedulerParameters": "bf_max_job_test, bf_resolution, bf_window, max_switch_wait, time_min_as_soft_limit, "
    "and in simulations all but those below",
    "SelectTypeParameters": "whether memory is allocated; in simulations all words but those below",
    "TopologyPlugin": "with topology.conf, or the default topology of topology.yaml",
    "PriorityType": "",
    "PriorityWeightAge": _SIMULATED,
    "PriorityWeightAssoc": _SIMULATED,
    "PriorityWeightFairshare": _SIMULATED,
    "PriorityWeightJobSize": _SIMULATED,
    "PriorityWeightPartition": _SIMULATED,
    "PriorityWeightQOS": _SIMULATED,
    "PriorityWeightTRES": f"{_SIMULATED}; cpu, mem and gres/gpu",
    "PriorityMaxAge": _SIMULATED,
    "PriorityCalcPeriod": _SIMULATED,
    "PriorityDecayHalfLife": _SIMULATED,
    "PriorityFavorSmall": _SIMULATED,
    "PriorityFlags": f"{_SIMULATED}; all words but those below",
    "PrivateData": "what this user cannot see",
    "AccountingStorageEnforce": "whether limits are enforced",
    "AccountingStorageTRES": "",
    "PreemptType": f"{_SIMULATED}; partition_prio, and qos with --cluster live",
    "PreemptMode": f"{_SIMULATED}; REQUEUE and CANCEL, also of partitions and QOS, with their GraceTime",
    "PreemptExemptTime": _SIMULATED,
    "KillWait": _SIMULATED,
    "MessageTimeout": _SIMULATED,
}
# Kept by name, to say that simulations leave them out.
NAMED_ONLY: Final[Mapping[str, str]] = {
    "PrioritySiteFactorPlugin": "it adds to priorities",
    **OTHERS_LEFT_OUT,
}

# By hand: what Slurm shows, by the fields that hold it, or hides, and no decoder reads.
UNREAD_REQUESTS: Final = (
    Input("--batch"),
    Input("--bb, --bbf", "BurstBuffer", remark="stage-in delays a start"),
    Input("--cluster-constraint, --clusters", "ClusterFeature",
          remark="jobs of a federation are left alone, by their ids"),
    Input("--thread-spec", remark="doubted by the reader `text`, which shows it as --core-spec"),
    Input("--deadline", "Deadline"),
    Input("--delay-boot, --reboot", "DelayBoot"),
    Input("--exclusive=topo", remark="not in 22.05; bars blocks in which any other job runs. That such a job bars its "
          "block to others is read as the state of its nodes"),
    Input("--extra", remark="not in 22.05; bars nodes with SchedulerParameters=extra_constraints"),
    Input("--gpu-bind, --gpu-freq, --tres-bind", "tres-bind tres-freq"),
    Input("--gres-flags", remark="enforce-binding, one-task-per-sharing and the like bar GPUs beside other CPUs"),
    Input("--licenses", "Licenses", remark="`explain` counts them once Slurm names them; plans do not"),
    Input("--mcs-label"),
    Input("--mem-per-gpu", "mem-per-tres",
          remark="its memory is read as Slurm adds it up for the present size, and counted so for other sizes"),
    Input("--network", "Network"),
    Input("--ntasks-per-gpu", remark="Slurm sets the tasks by it, which are read"),
    Input("--overcommit, --oversubscribe"),
    Input("--prefer", "Prefer"),
    Input("--resources", remark="not in 24.11"),
    Input("--segment, --consolidate-segments, --spread-segments", remark="not in 22.05"),
    Input("--spread-job, --use-min-nodes", remark="nodes are chosen in another way"),
)  # fmt: skip
UNREAD_NODES: Final = (
    Input("Boards, Sockets, CoresPerSocket", "Sockets Cores", remark="so requests for them are doubted"),
    Input("Cores and Links in gres.conf", remark="which CPUs stand beside which GPUs"),
    Input("RestrictedCoresPerGPU", remark="not in 22.05"),
    Input("features that a reboot can give (NodeFeaturesPlugins)", "features"),
    Input("owner and MCS label"),
    Input("ResumeTimeout, SuspendTimeout, ResumeRate", remark="a node that boots counts as if it were up"),
)  # fmt: skip
UNREAD_PARTITIONS: Final = (
    Input("AllocNodes"),
    Input("AllowAccounts, AllowGroups, AllowQos, DenyAccounts, DenyQos"),
    Input("RootOnly, DisableRootJobs, ReqResv"),
    Input("DefCpuPerGPU, DefMemPerCPU, DefMemPerGPU, DefMemPerNode", remark="no memory is assumed without --mem"),
    Input("Exclusive, ExclusiveUser, ExclusiveTopo", remark="only the request of a job is, which shows it"),
    Input("LLN, SelectTypeParameters"),
    Input("MaxCPUsPerSocket", remark="not in 22.05"),
    Input("MaxMemPerCPU, MaxMemPerNode"),
    Input("OverTimeLimit"),
    Input("ResumeTimeout, SuspendTime, SuspendTimeout, PowerDownOnIdle"),
    Input("Topology", remark="not in 24.11; the default topology counts for all partitions"),
    Input("TRESBillingWeights", remark="by `check` alone; a limit on billing refuses every new size"),
)  # fmt: skip
UNREAD_SETTINGS: Final = (
    Input("AllowSpecResourcesUsage"),
    Input("DefCpuPerGPU, DefMemPerCPU, DefMemPerGPU, DefMemPerNode, MaxMemPerCPU, MaxMemPerNode"),
    Input("JobSubmitPlugins", remark="what they make of a request is read, their rules for updates are not"),
    Input("LicenseParameters"),
    Input("MCSPlugin, MCSParameters"),
    Input("NodeFeaturesPlugins"),
    Input("PriorityParameters, PrioritySiteFactorParameters"),
    Input("ResumeRate, ResumeTimeout, SuspendRate, SuspendTimeout, SuspendExcNodes, SuspendExcParts"),
    Input("ResvOverRun"),
    Input("SchedulerTimeSlice"),
    Input("TopologyParam"),
)
UNREAD_LIMITS: Final = (
    Input("MaxTRESRunMinsPU, MaxTRESRunMinsPA"),
    Input("GrpJobsAccrue, MaxJobsAccrue, MinPrioThresh"),
    Input("LimitFactor, UsageFactor, UsageThreshold"),
    Input("Flags of a QOS", remark="OverPartQOS, PartitionTimeLimit, PartitionMaxNodes, NoReserve and the like"),
)


def section(entries: Iterable[Input], unread: Sequence[Input], further: Iterable[Sequence[str]] = ()) -> str:
    """Return a table of what is read, of rows in between, and of what is not read."""
    rows = [
        *([_code(entry.name), Word.READ, entry.remarks] for entry in entries),
        *further,
        *([_code(entry.name), Word.NOT_READ, entry.remark] for entry in unread),
    ]
    names: dict[tuple[str, str], list[str]] = {}
    for name, word, remark in rows:
        names.setdefault((word, remark), []).append(name)
    return table(("what", "", "remarks"), (["; ".join(own), *key] for key, own in names.items()))


def doubted() -> Iterator[tuple[str, str, str]]:
    """Yield the rows of requests that raise a doubt; one that restricts no plan is read."""
    for field, option in UNCOUNTED.items():
        remark = "where cores have several threads; " if option in _ABOUT_THREADS else _UNSEEN_SINCE.get(field, "")
        yield _code(_SPELLED.get(option, option)), Word.DOUBTED, f"{remark}not by the reader `pyslurm`"
    for doubt, entry in DOUBTS.items():
        restricts = Fit(tier_now=None, tier_ever=None, doubts=(doubt,)).restricted
        yield _code(entry.name), Word.DOUBTED if restricts else Word.READ, entry.remark


def what_is_read_page(template: str) -> str:
    """Fill in the template of the page."""
    named_only = (
        [_code(name), Word.NOT_READ, f"simulations leave it out: {effect}"] for name, effect in NAMED_ONLY.items()
    )
    limits = (
        _setting(", ".join(CHECKED), "before a job is resized, in simulations and `explain`"),
        _setting(", ".join(name for name in COUNTS if name not in CHECKED), "in simulations and `explain`"),
        _setting("Priority, Shares, parents", _SIMULATED),
    )
    left_out = {
        "SchedulerParameters": SCHEDULER_WORDS_LEFT_OUT,
        "SelectTypeParameters": SELECT_WORDS_LEFT_OUT,
        "PriorityFlags": FLAGS_LEFT_OUT,
    }
    return template.format(
        requests=section(REQUESTS, UNREAD_REQUESTS, doubted()),
        nodes=section(NODES, UNREAD_NODES, [[_code(FOR_SYSTEM.name), Word.READ, FOR_SYSTEM.remark]]),
        partitions=section(PARTITIONS, UNREAD_PARTITIONS),
        settings=section((_setting(name, remark) for name, remark in SETTINGS.items()), UNREAD_SETTINGS, named_only),
        limits=section(limits, UNREAD_LIMITS),
        left_out=table(
            ("setting", "word", "what it does"),
            (
                [setting, _code(word), effect]
                for setting, effects in left_out.items()
                for word, effect in effects.items()
            ),
        ),
    )


def _setting(name: str, remark: str) -> Input:
    """Return the entry of what does not depend on the reader."""
    return Input(name, "scontrol", "scontrol", remark)


def _code(names: str) -> str:
    """Return names with the options among them in the type of code."""
    return ", ".join(f"`{name}`" if _OPTION.fullmatch(name) else name for name in names.split(", "))
