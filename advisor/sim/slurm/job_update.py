"""Changes pending jobs in the model of slurmctld, as `scontrol update` does."""

import math

from advisor.domain.actions import SetGpus, SetNice, SetNodeRange, SetSwitches, SetTimeMin
from advisor.domain.units import MINUTE_S
from advisor.sim.slurm.slurm_state import Slurm
from advisor.sim.slurm.slurmctld import per_node, prioritise, watch_switches
from advisor.sim.state import NONE, State

# What the model of slurmctld changes in rollouts.
Modelled = SetNice | SetSwitches | SetNodeRange | SetGpus | SetTimeMin


def update_job(state: State, slurm: Slurm, row: int, action: Modelled) -> None:
    """Change a pending job now; the caller sorts the line and asks for a pass once all changes are made."""
    job, now = state.jobs[row], float(state.tally["now"][0])
    state.tally["changes"] += 1
    match action:
        case SetNice(after=after):
            job["nice"] = after
            # Slurm brings the job's age up to date with it.
            prioritise(state, slurm, row, now)
        case SetSwitches(after=switches):
            job["switches"] = 0 if switches is None else switches.count
            longest_s = int(slurm.control["max_switch_wait_s"][0])
            job["switches_wait_s"] = 0.0 if switches is None else min(switches.max_wait_s, longest_s)
            if switches is not None:
                slurm.switches_time[row] = min(slurm.switches_time[row], now)
            watch_switches(state, slurm, row, now)
        case SetNodeRange(after=nodes):
            job["nodes_min"], job["nodes_max"] = nodes.low, nodes.high
            job["shape"] = NONE
        case SetGpus(after=size):
            gpus = size.count
            if action.changes_limit:
                job["limit_s"] = size.time_limit_s
            job["gpus"] = gpus * job["nodes_min"] if per_node(state, row) else gpus
            job["resizes"] += 1
            job["shape"] = NONE
        case SetTimeMin(after=soft_s):
            # Slurm counts it in minutes.
            job["soft_limit_s"] = 0.0 if soft_s is None else math.ceil(soft_s / MINUTE_S) * MINUTE_S
