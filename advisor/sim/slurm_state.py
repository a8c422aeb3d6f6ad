"""The state of the model of slurmctld beside the cluster: parameters, line of pending jobs, usage, reservations."""

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from advisor.domain.releases import traits_of
from advisor.sim.cluster import Cluster, SlurmParameters
from advisor.sim.eligibility import build_eligibility
from advisor.sim.queue_tables import has_limits
from advisor.sim.run_outcome import End
from advisor.sim.slurm_limits import LimitBook, Owner, account_tree, can_ever_start
from advisor.sim.slurm_queue import (
    Entries,
    admits,
    asked_partitions,
    entries_of,
    members_of,
    partition_records,
    partitions_of,
)
from advisor.sim.slurm_settings import PriorityFlag
from advisor.sim.state import ENDED, NONE, State
from advisor.sim.trace import Trace

CONTROL_DTYPE = np.dtype(
    [
        ("queue_depth", np.int64),
        ("partition_job_depth", np.int64),  # 0: no bound, as for those of backfill
        ("bf_depth", np.int64),
        ("bf_max_job_user", np.int64),
        ("bf_max_job_part", np.int64),
        ("bf_max_job_assoc", np.int64),
        ("bf_max_job_user_part", np.int64),
        ("bf_max_job_start", np.int64),
        ("bf_min_prio_reserve", np.float64),
        ("bf_min_age_reserve_s", np.float64),
        ("bf_places", np.int64),  # jobs at the head of the line that can reserve nodes
        ("bf_interval_s", np.float64),
        ("bf_resolution_s", np.float64),
        ("bf_window_s", np.float64),
        ("max_switch_wait_s", np.float64),
        ("weight_age", np.float64),
        ("weight_fairshare", np.float64),
        ("weight_size", np.float64),
        ("weight_qos", np.float64),
        ("weight_partition", np.float64),
        ("weight_association", np.float64),
        ("weight_cpus", np.float64),
        ("weight_memory", np.float64),
        ("weight_gpus", np.float64),
        ("max_age_s", np.float64),
        ("calc_period_s", np.float64),
        ("half_life_s", np.float64),
        ("tick_s", np.float64),  # the main scheduler looks up so often; 0: at every instant
        ("tick_phase_time", np.float64),  # an instant at which it does
        ("batch_delay_s", np.float64),
        ("sched_interval_s", np.float64),
        ("pass_time", np.float64),  # when the main pass is due; infinity: not asked for
        ("direct_time", np.float64),  # when a main pass runs beside its ticks; infinity: not asked for
        ("full_time", np.float64),  # when the next pass over the full queue is due, asked for or not
        ("last_pass_time", np.float64),  # of the passes at ticks
        ("backfill_phase_time", np.float64),  # an instant at which backfill can run
        ("backfill_time", np.float64),  # when it last ran
        ("backfill_due_time", np.float64),  # when it runs next; infinity: nothing changed since
        ("calc_time", np.float64),  # up to when priorities and usage have been worked out
        ("cluster_cpus", np.float64),
        ("requeue_delay_s", np.float64),
        ("reservations", np.int64),  # in use
        ("slots", np.int64),  # in use
        ("room", np.int64),  # nodes with free GPUs
        ("passes", np.int64),  # of backfill so far
        ("plans", np.int64),  # how often expected ends were worked out
        ("eligible_due_time", np.float64),  # when the next waiting job becomes eligible by time alone
        ("changes", np.int64),  # jobs submitted, started and stopped so far, as far as others can wait for them
        ("departures", np.int64),  # running jobs
        ("free_shape", np.int64),  # the shape of job that row 0 of `freed_by` is for
        ("billing_cpu", np.float64),
        ("billing_mem", np.float64),  # of a GiB
        ("billing_gpu", np.float64),
        ("lined", np.int64),  # length of the line
        ("partition", np.int64),  # whose nodes are in reach; -1: none in particular
        ("reached", np.int64),  # nodes in reach that are up
        ("blocked", np.int64),  # partitions, in the present main pass
        ("users", np.int64),
        ("chooser", np.int64),  # the address of what chooses the nodes of gangs as they start; 0: none does
        ("soft_limits", np.int8),  # TimeMin is a soft limit
        ("is_split", np.int8),  # partitions have other nodes than the cluster
        ("has_limits", np.int8),  # of QOS or associations
        ("charges_ends", np.int8),  # the use of a job is charged when it ends, not only at the recalculations
        ("enforces_safe", np.int8),  # jobs start if their time limits fit into the GPU-minutes that are left
        ("counts_tests", np.int8),  # backfill tests a bounded number of jobs of a user, association or partition
        ("weighs_tres", np.int8),
        ("favors_small", np.int8),
        ("is_relative", np.int8),  # the size of a job is divided by its time limit
        ("only_rises", np.int8),  # priorities do not fall
        ("accrues_always", np.int8),  # the age of a job counts from its submission
        ("by_slot", np.int8),  # backfill looks for a start slot by slot
        ("by_own_ends", np.int8),  # a job is expected when the last job on its nodes ends, not when its group does
        ("fills_emptiest", np.int8),  # a gang with an open node count fills the emptiest of its nodes first
        ("first_node", np.int8),  # a job of one node ignores leaves
    ],
    align=True,
)

