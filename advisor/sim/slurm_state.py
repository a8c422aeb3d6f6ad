"""The state of the model of slurmctld beside the cluster: parameters, line of pending jobs, usage, reservations."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from advisor.sim.cluster import Cluster
from advisor.sim.state import NONE, State
from advisor.sim.trace import Trace

CONTROL_DTYPE = np.dtype(
    [
        ("queue_depth", np.int64),
        ("bf_depth", np.int64),
        ("bf_interval_s", np.float64),
        ("bf_resolution_s", np.float64),
        ("bf_window_s", np.float64),
        ("max_switch_wait_s", np.float64),
        ("weight_age", np.float64),
        ("weight_fairshare", np.float64),
        ("weight_size", np.float64),
        ("weight_qos", np.float64),
        ("max_age_s", np.float64),
        ("calc_period_s", np.float64),
        ("half_life_s", np.float64),
        ("tick_s", np.float64),  # the main scheduler looks up so often; 0: at every instant
        ("tick_phase_time", np.float64),  # an instant at which it does
        ("batch_delay_s", np.float64),
        ("sched_interval_s", np.float64),
        ("pass_time", np.float64),  # when the main pass is due; infinity: not asked for
        ("last_pass_time", np.float64),
        ("backfill_phase_time", np.float64),  # an instant at which backfill can run
        ("backfill_time", np.float64),  # when it last ran
        ("backfill_due_time", np.float64),  # when it runs next; infinity: nothing changed since
        ("calc_time", np.float64),  # up to when priorities and usage have been worked out
        ("cluster_cpus", np.float64),
        ("reservations", np.int64),  # in use
        ("room", np.int64),  # nodes with free GPUs
        ("passes", np.int64),  # of backfill so far
        ("plans", np.int64),  # how often expected ends were worked out
        ("soft_limits", np.int8),  # TimeMin is a soft limit
    ],
    align=True,
)

RESERVATION_DTYPE = np.dtype([("start_time", np.float64), ("end_time", np.float64), ("next", np.int32)], align=True)

ASSOCIATION_DTYPE = np.dtype(
    [
        ("usage", np.float64),  # decayed, in GPU seconds
        ("factor", np.float64),
        ("account", np.int32),
    ],
    align=True,
)


class Slurm(NamedTuple):
    """The state of slurmctld beside the cluster; shapes in brackets."""

    control: NDArray[np.void]  # (1,)
    line: NDArray[np.int32]  # (n_jobs,): pending rows by falling priority, `pending` long
    association: NDArray[np.int32]  # (n_jobs,): of each job
    associations: NDArray[np.void]  # (n_associations,)
    account_usage: NDArray[np.float64]  # (n_accounts,)
    account_shares: NDArray[np.float64]  # (n_accounts,)
    switches_time: NDArray[np.float64]  # (n_jobs,): when a job's wait for few switches began; infinity: not yet
    charged_time: NDArray[np.float64]  # (n_jobs,): up to when a running job's usage is charged
    qos_factor: NDArray[np.float64]  # (n_qos,)
    ends: NDArray[np.float64]  # (n_nodes, most_on_node): expected ends on each node, sorted
    freed: NDArray[np.int32]  # (n_nodes, most_on_node): GPUs free from each of these ends on
    stale: NDArray[np.int8]  # (n_nodes,): the two above are out of date
    first: NDArray[np.int32]  # (n_nodes,): first reservation, in order of time
    reservations: NDArray[np.void]  # (n_reservations,)
    ready: NDArray[np.float64]  # (n_nodes,): when a node can take a part of the gang at hand
    open_time: NDArray[np.float64]  # (n_nodes,): from when on a node is not reserved for as long as it runs
    free_time: NDArray[np.float64]  # (most_gpus + 1, n_nodes): when a node has that many GPUs free
    free_plan: NDArray[np.int64]  # (most_gpus + 1,): the plan for which the row above was worked out
    share: NDArray[np.int32]  # (n_nodes,): GPUs that a node can give the gang at hand
    chosen: NDArray[np.int8]  # (n_nodes,): nodes that the gang at hand takes
    room: NDArray[np.int32]  # (n_nodes,): nodes with free GPUs, `room` of them
    refused_pass: NDArray[np.int64]  # (n_shapes,): the backfill pass in which a job of a shape last could not start
    refused_s: NDArray[np.float64]  # (n_shapes,): its time limit; no longer one of the shape starts in this pass
    ranking: NDArray[np.int32]  # (n_associations,): rows by falling fair-share
    spare: NDArray[np.int32]  # (n_jobs,): space for sorting the line
    scratch: NDArray[np.float64]  # (n_nodes,): space for sorting instants


@dataclass(frozen=True, slots=True, kw_only=True)
class Phases:
    """The instants at which the periods of slurmctld begin, on the clock of the trace."""

    main_time: float = 0.0
    backfill_time: float = 0.0
    priority_time: float = 0.0


def build_slurm(state: State, trace: Trace, cluster: Cluster, phases: Phases | None = None) -> Slurm:
    """Build the state of slurmctld before the first submission, where its periods begin unless `phases` is given."""
    asked = cluster.slurm
    first = float(trace.jobs["submit_time"][0])
    began = phases or Phases(main_time=first, backfill_time=first, priority_time=first)
    control = np.zeros(1, CONTROL_DTYPE)
    values = {
        "queue_depth": asked.default_queue_depth,
        "bf_depth": asked.bf_max_job_test,
        "bf_interval_s": asked.bf_interval_s,
        "bf_resolution_s": asked.bf_resolution_s,
        "bf_window_s": asked.bf_window_s,
        "max_switch_wait_s": asked.max_switch_wait_s,
        "weight_age": asked.priority_weight_age,
        "weight_fairshare": asked.priority_weight_fairshare,
        "weight_size": asked.priority_weight_job_size,
        "weight_qos": asked.priority_weight_qos,
        "max_age_s": asked.priority_max_age_s,
        "calc_period_s": asked.priority_calc_period_s,
        "half_life_s": asked.priority_decay_half_life_s,
        "tick_s": asked.tick_s,
        "batch_delay_s": asked.batch_sched_delay_s,
        "sched_interval_s": asked.sched_interval_s,
        "pass_time": np.inf,
        # Until its first main pass slurmctld waits 3 s, whatever is configured.
        "last_pass_time": -np.inf if phases is None else began.main_time + 3.0 - asked.batch_sched_delay_s,
        "tick_phase_time": began.main_time,
        "backfill_phase_time": began.backfill_time,
        "backfill_time": -np.inf,
        "backfill_due_time": np.inf,
        "calc_time": began.priority_time,
        "cluster_cpus": state.nodes["cpus"].sum(),
        "soft_limits": asked.time_min_as_soft_limit,
    }
    for name, value in values.items():
        control[name] = value
    pairs = np.stack([trace.jobs["account"], trace.jobs["user"]], axis=1)
    distinct, association = np.unique(pairs, axis=0, return_inverse=True)
    associations = np.zeros(len(distinct), ASSOCIATION_DTYPE)
    associations["account"] = distinct[:, 0]
    associations["factor"] = 1.0
    state.rules["limit_check_s"] = asked.limit_check_s
    state.rules["limit_phase_time"] = began.main_time
    highest = max([*asked.qos_priority.values(), 1.0])
    most = state.node_jobs.shape[1]
    most_gpus, shapes = int(state.nodes["gpus"].max()), int(state.jobs["shape"].max()) + 1
    return Slurm(
        control=control,
        line=np.full(len(trace), NONE, np.int32),
        association=association.reshape(-1).astype(np.int32),
        associations=associations,
        account_usage=np.zeros(len(trace.accounts)),
        account_shares=np.array([asked.account_shares.get(name, 1.0) for name in trace.accounts]),
        switches_time=np.where(state.jobs["switches"] > 0, state.jobs["submit_time"], np.inf),
        charged_time=np.zeros(len(trace)),
        qos_factor=np.array([asked.qos_priority.get(name, 0.0) / highest for name in trace.qos]),
        ends=np.full((len(state.nodes), most), np.inf),
        freed=np.zeros((len(state.nodes), most), np.int32),
        stale=np.ones(len(state.nodes), np.int8),
        first=np.full(len(state.nodes), NONE, np.int32),
        reservations=np.zeros(max(65_536, 4 * len(state.nodes)), RESERVATION_DTYPE),
        ready=np.zeros(len(state.nodes)),
        open_time=np.zeros(len(state.nodes)),
        free_time=np.zeros((most_gpus + 1, len(state.nodes))),
        free_plan=np.zeros(most_gpus + 1, np.int64),
        share=np.zeros(len(state.nodes), np.int32),
        chosen=np.zeros(len(state.nodes), np.int8),
        room=np.zeros(len(state.nodes), np.int32),
        refused_pass=np.zeros(shapes, np.int64),
        refused_s=np.zeros(shapes),
        ranking=np.arange(len(distinct), dtype=np.int32),
        spare=np.zeros(len(trace), np.int32),
        scratch=np.zeros(len(state.nodes)),
    )
