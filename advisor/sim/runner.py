"""Simulate a trace on a cluster under a policy."""

import resource
from collections.abc import Callable
from difflib import get_close_matches

import numpy as np

from advisor.errors import SimulationError
from advisor.sim.cluster import Cluster
from advisor.sim.node_events import draw_faults
from advisor.sim.policies import POLICIES
from advisor.sim.policies.advised import AdvisedSlurm
from advisor.sim.policies.lifted import LIFT, PLAIN, policy_with
from advisor.sim.policies.slurm import SlurmPolicy
from advisor.sim.profiles import Profiles, load_profiles
from advisor.sim.run_outcome import Run
from advisor.sim.simulated_policy import Problem, SimulatedPolicy, SimulationOptions, Stopwatch
from advisor.sim.state import build_state, outcomes
from advisor.sim.traces.trace import Trace

__all__ = ["SimulationOptions", "known_policy", "simulate"]


def simulate(
    trace: Trace,
    cluster: Cluster,
    policy: str | SimulatedPolicy,
    *,
    seed: int = 0,
    options: SimulationOptions | None = None,
    progress: Callable[[float], None] | None = None,
    profiles: Profiles | None = None,
) -> Run:
    """Run a trace to its end under a policy or its name; `progress` receives the share of jobs that ended.

    Jobs behave as `profiles` say, by default those that ship.

    Raises `SimulationError` for an unknown policy, for a trace without jobs, and for jobs without GPUs under a policy
    that places GPUs alone.
    """
    options = options or SimulationOptions()
    chosen = known_policy(policy) if isinstance(policy, str) else policy
    if not len(trace):
        raise SimulationError(f"{trace.name}: the trace has no jobs")
    on_slurm = isinstance(chosen, SlurmPolicy | AdvisedSlurm)
    without_gpus = int(np.count_nonzero(trace.jobs["gpus"] == 0))
    if without_gpus and not on_slurm:
        raise SimulationError(
            f"{trace.name}: {without_gpus} of {len(trace)} jobs ask for no GPU, and {chosen.name} places GPU jobs "
            "alone: take a policy on the model of slurmctld, such as slurm, or leave these jobs out of the trace"
        )
    ideal = options.execution == "ideal"
    here = load_profiles() if profiles is None else profiles
    # In Slurm a stopped job goes back to its last checkpoint; other policies save it on demand.
    state = build_state(trace, cluster, here, ideal=ideal, loses_work=on_slurm)
    rng = np.random.default_rng(seed)
    _believe(state.jobs, options, rng)
    state = state._replace(faults=draw_faults(state, cluster, rng))
    watch = Stopwatch()
    unadvised = chosen.unadvised if isinstance(chosen, SlurmPolicy) else "slurm"
    problem = Problem(
        trace=trace,
        cluster=cluster,
        state=state,
        options=options,
        rng=rng,
        tell=progress or _say_nothing,
        watch=watch,
        plain_outcomes=lambda: (
            simulate(trace, cluster, unadvised, seed=seed, options=options, profiles=profiles).outcomes
        ),
    )
    state = chosen.run(problem)
    wall_s = watch.elapsed_s
    return Run(
        trace=trace,
        policy=chosen.name,
        seed=seed,
        cluster_gpus=cluster.gpus,
        outcomes=outcomes(state),
        segments=state.segments[: int(state.tally["segments"][0])],
        wall_s=wall_s,
        peak_rss_mib=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0,
        changes=int(state.tally["changes"][0]),
    )


def known_policy(name: str) -> SimulatedPolicy:
    """Return the policy with a name; the `SimulationError` for an unknown name suggests the nearest.

    The policies `slurm` and `lift` take options after a colon.
    """
    if name in POLICIES:
        return POLICIES[name]
    if name.startswith((f"{PLAIN}:", f"{LIFT}:")):
        return policy_with(name)
    near = get_close_matches(name, POLICIES, n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    raise SimulationError(f"policy {name!r} is not known: {hint}known are {', '.join(POLICIES)}")


def _believe(jobs: np.ndarray, options: SimulationOptions, rng: np.random.Generator) -> None:
    """Set the run times that policies believe in."""
    noise = options.noise
    if noise is None:
        jobs["believed_s"] = np.where(np.isfinite(jobs["limit_s"]), jobs["limit_s"], jobs["work_s"])
    elif noise > 0.0:
        jobs["believed_s"] = jobs["work_s"] * rng.choice((1.0 - noise, 1.0 + noise), len(jobs))


def _say_nothing(share: float) -> None:
    """Ignore the progress of a run."""
