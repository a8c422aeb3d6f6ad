"""The advisor's own planner at work on the simulated Slurm."""

from dataclasses import replace
from typing import Any

import pytest

from advisor.apply.applier import Applier
from advisor.cycle import Cycle
from advisor.domain.actions import Action, Lever, NodeRange, SetNice, SetNodeRange, SetSwitches, SetTimeMin
from advisor.domain.gang import SwitchRequest
from advisor.domain.lease import Lease, LeaseState
from advisor.domain.plan import Outcome
from advisor.settings import Limits, PlanningSettings
from advisor.sim.cluster import Cluster, NodeGroup, SlurmParameters
from advisor.sim.policies.advised import AdvisedSlurm, advise, no_forecasts
from advisor.sim.run_outcome import End
from advisor.sim.runner import simulate
from advisor.sim.simulated_policy import SimulationOptions
from advisor.sim.slurm.slurm_cluster import SimulatedSlurm
from advisor.sim.slurm.slurmctld import run_slurm
from advisor.sim.traces.trace import Trace
from tests.backends.actuator_contract import check
from tests.planning.test_policies import Scripted
from tests.sim.building import bytes_of, make_trace, run_of, slurm_at, starts_and_ends

SLURM = SlurmParameters(tick_s=0.0, batch_sched_delay_s=0.0, limit_check_s=0.0, max_switch_wait_s=3600.0)
EAGER = SimulationOptions(
    execution="ideal",
    planning=PlanningSettings(min_saving_s=1.0),
    limits=Limits(min_job_age_s=0.0),
    advise_every_s=100.0,
)
HOUR_S = 3600.0


def one_node() -> Cluster:
    return Cluster(nodes=(NodeGroup(count=1, gpus=4),), slurm=SLURM)


def queue_of_one_long_and_four_short() -> list[dict[str, Any]]:
    long, short = {"run_time_s": 3 * HOUR_S, "time_limit_s": 4 * HOUR_S}, {"run_time_s": 500, "time_limit_s": 600}
    first = {"gpus": 4, "run_time_s": 1000, "time_limit_s": 1200}
    waiting = [{"submit_time": 20 + at, "gpus": 4, **short} for at in range(4)]
    return [first, {"submit_time": 10, "gpus": 4, **long}, *waiting]


def test_short_jobs_go_before_a_long_one() -> None:
    jobs = queue_of_one_long_and_four_short()

    plain, advised = (run_of(jobs, one_node(), policy, EAGER) for policy in ("slurm", "rules"))

    # Plain Slurm runs them in the order of submission; advised, the four of 500 s each run first.
    assert starts_and_ends(plain)[1][0] == 1000.0
    assert starts_and_ends(advised)[1][0] == 3000.0
    assert advised.outcomes["end_time"].mean() < plain.outcomes["end_time"].mean()
    assert (advised.outcomes["end"] == End.FINISHED).all()


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(replace(EAGER, limits=Limits(nice_min=0)), id="without lifts, where all jobs are rigid"),
        pytest.param(replace(EAGER, advise_every_s=1e9), id="too late"),
    ],
)
def test_advice_that_can_do_nothing_changes_nothing(options: SimulationOptions) -> None:
    trace = make_trace(queue_of_one_long_and_four_short())

    plain, advised = (run_of(trace, one_node(), policy, options) for policy in ("slurm", "rules"))

    assert bytes_of(advised) == bytes_of(plain)


def advisor_at_work() -> tuple[Applier, SimulatedSlurm]:
    """Two full nodes until 1000, and a gang of two nodes that waits: job 3."""
    full = {"gpus": 4, "run_time_s": 1000, "time_limit_s": 1200}
    gang = {"submit_time": 10, "gpus": 8, "nodes_min": 2, "nodes_max": 2, "time_limit_s": HOUR_S}
    trace, cluster = make_trace([full, full, gang]), Cluster(nodes=(NodeGroup(count=2, gpus=4),), slurm=SLURM)
    simulated = slurm_at(100.0, trace, cluster)
    return Applier(source=simulated, actuator=simulated, cycle=Cycle()), simulated