RESERVATION_DTYPE = np.dtype(
    [
        ("start_time", np.float64),
        ("end_time", np.float64),
        ("next", np.int32),
        ("booking", np.int32),  # the administrator's reservation that this is; NONE: made by backfill
    ],
    align=True,
)

# A running job with its expected end and what it holds.
DEPARTURE_DTYPE = np.dtype(
    [("end_time", np.float64), ("pool", np.int64), ("row", np.int32), ("span", np.int32)], align=True
)

ASSOCIATION_DTYPE = np.dtype(
    [
        ("usage", np.float64),  # decayed, in GPU seconds
        ("shares", np.float64),  # among its siblings
        ("factor", np.float64),
        ("priority", np.float64),  # over the largest of all
        ("tested", np.int64),  # jobs that the present pass of backfill tested
        ("account", np.int32),
    ],
    align=True,
)


class Slurm(NamedTuple):
    """The state of slurmctld beside the cluster; shapes in brackets."""

    control: NDArray[np.void]  # (1,)
    wakes: NDArray[np.float64]  # (n_wakes,): recorded ticks of the main scheduler; none: a grid from the first
    backfill_wakes: NDArray[np.float64]  # (n_backfill_wakes,): recorded instants at which backfill can run
    line: NDArray[np.int32]  # (n_entries,): entries of pending jobs by falling priority, `lined` long
    gates: NDArray[np.void]  # (n_jobs,) or empty: what holds each job back
    conditions: NDArray[np.void]  # (n_conditions,)
    awaited: NDArray[np.int32]  # (n_awaited,): rows that conditions wait for
    arrays: NDArray[np.void]  # (n_arrays,): of tasks
    waiting: NDArray[np.int32]  # (n_jobs,) or empty: rows that are not eligible yet, `waiting` of them
    eligible_time: NDArray[np.float64]  # (n_jobs,): from when on a job's age counts
    partition: NDArray[np.int32]  # (n_jobs,): the first partition of each job, which its entry `row` stands for
    others: NDArray[np.int32]  # (n_jobs,): the first of a job's other entries in `extras`, -1: none
    extras: NDArray[np.void]  # (n_extras,): entries from n_jobs on
    partitions: NDArray[np.void]  # (n_partitions,)
    members: NDArray[np.int8]  # (n_partitions, n_nodes): the nodes of each partition
    reach: NDArray[np.int8]  # (n_nodes,): nodes of the partition at hand that are not closed
    closed: NDArray[np.int8]  # (n_nodes,): nodes of partitions that are blocked
    counters: NDArray[np.void]  # (n_counters,): what limits bound
    claims: NDArray[np.void]  # (n_claims,): counters that jobs count in
    claim_begin: NDArray[np.int32]  # (n_classes + 1,): the first claim of each class of entries
    claim_class: NDArray[np.int32]  # (n_entries,): the class of each entry
    began: NDArray[np.int32]  # (n_jobs,): the entry that a running job started from
    owed_gpu_s: NDArray[np.float64]  # (n_jobs,): GPU-seconds up to the time limit, from the last charge on
    release_time: NDArray[np.float64]  # (n_jobs,): until when a requeued job is held back; infinity: it is not
    tested: NDArray[np.int64]  # ((n_partitions + 1) * n_users,): jobs that backfill tested, in all and by partition
    association: NDArray[np.int32]  # (n_jobs,): of each job
    associations: NDArray[np.void]  # (n_associations,)
    account_usage: NDArray[np.float64]  # (n_accounts,)
    account_shares: NDArray[np.float64]  # (n_accounts,)
    account_parent: NDArray[np.int32]  # (n_accounts,): -1 at the top
    account_depth: NDArray[np.int32]  # (n_accounts,): 1 at the top
    switches_time: NDArray[np.float64]  # (n_jobs,): when a job's wait for few switches began; infinity: not yet
    charged_time: NDArray[np.float64]  # (n_jobs,): up to when a running job's usage is charged
    qos_factor: NDArray[np.float64]  # (n_qos,)
    points: NDArray[np.float64]  # (n_jobs,): priority of a job beyond the factors of the model
    freeing: NDArray[np.int32]  # (n_nodes, most_on_node): departures that free something on each node, in order
    freed: NDArray[np.int32]  # (n_nodes, most_on_node): GPUs free from each of these on
    departures: NDArray[np.void]  # (most_running,): running jobs by expected end
    freed_cpus: NDArray[np.int32]  # (n_nodes, most_on_node or 0): CPUs likewise, where they can bind
    freed_mib: NDArray[np.int64]  # (n_nodes, most_on_node or 0): memory likewise
    first: NDArray[np.int32]  # (n_nodes,): first reservation, in order of time
    first_time: NDArray[np.float64]  # (n_nodes,): when it begins; infinity without one
    reservations: NDArray[np.void]  # (n_reservations,)
    slots: NDArray[np.float64]  # (n_reservations,): when nodes open after reservations, sorted, `slots` of them
    ready: NDArray[np.int32]  # (n_nodes,): nodes that are open to the gang at hand, by the departure that frees enough
    open_time: NDArray[np.float64]  # (n_nodes,): from when on a node is not reserved for as long as it runs
    open_until: NDArray[np.float64]  # (n_nodes,): the start of the next reservation after that
    freed_by: NDArray[
        np.int32
    ]  # (most_gpus + 1, n_nodes): the departure that frees a number of GPUs; row 0: see free_shape
    free_time: NDArray[np.float64]  # (most_gpus + 1, n_nodes): when it ends
    free_order: NDArray[np.int32]  # (most_gpus + 1, n_nodes): the nodes that ever have that number, by that departure
    free_nodes: NDArray[np.int64]  # (most_gpus + 1,): how many these are
    free_plan: NDArray[np.int64]  # (most_gpus + 1,): the plan for which the rows above were worked out
    begins: NDArray[np.int32]  # (most_running + 2,): space for sorting nodes
    share: NDArray[np.int32]  # (n_nodes,): GPUs that a node can give the gang at hand
    chosen: NDArray[np.int8]  # (n_nodes,): nodes that the gang at hand takes
    room: NDArray[np.int32]  # (n_nodes,): nodes with free GPUs, `room` of them
    refused_pass: NDArray[
        np.int64
    ]  # (n_shapes * n_partitions,): the backfill pass in which a job of a shape last could not start
    refused_s: NDArray[
        np.float64
    ]  # (n_shapes * n_partitions,): its time limit; no longer one of the shape starts in this pass
    ranking: NDArray[np.int32]  # (n_associations,): rows by falling fair-share
    spare: NDArray[np.int32]  # (n_entries,): space for sorting the line
    scratch: NDArray[np.float64]  # (n_nodes,): space for sorting instants


