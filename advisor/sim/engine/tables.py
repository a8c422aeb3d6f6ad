"""The tables that C functions read and write, with the types of their arrays."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from advisor.errors import SimulationError
from advisor.sim.engine.layout import ArrayType, header, numbers, records
from advisor.sim.gang_patience import GangPatience
from advisor.sim.line_order import ORDER_DTYPE, Order
from advisor.sim.queueing import QUEUE_RULES_DTYPE, Queue
from advisor.sim.run_outcome import SEGMENT_DTYPE
from advisor.sim.slurm.slurm_limits import CLAIM_DTYPE, COUNTER_DTYPE
from advisor.sim.slurm.slurm_queue import ENTRY_DTYPE, PARTITION_DTYPE
from advisor.sim.slurm.slurm_state import ASSOCIATION_DTYPE, CONTROL_DTYPE, DEPARTURE_DTYPE, RESERVATION_DTYPE, Slurm
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
from advisor.sim.victims import Victims


class Integers(NamedTuple):
    """An array of its own, such as rows of jobs."""

    items: NDArray[np.int32]


class Reals(NamedTuple):
    """An array of its own, such as rates."""

    items: NDArray[np.float64]


_DOUBLE, _INT64, _INT32, _INT8 = (numbers(kind) for kind in (np.float64, np.int64, np.int32, np.int8))

TABLES: Final[Mapping[type, Mapping[str, ArrayType]]] = {
    State: {
        "jobs": records("Job", JOB_DTYPE),
        "nodes": records("Node", NODE_DTYPE),
        "leaves": records("Leaf", LEAF_DTYPE),
        "profiles": records("Profile", PROFILE_ROW_DTYPE),
        "type_speed": numbers(np.float64, 2),
        "tally": records("Tally", TALLY_DTYPE),
        "rules": records("Rules", RULES_DTYPE),
        "timers": _INT32,
        "running": _INT32,
        "node_jobs": numbers(np.int32, 2),
        "held_nodes": _INT32,
        "held_gpus": _INT32,
        "pick_nodes": _INT32,
        "pick_gpus": _INT32,
        "segments": records("Segment", SEGMENT_DTYPE),
        "faults": records("Fault", FAULT_DTYPE),
        "usable": numbers(np.int8, 2),
        "bookings": records("Booking", BOOKING_DTYPE),
        "booked": numbers(np.int8, 2),
        "pace": numbers(np.float64, 2),
    },
    Slurm: {
        "control": records("Control", CONTROL_DTYPE),
        "wakes": _DOUBLE,
        "backfill_wakes": _DOUBLE,
        "line": _INT32,
        "gates": records("Gate", GATE_DTYPE),
        "conditions": records("Condition", CONDITION_DTYPE),
        "awaited": _INT32,
        "arrays": records("TaskArray", TASK_ARRAY_DTYPE),
        "waiting": _INT32,
        "eligible_time": _DOUBLE,
        "partition": _INT32,
        "others": _INT32,
        "extras": records("Entry", ENTRY_DTYPE),
        "partitions": records("Partition", PARTITION_DTYPE),
        "members": numbers(np.int8, 2),
        "reach": _INT8,
        "closed": _INT8,
        "counters": records("Counter", COUNTER_DTYPE),
        "claims": records("Claim", CLAIM_DTYPE),
        "claim_begin": _INT32,
        "claim_class": _INT32,
        "began": _INT32,
        "owed_gpu_s": _DOUBLE,
        "release_time": _DOUBLE,
        "tested": _INT64,
        "association": _INT32,
        "associations": records("Association", ASSOCIATION_DTYPE),
        "account_usage": _DOUBLE,
        "account_shares": _DOUBLE,
        "account_parent": _INT32,
        "account_depth": _INT32,
        "switches_time": _DOUBLE,
        "charged_time": _DOUBLE,
        "qos_factor": _DOUBLE,
        "points": _DOUBLE,
        "freeing": numbers(np.int32, 2),
        "freed": numbers(np.int32, 2),
        "departures": records("Departure", DEPARTURE_DTYPE),
        "freed_cpus": numbers(np.int32, 2),
        "freed_mib": numbers(np.int64, 2),
        "first": _INT32,
        "first_time": _DOUBLE,
        "reservations": records("Reservation", RESERVATION_DTYPE),
        "slots": _DOUBLE,
        "shuts": _DOUBLE,
        "ready": _INT32,
        "open_time": _DOUBLE,
        "open_until": _DOUBLE,
        "freed_by": numbers(np.int32, 2),
        "free_time": numbers(np.float64, 2),
        "free_order": numbers(np.int32, 2),
        "free_nodes": _INT64,
        "free_plan": _INT64,
        "begins": _INT32,
        "share": _INT32,
        "chosen": _INT8,
        "room": _INT32,
        "refused_pass": _INT64,
        "refused_s": _DOUBLE,
        "ranking": _INT32,
        "spare": _INT32,
        "scratch": _DOUBLE,
    },
    Order: {
        "settings": records("OrderSettings", ORDER_DTYPE),
        "gpu_s": _DOUBLE,
        "weight": _DOUBLE,
        "key": _DOUBLE,
    },
    Queue: {
        "rules": records("QueueRules", QUEUE_RULES_DTYPE),
        "order": _INT32,
        "base": _INT64,
        "length": _INT64,
        "blocked": _INT8,
        "given": _DOUBLE,
        "levels_gpu_s": _DOUBLE,
        "group": _INT32,
        "group_sum_s": _DOUBLE,
        "group_count": _INT64,
        "spread": _INT8,
    },
    Victims: {"rows": _INT32, "costs": _DOUBLE},
    GangPatience: {
        "declined_s": _DOUBLE,
        "spent_s": _DOUBLE,
        "declining": _INT8,
        "pass_time": _DOUBLE,
        "reached": _INT8,
        "gang_class": _INT32,
        "edges_s": _DOUBLE,
        "rate_per_s": numbers(np.float64, 2),
        "fixed_s": _DOUBLE,
        "least_inflation": _DOUBLE,
        "longest_s": _DOUBLE,
        "best_tier": _INT8,
        "missing": _INT8,
    },
    Integers: {"items": _INT32},
    Reals: {"items": _DOUBLE},
}

LAYOUT_FILE: Final = Path(__file__).with_name("layout.h")


def check_layout() -> None:
    """Raise `SimulationError` if the C header declares other tables than this module."""
    if LAYOUT_FILE.read_text() != header(TABLES):
        raise SimulationError(f"{LAYOUT_FILE} is out of date: run python -m advisor.sim.engine.tables")


if __name__ == "__main__":
    LAYOUT_FILE.write_text(header(TABLES))
