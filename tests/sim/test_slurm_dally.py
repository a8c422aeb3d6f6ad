"""Slurm with delay timers: gangs wait for close places, not in vain for ever, and never longer than the bound."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from advisor.apply.applier import Applier
from advisor.domain.actions import Lever, SetSwitches
from advisor.domain.lease import Ending, Lease
from advisor.domain.memory import Wait
from advisor.domain.topology import LocalityTier
from advisor.planning.observing import timer_tier
from advisor.settings import Limits, PlanningSettings
from advisor.sim.cluster import Cluster, Failures, Network, NodeGroup, SlurmParameters
from advisor.sim.node_events import draw_faults
from advisor.sim.policies import POLICIES
from advisor.sim.policies.advised import AdvisedSlurm, follow
from advisor.sim.simulated_policy import Problem, SimulationOptions, Stopwatch, drive
from advisor.sim.state import State, outcomes
from advisor.sim.traces.trace import Trace
from tests.sim.building import bytes_of, make_state, make_trace, run_of, times_of
from tests.sim.test_advised import EAGER, one_node, queue_of_one_long_and_four_short

HOUR_S = 3600.0
SLURM = SlurmParameters(tick_s=0.0, batch_sched_delay_s=0.0, limit_check_s=0.0, max_switch_wait_s=86_400.0)
# Without forecasts a job is taken to use a fifth of its limit.
BY_RULE = replace(EAGER, speeds="estimated")
LONG = {"run_time_s": 4 * HOUR_S, "time_limit_s": 24 * HOUR_S}
SOON = {"run_time_s": 250, "time_limit_s": 300}
# By rule the first in line never waits: this one takes the large node as soon as that is free.
LARGE, FULL = NodeGroup(count=1, gpus=8), {"gpus": 8, "nodes_min": 1, "nodes_max": 1}
FIRST = {"submit_time": 5, **FULL, **LONG}


def delay_timers() -> AdvisedSlurm:
    """Return the policy `slurm+dally`."""
    policy = POLICIES["slurm+dally"]
    assert isinstance(policy, AdvisedSlurm)
    return policy


def advised(trace: Trace, cluster: Cluster, options: SimulationOptions) -> tuple[State, Applier]:
    """Run a trace, and return with it what the advisor remembers."""
    state = make_state(trace, cluster, ideal=options.execution == "ideal", loses_work=True)
    rng = np.random.default_rng(0)
    state = state._replace(faults=draw_faults(state, cluster, rng))
    problem = Problem(
        trace=trace,
        cluster=cluster,
        state=state,
        options=options,
        rng=rng,
        tell=lambda _share: None,
        watch=Stopwatch(),
        plain_outcomes=lambda: outcomes(state),
    )
    applier, simulated = delay_timers().advisor(problem)
    every_s = options.advise_every_s
    last = drive(problem, state, lambda state, until: follow(applier, simulated, state, until, every_s))
    return last, applier


def leases_of(trace: Trace, applier: Applier) -> list[Lease]:
    """All changes that were ever made."""
    return [*applier.journal.closed(frozenset(trace.jobs["job_id"].tolist())), *applier.journal.leases()]


def two_nodes(*, first_free_s: float) -> tuple[Trace, Cluster]:
    """Two nodes on which one GPU each comes free after 250 s, and a gang of two, second in line, for one node or two.

    Three more GPUs of the first node come free later.
    """
    later = {"gpus": 3, "run_time_s": first_free_s, "time_limit_s": 24 * HOUR_S}
    gang = {
        "submit_time": 10,
        "gpus": 2,
        "nodes_min": 1,
        "nodes_max": 2,
        "run_time_s": 600,
        "time_limit_s": 48 * HOUR_S,
    }
    small: list[dict[str, Any]] = [later, {"gpus": 3, **LONG}, {"gpus": 1, **SOON}, {"gpus": 1, **SOON}]
    jobs = [{**FULL, **SOON}, *small, FIRST, gang]
    return make_trace(jobs), Cluster(nodes=(NodeGroup(count=2, gpus=4), LARGE), slurm=SLURM)


def test_node_range_is_given_back_the_moment_its_timer_ends() -> None:
    trace, cluster = two_nodes(first_free_s=4 * HOUR_S)
    options = replace(BY_RULE, advise_every_s=130.0, limits=Limits(min_job_age_s=0.0, max_added_delay_s=1200.0))

    # Held from the first cycle at 130 s on, ten minutes, in the middle between two cycles.
    assert times_of(trace, cluster, "slurm+dally", options)[6][0] == 730.0


def two_leaves() -> tuple[Trace, Cluster]:
    """Two leaves of two nodes; one of each is free after 250 s, another after 1000; the second in line wants two."""
    full = {"gpus": 4}
    jobs: list[dict[str, Any]] = [
        {**FULL, **SOON},
        {**full, **SOON},
        {**full, "run_time_s": 1000.0, "time_limit_s": 24 * HOUR_S},
        {**full, **SOON},
        {**full, **LONG},
        FIRST,
        {"submit_time": 10, "gpus": 8, "nodes_min": 2, "nodes_max": 2, "run_time_s": 600, "time_limit_s": 48 * HOUR_S},
    ]
    return make_trace(jobs), Cluster(nodes=(NodeGroup(count=4, gpus=4, leaf=2), LARGE), slurm=SLURM)


@pytest.mark.parametrize("closest", ["node", "leaf"])
def test_gang_waits_for_one_node_or_leaf_where_slurm_would_spread_it(closest: str) -> None:
    trace, cluster = two_nodes(first_free_s=1000.0) if closest == "node" else two_leaves()

    plain, timed = (times_of(trace, cluster, policy, BY_RULE) for policy in ("slurm", "slurm+dally"))

    assert (plain[6][0], timed[6][0]) == (250.0, 1000.0)


def test_tuner_learns_from_the_gang_that_got_its_place() -> None:
    trace, cluster = two_nodes(first_free_s=1000.0)
    # Somebody has to be pending for the advisor to look.
    trace = make_trace_with(trace, {"submit_time": 20, "gpus": 8, "nodes_min": 2, "nodes_max": 2, **LONG})

    _, applier = advised(trace, cluster, BY_RULE)

    assert applier.journal.waits(0.0) == (
        Wait(gpus=2, tier=LocalityTier.NODE, waited_s=900.0, got=True, ended_time=1000.0),
    )


def test_tuner_learns_from_the_gang_that_gave_up() -> None:
    trace, cluster = two_nodes(first_free_s=4 * HOUR_S)
    trace = make_trace_with(trace, {"submit_time": 20, "gpus": 8, "nodes_min": 2, "nodes_max": 2, **LONG})
    options = replace(BY_RULE, limits=Limits(min_job_age_s=0.0, max_added_delay_s=1200.0))

    _, applier = advised(trace, cluster, options)

    assert applier.journal.waits(0.0)[0] == Wait(
        gpus=2, tier=LocalityTier.NODE, waited_s=600.0, got=False, ended_time=700.0
    )


def make_trace_with(trace: Trace, job: dict[str, Any]) -> Trace:
    """The trace with one more job."""
    more = make_trace([job])
    more.jobs["job_id"] = len(trace) + 1
    return replace(trace, jobs=np.concatenate([trace.jobs, more.jobs]))


def test_nothing_but_timers_is_applied() -> None:
    jobs = queue_of_one_long_and_four_short()

    plain, timed = (run_of(jobs, one_node(), policy, EAGER) for policy in ("slurm", "slurm+dally"))

    # The rules would move the long one behind the others.
    assert bytes_of(timed) == bytes_of(plain)
    assert delay_timers().levers == {Lever.SWITCHES, Lever.NODE_RANGE}


@st.composite
def gangs(draw: st.DrawFn) -> Trace:
    """Draw gangs that may be spread, behind jobs that fill most of a cluster."""
    jobs: list[dict[str, Any]] = [
        {"gpus": draw(st.integers(1, 3)), "run_time_s": run_time_s, "time_limit_s": 1.5 * run_time_s}
        for run_time_s in draw(st.lists(st.sampled_from([150, 250, 400, 900, 4000]), min_size=8, max_size=12))
    ]
    at = 0
    for _ in range(draw(st.integers(3, 10))):
        at += draw(st.sampled_from([0, 7, 60]))
        gpus = draw(st.sampled_from([2, 3, 4, 6, 8]))
        run_time_s = draw(st.sampled_from([400, 900, 4000]))
        nodes = draw(st.sampled_from([(1, 0), (1, 2), (1, 4), (2, 2), (2, 4)]))
        jobs.append(
            {
                "submit_time": at,
                "gpus": gpus,
                "nodes_min": nodes[0],
                "nodes_max": nodes[1],
                "run_time_s": run_time_s,
                "time_limit_s": run_time_s * draw(st.sampled_from([2.0, 10.0])),
                "model": draw(st.sampled_from(["bert", "gpt2", "lm", "recommendation"])),
            }
        )
    return make_trace(jobs)


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """Draw four or six nodes under leaves of two, which fail now and then."""
    return Cluster(
        nodes=(NodeGroup(count=draw(st.sampled_from([4, 6])), gpus=4, leaf=2),),
        network=Network(nic_gbps=10.0, oversubscription=draw(st.sampled_from([1.0, 10.0]))),
        failures=Failures(node_mtbf_h=draw(st.sampled_from([0.0, 0.0, 1.0])), repair_h=0.1),
        slurm=replace(SLURM, bf_interval_s=draw(st.sampled_from([10.0, 30.0]))),
    )


@pytest.mark.slow
@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(
    trace=gangs(),
    cluster=clusters(),
    delay_s=st.sampled_from([100.0, 400.0, 1000.0, 1e5]),
    mean_s=st.sampled_from([1.0, 300.0]),
    speeds=st.sampled_from(["oracle", "estimated", "noisy=30"]),
    every_s=st.sampled_from([100.0, 130.0]),
)
def test_no_job_is_made_to_wait_longer_than_the_bound(
    trace: Trace, cluster: Cluster, delay_s: float, mean_s: float, speeds: str, every_s: float
) -> None:
    options = SimulationOptions(
        speeds=speeds,
        planning=PlanningSettings(node_timer_s=mean_s, leaf_timer_s=mean_s),
        limits=Limits(min_job_age_s=0.0, max_added_delay_s=delay_s),
        advise_every_s=every_s,
    )

    _, applier = advised(trace, cluster, options)

    delayed_s: dict[int, float] = {}
    for lease in leases_of(trace, applier):
        assert timer_tier(lease.action) is not None
        delayed_s[lease.job_id] = delayed_s.get(lease.job_id, 0.0) + at_most_s(lease)
    assert all(each <= delay_s + 1e-6 for each in delayed_s.values())


def at_most_s(lease: Lease) -> float:
    """How long a timer kept its job waiting at most: a wait for switches, or the time a node range was held."""
    if isinstance(lease.action, SetSwitches):
        assert lease.action.after is not None
        return lease.action.after.max_wait_s
    assert lease.due_time is not None
    if lease.ending is Ending.TAKEN_BACK and lease.ended_time is not None:
        return lease.ended_time - lease.applied_time
    return lease.due_time - lease.applied_time


@pytest.mark.parametrize("speeds", ["oracle", "noisy=30"])
def test_run_is_the_same_every_time(speeds: str) -> None:
    trace, cluster = two_leaves()
    options = replace(BY_RULE, speeds=speeds)

    first, second = (run_of(trace, cluster, "slurm+dally", options) for _ in range(2))

    assert bytes_of(first) == bytes_of(second)


def test_gang_that_finds_no_leaf_waits_for_its_whole_timer() -> None:
    trace, cluster = two_leaves()
    trace.jobs["run_time_s"][2] = 4 * HOUR_S
    options = replace(BY_RULE, limits=Limits(min_job_age_s=0.0, max_added_delay_s=1200.0))

    # Submitted at 10, asked at 100 to wait ten minutes, counted from there; the next backfill sees that they are over.
    assert 700.0 <= times_of(trace, cluster, "slurm+dally", options)[6][0] <= 730.0