@dataclass(frozen=True, slots=True, kw_only=True)
class Phases:
    """The instants at which the periods of slurmctld begin, on the clock of the trace.

    `wakes` and `backfill_wakes`, ascending, replace the even grids of the two schedulers as far as they reach.
    """

    main_time: float = 0.0
    backfill_time: float = 0.0
    priority_time: float = 0.0
    wakes: tuple[float, ...] = ()
    backfill_wakes: tuple[float, ...] = ()


def build_slurm(state: State, trace: Trace, cluster: Cluster, phases: Phases | None = None) -> Slurm:
    """Build the state of slurmctld before the first submission, where its periods begin unless `phases` is given.

    Jobs that no partition or limit can ever let start are marked as impossible. Raises `SimulationError` for a
    partition or node that the cluster does not have.
    """
    asked = cluster.slurm
    first = float(trace.jobs["submit_time"][0])
    began = phases or Phases(main_time=first, backfill_time=first, priority_time=first)
    state.rules["limit_check_s"] = asked.limit_check_s
    state.rules["limit_phase_time"] = began.main_time
    members = members_of(cluster)
    tree = account_tree(trace.accounts, cluster.associations)
    association, associations = _associations(trace, cluster)
    most, most_gpus = state.node_jobs.shape[1], int(state.nodes["gpus"].max())
    n_nodes, n_jobs, n_partitions = len(state.nodes), len(trace), len(members)
    shapes = (int(state.jobs["shape"].max()) + 1) * n_partitions
    lined_up = _EntryBuilder(state, trace, cluster)
    most_reservations = max(65_536, 4 * n_nodes) + int(state.booked.sum())
    slurm = Slurm(
        control=_control(state, trace, cluster, began, is_up=phases is None),
        wakes=np.array(began.wakes, np.float64),
        backfill_wakes=np.array(began.backfill_wakes, np.float64),
        line=np.full(n_jobs, NONE, np.int32),
        **build_eligibility(trace)._asdict(),
        eligible_time=state.jobs["submit_time"].astype(np.float64),
        **lined_up.entries._asdict(),
        partitions=partition_records(state, cluster, members),
        members=members,
        reach=np.ones(n_nodes, np.int8),
        closed=np.zeros(n_nodes, np.int8),
        counters=lined_up.counters.counters,
        claims=lined_up.counters.claims,
        claim_begin=lined_up.counters.begin,
        claim_class=lined_up.classes,
        began=np.arange(n_jobs, dtype=np.int32),
        owed_gpu_s=np.zeros(n_jobs),
        release_time=np.full(n_jobs, np.inf),
        tested=np.zeros((n_partitions + 1) * len(trace.users), np.int64),
        association=association,
        associations=associations,
        account_usage=np.zeros(len(tree.names)),
        account_shares=tree.shares,
        account_parent=tree.parent,
        account_depth=tree.depth,
        switches_time=np.where(state.jobs["switches"] > 0, state.jobs["submit_time"], np.inf),
        charged_time=np.zeros(n_jobs),
        qos_factor=_qos_factors(trace, cluster),
        points=np.zeros(n_jobs),
        freeing=np.zeros((n_nodes, most), np.int32),
        freed=np.zeros((n_nodes, most), np.int32),
        departures=np.zeros(len(state.running), DEPARTURE_DTYPE),
        freed_cpus=np.zeros((n_nodes, most * int(state.rules["binds"][0])), np.int32),
        freed_mib=np.zeros((n_nodes, most * int(state.rules["binds"][0])), np.int64),
        first=np.full(n_nodes, NONE, np.int32),
        first_time=np.full(n_nodes, np.inf),
        reservations=np.zeros(most_reservations, RESERVATION_DTYPE),
        slots=np.zeros(most_reservations),
        ready=np.zeros(n_nodes, np.int32),
        open_time=np.zeros(n_nodes),
        open_until=np.zeros(n_nodes),
        freed_by=np.zeros((most_gpus + 1, n_nodes), np.int32),
        free_time=np.zeros((most_gpus + 1, n_nodes)),
        free_order=np.zeros((most_gpus + 1, n_nodes), np.int32),
        free_nodes=np.zeros(most_gpus + 1, np.int64),
        free_plan=np.zeros(most_gpus + 1, np.int64),
        begins=np.zeros(len(state.running) + 2, np.int32),
        share=np.zeros(n_nodes, np.int32),
        chosen=np.zeros(n_nodes, np.int8),
        room=np.zeros(n_nodes, np.int32),
        refused_pass=np.zeros(shapes, np.int64),
        refused_s=np.zeros(shapes),
        ranking=np.arange(len(associations), dtype=np.int32),
        spare=np.zeros(n_jobs, np.int32),
        scratch=np.zeros(n_nodes),
    )
    slurm.control["is_split"] = not members.all()
    slurm.control["has_limits"] = lined_up.has_limits
    return lined_up.admitted(slurm)


