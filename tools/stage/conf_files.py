"""The configuration files of a test cluster, as text."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from tools.stage.roots import LiveSlurmError

Topology = Literal["tree", "flat", "block"]

# What releases before 25.05 called topology/flat.
FLAT_TOPOLOGY: Mapping[str, str] = {"22.05": "topology/none", "24.11": "topology/default"}
CPUS_PER_NODE = 16
MEMORY_MIB = 64000
# Enough for every job form here, and never so much that memory rather than GPUs decides where a job fits.
MEMORY_PER_CPU_MIB = 1000
# Jobs are looked at right after their submission, so that tests need not wait.
SCHEDULER_PARAMETERS = "batch_sched_delay=0,sched_interval=5,bf_interval=5,bf_continue,max_switch_wait=86400"


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeNode:
    """One fake node; an empty GPU type leaves its GPUs untyped.

    `words` are further ones of its line, `others` its generic resources that are no GPUs.
    """

    name: str
    gpu_count: int
    gpu_type: str
    shard_count: int
    words: str = ""
    others: Mapping[str, int] = field(default_factory=dict)
    is_cloud: bool = False

    def gres(self) -> str:
        """Spell what slurm.conf says of the node's generic resources."""
        parts = [f"gpu:{self.gpu_type}:{self.gpu_count}" if self.gpu_type else f"gpu:{self.gpu_count}"]
        if self.shard_count:
            parts.append(f"shard:{self.shard_count}")
        parts += [f"{name}:{count}" for name, count in self.others.items()]
        return ",".join(parts) if self.gpu_count else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterShape:
    """Describes a test cluster, whatever its release."""

    cluster_name: str = "live"
    topology: Topology = "tree"
    node_count: int = 8
    gpus_per_node: int = 8
    leaf_nodes: int = 4
    gpu_types: Sequence[str] | None = None
    shards: Mapping[str, int] = field(default_factory=lambda: {"n06": 32})
    scheduler_parameters: str = ""
    extra_lines: Sequence[str] = ()
    node_words: Mapping[str, str] = field(default_factory=dict)
    other_gres: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    start_slurmd: bool = True
    # How many of the nodes, the last ones, are of State=CLOUD and get no slurmd.
    cloud_count: int = 0
    # What a requeued job is held back for follows from the life of credentials; 0 leaves Slurm's default.
    cred_expire_s: int = 0

    def nodes(self) -> list[FakeNode]:
        """List the nodes; by default the last quarter of them has v100 GPUs, the others a100."""
        width = max(2, len(str(self.node_count)))
        a100_count = self.node_count - self.node_count // 4
        types = self.gpu_types or ["a100"] * a100_count + ["v100"] * (self.node_count - a100_count)
        if len(types) != self.node_count:
            raise LiveSlurmError(f"{len(types)} GPU types for {self.node_count} nodes: give one for each node")
        names = [f"n{number:0{width}d}" for number in range(1, self.node_count + 1)]
        return [
            FakeNode(
                name=name,
                gpu_count=self.gpus_per_node,
                gpu_type=gpu_type,
                shard_count=self.shards.get(name, 0) if self.gpus_per_node else 0,
                words=self.node_words.get(name, ""),
                others=self.other_gres.get(name, {}),
                is_cloud=number >= self.node_count - self.cloud_count,
            )
            for number, (name, gpu_type) in enumerate(zip(names, types, strict=True))
        ]


def range_of(nodes: Sequence[FakeNode]) -> str:
    """Spell consecutive nodes as Slurm's node list."""
    first, last = nodes[0].name, nodes[-1].name
    return first if first == last else f"n[{first[1:]}-{last[1:]}]"


def slurm_conf(shape: ClusterShape, *, release: str, folder: Path, munge: Path, host: str, ports: range) -> str:
    """Write slurm.conf; the first port is slurmctld's, the others are the nodes'. `munge` is munged's folder."""
    lines = [
        f"ClusterName={shape.cluster_name}",
        f"SlurmctldHost={host}(127.0.0.1)",
        f"SlurmctldPort={ports[0]}",
        "SlurmUser=root",
        "SlurmdUser=root",
        "AuthType=auth/munge",
        f"AuthInfo=socket={munge}/socket{f',cred_expire={shape.cred_expire_s}' if shape.cred_expire_s else ''}",
        f"StateSaveLocation={folder}/state",
        f"SlurmctldPidFile={folder}/slurmctld.pid",
        f"SlurmctldLogFile={folder}/slurmctld.log",
        f"SlurmdPidFile={folder}/slurmd.%n.pid",
        f"SlurmdLogFile={folder}/slurmd.%n.log",
        f"SlurmdSpoolDir={folder}/spool.%n",
        "SlurmdParameters=config_overrides",
        "ProctrackType=proctrack/linuxproc",
        "TaskPlugin=task/none",
        "JobAcctGatherType=jobacct_gather/none",
        "MpiDefault=none",
        "MailProg=/bin/true",
        "ReturnToService=2",
        "SlurmdTimeout=0",
        "KillWait=1",
        "MaxJobCount=100000",
        f"TopologyPlugin={topology_plugin(shape.topology, release)}",
        "SchedulerType=sched/backfill",
        f"SchedulerParameters={scheduler_parameters(shape.scheduler_parameters)}",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_Core_Memory",
        f"DefMemPerCPU={MEMORY_PER_CPU_MIB}",
        "PriorityType=priority/multifactor",
        "PriorityWeightAge=1000",
        "PriorityWeightJobSize=1000",
        "PriorityCalcPeriod=1",
        f"GresTypes={','.join(['gpu', 'shard', *sorted({name for node in shape.nodes() for name in node.others})])}",
        *_node_lines(shape, ports),
        "PartitionName=gpu Nodes=ALL Default=YES MaxTime=UNLIMITED DefaultTime=1-00:00:00 State=UP",
        "PartitionName=debug Nodes=ALL MaxTime=01:00:00 DefaultTime=00:30:00 PriorityJobFactor=10 State=UP",
        *shape.extra_lines,
    ]
    return "\n".join(lines) + "\n"


