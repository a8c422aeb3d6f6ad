"""Build the observation of learned policies from the simulator's arrays, bit-equal to that of a snapshot."""

import numpy as np
from numpy.typing import NDArray

from advisor.features.board import Board, stacked
from advisor.features.nodes import UNTYPED
from advisor.features.queue import ANY_TYPE
from advisor.sim.slurm.slurm_cluster import SimulatedSlurm


def state_board(cluster: SimulatedSlurm, depth: int) -> Board:
    """Return the current board of a simulated Slurm, with the first `depth` jobs that fit on its nodes in service.

    Every job with GPUs in the line competes there: none is held, deferred or dependent.
    """
    jobs, nodes, tally = cluster.state.jobs, cluster.state.nodes, cluster.state.tally[0]
    of_nodes, of_jobs = columns_by_code(cluster.gpu_types)
    is_up = nodes["is_up"] == 1
    in_service = np.bincount(of_nodes[nodes["gpu_type"]], weights=nodes["gpus"] * is_up, minlength=len(of_nodes))
    largest = np.append(in_service, in_service.sum())  # by type, the last for any

    rows = cluster.pending_rows()
    gpus = jobs["gpus"][rows]
    rows = rows[(gpus > 0) & (gpus <= largest[of_jobs[jobs["gpu_type"][rows]]])][:depth]
    gpus, least, limit_s = jobs["gpus"][rows], jobs["gpus_min"][rows], jobs["limit_s"][rows]
    return stacked(
        job_id=cluster.job_ids[rows],
        jobs={
            "gpus": gpus,
            "gpus_least": np.where(least < jobs["gpus_max"][rows], np.minimum(gpus, least), gpus),
            "gpu_type": of_jobs[jobs["gpu_type"][rows]],
            "tasks": np.ones(len(rows)),
            "wait_s": tally["now"] - cluster.slurm.eligible_time[rows],
            "limit_s": np.where(np.isfinite(limit_s), limit_s, np.nan),
            "priority": jobs["priority"][rows],
            "nice": jobs["nice"][rows],
        },
        nodes={
            "gpus_total": nodes["gpus"],
            "gpus_idle": nodes["gpus_free"],
            "cpus_idle": nodes["cpus_free"],
            "is_usable": is_up,
            "leaf": nodes["leaf"],
        },
    )


def columns_by_code(gpu_types: tuple[str, ...]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the columns of a node table that the codes of GPU types stand for: of nodes `(n_codes,)`, and of jobs.

    The latter is `(n_codes + 1,)`: the code of a job that takes any type is -1.
    """
    names = sorted({name or UNTYPED for name in gpu_types})
    of_nodes = [names.index(name or UNTYPED) for name in gpu_types]
    of_jobs = [column if name else ANY_TYPE for name, column in zip(gpu_types, of_nodes, strict=True)]
    return np.array(of_nodes, dtype=np.intp), np.array([*of_jobs, ANY_TYPE], dtype=np.intp)