def _control(state: State, trace: Trace, cluster: Cluster, began: Phases, *, is_up: bool) -> NDArray[np.void]:
    """Build the parameters; with `is_up`, slurmctld has been up for long."""
    asked = cluster.slurm
    control = np.zeros(1, CONTROL_DTYPE)
    flags = set(asked.priority_flags)
    tres = asked.priority_weight_tres
    traits = traits_of(asked.release)
    values = {
        "queue_depth": asked.default_queue_depth,
        "bf_depth": asked.bf_max_job_test,
        "bf_places": np.iinfo(np.int64).max,
        "weight_age": asked.priority_weight_age,
        "weight_fairshare": asked.priority_weight_fairshare,
        "weight_size": asked.priority_weight_job_size,
        "weight_qos": asked.priority_weight_qos,
        "weight_partition": asked.priority_weight_partition,
        "weight_association": asked.priority_weight_assoc,
        "weight_cpus": tres.get("cpu", 0.0),
        "weight_memory": tres.get("mem", 0.0),
        "weight_gpus": tres.get("gres/gpu", 0.0),
        "max_age_s": asked.priority_max_age_s,
        "calc_period_s": asked.priority_calc_period_s,
        "half_life_s": asked.priority_decay_half_life_s,
        "batch_delay_s": asked.batch_sched_delay_s,
        "pass_time": np.inf,
        "direct_time": np.inf,
        "full_time": _first_full_pass(began, asked),
        # Until its first main pass slurmctld waits 3 s, whatever is configured.
        "last_pass_time": -np.inf if is_up else began.main_time + 3.0 - asked.batch_sched_delay_s,
        "tick_phase_time": began.main_time,
        "backfill_phase_time": began.backfill_time,
        "backfill_time": -np.inf,
        "backfill_due_time": np.inf,
        "eligible_due_time": np.inf,
        "calc_time": began.priority_time,
        "cluster_cpus": state.nodes["cpus"].sum(),
        **{f"billing_{name}": asked.tres_billing_weights.get(name, 0.0) for name in ("cpu", "mem", "gpu")},
        "partition": NONE,
        "users": len(trace.users),
        "soft_limits": asked.time_min_as_soft_limit,
        "charges_ends": _enforces_limits(cluster),
        "enforces_safe": "safe" in asked.accounting_storage_enforce,
        "counts_tests": any(getattr(asked, name) for name in _TESTS),
        "weighs_tres": any(tres.values()),
        "favors_small": asked.priority_favor_small,
        "is_relative": PriorityFlag.SMALL_RELATIVE_TO_TIME in flags,
        "only_rises": PriorityFlag.INCR_ONLY in flags,
        "accrues_always": PriorityFlag.ACCRUE_ALWAYS in flags,
        "by_slot": traits.backfill_by_slot,
        "by_own_ends": traits.backfill_by_own_ends,
        "fills_emptiest": traits.open_gangs_fill_emptiest,
        "first_node": not traits.one_node_by_leaf,
    }
    for name, value in values.items():
        control[name] = value
    for name in _SAME:
        control[name] = getattr(asked, name)
    if {PriorityFlag.NO_NORMAL_TRES, PriorityFlag.NO_NORMAL_ALL} & flags:
        # Without the share of a partition, the numbers themselves count.
        control["weighs_tres"] = 2 * control["weighs_tres"]
    return control


