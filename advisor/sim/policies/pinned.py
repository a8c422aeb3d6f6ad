"""Holds open gangs to the fewest nodes from their submission on, as `pin_gangs` of `slurm/job_submit.lua` does."""

import numpy as np

from advisor.sim.state import State, number_shapes


def hold_to_fewest(state: State) -> None:
    """Let gangs that leave their node count open have no more nodes than they need for their GPUs.

    A gang whose CPUs or memory would not fit there is left alone.
    """
    jobs, nodes = state.jobs, state.nodes
    fewest = jobs["best_nodes"]
    on_node = -(-jobs["gpus"] // np.maximum(fewest, 1))
    cpus = np.maximum(jobs["cpus_per_gpu"] * on_node, jobs["cpus_per_node"])
    memory_mib = np.maximum(jobs["memory_mib_per_gpu"] * on_node, jobs["memory_mib_per_node"])
    fits = (cpus <= nodes["cpus"].max(initial=0)) & (memory_mib <= nodes["memory_mib"].max(initial=0))
    held = (jobs["gpus"] > 1) & (jobs["nodes_max"] == 0) & (jobs["nodes_min"] <= fewest) & fits
    jobs["nodes_max"][held] = fewest[held]
    number_shapes(jobs)
