"""Runs a cluster whose parts belong to agents, and stops at every decision about a gang.

An agent owns servers under leaves of its own, and the jobs that it was given. In every interval it takes the first of
its jobs one by one: a gang gets servers of the part, all or none, or is forwarded to another agent, or waits. Of other
parts an agent sees what they reported an interval ago.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from advisor.domain.units import HOUR_S
from advisor.features.observe.graph import (
    ClusterGraph,
    Floats,
    Floats32,
    Neighbours,
    Residents,
    Rows,
    Servers,
    crossing,
    graph_of,
    size_log,
)
from advisor.features.observe.known_models import KnownModels, ServerOutlook
from advisor.features.observe.pointer import MOST_DEMAND, REPORT_COLUMNS, Choice, Gang, interference_of
from advisor.sim.engine.native import native
from advisor.sim.policies.engine_calls import run_round
from advisor.sim.profiles import Profiles, inflation, load_profiles
from advisor.sim.queueing import FULL, ROUND
from advisor.sim.state import ENDED, PENDING, State, build_state, with_room
from advisor.sim.traces.trace import Trace
from tools.train.drawn_gangs import DrawnGangs


@native
def start(s: State, row: int, now: float) -> None:
    """Start a pending job on the first `picked` of `pick_nodes`, with `pick_gpus` on each; a leaf's nodes are adjacent.

    The pick must fit: the engine does not check it.
    """


def write_pick(state: State, nodes: Sequence[int], gpus: Sequence[int]) -> None:
    """Write nodes and the GPUs on each as the pick, in the order of the nodes."""
    order = np.argsort(nodes)
    state.pick_nodes[: len(order)] = np.array(nodes)[order]
    state.pick_gpus[: len(order)] = np.array(gpus)[order]
    state.tally["picked"] = len(order)


def model_rows_of(trace: Trace, models: KnownModels) -> Rows:
    """Return the rows of the jobs' models in the table of neighbours, `(n_jobs,)`."""
    rows, model = models.rows([*trace.models, ""]), trace.jobs["model"]
    return rows[np.where(model < 0, len(rows) - 1, model)]


def completion_times(state: State) -> Floats:
    """Return the completion times of jobs `(n_jobs,)`; up to now for those that have not ended, 0 for those to come."""
    jobs, now = state.jobs, float(state.tally["now"][0])
    until = np.where(jobs["phase"] == ENDED, jobs["end_time"], now)
    return np.asarray(np.maximum(np.nan_to_num(until) - jobs["submit_time"], 0.0))


def servers_of(state: State) -> Servers:
    """Return the servers of a state."""
    nodes = state.nodes
    return Servers(
        gpus=nodes["gpus"].astype(np.intp),
        free=nodes["gpus_free"].astype(np.intp),
        is_up=nodes["is_up"] == 1,
        leaf=nodes["leaf"].astype(np.intp),
    )


def residents_exactly(state: State, model_of: Rows, rows: Rows) -> Residents:
    """Return some of the running gangs, with what they really hold on each server; `rows` are in ascending order."""
    rows = rows[state.jobs["held"][rows] > 0]
    jobs = state.jobs[rows]
    span = jobs["span"].astype(np.intp)
    gang = np.arange(len(rows)).repeat(span)
    place = np.arange(len(gang)) - (span.cumsum() - span).repeat(span) + jobs["pool"].repeat(span)
    return Residents(
        gang=gang,
        server=state.held_nodes[place].astype(np.intp),
        held=state.held_gpus[place].astype(np.intp),
        gpus=jobs["held"].astype(np.intp),
        nodes=jobs["span"].astype(np.intp),
        model=model_of[rows],
        left_s=believed_left_s(state, rows),
    )


def believed_left_s(state: State, rows: Rows) -> Floats:
    """Return the believed remaining run time of some jobs, alone on their best place, `(n_rows,)`."""
    jobs = state.jobs[rows]
    return np.asarray(jobs["believed_s"] * jobs["left_s"] / jobs["work_s"])


