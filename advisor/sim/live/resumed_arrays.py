"""Builds the arrays of the model of slurmctld in the middle of its run, as a snapshot shows it."""

from collections.abc import Mapping
from dataclasses import field, replace
from functools import cache
from statistics import median
from typing import Any, Final, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from advisor.domain.dataclass import dataclass
from advisor.sim.cluster import Cluster
from advisor.sim.live.snapshot_model import SnapshotModel
from advisor.sim.node_events import NodeEvent
from advisor.sim.profiles import Profiles, load_profiles
from advisor.sim.run_outcome import SEGMENT_DTYPE
from advisor.sim.slurm.slurm_builder import Phases, build_slurm
from advisor.sim.slurm.slurm_state import ASSOCIATION_DTYPE, Slurm
from advisor.sim.slurm.slurmctld import points_beyond, recalculate
from advisor.sim.state import ENDED, FAULT_DTYPE, JOB_DTYPE, LEAF_DTYPE, NONE, PENDING, RUNNING, State, build_state
from advisor.sim.traces.eligibility import GATE_DTYPE
from advisor.sim.traces.trace import Trace

Number = TypeVar("Number", bound=np.generic)


@dataclass(frozen=True, slots=True, kw_only=True)
class Periods:
    """Where the periods of slurmctld stand at a snapshot; None means that they begin at the snapshot.

    The first three are instants of their grids, `priority_time` the last calculation of priorities. `last_*` are the
    last passes, `*_due` those that are asked for, infinity for none: without them a pass over the full queue and
    backfill are asked for at the snapshot.
    """

    main_time: float | None = None
    backfill_time: float | None = None
    priority_time: float | None = None
    last_main_time: float | None = None
    last_backfill_time: float | None = None
    main_due: float | None = None
    full_due: float | None = None
    direct_due: float | None = None
    backfill_due: float | None = None

    @classmethod
    def of(cls, slurm: Slurm) -> Self:
        """Return where the periods of a model of slurmctld stand."""
        control = slurm.control[0]
        return cls(
            main_time=float(control["tick_phase_time"]),
            backfill_time=float(control["backfill_phase_time"]),
            priority_time=float(control["calc_time"]),
            last_main_time=float(control["last_pass_time"]),
            last_backfill_time=float(control["backfill_time"]),
            main_due=float(control["pass_time"]),
            full_due=float(control["full_time"]),
            direct_due=float(control["direct_time"]),
            backfill_due=float(control["backfill_due_time"]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """The use of the cluster that fair share counts: decayed GPU seconds by account and user, in that order.

    Users that are absent have no association with a share of their own. `shares_by_account` defaults to 1.
    """

    gpu_s_by_user: Mapping[tuple[str, str], float]
    shares_by_account: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sightings:
    """The priorities that templates were seen with, NaN where unknown, and when: `(n_templates,)` each."""

    priority: NDArray[np.float64]
    time: NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Templates:
    """The rows that arrivals are copied from, `(n_templates,)` each."""

    jobs: NDArray[np.void]
    association: NDArray[np.int32]
    points: NDArray[np.float64]
    partition: NDArray[np.int32]
    group: NDArray[np.int32]  # or empty, as in `Slurm`

    @classmethod
    def of(cls, state: State, slurm: Slurm, first: int, sightings: Sightings | None = None) -> "Templates":
        """Return the rows from `first` on.

        Jobs that were seen with a priority keep its difference from the formula. The others differ from it as those of
        their users in the line do in the median.
        """
        association = slurm.association[first:].copy()
        points = median_points(slurm, slurm.line[: int(state.tally["pending"][0])], association)
        if sightings is not None:
            for row in np.flatnonzero(np.isfinite(sightings.priority)).tolist():
                calculated = _last_calculation(slurm, first + row, float(sightings.time[row]))
                points[row] = points_beyond(state, slurm, first + row, float(sightings.priority[row]), calculated)
        rows = slice(first, len(state.jobs))
        return cls(
            jobs=state.jobs[rows].copy(),
            association=association,
            points=points,
            partition=slurm.partition[rows].copy(),
            group=slurm.group[rows].copy(),
        )


def _last_calculation(slurm: Slurm, row: int, seen_time: float) -> float:
    """Return when the priority of a job was last calculated: at its submission, or on the grid of these instants."""
    began, period_s = float(slurm.control["calc_time"][0]), float(slurm.control["calc_period_s"][0])
    periods = np.floor((seen_time - began) / period_s) if period_s > 0.0 else 0.0
    return float(min(seen_time, max(began + periods * period_s, slurm.eligible_time[row])))


def median_points(slurm: Slurm, rows: NDArray[np.int32], association: NDArray[np.int32]) -> NDArray[np.float64]:
    """Return the median points of rows by association, of all for one without rows; 0 without any."""
    if not len(rows):
        return np.zeros(len(association))
    points, of_rows = slurm.points[rows], slurm.association[rows]
    of_all = median(points.tolist())
    by_association = {code: median(points[of_rows == code].tolist()) for code in set(of_rows.tolist())}
    return np.array([by_association.get(code, of_all) for code in association.tolist()], dtype=np.float64)


_CODED: Final = (
    ("user", "users"),
    ("account", "accounts"),
    ("qos", "qos"),
    ("gpu_type", "gpu_types"),
    ("features", "features"),
    ("required_nodes", "required_nodes"),
    ("excluded_nodes", "excluded_nodes"),
    ("reservation", "reservations"),
    ("partition", "partitions"),
)


@cache
def _profiles() -> Profiles:
    return load_profiles()


def with_templates(trace: Trace, templates: Trace | None) -> Trace:
    """Return the trace with the templates behind its own rows, in the codes of the trace."""
    if templates is None or not len(templates):
        return trace
    rows = templates.jobs.copy()
    names: dict[str, Any] = {}
    for column, table in _CODED:
        mine: tuple[str, ...] = getattr(trace, table)
        theirs: tuple[str, ...] = getattr(templates, table)
        names[table] = tuple(dict.fromkeys((*mine, *theirs)))
        # The last entry is for the code -1.
        codes = np.array([*(names[table].index(name) for name in theirs), -1], dtype=np.int32)
        rows[column] = codes[rows[column]]
    rows["model"] = -1
    # An arrival waits for no other job: which one it would be is not known.
    for column in ("array_id", "array_limit", "dependency", "begin_time", "name"):
        rows[column] = 0
    return replace(trace, jobs=np.concatenate((trace.jobs, rows)), **names)


def with_users(trace: Trace, usage: Usage) -> Trace:
    """Return the trace with the users of `usage` before its own, in their order."""
    accounts = tuple(dict.fromkeys((*(account for account, _ in usage.gpu_s_by_user), *trace.accounts)))
    users = tuple(dict.fromkeys((*(user for _, user in usage.gpu_s_by_user), *trace.users)))
    jobs = trace.jobs.copy()
    jobs["account"] = np.array([accounts.index(name) for name in trace.accounts], dtype=np.int32)[jobs["account"]]
    jobs["user"] = np.array([users.index(name) for name in trace.users], dtype=np.int32)[jobs["user"]]
    return replace(trace, jobs=jobs, accounts=accounts, users=users)


def resumed_state(model: SnapshotModel, trace: Trace) -> State:
    """Return the state with the running jobs on their nodes and the others pending; templates are in the future."""
    state = build_state(trace, model.cluster, _profiles(), ideal=True, loses_work=False)
    state = _with_leaves(state, model.leaf)
    # Run times are those of the jobs as they are placed, but limits bind.
    state.rules["limits_bind"] = state.rules["loses_work"] = 1
    count = len(model.trace)
    jobs, nodes, is_pending = state.jobs[:count], state.nodes, np.isnan(model.start_time)
    can_run = jobs["phase"] != ENDED
    jobs["phase"] = np.where(is_pending, np.where(can_run, PENDING, ENDED), RUNNING)
    jobs["since_time"] = np.where(is_pending, jobs["submit_time"], model.start_time)
    jobs["start_time"], jobs["starts"] = model.start_time, ~is_pending
    _lay_allocations(state, model)
    nodes["is_up"], nodes["is_drained"] = model.is_up, 1 - model.is_up
    state = state._replace(faults=_faults(model))
    asked, where = jobs[model.held_row], nodes[model.held_node]
    held_cpus = np.maximum(asked["cpus_per_node"], model.held_gpus * asked["cpus_per_gpu"])
    held_mib = np.maximum(asked["memory_mib_per_node"], model.held_gpus * asked["memory_mib_per_gpu"])
    gpus, cpus, memory_mib = (
        np.bincount(model.held_node, np.where(asked["exclusive"], where[name], part), len(nodes)).astype(np.int64)
        for name, part in (("gpus", model.held_gpus), ("cpus", held_cpus), ("memory_mib", held_mib))
    )
    nodes["gpus_free"] = nodes["gpus"] - gpus - model.gpus_taken
    nodes["cpus_free"] = nodes["cpus"] - cpus - model.cpus_taken
    nodes["memory_free_mib"] = nodes["memory_mib"] - memory_mib - model.memory_taken_mib
    state.leaves["gpus_free"] = np.bincount(nodes["leaf"], nodes["gpus_free"], len(state.leaves)).astype(np.int32)
    tally = state.tally
    tally["now"], tally["arrived"] = model.taken_at, count
    tally["gpus_free"] = nodes["gpus_free"].sum()
    tally["waiting"] = (model.is_waiting & (jobs["phase"] == PENDING)).sum()
    tally["pending"] = (jobs["phase"] == PENDING).sum() - tally["waiting"]
    return state


def _faults(model: SnapshotModel) -> NDArray[np.void]:
    """Return what happens to the nodes of the model, `(n_faults,)`."""
    turns = [
        (turn.time, row, int(NodeEvent.RESUMED if turn.is_usable else NodeEvent.DRAINED))
        for row, name in enumerate(model.node_names)
        for turn in model.turns_by_node.get(name, ())
    ]
    return np.array(sorted(turns), FAULT_DTYPE)


def _with_leaves(state: State, leaf: NDArray[np.int32]) -> State:
    """Return the state with the nodes under the leaves of the snapshot, `(n_nodes,)`, instead of one for each group."""
    state.nodes["leaf"] = leaf
    sizes = np.bincount(leaf)
    leaves = np.zeros(len(sizes), LEAF_DTYPE)
    leaves["nodes"], leaves["first"] = sizes, np.r_[0, sizes.cumsum()[:-1]]
    state.rules["leaf_nodes"] = sizes.max()
    return state._replace(leaves=leaves)


def _lay_allocations(state: State, model: SnapshotModel) -> None:
    """Fill in what the running jobs hold, and list them by node."""
    jobs, rows = state.jobs, model.held_row
    running = np.flatnonzero(~np.isnan(model.start_time)).astype(np.int32)
    state.running[: len(running)] = running
    jobs["queue_slot"][running] = np.arange(len(running))
    state.tally["running"] = len(running)
    span = np.bincount(rows, minlength=len(model.trace))
    first = np.r_[0, span.cumsum()[:-1]]
    at = jobs["pool"][rows] + np.arange(len(rows)) - first[rows]
    state.held_nodes[at], state.held_gpus[at] = model.held_node, model.held_gpus
    jobs["span"][: len(span)] = span
    jobs["held"][: len(span)] = np.bincount(rows, model.held_gpus, len(span))
    by_node = np.argsort(model.held_node, kind="stable")
    node = model.held_node[by_node]
    count = np.bincount(node, minlength=len(state.nodes))
    place = np.arange(len(node)) - np.r_[0, count.cumsum()[:-1]][node]
    state.node_jobs[node, place] = rows[by_node]
    state.nodes["running"] = count
    jobs["tier"][running] = [_tier(state, int(row)) for row in running.tolist()]


def _tier(state: State, row: int) -> int:
    job = state.jobs[row]
    nodes = state.held_nodes[job["pool"] : job["pool"] + job["span"]]
    if len(nodes) <= 1:
        return 0
    return 1 if len(set(state.nodes["leaf"][nodes].tolist())) == 1 else 2


def resumed_slurm(model: SnapshotModel, trace: Trace, state: State, periods: Periods, usage: Usage | None) -> Slurm:
    """Return the state of slurmctld with the jobs that wait, and the other pending jobs in its line."""
    now, cluster = model.taken_at, model.cluster

    def known(instant: float | None, otherwise: float) -> float:
        return otherwise if instant is None else instant

    phases = Phases(
        main_time=known(periods.main_time, now),
        backfill_time=known(periods.backfill_time, now),
        priority_time=known(periods.priority_time, now),
    )
    slurm = _built(state, trace, cluster, phases)
    control = slurm.control
    control["last_pass_time"] = known(periods.last_main_time, -np.inf)
    control["backfill_time"] = known(periods.last_backfill_time, -np.inf)
    control["full_time"] = known(periods.full_due, now)
    control["direct_time"] = known(periods.direct_due, np.inf)
    count = len(model.trace)
    is_pending = state.jobs["phase"][:count] == PENDING
    rows = np.flatnonzero(is_pending & ~model.is_waiting)
    state.tally["pending"] = len(rows)
    slurm.line[: len(rows)] = rows[np.lexsort((rows, -model.priority[rows]))]
    control["lined"] = len(rows)
    state.jobs["priority"][rows] = model.priority[rows]
    waiting = np.flatnonzero(is_pending & model.is_waiting)
    if len(waiting) and not len(slurm.gates):
        slurm = _with_gates(slurm)
    slurm.waiting[: len(waiting)] = waiting
    state.tally["waiting"] = len(waiting)
    slurm.eligible_time[:count] = model.eligible_time
    slurm.charged_time[:count] = phases.priority_time
    if usage is None:
        # Factors stay as they are within a run, as part of `points`.
        control["weight_fairshare"] = 0.0
        slurm.associations["factor"] = 0.0
        return slurm
    slurm = _with_associations(slurm, trace, usage)
    # Nothing is charged and nothing decays between an instant and itself: this ranks the users.
    recalculate(state, slurm, phases.priority_time)
    return slurm


def _built(state: State, trace: Trace, cluster: Cluster, phases: Phases) -> Slurm:
    """Build the state of slurmctld as on an idle cluster, which decides what its partitions can ever start.

    Running jobs run on, even where their partition would admit them no more.
    """
    running = state.jobs["phase"] == RUNNING
    jobs, nodes, leaves, tally = (table.copy() for table in (state.jobs, state.nodes, state.leaves, state.tally))
    for name in ("gpus", "cpus"):
        state.nodes[f"{name}_free"] = nodes[name]
    state.nodes["memory_free_mib"] = nodes["memory_mib"]
    state.nodes["is_up"] = 1
    state.leaves["gpus_free"] = np.bincount(nodes["leaf"], nodes["gpus"], len(leaves))
    state.tally["gpus_free"] = nodes["gpus"].sum()
    slurm = build_slurm(state, trace, cluster, phases)
    state.nodes[:], state.leaves[:], state.tally[:] = nodes, leaves, tally
    for name in ("phase", "end", "limit_s"):
        state.jobs[name][running] = jobs[name][running]
    return slurm


def _with_gates(slurm: Slurm) -> Slurm:
    """Return the state of slurmctld with gates that hold no job back."""
    gates = np.zeros(len(slurm.line), GATE_DTYPE)
    gates["array"] = NONE
    return slurm._replace(gates=gates, waiting=np.zeros(len(gates), np.int32))


def _with_associations(slurm: Slurm, trace: Trace, usage: Usage) -> Slurm:
    """Return the state of slurmctld with the associations of `usage`, and those of jobs that are not among them."""
    account, user = trace.jobs["account"].tolist(), trace.jobs["user"].tolist()
    account_codes = {name: code for code, name in enumerate(trace.accounts)}
    user_codes = {name: code for code, name in enumerate(trace.users)}
    pairs = [(account_codes[name], user_codes[who]) for name, who in usage.gpu_s_by_user]
    pairs = list(dict.fromkeys((*pairs, *zip(account, user, strict=True))))
    row_by_pair = {pair: row for row, pair in enumerate(pairs)}
    used = np.array([usage.gpu_s_by_user.get((trace.accounts[a], trace.users[u]), 0.0) for a, u in pairs])
    associations = np.zeros(len(pairs), ASSOCIATION_DTYPE)
    associations["account"] = [code for code, _ in pairs]
    associations["usage"] = used
    associations["shares"] = 1.0
    return slurm._replace(
        association=np.array([row_by_pair[pair] for pair in zip(account, user, strict=True)], dtype=np.int32),
        associations=associations,
        account_usage=np.bincount(associations["account"], used, len(trace.accounts)).astype(np.float64),
        account_shares=np.array([usage.shares_by_account.get(name, 1.0) for name in trace.accounts]),
        ranking=np.arange(len(pairs), dtype=np.int32),
    )


def with_slots(state: State, slurm: Slurm, first: int, count: int, templates: Templates) -> tuple[State, Slurm]:
    """Return the arrays with `count` empty rows for arrivals from `first` on instead of the templates."""
    jobs = np.zeros(first + count, JOB_DTYPE)
    jobs[:first] = state.jobs[:first]
    slots = jobs[first:]
    if count:
        slots[:] = templates.jobs[0]
    # A slot without an arrival is never submitted.
    slots["submit_time"] = np.inf
    most = np.maximum(templates.jobs["gpus_max"], templates.jobs["nodes_min"])
    widest = int(np.minimum(most, len(state.nodes)).max()) if count else 0
    end = int(state.jobs["pool"][first]) if first < len(state.jobs) else len(state.held_nodes)
    slots["pool"] = end + widest * np.arange(count)
    running = len(state.running)
    held_nodes, held_gpus = (
        np.concatenate((held[:end], np.zeros(widest * count, np.int32))) for held in (state.held_nodes, state.held_gpus)
    )
    grown = state._replace(
        jobs=jobs,
        timers=np.full(len(jobs), NONE, np.int32),
        held_nodes=held_nodes,
        held_gpus=held_gpus,
        segments=np.zeros(len(jobs) + running + 16, SEGMENT_DTYPE),
    )
    # An arrival starts in the first of its partitions.
    is_kept = slurm.extras["row"] < first
    extras = slurm.extras[is_kept]
    groups = len(jobs) if len(slurm.groups) else 0
    return grown, slurm._replace(
        line=_resized(slurm.line, len(jobs) + len(extras)),
        partition=_resized(slurm.partition, len(jobs)),
        others=np.concatenate((slurm.others[:first], np.full(count, NONE, np.int32))),
        extras=extras,
        claim_class=np.zeros(len(jobs) + len(extras), np.int32),
        began=np.arange(len(jobs), dtype=np.int32),
        group=np.concatenate(
            (_resized(slurm.group[: len(state.jobs)], groups), slurm.group[len(state.jobs) :][is_kept])
        )
        if groups
        else slurm.group,
        preempt_time=np.full(groups, -np.inf),
        grace_end_time=np.full(groups, np.inf),
        owed_gpu_s=_resized(slurm.owed_gpu_s, len(jobs)),
        release_time=np.full(len(jobs), np.inf),
        association=_resized(slurm.association, len(jobs)),
        switches_time=_resized(slurm.switches_time, len(jobs)),
        charged_time=_resized(slurm.charged_time, len(jobs)),
        points=_resized(slurm.points, len(jobs)),
        eligible_time=_resized(slurm.eligible_time, len(jobs)),
        gates=_resized_gates(slurm.gates, first, count),
        waiting=_resized(slurm.waiting, len(jobs) if len(slurm.gates) else 0),
        spare=_resized(slurm.spare, len(jobs) + len(extras)),
    )


def _resized_gates(gates: NDArray[np.void], first: int, count: int) -> NDArray[np.void]:
    """Return the gates of the jobs of the snapshot, and for arrivals such that hold no job back."""
    if not len(gates):
        return gates
    resized = np.zeros(first + count, GATE_DTYPE)
    resized["array"] = NONE
    resized[:first] = gates[:first]
    return resized


def _resized(array: NDArray[Number], length: int) -> NDArray[Number]:
    """Return the array cut or filled up with zeros to a length."""
    resized = np.zeros(length, array.dtype)
    kept = min(length, len(array))
    resized[:kept] = array[:kept]
    return resized


def set_waiting_points(state: State, slurm: Slurm) -> None:
    """Let the waiting jobs differ from the formula as those of their users in the line do in the median."""
    line = slurm.line[: int(state.tally["pending"][0])]
    waiting = slurm.waiting[: int(state.tally["waiting"][0])]
    slurm.points[waiting] = median_points(slurm, line, slurm.association[waiting])
