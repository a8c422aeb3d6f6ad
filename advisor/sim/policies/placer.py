"""Names the nodes of gangs on the arrays of a simulation: a gang that could start now requires the nodes it is given.

It is what `ReqNodeList` with as many nodes does on Slurm. A gang that has not started by the next cycle gets its own
request back: its nodes were taken, or slurmctld reserves them for jobs before it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Final

import numpy as np

from advisor.domain.forecast import Forecasts
from advisor.domain.job import Job
from advisor.domain.topology import LocalityTier
from advisor.domain.units import DAY_S
from advisor.features.observe.graph import Neighbours, Residents, Rows, Servers, crossing, graph_of
from advisor.features.observe.pointer import (
    AgentView,
    BestFit,
    Choice,
    Chooser,
    Gang,
    MakeChooser,
    choose_all,
    interference_of,
)
from advisor.features.observe.report import report_of
from advisor.features.observe.scored_chooser import ScoredChooser
from advisor.features.policy import Decider, Policy
from advisor.planning.beliefs import Beliefs
from advisor.predict.interference import InterferenceForecaster
from advisor.predict.library import Library
from advisor.predict.neighbours import models_known_to
from advisor.predict.served_policy import open_policy
from advisor.sim.node_classes import CLOSED, REQUIRED
from advisor.sim.policies.learning import NOWHERE, opened
from advisor.sim.policies.mover import Mover
from advisor.sim.policies.sizer import NO_BOARD, SpeedOf, forecast_speeds, true_speeds
from advisor.sim.policies.state_graph import gpus_on_each, model_rows_of, residents_of, servers_of, usable_of
from advisor.sim.profiles import exposed_s
from advisor.sim.queueing import DONE
from advisor.sim.simulated_policy import Problem
from advisor.sim.slurm.slurm_cluster import SimulatedSlurm
from advisor.sim.slurm.slurm_placement import enter, pick_now
from advisor.sim.slurm.slurm_state import Slurm
from advisor.sim.slurm.slurmctld import ask_for_pass, run_slurm
from advisor.sim.state import NONE, PENDING, State

# How far down the line gangs are looked at, and how often one is given nodes.
HEAD: Final = 16
MOST_LEASES: Final = 3
YEAR_S: Final = 365 * DAY_S
# Rows of `usable` for gangs that hold a lease.
SPARE_CLASSES: Final = HEAD
# What a lease changes about a job.
_CHANGED: Final = ("node_class", "required", "nodes_min", "shape")


def with_spare_classes(state: State) -> State:
    """Return the state with rows of `usable` for leases, behind those of the trace."""
    spare = np.zeros((SPARE_CLASSES, len(state.nodes)), np.int8)
    return state._replace(usable=np.concatenate((state.usable, spare)))


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLease:
    """The nodes that a pending gang requires, the row of `usable` that says so, and its own request."""

    nodes: Rows
    row_of_class: int
    own: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacingFacts:
    """What gangs of one cycle are placed by."""

    servers: Servers
    residents: Residents
    leaf_crossing: Rows
    chooser: Chooser


@dataclass(slots=True, kw_only=True)
class Placer:
    """Gives nodes to the pending gangs near the head of the line; `model_of` `(n_jobs,)` codes rows of `neighbours`."""

    mover: Mover
    cluster: SimulatedSlurm
    beliefs_of: Callable[[Job], Beliefs]
    neighbours: Neighbours
    model_of: Rows
    make_chooser: MakeChooser
    spare: list[int]
    leases: dict[int, NodeLease] = field(default_factory=dict)
    given: dict[int, int] = field(default_factory=dict)
    # The places in the line of the gangs that fit free nodes at the last cycle.
    _fitted: dict[int, int] = field(default_factory=dict)

    def cycle(self, state: State, now: float) -> None:
        """Take the nodes of the last cycle back, give nodes to gangs, and let slurmctld look at the queue."""
        self.cluster.state = state
        written = self._take_back(state) + self._give(state, self.mover.rows(state)[:HEAD], now)
        state.tally["changes"] += written
        if written:
            ask_for_pass(self.mover.slurm, now)

    def run(self, state: State, slurm: Slurm, until: float) -> int:
        """Run the compiled loop up to an instant; gangs whose nodes failed are not left where nothing else is due."""
        while (stopped := run_slurm(state, slurm, until)) == DONE and (reverted := self._take_back(state)):
            state.tally["changes"] += reverted
            ask_for_pass(slurm, float(state.tally["now"][0]))
        return stopped

    def _take_back(self, state: State) -> int:
        """Give the gangs of the last cycle their own requests; return how many of them pend."""
        reverted = 0
        for row, lease in list(self.leases.items()):
            is_pending = state.jobs["phase"][row] == PENDING
            for name, value in zip(_CHANGED, lease.own, strict=True):
                state.jobs[name][row] = value
            self.spare.append(lease.row_of_class)
            del self.leases[row]
            reverted += is_pending
        return reverted

    def _fits(self, state: State, row: int, now: float) -> bool:
        """Return whether a job, as it asks now, fits the nodes that are free; they are the pick."""
        slurm, job = self.mover.slurm, state.jobs[row]
        if job["gpus"] > state.tally["gpus_free"][0]:
            return False
        enter(state, slurm, int(slurm.partition[row]))
        return pick_now(state, slurm, row, now + min(float(job["limit_s"]), YEAR_S))

    def leaves_open(self, state: State, row: int) -> bool:
        """Return whether a gang can run on any nodes: it names none, no reservation, no switches, and shares them."""
        job = state.jobs[row]
        return bool(job["required"] == 0 and job["booking"] == NONE and job["switches"] == 0 and not job["exclusive"])

    def suits(self, state: State, row: int, nodes: int) -> bool:
        """Return whether a job can run on a number of nodes."""
        job = state.jobs[row]
        return bool(job["nodes_min"] <= nodes <= (job["nodes_max"] or len(state.nodes)))

    def _is_placed(self, state: State, row: int) -> bool:
        """Return whether a gang can be given nodes: it leaves them open, is in one partition, and has tries left."""
        extras = self.mover.slurm.extras
        return (
            self.leaves_open(state, row)
            and self.given.get(row, 0) < MOST_LEASES
            and not (len(extras) and bool(np.any(extras["row"] == row)))
        )

    def _give(self, state: State, rows: Rows, now: float) -> int:
        """Give nodes to the gangs that would start on several; return how many got them.

        A gang that fit at the last cycle too, and has not moved up since, is one that slurmctld passes over.
        """
        written, facts = 0, None
        reserved = np.zeros(len(state.nodes), np.intp)
        before, self._fitted = self._fitted, {}
        for place, row in enumerate(rows.tolist()):
            if state.jobs["gpus"][row] < 2 or not self._is_placed(state, row) or not self._fits(state, row, now):
                continue
            self._fitted[row] = place
            if state.tally["picked"][0] < 2 or before.get(row, HEAD) <= place or not self.spare:
                continue
            facts = facts or self.facts(state)
            choice = self.choice(state, row, now, self._usable(state, row, reserved), facts)
            if choose_all(choice, facts.chooser) and self._lease(state, row, choice, now):
                reserved[choice.chosen] += choice.taken
                written += 1
        return written

    def facts(self, state: State) -> PlacingFacts:
        """Return what gangs are placed by now."""
        servers, residents = servers_of(state), residents_of(state, self.model_of)

        def view() -> AgentView:
            rows = self.mover.rows(state)
            return AgentView(
                graph=graph_of(servers, residents, self.neighbours),
                report=report_of(servers, residents, len(rows), int(state.jobs["gpus"][rows].sum())),
                neighbours=self.neighbours,
            )

        return PlacingFacts(
            servers=servers,
            residents=residents,
            leaf_crossing=crossing(servers, residents, residents.crosses(servers.leaf)),
            chooser=self.make_chooser(view),
        )

    def _usable(self, state: State, row: int, reserved: Rows) -> Rows:
        """Return the GPUs that a gang can use of each node beside those that are reserved, `(n_nodes,)`."""
        job, slurm = state.jobs[row], self.mover.slurm
        usable = np.maximum(usable_of(state, row) - reserved, 0) * (slurm.members[slurm.partition[row]] == 1)
        if job["node_class"] != NONE:
            usable[state.usable[job["node_class"]] == CLOSED] = 0
        part = int(gpus_on_each(state.jobs[row : row + 1])[0])
        return np.where(usable >= part, part, 0) if part else usable

    def choice(self, state: State, row: int, now: float, usable: Rows, facts: PlacingFacts) -> Choice:
        """Return the choice of a pending gang, before its first server."""
        gang = self._gang(state, row, now)
        return Choice(
            gang=gang,
            usable=usable,
            leaf=facts.servers.leaf,
            leaf_crossing=facts.leaf_crossing,
            interference=interference_of(gang, facts.servers, facts.residents, self.neighbours),
            chosen=[],
            taken=[],
        )

    def _gang(self, state: State, row: int, now: float) -> Gang:
        job = self.cluster.job(row)
        beliefs, asked = self.beliefs_of(job), state.jobs[row]
        fewest = -(-int(asked["gpus"]) // int(asked["node_gpus"]))
        best = LocalityTier.NODE if fewest == 1 else LocalityTier.LEAF
        run_s = self.mover.run_times.expected_s(state, np.array([row]), now)
        return Gang(
            gpus=int(asked["gpus"]),
            # A gang that can sit on one server is only looked at where it would not.
            fewest_nodes=max(2, fewest),
            model=int(self.model_of[row]),
            leaf_inflation=beliefs.inflation(job, LocalityTier.LEAF, best).median,
            spine_inflation=beliefs.inflation(job, LocalityTier.SPINE, best).median,
            run_s=float(run_s[0]),
            wait_s=now - float(self.mover.slurm.eligible_time[row]),
        )

    def _lease(self, state: State, row: int, choice: Choice, now: float) -> bool:
        """Let a gang require the nodes of a choice and no others; return False if it could not start there."""
        job, nodes = state.jobs[row], np.array(choice.chosen, np.intp)
        if not self.suits(state, row, len(nodes)):
            return False
        own = tuple(int(job[name]) for name in _CHANGED)
        row_of_class = self.spare[-1]
        state.usable[row_of_class] = CLOSED
        state.usable[row_of_class, nodes] = REQUIRED
        values = (row_of_class, len(nodes), len(nodes), NONE)
        for name, value in zip(_CHANGED, values, strict=True):
            state.jobs[name][row] = value
        if not self._fits(state, row, now):
            for name, value in zip(_CHANGED, own, strict=True):
                state.jobs[name][row] = value
            return False
        self.spare.pop()
        self.leases[row] = NodeLease(nodes=nodes, row_of_class=row_of_class, own=own)
        self.given[row] = self.given.get(row, 0) + 1
        return True


def by_rule(_view_now: Callable[[], AgentView]) -> Chooser:
    """Return the rule, which needs no view."""
    return BestFit()


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """How gangs are given nodes: what is known of models and speeds, and what chooses.

    With `at_starts` slurmctld asks for the nodes of every gang that it starts, as a plugin of it could: the most that
    nodes alone can gain.
    """

    speeds: Callable[[Problem, SimulatedSlurm], SpeedOf]
    knowledge: Callable[[Problem], tuple[Neighbours, Rows]]
    make_chooser: MakeChooser = by_rule
    at_starts: bool = False

    def placer(self, problem: Problem, mover: Mover) -> Placer:
        """Return what gives nodes to the gangs of a run, whose state has the spare classes."""
        cluster = SimulatedSlurm(problem.trace, problem.cluster, problem.state, mover.slurm)
        speed_of, settings = self.speeds(problem, cluster), problem.options.planning
        neighbours, model_of = self.knowledge(problem)
        classes = len(problem.state.usable)
        return Placer(
            mover=mover,
            cluster=cluster,
            beliefs_of=lambda job: Beliefs(forecasts=Forecasts(by_job={job.job_id: speed_of(job)}), settings=settings),
            neighbours=neighbours,
            model_of=model_of,
            make_chooser=self.make_chooser,
            spare=list(range(classes - SPARE_CLASSES, classes)),
        )


def shipped_neighbours(problem: Problem) -> tuple[Neighbours, Rows]:
    """Return what the shipped model of interference says of the models that jobs declare, and their rows."""
    models = models_known_to(InterferenceForecaster.from_bundle(opened("interference")))
    return models.neighbours, model_rows_of(problem.trace, models)


def true_neighbours(problem: Problem) -> tuple[Neighbours, Rows]:
    """Return what gangs of 8 GPUs on two nodes add to each other on a NIC, by profile, and the profiles of jobs."""
    profiles, rules = problem.state.profiles, problem.state.rules[0]
    nic_gbps = float(rules["nic_gbps"])
    added = np.zeros((len(profiles) + 1, len(profiles) + 1))
    for row, mine in enumerate(profiles):
        alone = 1.0 + exposed_s(mine, 8, 2, nic_gbps)
        for column, other in enumerate(profiles):
            beside = 1.0 + exposed_s(mine, 8, 2, nic_gbps / (1.0 + float(other["node_pressure"])))
            added[row, column] = beside / alone - 1.0
    return Neighbours.of(added), problem.state.jobs["profile"].astype(np.intp)


def learned(name: str) -> MakeChooser:
    """Return what makes choosers that follow a policy of the models that ship, opened at the first use."""

    @cache
    def policy() -> Policy:
        return open_policy(Library(NOWHERE), name)

    return lambda view_now: ScoredChooser(Decider(policy=policy()), lambda: NO_BOARD, view_now)


BY_RULE: Final = Places(speeds=forecast_speeds, knowledge=shipped_neighbours)
BY_TRUTH: Final = Places(speeds=true_speeds, knowledge=true_neighbours)
MARL: Final = Places(speeds=forecast_speeds, knowledge=shipped_neighbours, make_chooser=learned("marl"))