_TESTS: Final = ("bf_max_job_user", "bf_max_job_part", "bf_max_job_assoc", "bf_max_job_user_part")
# Parameters that have the same name in both places.
_SAME: Final = (
    *_TESTS,
    "partition_job_depth",
    "bf_max_job_start",
    "bf_min_prio_reserve",
    "bf_min_age_reserve_s",
    "bf_interval_s",
    "bf_resolution_s",
    "bf_window_s",
    "max_switch_wait_s",
    "tick_s",
    "sched_interval_s",
    "requeue_delay_s",
)


def _first_full_pass(began: Phases, asked: SlurmParameters) -> float:
    """Return the first tick that runs the main pass over the full queue."""
    due = began.main_time + asked.sched_interval_s
    return float(next((tick for tick in began.wakes if tick >= np.floor(due)), due))


def _enforces_limits(cluster: Cluster) -> bool:
    """Return whether limits are enforced; where nothing says so, they are if there are any."""
    words = cluster.slurm.accounting_storage_enforce
    if not words:
        return any(map(has_limits, (*cluster.qos, *cluster.associations)))
    return bool({"limits", "safe"} & set(words))


def _associations(trace: Trace, cluster: Cluster) -> tuple[NDArray[np.int32], NDArray[np.void]]:
    """Return the association of each job, `(n_jobs,)`, and the associations of users with accounts."""
    pairs = np.stack([trace.jobs["account"], trace.jobs["user"]], axis=1)
    distinct, association = np.unique(pairs, axis=0, return_inverse=True)
    records = np.zeros(len(distinct), ASSOCIATION_DTYPE)
    records["account"] = distinct[:, 0]
    records["factor"] = records["shares"] = 1.0
    if tables := {(table.account, table.user): table for table in cluster.associations}:
        for record, (account, user) in zip(records, distinct.tolist(), strict=True):
            own = tables.get((trace.accounts[account], trace.users[user])) if trace.users[user] else None
            of_account = tables.get((trace.accounts[account], ""))
            record["shares"] = own.shares if own else 1.0
            record["priority"] = (own and own.priority) or (of_account.priority if of_account else 0.0)
        flags = set(cluster.slurm.priority_flags)
        if not {PriorityFlag.NO_NORMAL_ASSOC, PriorityFlag.NO_NORMAL_ALL} & flags:
            records["priority"] /= max([table.priority for table in tables.values()] + [1.0])
    return association.reshape(-1).astype(np.int32), records