def usable_of(state: State, row: int) -> Rows:
    """Return the GPUs that a job can use of each node now, `(n_nodes,)`."""
    job, nodes = state.jobs[row], state.nodes
    usable = np.where(nodes["is_up"] == 1, nodes["gpus_free"], 0)
    if job["gpu_type"] >= 0:
        usable = np.where(nodes["gpu_type"] == job["gpu_type"], usable, 0)
    for free, per_gpu in (("cpus_free", "cpus_per_gpu"), ("memory_free_mib", "memory_mib_per_gpu")):
        if job[per_gpu] > 0:
            usable = np.minimum(usable, nodes[free] // job[per_gpu])
    return usable.astype(np.intp)


EVERY_S: Final = 300.0
# The jobs that an agent looks at in one interval, at least and for each of its servers, and how often one is forwarded.
HEAD: Final = 16
HEAD_PER_SERVER: Final = 0.5
MOST_FORWARDS: Final = 3
# How long a gang can wait from the first place that it could have had: the bound on added delay.
MOST_DELAY_S: Final = 6 * HOUR_S


@dataclass(frozen=True, slots=True, kw_only=True)
class GangDecision:
    """What an agent decides about: a gang, and what is known of its own part and of the others.

    `forwards` `(n_agents,)` marks the agents to which the gang can go; with `can_wait` it can stay in the queue, though
    it fits.
    """

    agent: int
    row: int
    choice: Choice
    graph: ClusterGraph
    reports: Floats32  # (n_agents, len(REPORT_COLUMNS)), of an interval ago; its own is of now
    forwards: np.ndarray  # (n_agents,)
    can_wait: bool

    @property
    def is_about_gang(self) -> bool:
        """Whether it is the first choice for a gang of several GPUs, which could wait for a better place."""
        return self.choice.gang.gpus > 1 and not self.choice.chosen


class PartedCluster:
    """One workload on one cluster, divided among agents, which decide every `every_s`."""

    every_s = EVERY_S

    def __init__(
        self, drawn: DrawnGangs, neighbours: Neighbours, model_of: Rows, profiles: Profiles | None = None
    ) -> None:
        """Begin a workload; `model_of` `(n_jobs,)` codes the models of jobs for `neighbours`.

        Jobs behave as `profiles` say, by default those that ship.
        """
        self.drawn, self.neighbours, self.model_of = drawn, neighbours, model_of
        here = load_profiles() if profiles is None else profiles
        self.state: State = build_state(drawn.trace, drawn.cluster, here, ideal=False, loses_work=True)
        # What is believed of the cost of places.
        self.believed = self.state.profiles
        self.state.jobs["believed_s"] = drawn.believed_s
        self.agents = drawn.agents
        self.size = len(self.state.nodes) // self.agents
        self.servers = servers_of(self.state)
        self.agent = np.arange(len(self.state.jobs)) % self.agents
        self.offered_time = np.full(len(self.agent), np.inf)
        self.forwarded = np.zeros(len(self.agent), np.int64)
        self.unit_s = float(self.state.jobs["work_s"].mean())
        self.gang_of: dict[tuple[int, int], tuple[float, float]] = {}
        self._todo: deque[int] = deque()
        self._keys = self.state.jobs["submit_time"]
        self._graphs: dict[int, tuple[Residents, ClusterGraph, Rows]] = {}
        self.reports = np.zeros((self.agents, len(REPORT_COLUMNS)), np.float32)
        self.order: Callable[[PartedCluster], Floats] = lambda cluster: cluster.state.jobs["submit_time"]

    @property
    def now(self) -> float:
        """The time of the simulation."""
        return float(self.state.tally["now"][0])

    @property
    def pending(self) -> Rows:
        """The rows of the pending jobs."""
        return np.flatnonzero(self.state.jobs["phase"] == PENDING)

    @property
    def jct_s(self) -> Floats:
        """The completion times of the jobs so far, `(n_jobs,)`."""
        return completion_times(self.state)

    def queue_of(self, agent: int) -> Rows:
        """Return the pending jobs of an agent, in its order."""
        rows = self.pending
        rows = rows[self.agent[rows] == agent]
        return np.asarray(rows[np.argsort(self._keys[rows], kind="stable")])

    def next_decision(self) -> GangDecision | None:
        """Return the next decision; None when all jobs have ended."""
        while True:
            while self._todo:
                decision = self._decision(self._todo.popleft())
                if decision is not None:
                    return decision
            if not self._advance():
                return None

    def take(self, decision: GangDecision, action: int | None) -> bool:
        """Carry out an action, and return whether the decision is over.

        An action is the next server of the part, an agent to forward to, counted after the servers, which looks at the
        gang in the next interval, or None to wait.
        """
        if action is None:
            return True
        if action >= self.size:
            self.agent[decision.row] = action - self.size
            self.forwarded[decision.row] += 1
            return True
        decision.choice.choose(action)
        if decision.choice.rest > 0:
            return False
        self.place(decision)
        return True

    def place(self, decision: GangDecision) -> None:
        """Start the gang of a decision on the servers that it has chosen."""
        choice, first = decision.choice, decision.agent * self.size
        write_pick(self.state, [first + server for server in choice.chosen], choice.taken)
        start(self.state, decision.row, self.now)
        self.has_started(decision.row)
        self._graphs.pop(decision.agent, None)

    def has_started(self, row: int) -> None:
        """Take note of a job that has just started."""

    def has_advanced(self, since: float) -> None:
        """Take note of the time that has passed since an instant."""

    def outlook(self, gang: Gang, servers: Servers, residents: Residents) -> ServerOutlook | None:  # noqa: ARG002  (of others)
        """Return what a performance model says of each server; None without one."""
        return None

    def losses(self) -> Floats:
        """Return the time that each running job is still to lose at its present speed, in seconds, `(n_running,)`."""
        rows = self.state.running[: int(self.state.tally["running"][0])].astype(np.intp)
        left_s = self.state.jobs["finish_time"][rows] - self.now - self.unhindered_s(rows)
        return np.asarray(np.maximum(left_s, 0.0))

    def unhindered_s(self, rows: Rows) -> Floats:
        """Return the time that jobs still take where nothing slows them, `(n_rows,)`."""
        return np.asarray(self.state.jobs["left_s"][rows])

    def cost(self, decision: GangDecision, before_s: float) -> float:
        """Return what a gang that has just started costs, in mean run times; `before_s` is what all lost before.

        It loses time itself and slows others. The GPUs that it holds for longer are missing to the jobs that wait: each
        of them is delayed by its share of the agent's GPUs.
        """
        job = self.state.jobs[decision.row]
        own_s = float(job["finish_time"] - self.now - self.unhindered_s(np.array([decision.row]))[0])
        added_s = max(float(self.losses().sum()) - before_s, own_s)
        waiting = np.count_nonzero(self.agent[self.pending] == decision.agent)
        share = float(job["gpus"]) / (self.size * float(self.state.nodes["gpus"][0]))
        return (added_s + waiting * share * own_s) / self.unit_s

    def view(self, agent: int) -> tuple[Residents, ClusterGraph, Rows]:
        """Return the gangs, the graph and the gangs that cross each leaf of an agent's part."""
        if agent not in self._graphs:
            servers, residents = self._own(agent)
            graph = graph_of(servers, residents, self.neighbours)
            crossing_now = crossing(servers, residents, residents.crosses(servers.leaf))
            self._graphs[agent] = residents, graph, crossing_now
        return self._graphs[agent]

    def gang(self, row: int) -> Gang:
        """Return a pending job as a gang."""
        job = self.state.jobs[row]
        leaf, spine = self._inflations(row)
        return Gang(
            gpus=int(job["gpus"]),
            fewest_nodes=-(-int(job["gpus"]) // int(job["node_gpus"])),
            model=int(self.model_of[row]),
            leaf_inflation=leaf,
            spine_inflation=spine,
            run_s=float(job["believed_s"]),
            wait_s=self.now - float(job["submit_time"]),
        )

    def _own(self, agent: int) -> tuple[Servers, Residents]:
        first = agent * self.size
        part = slice(first, first + self.size)
        now = servers_of(self.state).take(part)
        servers = replace(now, leaf=now.leaf - now.leaf[0])
        running = np.sort(self.state.running[: int(self.state.tally["running"][0])])
        residents = residents_exactly(self.state, self.model_of, running[self.agent[running] == agent].astype(np.intp))
        residents.server[:] -= first
        return servers, residents

    def _inflations(self, row: int) -> tuple[float, float]:
        """Return the inflation of a job alone under one leaf on two nodes or more, and over two leaves or more."""
        job, rules = self.state.jobs[row], self.state.rules[0]
        gpus, key = int(job["gpus"]), (int(job["profile"]), int(job["gpus"]))
        if gpus < 2:
            return 1.0, 1.0
        if key not in self.gang_of:
            profile, best = self.believed[job["profile"]], -(-gpus // int(job["node_gpus"]))
            nodes, nic = max(best, 2), float(rules["nic_gbps"])
            best_gbps = np.inf if best == 1 else nic
            up = nic / float(rules["oversubscription"])
            if best > rules["leaf_nodes"]:
                best_gbps = up
            self.gang_of[key] = (
                inflation(profile, gpus, nodes, nic, max(best, 2), best_gbps),
                inflation(profile, gpus, nodes, up, max(best, 2), best_gbps),
            )
        return self.gang_of[key]

    def _decision(self, row: int) -> GangDecision | None:
        """Return a decision about a job, None where it can neither start nor go elsewhere."""
        agent = int(self.agent[row])
        first = agent * self.size
        usable = usable_of(self.state, row)[first : first + self.size]
        gpus = int(self.state.jobs["gpus"][row])
        fits = int(usable.sum()) >= gpus
        forwards = np.zeros(self.agents, np.bool_)
        if self.agents > 1 and self.forwarded[row] < MOST_FORWARDS:
            free = self.reports[:, 0] * self.size * float(self.state.nodes["gpus"][0])
            forwards = free >= gpus
            forwards[agent] = False
        if not fits and not forwards.any():
            return None
        if fits:
            self.offered_time[row] = min(self.offered_time[row], self.now)
        residents, graph, crossing_now = self.view(agent)
        servers, gang = self.servers.take(slice(first, first + self.size)), self.gang(row)
        choice = Choice(
            gang=gang,
            usable=usable if fits else np.zeros_like(usable),
            leaf=graph.leaf,
            leaf_crossing=crossing_now,
            interference=interference_of(gang, servers, residents, self.neighbours),
            chosen=[],
            taken=[],
            outlook=self.outlook(gang, servers, residents),
        )
        reports = self.reports.copy()
        reports[agent] = self.reports_now()[agent]
        return GangDecision(
            agent=agent,
            row=row,
            choice=choice,
            graph=graph,
            reports=reports,
            forwards=forwards,
            can_wait=not fits or self.now - float(self.offered_time[row]) < MOST_DELAY_S,
        )

    def reports_now(self) -> Floats32:
        """Return what all agents would report now, `(n_agents, len(REPORT_COLUMNS))`, as `report_of` does for one."""
        jobs, nodes = self.state.jobs, self.state.nodes
        free = nodes["gpus_free"].reshape(self.agents, -1)
        gpus = nodes["gpus"].reshape(self.agents, -1)
        leaf = self.state.leaves["gpus_free"].reshape(self.agents, -1)
        pending = self.pending
        demand = np.bincount(self.agent[pending], jobs["gpus"][pending], minlength=self.agents)
        queue = np.bincount(self.agent[pending], minlength=self.agents)
        running = self.state.running[: int(self.state.tally["running"][0])]
        running = running[jobs["span"][running] > 1]
        senders = np.bincount(self.agent[running], jobs["span"][running], minlength=self.agents)
        total = gpus.sum(axis=1)
        columns = (
            free.sum(axis=1) / total,
            (free == gpus).mean(axis=1),
            leaf.max(axis=1) / (total / leaf.shape[1]),
            np.minimum(demand / total, MOST_DEMAND),
            size_log(queue + 1),
            size_log(total),
            senders / self.size,
        )
        return np.stack(columns, axis=1).astype(np.float32)

    def _advance(self) -> bool:
        """Run to the next interval with a job that waits; return False where all jobs have ended."""
        while True:
            since = self.now
            stopped = run_round(self.state, self.every_s, np.inf)
            if stopped == FULL:
                self.state = with_room(self.state)
                continue
            if stopped != ROUND:
                return False
            self.has_advanced(since)
            self._graphs.clear()
            if not len(self.pending):
                continue
            self._keys = self.order(self)
            self.reports = self.reports_now()
            head = max(HEAD, round(self.size * HEAD_PER_SERVER))
            for agent in range(self.agents):
                self._todo.extend(self.queue_of(agent)[:head].tolist())
            return True
