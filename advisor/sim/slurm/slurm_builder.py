"""Builds the state of the model of slurmctld before the first submission."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.domain.dataclass import dataclass
from advisor.domain.releases import traits_of
from advisor.sim.cluster import Cluster, SlurmParameters
from advisor.sim.run_outcome import End
from advisor.sim.slurm.preemption import build_preemption
from advisor.sim.slurm.queue_tables import has_limits
from advisor.sim.slurm.slurm_limits import LimitBook, Owner, account_tree, can_ever_start
from advisor.sim.slurm.slurm_queue import (
    Entries,
    admits,
    asked_partitions,
    entries_of,
    members_of,
    partition_records,
    partitions_of,
)
from advisor.sim.slurm.slurm_settings import PriorityFlag
from advisor.sim.slurm.slurm_state import (
    ASSOCIATION_DTYPE,
    CONTROL_DTYPE,
    DEPARTURE_DTYPE,
    FUTILE_DTYPE,
    OPENINGS_DTYPE,
    RESERVATION_DTYPE,
    Slurm,
)
from advisor.sim.slurm.slurmctld import enter, pick_now
from advisor.sim.state import ENDED, NONE, State
from advisor.sim.traces.eligibility import build_eligibility
from advisor.sim.traces.trace import Trace


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
        **build_preemption(trace, cluster, lined_up.entries, len(state.running))._asdict(),
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
        shuts=np.zeros(most_reservations),
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
        openings=np.zeros(31, OPENINGS_DTYPE),
        kept_time=np.zeros((31, n_nodes)),
        kept_until=np.zeros((31, n_nodes)),
        futile=np.zeros(1021, FUTILE_DTYPE),
        ranking=np.arange(len(associations), dtype=np.int32),
        spare=np.zeros(n_jobs, np.int32),
        scratch=np.zeros(n_nodes),
    )
    # A job without nodes closes those of its partition to all partitions behind.
    slurm.control["is_split"] = n_partitions > 1 or not members.all()
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
        "preempt_wait_s": asked.kill_wait_s + asked.message_timeout_s,
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
    "bf_job_part_count_reserve",
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
        preemption = build_preemption(self._trace, self._cluster, self.entries, len(self._state.running))
        return slurm._replace(
            **self.entries._asdict(),
            **preemption._asdict(),
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
        lost = np.delete(np.arange(len(jobs)), self._rows)
        jobs["phase"][lost] = ENDED
        jobs["end"][lost] = End.IMPOSSIBLE