ASKED = SetSwitches(job_id=3, before=None, after=SwitchRequest(count=1, max_wait_s=600.0))


def out(action: Action, due_time: float) -> Lease:
    return Lease(action=action, undo=action.swapped(), applied_time=50.0, due_time=due_time, state=LeaseState.OUT)


def lend(applier: Applier, simulated: SimulatedSlurm, due_time: float) -> None:
    assert simulated.apply(ASKED).outcome is Outcome.APPLIED
    applier.journal.keep(out(ASKED, due_time))


def leased(applier: Applier) -> list[int]:
    return [lease.job_id for lease in applier.journal.leases()]


@pytest.mark.parametrize(("due_time", "is_due"), [(100.0, True), (100.5, False)])
def test_a_change_is_taken_back_when_it_is_due(due_time: float, is_due: bool) -> None:
    applier, simulated = advisor_at_work()
    lend(applier, simulated, due_time=due_time)

    advise(applier, simulated)

    assert simulated.job(2).gang.switches == (None if is_due else ASKED.after)
    assert leased(applier) == ([] if is_due else [3])


def test_a_change_that_somebody_else_changed_is_left_to_them() -> None:
    applier, simulated = advisor_at_work()
    lend(applier, simulated, due_time=100.0)
    other = SwitchRequest(count=1, max_wait_s=60.0)
    simulated.apply(SetSwitches(job_id=3, before=ASKED.after, after=other))

    advise(applier, simulated)

    assert simulated.job(2).gang.switches == other
    assert [lease.state for lease in applier.journal.leases()] == [LeaseState.HANDS_OFF]


def test_a_change_of_a_job_that_started_is_forgotten() -> None:
    applier, simulated = advisor_at_work()
    lend(applier, simulated, due_time=1e9)

    run_slurm(simulated.state, simulated.slurm, 1050.0)
    advise(applier, simulated)

    assert leased(applier) == []


def test_of_several_changes_only_that_of_a_started_job_is_forgotten() -> None:
    applier, simulated = advisor_at_work()
    lend(applier, simulated, due_time=1e9)
    wider = SetNodeRange(job_id=1, before=NodeRange(low=1, high=1), after=NodeRange(low=1, high=1))
    applier.journal.keep(out(wider, due_time=1e9))

    advise(applier, simulated)

    assert leased(applier) == [3]


def test_an_elastic_gang_starts_smaller_rather_than_late() -> None:
    full = {"gpus": 4, "run_time_s": 5 * HOUR_S, "time_limit_s": 6 * HOUR_S}
    wide = {"submit_time": 10, "gpus": 16, "gpus_min": 8, "gpus_max": 16, "nodes_max": 0, "run_time_s": HOUR_S}
    trace = make_trace([*[full] * 4, {**wide, "time_limit_s": 4 * HOUR_S, "checkpoint_interval_s": 600}])
    cluster = Cluster(nodes=(NodeGroup(count=6, gpus=4, leaf=2),), slurm=SLURM)

    plain, advised = run_of(trace, cluster, "slurm", EAGER), run_of(trace, cluster, "rules", EAGER)

    # Eight GPUs are free at once; half the GPUs take twice as long.
    assert starts_and_ends(plain)[4] == (5 * HOUR_S, 6 * HOUR_S)
    assert starts_and_ends(advised)[4] == (100.0, 100.0 + 2 * HOUR_S)
    assert advised.outcomes["resizes"].tolist() == [0, 0, 0, 0, 1]


BY_RULE = replace(EAGER, speeds="estimated")