def scheduler_parameters(added: str) -> str:
    """Join the test clusters' own parameters with others; of a parameter given twice Slurm takes the first."""
    given = {part.partition("=")[0] for part in added.split(",")}
    kept = [part for part in SCHEDULER_PARAMETERS.split(",") if part.partition("=")[0] not in given]
    return ",".join([*kept, added] if added else kept)


def topology_plugin(topology: Topology, release: str) -> str:
    """Name the topology plugin as the release does."""
    if topology == "flat":
        return FLAT_TOPOLOGY.get(release, "topology/flat")
    if (topology, release) == ("block", "22.05"):
        raise LiveSlurmError("Slurm 22.05 has no topology/block: choose tree or flat")
    return f"topology/{topology}"


def gres_conf(shape: ClusterShape, *, folder: Path) -> str:
    """Write gres.conf; Slurm insists on an existing file for each GPU."""
    lines: list[str] = []
    for nodes in _alike(shape):
        node = nodes[0]
        if not node.gpu_count:
            continue
        file_range = f"[0-{node.gpu_count - 1}]" if node.gpu_count > 1 else "0"
        kind = f" Type={node.gpu_type}" if node.gpu_type else ""
        lines.append(f"NodeName={range_of(nodes)} Name=gpu{kind} File={folder}/gpu{file_range}")
        if node.shard_count:
            lines.append(f"NodeName={range_of(nodes)} Name=shard Count={node.shard_count}")
        lines += [
            f"NodeName={range_of(nodes)} Name={name} Count={count} Flags=CountOnly"
            for name, count in node.others.items()
        ]
    return "\n".join(lines) + "\n"


def topology_conf(shape: ClusterShape) -> str:
    """Write topology.conf: leaf switches below one spine, or blocks, of `leaf_nodes` nodes each."""
    nodes, each = shape.nodes(), shape.leaf_nodes
    leaves = [nodes[start : start + each] for start in range(0, len(nodes), each)]
    match shape.topology:
        case "tree":
            lines = [f"SwitchName=leaf{rank} Nodes={range_of(leaf)}" for rank, leaf in enumerate(leaves, 1)]
            lines.append(f"SwitchName=spine Switches=leaf[1-{len(leaves)}]" if len(leaves) > 1 else "")
        case "block":
            lines = [f"BlockName=block{rank} Nodes={range_of(leaf)}" for rank, leaf in enumerate(leaves, 1)]
            lines.append(f"BlockSizes={each}")
        case "flat":
            lines = []
    return "\n".join(lines) + "\n"


def _node_lines(shape: ClusterShape, ports: range) -> Iterator[str]:
    """Write one NodeName line for each run of nodes that are alike."""
    first_port = ports[0] + 1
    for nodes in _alike(shape):
        gres, feature = nodes[0].gres(), nodes[0].gpu_type
        # Nodes that never start need no port of their own.
        last_port = first_port + len(nodes) - 1 if shape.start_slurmd else first_port
        port = f"[{first_port}-{last_port}]" if last_port > first_port else str(first_port)
        yield (
            f"NodeName={range_of(nodes)} NodeAddr=127.0.0.1 Port={port} Sockets=2 CoresPerSocket={CPUS_PER_NODE // 2}"
            f" ThreadsPerCore=1 RealMemory={MEMORY_MIB}{f' Gres={gres}' if gres else ''}"
            f"{f' Feature={feature}' if feature else ''}{f' {nodes[0].words}' if nodes[0].words else ''}"
            f" State={'CLOUD' if nodes[0].is_cloud else 'UNKNOWN'}"
        )
        first_port = last_port + 1 if shape.start_slurmd else first_port


def _alike(shape: ClusterShape) -> Iterator[list[FakeNode]]:
    for _, nodes in itertools.groupby(shape.nodes(), key=lambda node: (node.gres(), node.words, node.is_cloud)):
        yield list(nodes)
