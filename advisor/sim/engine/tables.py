"""The tables that C functions read and write, with the types of their arrays."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import numpy as np

from advisor.errors import SimulationError
from advisor.sim.engine.layout import ArrayType, header, numbers, records
from advisor.sim.run_outcome import SEGMENT_DTYPE
from advisor.sim.slurm_state import ASSOCIATION_DTYPE, CONTROL_DTYPE, RESERVATION_DTYPE, Slurm
from advisor.sim.state import (
    FAULT_DTYPE,
    JOB_DTYPE,
    LEAF_DTYPE,
    NODE_DTYPE,
    PROFILE_ROW_DTYPE,
    RULES_DTYPE,
    TALLY_DTYPE,
    State,
)

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
    },
    Slurm: {
        "control": records("Control", CONTROL_DTYPE),
        "line": _INT32,
        "association": _INT32,
        "associations": records("Association", ASSOCIATION_DTYPE),
        "account_usage": _DOUBLE,
        "account_shares": _DOUBLE,
        "switches_time": _DOUBLE,
        "charged_time": _DOUBLE,
        "qos_factor": _DOUBLE,
        "ends": numbers(np.float64, 2),
        "freed": numbers(np.int32, 2),
        "stale": _INT8,
        "first": _INT32,
        "reservations": records("Reservation", RESERVATION_DTYPE),
        "ready": _DOUBLE,
        "open_time": _DOUBLE,
        "free_time": numbers(np.float64, 2),
        "free_plan": _INT64,
        "share": _INT32,
        "chosen": _INT8,
        "room": _INT32,
        "refused_pass": _INT64,
        "refused_s": _DOUBLE,
        "ranking": _INT32,
        "spare": _INT32,
        "scratch": _DOUBLE,
    },
}

LAYOUT_FILE: Final = Path(__file__).with_name("layout.h")


def check_layout() -> None:
    """Raise `SimulationError` if the C header declares other tables than this module."""
    if LAYOUT_FILE.read_text() != header(TABLES):
        raise SimulationError(f"{LAYOUT_FILE} is out of date: run python -m advisor.sim.engine.tables")


if __name__ == "__main__":
    LAYOUT_FILE.write_text(header(TABLES))
