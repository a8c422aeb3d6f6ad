"""Gives the facts of the cluster graph from the simulator's arrays, with what gangs really hold on each server."""

import numpy as np

from advisor.features.observe.graph import Floats, Residents, Rows, Servers
from advisor.features.observe.known_models import KnownModels
from advisor.sim.state import State
from advisor.sim.traces.trace import Trace


def model_rows_of(trace: Trace, models: KnownModels) -> Rows:
    """Return the rows of the jobs' models in the table of neighbours, `(n_jobs,)`."""
    rows, model = models.rows([*trace.models, ""]), trace.jobs["model"]
    return rows[np.where(model < 0, len(rows) - 1, model)]


def servers_of(state: State) -> Servers:
    """Return the servers of a state."""
    nodes = state.nodes
    return Servers(
        gpus=nodes["gpus"].astype(np.intp),
        free=nodes["gpus_free"].astype(np.intp),
        is_up=nodes["is_up"] == 1,
        leaf=nodes["leaf"].astype(np.intp),
    )


def residents_exactly(state: State, model_of: Rows, rows: Rows) -> Residents:
    """Return some of the running gangs, with what they really hold on each server; `rows` are in ascending order."""
    rows = rows[state.jobs["held"][rows] > 0]
    jobs = state.jobs[rows]
    span = jobs["span"].astype(np.intp)
    gang = np.arange(len(rows)).repeat(span)
    place = np.arange(len(gang)) - (span.cumsum() - span).repeat(span) + jobs["pool"].repeat(span)
    return Residents(
        gang=gang,
        server=state.held_nodes[place].astype(np.intp),
        held=state.held_gpus[place].astype(np.intp),
        gpus=jobs["held"].astype(np.intp),
        nodes=jobs["span"].astype(np.intp),
        model=model_of[rows],
        left_s=believed_left_s(state, rows),
    )


def believed_left_s(state: State, rows: Rows) -> Floats:
    """Return the believed remaining run time of some jobs, alone on their best place, `(n_rows,)`."""
    jobs = state.jobs[rows]
    return np.asarray(jobs["believed_s"] * jobs["left_s"] / jobs["work_s"])


def usable_of(state: State, row: int) -> Rows:
    """Return the GPUs that a job can use of each node now, `(n_nodes,)`."""
    job, nodes = state.jobs[row], state.nodes
    usable = np.where(nodes["is_up"] == 1, nodes["gpus_free"], 0)
    if job["gpu_type"] >= 0:
        usable = np.where(nodes["gpu_type"] == job["gpu_type"], usable, 0)
    for free, per_gpu in (("cpus_free", "cpus_per_gpu"), ("memory_free_mib", "memory_mib_per_gpu")):
        if job[per_gpu] > 0:
            usable = np.minimum(usable, nodes[free] // job[per_gpu])
    return usable.astype(np.intp)