def _qos_factors(trace: Trace, cluster: Cluster) -> NDArray[np.float64]:
    """Return the factors of the QOS of a trace, `(n_qos,)`."""
    priority = {table.name: table.priority for table in cluster.qos}
    raw = {PriorityFlag.NO_NORMAL_QOS, PriorityFlag.NO_NORMAL_ALL} & set(cluster.slurm.priority_flags)
    highest = 1.0 if raw else max([*priority.values(), 1.0])
    return np.array([priority.get(name, 0.0) / highest for name in trace.qos])


class _EntryBuilder:
    """Pairs the jobs of a trace with the partitions that can start them, and with the limits that bind them there."""

    def __init__(self, state: State, trace: Trace, cluster: Cluster) -> None:
        """List the pairs, and mark jobs that their partitions or limits never let start."""
        self._state, self._trace, self._cluster = state, trace, cluster
        self._tables = partitions_of(cluster)
        self._book = LimitBook(cluster.qos, cluster.associations)
        self.has_limits = _enforces_limits(cluster) and not self._book.is_empty
        asked = asked_partitions(trace, cluster)
        codes = trace.jobs["partition"]
        if all(len(places) == 1 for places in asked):
            rows = np.arange(len(trace))
            places = np.array([places[0] for places in asked])[codes]
        else:
            counts = np.array([len(places) for places in asked])[codes]
            rows = np.repeat(np.arange(len(trace)), counts)
            places = np.concatenate([asked[code] for code in codes.tolist()])
        self._rows, self._places = rows, places
        if cluster.partitions:
            self._keep(self._admitted_by_partitions())
        self.counters = self._book.counters(())
        self._bind()

    @property
    def entries(self) -> Entries:
        """The entries of the pairs."""
        return entries_of(self._rows, self._places, len(self._trace))

    @property
    def classes(self) -> NDArray[np.int32]:
        """The classes of the entries, `(n_entries,)`."""
        is_first = np.r_[True, self._rows[1:] != self._rows[:-1]] if len(self._rows) else np.zeros(0, np.bool_)
        of_jobs = np.zeros(len(self._trace), np.int32)
        of_jobs[self._rows[is_first]] = self._classes[is_first]
        return np.concatenate([of_jobs, self._classes[~is_first]]).astype(np.int32)

    def admitted(self, slurm: Slurm) -> Slurm:
        """Return the state without the entries of jobs that are larger than their partition."""
        if slurm.control["is_split"][0]:
            from advisor.sim.slurm_placement import enter, pick_now

            pairs = np.stack([self._state.jobs["shape"][self._rows], self._places], axis=1)
            _, first, inverse = np.unique(pairs, axis=0, return_index=True, return_inverse=True)
            fits = np.zeros(len(first), np.bool_)
            for kind, pair in enumerate(first.tolist()):
                enter(self._state, slurm, int(self._places[pair]))
                fits[kind] = pick_now(self._state, slurm, int(self._rows[pair]), np.inf)
            self._keep(fits[inverse.reshape(-1)])
            slurm.reach[:] = 1
            slurm.control["partition"] = NONE
        count = len(self._trace) + len(self.entries.extras)
        return slurm._replace(
            **self.entries._asdict(),
            claim_class=self.classes,
            line=np.full(count, NONE, np.int32),
            spare=np.zeros(count, np.int32),
        )

    def _admitted_by_partitions(self) -> NDArray[np.bool_]:
        """Return which pairs their partitions admit; jobs without a time limit get that of their first partition."""
        jobs = self._state.jobs
        keep = np.zeros(len(self._rows), np.bool_)
        for place, table in enumerate(self._tables):
            mine = self._places == place
            keep[mine] = admits(table, jobs[self._rows[mine]])
        longest = np.array([table.max_time_s or np.inf for table in self._tables])
        for pair in np.flatnonzero(keep & np.isinf(jobs["limit_s"][self._rows])).tolist():
            row = self._rows[pair]
            jobs["limit_s"][row] = min(jobs["limit_s"][row], longest[self._places[pair]])
        return keep

    def _bind(self) -> None:
        """Count the pairs in the counters of their limits."""
        self._classes = np.zeros(len(self._rows), np.int32)
        if not self.has_limits:
            self.counters = self._book.counters((Owner("", "", "", ""),))
            return
        jobs, trace = self._trace.jobs[self._rows], self._trace
        codes = np.stack([jobs["account"], jobs["user"], jobs["qos"], self._places], axis=1)
        distinct, inverse = np.unique(codes, axis=0, return_inverse=True)
        self._classes = inverse.reshape(-1).astype(np.int32)
        self.counters = self._book.counters(
            [
                Owner(trace.accounts[account], trace.users[user], trace.qos[qos], self._tables[place].qos)
                for account, user, qos, place in distinct.tolist()
            ]
        )
        of_pairs = self._state.jobs[self._rows]
        longest = np.array([most.get("limit_s", np.inf) for most in self.counters.most])[self._classes]
        endless = np.isinf(of_pairs["limit_s"])
        self._state.jobs["limit_s"][self._rows[endless]] = longest[endless]
        self._keep(can_ever_start(self._state.jobs[self._rows], self._classes, self.counters))

    def _keep(self, keep: NDArray[np.bool_]) -> None:
        """Keep some of the pairs; jobs without any are impossible."""
        jobs = self._state.jobs
        self._rows, self._places = self._rows[keep], self._places[keep]
        if hasattr(self, "_classes"):
            self._classes = self._classes[keep]
        lost = np.setdiff1d(np.arange(len(jobs)), self._rows)
        jobs["phase"][lost] = ENDED
        jobs["end"][lost] = End.IMPOSSIBLE