def test_an_elastic_gang_behind_a_wider_one_is_lifted_and_then_starts_smaller() -> None:
    full = {"gpus": 4, "run_time_s": 5 * HOUR_S, "time_limit_s": 6 * HOUR_S}
    ahead = {"submit_time": 5, "gpus": 24, "nodes_max": 6, "run_time_s": 3 * HOUR_S, "time_limit_s": 10 * HOUR_S}
    wide = {"submit_time": 10, "gpus": 16, "gpus_min": 8, "gpus_max": 16, "nodes_max": 0, "run_time_s": HOUR_S}
    jobs = [*[full] * 4, ahead, {**wide, "time_limit_s": 4 * HOUR_S, "checkpoint_interval_s": 600}]
    cluster = Cluster(nodes=(NodeGroup(count=6, gpus=4, leaf=2),), slurm=SLURM)

    lifted, sized, both = (run_of(jobs, cluster, policy, BY_RULE) for policy in ("lift", "slurm+sizes", "lift+sizes"))

    assert lifted.outcomes["resizes"].sum() == sized.outcomes["resizes"].sum() == 0
    assert starts_and_ends(lifted)[5] == (5 * HOUR_S, 6 * HOUR_S)
    # Lifted in the first cycle, smaller in the second.
    assert starts_and_ends(both)[5] == (200.0, 200.0 + 2 * HOUR_S)
    assert both.outcomes["resizes"].tolist() == [0, 0, 0, 0, 0, 1]
    # Those behind pay nothing: the gang ahead starts as before.
    assert starts_and_ends(both)[4][0] <= starts_and_ends(lifted)[4][0]


def test_an_elastic_job_grows_as_it_starts_where_lifts_are_on() -> None:
    plain, grown = (run_of(elastic_jobs(), SLOW, policy, BY_RULE) for policy in ("slurm", "lift+sizes"))

    assert plain.outcomes["resizes"].sum() == 0
    assert grown.outcomes["resizes"].tolist() == [0, 1, 0, 0]
    # Twice the GPUs, half the run time, and no job ends later for it.
    assert starts_and_ends(grown)[1] == (120.0, 120.0 + HOUR_S / 2)
    assert (grown.outcomes["end_time"] <= plain.outcomes["end_time"]).all()


def test_simulated_slurm_keeps_to_the_contract_of_actuators() -> None:
    _, simulated = advisor_at_work()
    two, four = NodeRange(low=2, high=2), NodeRange(low=2, high=4)
    actions: list[Action] = [
        SetNice(job_id=3, before=0, after=25),
        ASKED,
        SetNodeRange(job_id=3, before=two, after=four),
        SetTimeMin(job_id=3, before=None, after=600.0),
    ]

    check(simulated, simulated, actions, running=1)


# Slurm looks for jobs that it can start once a minute, so that a cycle in between sees idle GPUs beside a pending job.
SLOW = Cluster(nodes=(NodeGroup(count=1, gpus=8),), slurm=SlurmParameters(tick_s=60.0, batch_sched_delay_s=30.0))


def elastic_jobs() -> Trace:
    """Three jobs of 2 GPUs that could have 4, each submitted right before a cycle."""
    wide = {"gpus": 2, "gpus_min": 2, "gpus_max": 4, "nodes_max": 0, "run_time_s": HOUR_S, "time_limit_s": 5 * HOUR_S}
    first = {"gpus": 1, "run_time_s": 500.0, "time_limit_s": 600.0}
    return make_trace([first, *({**wide, "submit_time": at - 0.5} for at in (100.0, 400.0, 700.0))])


def test_policy_of_the_cycle_decides_the_sizes_in_the_simulator() -> None:
    def sized_by(score: float) -> AdvisedSlurm:
        sizes = frozenset({Lever.GPU_COUNT})
        scripted = Scripted(score)
        return AdvisedSlurm(name="scripted", summary="", forecaster=no_forecasts, levers=sizes, policy=lambda: scripted)

    alone = bytes_of(simulate(elastic_jobs(), SLOW, "slurm", options=EAGER))
    never, always = (bytes_of(simulate(elastic_jobs(), SLOW, sized_by(score), options=EAGER)) for score in (0.0, 1.0))

    assert never == alone
    assert always != alone
