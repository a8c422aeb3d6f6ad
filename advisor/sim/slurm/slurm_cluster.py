"""The simulated Slurm with the protocols of the real one: a source of snapshots and an actuator for pending jobs."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from advisor.domain.actions import Action, SetNodeList, SetTimeMin
from advisor.domain.gang import GangRequest, GpuCount, SwitchRequest
from advisor.domain.job import Allocation, ArrayRecord, GpuRange, Job, JobHints, JobState
from advisor.domain.node import GpuPool, Node
from advisor.domain.plan import Outcome, Receipt
from advisor.domain.site import Partition, SiteConfig
from advisor.domain.snapshot import Snapshot
from advisor.domain.topology import Switch, Topology, TopologyKind
from advisor.predict.run_time_features import RunTimeTable
from advisor.sim.cluster import Cluster, names_in
from advisor.sim.slurm.job_update import NodeLists, update_job
from advisor.sim.slurm.slurm_queue import partitions_of
from advisor.sim.slurm.slurm_state import Slurm
from advisor.sim.slurm.slurmctld import ask_for_pass, per_node, sort_line
from advisor.sim.state import NONE, PENDING, State
from advisor.sim.traces.trace import Trace

# What a request is made of; jobs that ask alike share one.
_REQUEST = (
    "gpus",
    "nodes_min",
    "nodes_max",
    "gpu_type",
    "cpus_per_gpu",
    "memory_mib_per_gpu",
    "cpus_per_node",
    "memory_mib_per_node",
    "exclusive",
    "switches",
    "switches_wait_s",
)
# The part of it that does not change, as columns of the trace.
_NAMED = ("features", "required_nodes", "excluded_nodes")
# What changes about a node.
_NODE_CHANGES = ("gpus_free", "cpus_free", "memory_free_mib", "is_up", "is_drained")


class SimulatedSlurm:
    """A `ClusterSource` and an `Actuator` over the arrays of a run.

    Jobs and nodes that did not change since the last snapshot are the same objects in the next. `job_ids` is
    `(n_jobs,)`; `gpu_types` names the types by their codes, "" for GPUs without a name.
    """

    name = "simulated"

    def __init__(self, trace: Trace, cluster: Cluster, state: State, slurm: Slurm, *, pins: bool = False) -> None:
        """Wrap the arrays, which are read and changed in place; with `pins` a script holds gangs to few nodes."""
        self.state = state
        self.slurm = slurm
        self._trace = trace
        # Slurm's ids begin at 1, those of a trace can begin at 0.
        self.job_ids = trace.jobs["job_id"] + max(0, 1 - int(trace.jobs["job_id"].min()))
        self._row_by_id = {int(job_id): row for row, job_id in enumerate(self.job_ids)}
        self._names = cluster.node_names
        self._groups = cluster.group_by_node
        self.gpu_types = cluster.gpu_types
        self._config = _site_config(cluster)
        self._topology = _topology(state, self._names)
        self._partitions = _partitions(cluster, slurm)
        self._partitions_of_node = tuple(
            tuple(self._partitions[place].name for place in np.flatnonzero(column)) for column in slurm.members.T
        )
        self._running: dict[int, Job] = {}
        self._pending: dict[int, tuple[tuple[float, str, float | None], Job]] = {}
        self._tasks = _task_numbers(trace)
        self._pinned = np.where(pins & (trace.jobs["nodes_max"] == 0), state.jobs["nodes_max"], 0)
        self._lists = NodeLists(state, self._names, self._named_in_trace)
        self._nodes: dict[int, tuple[tuple[int, ...], Node]] = {}
        self._gangs: dict[tuple[float, ...], GangRequest] = {}

    @property
    def now(self) -> float:
        """The instant on the clock of the trace."""
        return float(self.state.tally["now"][0])

    def snapshot(self) -> Snapshot:
        """Read the current queue and nodes."""
        return Snapshot(
            taken_at=self.now,
            source=self.name,
            config=self._config,
            topology=self._topology,
            partitions=tuple(sorted(self._partitions, key=lambda partition: partition.name)),
            nodes=tuple(self._read_nodes()),
            jobs=tuple(sorted((*self._read_running(), *self._read_pending()), key=lambda job: job.job_id)),
        )

    def apply(self, action: Action) -> Receipt:
        """Change a pending job as `scontrol update` does, and read it back."""
        row = self._row_by_id.get(action.job_id)
        if row is None or self.state.jobs["phase"][row] != PENDING:
            return Receipt(action=action, outcome=Outcome.FAILED, text="the job is not pending")
        if action.held_by(self.job(row)) == action.after:
            return Receipt(action=action, outcome=Outcome.ALREADY_SO)
        if isinstance(action, SetTimeMin) and (action.after or 0.0) > self.state.jobs["limit_s"][row]:
            return Receipt(action=action, outcome=Outcome.FAILED, text="Requested time limit is invalid")
        if not isinstance(action, SetNodeList):
            update_job(self.state, self.slurm, row, action)
        elif self._lists.write(self.state, row, action.after):
            self.state.tally["changes"] += 1
        else:
            text = "Requested node configuration is not available"
            return Receipt(action=action, outcome=Outcome.FAILED, text=text)
        self._pending.pop(row, None)
        sort_line(self.state, self.slurm)
        ask_for_pass(self.slurm, self.now)
        if action.held_by(self.job(row)) != action.after:
            return Receipt(action=action, outcome=Outcome.FAILED, text="read back another value than the one written")
        return Receipt(action=action, outcome=Outcome.APPLIED)

    def apply_all(self, changes: Sequence[Action]) -> tuple[Receipt, ...]:
        """Make changes, one after the other."""
        return tuple(map(self.apply, changes))

    def hides_range_end(self, job_id: int) -> bool:  # noqa: ARG002  (the protocol's)
        """Return False: both ends of a node range are shown."""
        return False

    def job(self, row: int) -> Job:
        """Return a pending job in its current state."""
        reason = self._reason(row)
        # A job can have started and been requeued since it was read.
        shown = float(self.state.jobs["priority"][row]), reason, self._eligible_time(row, reason)
        kept = self._pending.get(row)
        if kept is not None and kept[0] == shown:
            return kept[1]
        job = self._make(row, JobState.PENDING, reason)
        self._pending[row] = (shown, job)
        return job

    def job_by_id(self, job_id: int) -> Job | None:
        """Return a job that is still pending, else None."""
        row = self._row_by_id[job_id]
        return self.job(row) if self.state.jobs["phase"][row] == PENDING else None

    def row_of(self, job_id: int) -> int:
        """Return the row of a job in the arrays."""
        return self._row_by_id[job_id]

    def run_time_table(self, rows: NDArray[np.integer]) -> RunTimeTable:
        """Return the table of jobs as accounting would hold them."""
        jobs, asked = self.state.jobs[rows], self._trace.jobs[rows]
        gpus = jobs["gpus"].astype(np.float64)
        count = len(rows)
        return RunTimeTable(
            user=tuple(self._trace.users[code] for code in asked["user"]),
            account=tuple(self._trace.accounts[code] for code in asked["account"]),
            name=("",) * count,
            partition=tuple(self._partitions[place].name for place in self.slurm.partition[rows].tolist()),
            qos=tuple(self._trace.qos[code] for code in asked["qos"]),
            gpus=gpus,
            cpus=np.maximum(np.maximum(1, jobs["cpus_per_node"] * jobs["nodes_min"]), gpus * jobs["cpus_per_gpu"]),
            nodes=jobs["nodes_min"].astype(np.float64),
            memory_mib=np.full(count, np.nan),
            limit_s=np.where(np.isfinite(jobs["limit_s"]), jobs["limit_s"], np.nan),
            submit_time=jobs["submit_time"].astype(np.float64),
            waited_s=np.zeros(count),
            elapsed_s=np.zeros(count),
        )

    def pending_rows(self) -> NDArray[np.integer]:
        """Return the rows of the jobs in the line, each in the place of its first entry."""
        entries = self.slurm.line[: int(self.slurm.control["lined"][0])]
        count = len(self.job_ids)
        if not len(self.slurm.extras):
            return entries
        others = self.slurm.extras["row"][np.maximum(entries - count, 0)]
        rows = np.where(entries < count, entries, others)
        return rows[np.sort(np.unique(rows, return_index=True)[1])]

    def _partitions_of(self, row: int, *, running: bool) -> tuple[str, ...]:
        """Name the partition that a job runs in, or all that it can start in."""
        slurm, count = self.slurm, len(self.job_ids)
        if running:
            entry = int(slurm.began[row])
            place = slurm.partition[entry] if entry < count else slurm.extras["partition"][entry - count]
            return (self._partitions[place].name,)
        of_row = slice(*np.searchsorted(slurm.extras["row"], (row, row + 1)))
        places = (int(slurm.partition[row]), *slurm.extras["partition"][of_row].tolist())
        return tuple(self._partitions[place].name for place in places)

    def _read_pending(self) -> Iterator[Job]:
        waiting = int(self.state.tally["waiting"][0])
        for row in (*self.pending_rows().tolist(), *self.slurm.waiting[:waiting].tolist()):
            yield self.job(row)
        if int(self.state.tally["pending"][0]) > int(self.slurm.control["lined"][0]) - len(self.slurm.extras):
            held = (self.slurm.release_time < np.inf) & (self.state.jobs["phase"] == PENDING)
            for row in np.flatnonzero(held).tolist():
                yield self.job(row)

    def _reason(self, row: int) -> str:
        """Return why a pending job waits, in Slurm's words."""
        if self._is_held_back(row):
            return "BeginTime"
        if not len(self.slurm.gates):
            return "Priority"
        gate = self.slurm.gates[row]
        if row in self.slurm.waiting[: self.state.tally["waiting"][0]]:
            return "BeginTime" if gate["begin_time"] > self.now or not gate["conditions"] else "Dependency"
        is_limited = gate["array"] != NONE and _is_full(self.slurm.arrays[gate["array"]])
        return "JobArrayTaskLimit" if is_limited else "Priority"

    def _is_held_back(self, row: int) -> bool:
        """Return whether a job is held back because it was requeued."""
        return bool(self.slurm.release_time[row] < np.inf)

    def _read_running(self) -> Iterator[Job]:
        count = int(self.state.tally["running"][0])
        rows = self.state.running[:count]
        starts = zip(rows.tolist(), self.state.jobs["since_time"][rows].tolist(), strict=True)
        self._running = {row: self._running_since(row, start_time) for row, start_time in starts}
        for row in self._running:
            self._pending.pop(row, None)
        yield from self._running.values()

    def _running_since(self, row: int, start_time: float) -> Job:
        kept = self._running.get(row)
        return kept if kept and kept.start_time == start_time else self._make(row, JobState.RUNNING)

    def _make(self, row: int, state: JobState, reason: str = "") -> Job:
        job, asked, trace = self.state.jobs[row], self._trace.jobs[row], self._trace
        limit_s = float(job["limit_s"])
        running = state is JobState.RUNNING
        started = float(job["since_time"])
        limited = bool(np.isfinite(limit_s))
        job_range = (int(job["gpus_min"]), int(job["gpus_max"]))
        return Job(
            job_id=int(self.job_ids[row]),
            state=state,
            reason=reason,
            user=trace.users[asked["user"]],
            account=trace.accounts[asked["account"]],
            partitions=self._partitions_of(row, running=running),
            qos=trace.qos[asked["qos"]],
            gang=self._gang(row),
            allocation=self._allocation(row) if running else None,
            hints=JobHints(
                model=trace.models[asked["model"]] if asked["model"] >= 0 else None,
                gpus=GpuRange(low=job_range[0], high=job_range[1]) if job_range[0] < job_range[1] else None,
                checkpoint_s=float(job["checkpoint_s"]) or None,
                pinned=int(self._pinned[row]) or None,
            ),
            submit_time=float(job["submit_time"]),
            eligible_time=self._eligible_time(row, reason),
            start_time=started if running else None,
            end_time=started + limit_s if running and limited else None,
            time_limit_s=limit_s if limited else None,
            time_min_s=float(job["soft_limit_s"]) or None,
            priority=int(job["priority"]),
            nice=int(job["nice"]),
            array=self._array(row),
            dependency=trace.dependencies[asked["dependency"]] if reason in ("Dependency", "BeginTime") else "",
            reservation=trace.reservations[asked["reservation"]],
            requeueable=True,
        )

    def _eligible_time(self, row: int, reason: str) -> float | None:
        """Return from when on the job is eligible, None if that depends on other jobs."""
        if self._is_held_back(row):
            return float(self.slurm.release_time[row])
        if reason == "BeginTime":
            return float(self.slurm.gates["begin_time"][row])
        return None if reason == "Dependency" else float(self.slurm.eligible_time[row])

    def _array(self, row: int) -> ArrayRecord | None:
        """Return the array of a task; every task has a record of its own here."""
        array_id = int(self._trace.jobs["array_id"][row])
        if not array_id:
            return None
        limit = int(self._trace.jobs["array_limit"][row])
        return ArrayRecord(array_job_id=array_id, task_id=self._tasks[row], max_running=limit or None)

    def _named_in_trace(self, row: int) -> tuple[str, ...]:
        return names_in(self._trace.required_nodes[self._trace.jobs["required_nodes"][row]])

    def _gang(self, row: int) -> GangRequest:
        if self._lists.is_changed(self.state, row):
            return self._make_gang(row)
        asked = self._trace.jobs[row]
        changing = tuple(float(self.state.jobs[name][row]) for name in _REQUEST)
        key = (*changing, *(float(asked[name]) for name in _NAMED), float(self._pinned[row]))
        gang = self._gangs.get(key)
        if gang is None:
            gang = self._gangs[key] = self._make_gang(row)
        return gang

    def _make_gang(self, row: int) -> GangRequest:
        job, asked = self.state.jobs[row], self._trace.jobs[row]
        code = int(job["gpu_type"])
        gpu_type = (self.gpu_types[code] or None) if code >= 0 else None
        gpus_each = 0 if self._pinned[row] else per_node(self.state, row)
        on_one_node = gpus_each or int(min(job["gpus"], job["node_gpus"]))
        nodes_min, nodes_max = int(job["nodes_min"]), int(job["nodes_max"])
        wanted = (GpuCount(gpu_type=gpu_type, count=gpus_each or int(job["gpus"])),) if job["gpus"] else ()
        waits = int(job["switches"])
        return GangRequest(
            per_node=wanted if gpus_each else (),
            per_job=() if gpus_each else wanted,
            nodes_min=nodes_min,
            nodes_max=nodes_max or None,
            cpus=max(1, nodes_min * int(job["cpus_per_node"]), int(job["gpus"]) * int(job["cpus_per_gpu"])),
            memory_mib_per_node=max(int(job["memory_mib_per_node"]), on_one_node * int(job["memory_mib_per_gpu"]))
            or None,
            exclusive=bool(job["exclusive"]),
            features=self._trace.features[asked["features"]],
            required_nodes=self._lists.named(self.state, row),
            excluded_nodes=names_in(self._trace.excluded_nodes[asked["excluded_nodes"]]),
            switches=SwitchRequest(count=waits, max_wait_s=float(job["switches_wait_s"])) if waits else None,
        )

    def _allocation(self, row: int) -> Allocation:
        job = self.state.jobs[row]
        begin = int(job["pool"])
        nodes = self.state.held_nodes[begin : begin + int(job["span"])].tolist()
        code, held = int(self.state.nodes["gpu_type"][nodes[0]]), int(job["held"] + job["idle_gpus"])
        return Allocation(
            nodes=tuple(sorted(self._names[node] for node in nodes)),
            gpus=(GpuCount(gpu_type=self.gpu_types[code] or None, count=held),) if held else (),
        )

    def _read_nodes(self) -> Iterator[Node]:
        table = self.state.nodes
        now = zip(*(table[name].tolist() for name in _NODE_CHANGES), strict=True)
        for row, (name, at) in enumerate(zip(self._names, now, strict=True)):
            kept = self._nodes.get(row)
            if kept is None or kept[0] != at:
                kept = self._nodes[row] = (at, self._make_node(row, name, table[row]))
            yield kept[1]

    def _make_node(self, row: int, name: str, node: np.void) -> Node:
        total, used = int(node["gpus"]), int(node["gpus"] - node["gpus_free"])
        return Node(
            name=name,
            state=_state_word(node),
            flags=("DRAIN",) if node["is_drained"] else (),
            cpus=int(node["cpus"]),
            cpus_used=int(node["cpus"] - node["cpus_free"]),
            memory_mib=int(node["memory_mib"]),
            memory_used_mib=int(node["memory_mib"] - node["memory_free_mib"]),
            gpus=(GpuPool(gpu_type=self.gpu_types[node["gpu_type"]] or None, total=total, used=used),),
            partitions=self._partitions_of_node[row],
            features=self._groups[row].features,
            weight=int(self._groups[row].weight),
        )


