"""The tables that C functions read and write, with the types of their arrays."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from advisor.errors import SimulationError
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
    Queue: declared(Queue, {"rules": records("QueueRules", QUEUE_RULES_DTYPE)}),
    Victims: declared(Victims),
    GangPatience: declared(GangPatience, matrices=("rate_per_s",)),
    Integers: declared(Integers),
    Reals: declared(Reals),
}

LAYOUT_FILE: Final = Path(__file__).with_name("layout.h")


def check_layout() -> None:
    """Raise `SimulationError` if the C header declares other tables than this module."""
    if LAYOUT_FILE.read_text() != header(TABLES):
        raise SimulationError(f"{LAYOUT_FILE} is out of date: run python -m advisor.sim.engine.tables")


if __name__ == "__main__":
    LAYOUT_FILE.write_text(header(TABLES))
