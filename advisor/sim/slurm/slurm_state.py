"""The state of the model of slurmctld beside the cluster: parameters, line of pending jobs, usage, reservations."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

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
        ("bf_job_part_count_reserve", np.int64),
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
        ("preempt_wait_s", np.float64),  # from the choice of jobs to preempt until a job can choose others
        ("completing_s", np.float64),  # from a preemption to the main pass that the end of the job runs
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
        ("leaving", np.int64),  # running jobs that gave way to others in the present pass
        ("users", np.int64),
        ("soft_limits", np.int8),  # TimeMin is a soft limit
        ("is_split", np.int8),  # there are several partitions, or one with a part of the nodes
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
        ("node", np.int32),
    ],
    align=True,
)

# A running job with its expected end and what it holds.
DEPARTURE_DTYPE = np.dtype(
    [("end_time", np.float64), ("pool", np.int64), ("row", np.int32), ("span", np.int32)], align=True
)

# A search of backfill that found no start for a job.
FUTILE_DTYPE = np.dtype(
    [
        ("limit_s", np.float64),
        ("plan", np.int64),  # of the expected ends
        ("reservations", np.int64),  # that there were
        ("shape", np.int64),  # in the partition at hand
    ],
    align=True,
)

# When nodes are open for a run time from the beginning of a pass of backfill on.
OPENINGS_DTYPE = np.dtype(
    [
        ("limit_s", np.float64),
        ("pass", np.int64),
        ("reservations", np.int64),  # that are counted in
    ],
    align=True,
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


GROUP_DTYPE = np.dtype(
    [
        ("order", np.float64),  # jobs of the lowest are preempted first
        ("exempt_s", np.float64),  # jobs that began less than this ago are not preempted
        ("grace_s", np.float64),  # from its choice to its end, for a job that is preempted
        ("mode", np.int8),  # of `PreemptMode`, as numbered in preemption.c
        ("preempts_any", np.int8),  # its jobs may preempt those of a group
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
    groups: NDArray[np.void]  # (n_groups,): partitions or QOS that preempt; empty where none does
    preempts: NDArray[np.int8]  # (n_groups, n_groups): whether jobs of the first preempt those of the second
    group: NDArray[np.int32]  # (n_entries,) or empty: of each entry
    preempt_time: NDArray[np.float64]  # (n_jobs,) or empty: when a job last chose others to give way
    grace_end_time: NDArray[np.float64]  # (n_jobs,) or empty: of a job that is preempted; infinity: it is not
    candidates: NDArray[np.int32]  # (most_running,) or empty: running jobs that the job at hand may preempt
    leaving: NDArray[np.int32]  # (most_running,) or empty: running jobs that gave way, `leaving` of them
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
    shuts: NDArray[np.float64]  # (n_reservations,): when nodes shut for these, sorted
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
    openings: NDArray[np.void]  # (n_openings,)
    kept_time: NDArray[np.float64]  # (n_openings, n_nodes): `open_time` of each of them
    kept_until: NDArray[np.float64]  # (n_openings, n_nodes): `open_until`
    futile: NDArray[np.void]  # (n_futile,): searches for a start that found none
    ranking: NDArray[np.int32]  # (n_associations,): rows by falling fair-share
    spare: NDArray[np.int32]  # (n_entries,): space for sorting the line
    scratch: NDArray[np.float64]  # (n_nodes,): space for sorting instants
