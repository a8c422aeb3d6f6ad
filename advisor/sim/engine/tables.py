"""The tables that C functions read and write, with the types of their arrays."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from advisor.errors import SimulationError
from advisor.planning import lifts, objective
from advisor.predict import run_time_features
from advisor.predict.run_time_curve import TAIL
from advisor.sim.engine.layout import ArrayType, declared, header, records
from advisor.sim.queueing import QUEUE_RULES_DTYPE, Queue
from advisor.sim.run_outcome import SEGMENT_DTYPE
from advisor.sim.slurm.slurm_limits import CLAIM_DTYPE, COUNTER_DTYPE
from advisor.sim.slurm.slurm_queue import ENTRY_DTYPE, PARTITION_DTYPE
from advisor.sim.slurm.slurm_state import (
    ASSOCIATION_DTYPE,
    CONTROL_DTYPE,
    DEPARTURE_DTYPE,
    FUTILE_DTYPE,
    GROUP_DTYPE,
    OPENINGS_DTYPE,
    RESERVATION_DTYPE,
    Slurm,
)
from advisor.sim.state import (
    BOOKING_DTYPE,
    FAULT_DTYPE,
    JOB_DTYPE,
    LEAF_DTYPE,
    NODE_DTYPE,
    PROFILE_ROW_DTYPE,
    RULES_DTYPE,
    TALLY_DTYPE,
    State,
)
from advisor.sim.traces.eligibility import CONDITION_DTYPE, GATE_DTYPE, TASK_ARRAY_DTYPE


class GangPatience(NamedTuple):
    """The waits of gangs under delay scheduling, and what their timers depend on; shapes in brackets.

    The tiers of timers are those of a node and a leaf, as in `LocalityTier`.
    """

    declined_s: NDArray[np.float64]  # (n_jobs,): for how long a gang has had a place and declined it, since it ran
    spent_s: NDArray[np.float64]  # (n_jobs,): for how long it did before
    declining: NDArray[np.int8]  # (n_jobs,): whether it has one since the last pass
    pass_time: NDArray[np.float64]  # (1,): of the last pass
    reached: NDArray[np.int8]  # (n_jobs,): the tier it started at, -1 before
    gang_class: NDArray[np.int32]  # (n_jobs,)
    edges_s: NDArray[np.float64]  # (n_stretches + 1,): `tuning.EDGES_S`
    rate_per_s: NDArray[np.float64]  # (n_classes * 2, n_stretches): by class and tier, as of `tuning.rates`
    fixed_s: NDArray[np.float64]  # (2,) by tier; NaN: the rates decide
    least_inflation: NDArray[np.float64]  # (1,): a place that costs less is accepted at once
    longest_s: NDArray[np.float64]  # (1,): tuned timers let no gang decline for longer in all
    best_tier: NDArray[np.int8]  # (n_shapes,): what a shape has on the idle cluster
    missing: NDArray[np.int8]  # (n_shapes,): space for what a shape lacked in a pass


ORDER_DTYPE = np.dtype(
    [
        ("every_s", np.float64),
        ("share_exponent", np.float64),  # a factor of 1 counts 10 to the power of this; 0: shares count nothing
        ("ageing_s", np.float64),  # a wait of this doubles the weight; infinity: waiting counts nothing
        ("weighed_time", np.float64),  # when fair-share factors were last read
    ],
    align=True,
)


class Order(NamedTuple):
    """What a whole line of pending jobs is sorted by, see `engine/order.c`; shapes in brackets."""

    settings: NDArray[np.void]  # (1,)
    gpu_s: NDArray[np.float64]  # (n_jobs,): expected GPU-time
    weight: NDArray[np.float64]  # (n_associations,)
    key: NDArray[np.float64]  # (n_jobs,): of the pending jobs, lower first


MOVE_SETTINGS_DTYPE = np.dtype(
    [
        ("decades", np.float64),  # as of `Objective`, with the three below
        ("scale", np.float64),
        ("patience_s", np.float64),
        ("max_credit", np.float64),
        ("lease_s", np.float64),
        ("min_age_s", np.float64),
        ("lateness_s", np.float64),
        ("lateness_ratio", np.float64),
        ("user_ratio", np.float64),  # as of `Bounds`, with `places`
        ("work_s", np.float64),  # how long all GPUs of a pool work at most on what is lifted
        ("window_s", np.float64),  # of a lane
        ("agreed_s", np.float64),  # for each job of a user, and as a share of the waits without advice
        ("agreed_ratio", np.float64),
        ("owed_window_s", np.float64),  # the jobs submitted within this time count for what users are owed
        ("count_every_s", np.float64),
        ("counted_time", np.float64),  # when that was last added up
        ("places", np.int64),
        ("first_spent", np.int64),  # in `lane`
        ("spent", np.int64),  # in use
        ("is_weighed", np.int8),
        ("is_lane", np.int8),
        ("exchanges", np.int8),  # jobs of a group change places; else jobs are lifted
    ],
    align=True,
)
# A pending job of the pool at hand.
MOVE_CASE_DTYPE = np.dtype(
    [
        ("priority", np.float64),
        ("standing", np.float64),  # its priority without changes of ours
        ("key", np.float64),
        ("gpu_s", np.float64),  # what it takes if it is lifted
        ("passed", np.float64),  # the highest key that it does not precede; then the least GPU-time of those behind
        ("after", np.float64),  # the priority that its lift would give it
        ("row", np.int32),
        ("user", np.int32),
        ("is_lifted", np.int8),
        ("is_chosen", np.int8),
        ("is_free", np.int8),  # can rise
    ],
    align=True,
)
# Of a user's jobs: how much longer they waited than without advice, their waits without it, their number; what follows.
USER_WAITS_DTYPE = np.dtype(
    [(name, np.float64) for name in ("given_s", "plain_s", "jobs", "owed", "credit")], align=True
)
LANE_LIFT_DTYPE = np.dtype([("time", np.float64), ("gpu_s", np.float64), ("row", np.int32)], align=True)


class Moves(NamedTuple):
    """What lifts and exchanges are chosen by, see `engine/moves.c`, and space for the choice; shapes in brackets."""

    settings: NDArray[np.void]  # (1,)
    capacity: NDArray[np.float64]  # (n_pools,): GPUs
    pool: NDArray[np.int32]  # (n_jobs,)
    taken: NDArray[np.float64]  # (n_jobs,): GPUs that a job takes, counted as on snapshots
    run_s: NDArray[np.float64]  # (n_jobs,): expected; infinity: not known
    nice: NDArray[np.int32]  # (n_jobs,): of the users
    until: NDArray[np.float64]  # (n_jobs,): when the change of a job ends, 0 without one
    submit_time: NDArray[np.float64]  # (n_jobs,): from which waits count
    plain_start_time: NDArray[np.float64]  # (n_jobs,): without advice; infinity: not known
    waits: NDArray[np.void]  # (n_users,)
    group: NDArray[np.int32]  # (n_jobs,): within which jobs change places, -1 for none
    partner: NDArray[np.int32]  # (n_jobs,): the job with which it changed places last, -1 for none
    has_given: NDArray[np.int8]  # (n_jobs,): its place
    lane: NDArray[np.void]  # (2 * n_jobs,): lifts within the window, first ones first, from `first_spent` on
    waiting: NDArray[np.void]  # (n_jobs,)
    order: NDArray[np.int32]  # (n_jobs,): places in `waiting`, as the two below
    by_priority: NDArray[np.int32]  # (n_jobs,)
    spare: NDArray[np.int32]  # (n_jobs,)
    sorted_by: NDArray[np.float64]  # (n_jobs,): of those places, lowest first
    of_user: NDArray[np.float64]  # (n_users,)


RUN_TIME_SETTINGS_DTYPE = np.dtype(
    [
        ("begins_at", np.float64),  # the site's clock at 0 of the trace
        ("limit_ratio", np.float64),  # what jobs use of their limits where the model does not know
        ("longest_s", np.float64),  # limits from here on are none
        ("seen", np.int64),  # of the segments
        ("version", np.int64),  # the number of runs remembered
        ("due", np.int64),  # the number of jobs that are asked for, and of their rows
        ("rows", np.int64),
    ],
    align=True,
)
KEPT_RUN_DTYPE = np.dtype(
    [(name, np.float64) for name in ("run_s", "limit_s", "end_time", "log_run", "log_limit")], align=True
)
# The runs of a key of `History`: how many there were and are kept, the version when the last one came, and their sums.
RUNS_OF_KEY_DTYPE = np.dtype(
    [
        *((name, np.int64) for name in ("count", "kept", "written")),
        *((name, np.float64) for name in ("last", "mean_of_two", "recent_mean")),
        *((f"quantile_{percent}", np.float64) for percent in (10, 25, 50, 75, 90)),
        *((name, np.float64) for name in ("step", "ratio_median", "timed_out_ratio", "instant_ratio", "time_between")),
        ("centre", np.float64),
    ],
    align=True,
)
FORECAST_JOB_DTYPE = np.dtype(
    [
        ("submit_time", np.float64),  # by the site's clock
        ("log_limit", np.float64),
        ("waited_s", np.float64),  # as of the last forecast, with the five below; -1 before
        ("near_written", np.int64),
        ("user_written", np.int64),
        ("anchor", np.float64),
        ("group", np.int32),
        ("request", np.int32),  # its keys, -1 for none
        ("user", np.int32),
        ("account", np.int32),
        *((name, np.float32) for name in ("gpus", "cpus", "cpus_per_gpu", "memory_per_cpu", "nodes")),  # columns
        ("is_supported", np.int8),
    ],
    align=True,
)


class RunTimeForecasts(NamedTuple):
    """Run times as the shipped model forecasts them, see `engine/run_times.c`; shapes in brackets, all 0 without it."""

    settings: NDArray[np.void]  # (1,)
    jobs: NDArray[np.void]  # (n_jobs,)
    keys: NDArray[np.void]  # (n_keys,)
    runs: NDArray[np.void]  # (n_keys * RUNS_KEPT,), newest first
    run_s: NDArray[np.float64]  # (n_jobs,): expected
    asked: NDArray[np.int32]  # (n_jobs,): the jobs that are asked for
    answer: NDArray[np.int32]  # (n_jobs,): the row of each of them in `features`
    features: NDArray[np.float32]  # (n_jobs, n_columns): rows of the model that differ
    places: NDArray[np.int32]  # a power of two from 2 * n_jobs on: space to find equal rows
    over_anchor: NDArray[np.float64]  # of `Grid`, as the one below
    over_limit: NDArray[np.float64]
    levels: NDArray[np.float64]  # at which the curves are read


NO_FORECASTS: Final = RunTimeForecasts(
    settings=np.zeros(0, RUN_TIME_SETTINGS_DTYPE),
    jobs=np.zeros(0, FORECAST_JOB_DTYPE),
    keys=np.zeros(0, RUNS_OF_KEY_DTYPE),
    runs=np.zeros(0, KEPT_RUN_DTYPE),
    run_s=np.zeros(0),
    asked=np.zeros(0, np.int32),
    answer=np.zeros(0, np.int32),
    features=np.zeros((0, 0), np.float32),
    places=np.zeros(0, np.int32),
    over_anchor=np.zeros(0),
    over_limit=np.zeros(0),
    levels=np.zeros(0),
)


class Victims(NamedTuple):
    """The running jobs chosen last to be preempted, and space for the choice; shapes in brackets."""

    rows: NDArray[np.int32]  # (most_running,)
    costs: NDArray[np.float64]  # (n_nodes,): of emptying a node


def build_victims(state: State) -> Victims:
    """Build the arrays of a run for the choice of running jobs to preempt."""
    return Victims(rows=np.zeros(len(state.running), np.int32), costs=np.zeros(len(state.nodes)))


class Integers(NamedTuple):
    """An array of its own, such as rows of jobs."""

    items: NDArray[np.int32]


class Reals(NamedTuple):
    """An array of its own, such as rates."""

    items: NDArray[np.float64]


class Shares(NamedTuple):
    """The answers of a model, `(n_rows, n_outputs)`."""

    items: NDArray[np.float32]


TABLES: Final[Mapping[type, Mapping[str, ArrayType]]] = {
    State: declared(
        State,
        {
            "jobs": records("Job", JOB_DTYPE),
            "nodes": records("Node", NODE_DTYPE),
            "leaves": records("Leaf", LEAF_DTYPE),
            "profiles": records("Profile", PROFILE_ROW_DTYPE),
            "tally": records("Tally", TALLY_DTYPE),
            "rules": records("Rules", RULES_DTYPE),
            "segments": records("Segment", SEGMENT_DTYPE),
            "faults": records("Fault", FAULT_DTYPE),
            "bookings": records("Booking", BOOKING_DTYPE),
        },
        matrices=("type_speed", "node_jobs", "usable", "booked", "pace"),
    ),
    Slurm: declared(
        Slurm,
        {
            "control": records("Control", CONTROL_DTYPE),
            "gates": records("Gate", GATE_DTYPE),
            "conditions": records("Condition", CONDITION_DTYPE),
            "arrays": records("TaskArray", TASK_ARRAY_DTYPE),
            "extras": records("Entry", ENTRY_DTYPE),
            "partitions": records("Partition", PARTITION_DTYPE),
            "counters": records("Counter", COUNTER_DTYPE),
            "claims": records("Claim", CLAIM_DTYPE),
            "groups": records("Group", GROUP_DTYPE),
            "associations": records("Association", ASSOCIATION_DTYPE),
            "departures": records("Departure", DEPARTURE_DTYPE),
            "openings": records("Openings", OPENINGS_DTYPE),
            "futile": records("Futile", FUTILE_DTYPE),
            "reservations": records("Reservation", RESERVATION_DTYPE),
        },
        matrices=(
            "members",
            "preempts",
            "freeing",
            "freed",
            "freed_cpus",
            "freed_mib",
            "freed_by",
            "free_time",
            "free_order",
            "kept_time",
            "kept_until",
        ),
    ),
    Order: declared(Order, {"settings": records("OrderSettings", ORDER_DTYPE)}),
    Moves: declared(
        Moves,
        {
            "settings": records("MoveSettings", MOVE_SETTINGS_DTYPE),
            "waits": records("UserWaits", USER_WAITS_DTYPE),
            "lane": records("LaneLift", LANE_LIFT_DTYPE),
            "waiting": records("MoveCase", MOVE_CASE_DTYPE),
        },
    ),
    RunTimeForecasts: declared(
        RunTimeForecasts,
        {
            "settings": records("RunTimeSettings", RUN_TIME_SETTINGS_DTYPE),
            "jobs": records("ForecastJob", FORECAST_JOB_DTYPE),
            "keys": records("RunsOfKey", RUNS_OF_KEY_DTYPE),
            "runs": records("KeptRun", KEPT_RUN_DTYPE),
        },
        matrices=("features",),
    ),
    Queue: declared(Queue, {"rules": records("QueueRules", QUEUE_RULES_DTYPE)}),
    Victims: declared(Victims),
    GangPatience: declared(GangPatience, matrices=("rate_per_s",)),
    Integers: declared(Integers),
    Reals: declared(Reals),
    Shares: declared(Shares, matrices=("items",)),
}

# What C has in common with the planner and the predictors.
CONSTANTS: Final[Mapping[str, float | Sequence[float]]] = {
    **{name: getattr(lifts, name) for name in ("LOWEST_POWER", "HIGHEST_POWER", "LEAST_POINTS", "MOST_POINTS")},
    **{name: getattr(objective, name) for name in ("REPAID_DECADES", "MOST_DECADES")},
    **{name: getattr(run_time_features, name) for name in ("COLD", "USER_KNOWN", "REQUEST_KNOWN", "SIBLINGS_ENDED")},
    **{name: getattr(run_time_features, name) for name in ("RUNS_KEPT", "COLD_RATIO", "DECAY", "TIMED_OUT")},
    **{name: getattr(run_time_features, name) for name in ("INSTANT_S", "TRIAL_RATIO")},
    "MISSING": float(run_time_features.MISSING),
    "WAITS_S": run_time_features.WAITS_S.tolist(),
    "LEVELS": run_time_features.LEVELS,
    "TAIL": TAIL,
}

LAYOUT_FILE: Final = Path(__file__).with_name("layout.h")


def check_layout() -> None:
    """Raise `SimulationError` if the C header declares other tables than this module."""
    if LAYOUT_FILE.read_text() != header(TABLES, CONSTANTS):
        raise SimulationError(f"{LAYOUT_FILE} is out of date: run python -m advisor.sim.engine.tables")


if __name__ == "__main__":
    LAYOUT_FILE.write_text(header(TABLES, CONSTANTS))
