"""Builds the observation of learned policies: the competing jobs and the nodes as arrays, live and simulated alike.

A board is made from a snapshot here, and from the arrays of the simulator in `sim.state_board`; both come to the same
bits. A policy is trained on one order of columns, which its fingerprint identifies.
"""

import hashlib
import json
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.features.nodes import NodeTable
from advisor.features.queue import QueueTable

JOB_COLUMNS: Final = ("gpus", "gpus_least", "gpu_type", "tasks", "wait_s", "limit_s", "priority", "nice")
NODE_COLUMNS: Final = ("gpus_total", "gpus_idle", "cpus_idle", "is_usable", "leaf")
FINGERPRINT: Final = hashlib.sha256(json.dumps([JOB_COLUMNS, NODE_COLUMNS]).encode()).hexdigest()

Rows = NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """The observation of one cycle; every number is a float32, as in training.

    `jobs` holds the pending jobs that compete for GPUs, in the order in which Slurm considers them. A limit that is not
    known is NaN.
    """

    job_id: NDArray[np.int64]  # (n_jobs,)
    jobs: Rows  # (n_jobs, len(JOB_COLUMNS))
    nodes: Rows  # (n_nodes, len(NODE_COLUMNS)), by name

    def __post_init__(self) -> None:
        if self.jobs.shape != (len(self.job_id), len(JOB_COLUMNS)) or self.nodes.shape[1:] != (len(NODE_COLUMNS),):
            raise ValueError(f"{self.jobs.shape} and {self.nodes.shape} are not the shapes of a board")


def board_of(queue: QueueTable, table: NodeTable) -> Board:
    """Return the board of a queue and its nodes."""
    columns = {
        "gpus": queue.gpus,
        "gpus_least": queue.smallest,
        "gpu_type": queue.gpu_type,
        "tasks": queue.tasks,
        "wait_s": queue.wait_s,
        "limit_s": queue.limit_s,
        "priority": queue.priority,
        "nice": [job.nice for job in queue.jobs],
    }
    nodes = {
        "gpus_total": table.gpus_total.sum(axis=1),
        "gpus_idle": table.gpus_idle.sum(axis=1),
        "cpus_idle": table.cpus_idle,
        "is_usable": table.usable,
        "leaf": table.leaf,
    }
    return Board(
        job_id=np.array([job.job_id for job in queue.jobs], dtype=np.int64),
        jobs=stacked([columns[name] for name in JOB_COLUMNS], len(queue.jobs)),
        nodes=stacked([nodes[name] for name in NODE_COLUMNS], len(table.names)),
    )


def stacked(columns: list[object], rows: int) -> Rows:
    """Return columns of `(rows,)` side by side as float32."""
    table = np.empty((rows, len(columns)), dtype=np.float32)
    for place, column in enumerate(columns):
        table[:, place] = np.asarray(column, dtype=np.float64)
    return table