def _partitions(cluster: Cluster, slurm: Slurm) -> tuple[Partition, ...]:
    names = np.array(cluster.node_names, np.object_)
    return tuple(
        Partition(
            name=table.name,
            is_up=table.state == "up",
            nodes=tuple(sorted(names[members == 1])),
            max_time_s=table.max_time_s,
            priority_tier=table.priority_tier,
            priority_job_factor=table.priority_job_factor,
            is_default=table.default,
            max_nodes_per_job=table.max_nodes,
        )
        for table, members in zip(partitions_of(cluster), slurm.members, strict=True)
    )


def _is_full(array: np.void) -> bool:
    """Return whether as many tasks of an array run as can at once."""
    return bool(0 < array["limit"] <= array["running"])


def _task_numbers(trace: Trace) -> Mapping[int, int]:
    """Map the rows of tasks to their numbers in their arrays, in the order of the trace."""
    counts: Counter[int] = Counter()
    numbers = {}
    for row in np.flatnonzero(trace.jobs["array_id"]).tolist():
        array_id = int(trace.jobs["array_id"][row])
        numbers[row] = counts[array_id]
        counts[array_id] += 1
    return numbers


def _state_word(node: np.void) -> str:
    """Return the state of a node as Slurm names it, without flags."""
    if not node["is_up"] and not node["is_drained"]:
        return "DOWN"
    return "MIXED" if node["gpus_free"] < node["gpus"] or node["cpus_free"] < node["cpus"] else "IDLE"


def _topology(state: State, names: tuple[str, ...]) -> Topology:
    leaves = [
        Switch(name=f"leaf{row + 1}", level=0, nodes=names[leaf["first"] : leaf["first"] + leaf["nodes"]])
        for row, leaf in enumerate(state.leaves)
    ]
    return Topology(kind=TopologyKind.TREE, switches=(*leaves, Switch(name="spine", level=1, nodes=names)))


def _site_config(cluster: Cluster) -> SiteConfig:
    asked = cluster.slurm
    soft = {"time_min_as_soft_limit": ""} if asked.time_min_as_soft_limit else {}
    return SiteConfig(
        cluster="simulated",
        # Running jobs are planned with their soft limits too, as Slurm does since 25.05.4.
        slurm_version="26.05",
        scheduler_type="sched/backfill",
        scheduler_parameters={"max_switch_wait": str(int(asked.max_switch_wait_s)), **soft},
        topology_plugin="topology/tree",
        priority_type="priority/multifactor",
        priority_weights={"age": int(asked.priority_weight_age), "fair_share": int(asked.priority_weight_fairshare)},
        priority_max_age_s=asked.priority_max_age_s,
        priority_calc_period_s=asked.priority_calc_period_s,
    )
