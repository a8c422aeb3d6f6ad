"""What a policy sees that sizes elastic jobs is the same in the simulator and on its snapshots, to the bit."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from advisor.domain.forecast import NO_FORECASTS
from advisor.features import steps
from advisor.features.steps import WINDOW, Window, next_steps
from advisor.planning.case import Case
from advisor.planning.elastic import windows
from advisor.settings import Limits, PlanningSettings
from advisor.sim.cluster import Cluster, parse_cluster
from advisor.sim.policies.known_forecaster import KnownForecaster
from advisor.sim.policies.lifted import by_limits, by_run_times
from advisor.sim.policies.mover import Mover
from advisor.sim.run_outcome import End
from advisor.sim.runner import SimulationOptions
from advisor.sim.slurm.slurm_cluster import SimulatedSlurm
from advisor.sim.traces.trace import Trace
from tests.sim.building import IDEAL, make_problem, make_trace, run_of
from tests.sim.drawn_queues import clusters, go_on, started, traces
from tools.train.dl2_judge import sized
from tools.train.sizer import Sizer, Sizes, as_asked, by_price, by_score, speeds_by_rule, true_speeds

INSTANTS = st.sampled_from([7.0, 30.0, 290.0, 900.0]) | st.floats(0.0, 2000.0)
TIMES = st.lists(INSTANTS, min_size=2, max_size=6).map(sorted)
LIMITS = Limits(min_job_age_s=0.0)


def sizer_of(simulated: SimulatedSlurm, trace: Trace, cluster: Cluster, *, knows: bool) -> Sizer:
    """Return what sizes the jobs of a run, by the truth or by limits and rules."""
    problem = make_problem(trace, cluster, simulated.state, SimulationOptions(limits=LIMITS))
    run_times = (by_run_times if knows else by_limits)(problem, simulated.slurm)
    mover = Mover(problem, simulated.slurm, run_times)
    speeds = true_speeds if knows else speeds_by_rule
    return Sizes(speeds=speeds, choose=by_score(by_price), knows_run_s=knows).sizer(problem, mover)


def on_snapshot(simulated: SimulatedSlurm, *, knows: bool) -> dict[tuple[int, ...], Window]:
    """Return the windows of the planner by the ids of their jobs."""
    snapshot = simulated.snapshot()
    forecaster = KnownForecaster(simulated, 0.0, np.random.default_rng(0))
    forecasts = forecaster.forecasts(snapshot) if knows else NO_FORECASTS
    case = Case(snapshot=snapshot, settings=PlanningSettings(), limits=LIMITS, forecasts=forecasts)
    queue = case.queue
    return {
        tuple(queue.jobs[row].job_id for row in window.rows): window
        for rows in queue.rows_by_pool()
        for window in windows(queue, rows, case, frozenset())
    }


def bits(window: Window) -> tuple[bytes, bytes]:
    first = next_steps(window.jobs, window.supply, window.jobs.first)
    return first.columns.astype(np.float32).tobytes(), first.is_legal.tobytes()


@pytest.mark.slow
@settings(max_examples=80, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(trace=traces(), cluster=clusters(), times=TIMES, knows=st.booleans())
def test_windows_of_the_arrays_are_those_of_the_snapshot(
    trace: Trace, cluster: Cluster, times: list[float], knows: bool
) -> None:
    simulated = started(trace, replace(cluster, failures=replace(cluster.failures, node_mtbf_h=0.0)))
    sizer = sizer_of(simulated, trace, cluster, knows=knows)

    for time in times:
        go_on(simulated, time)
        now = float(simulated.state.tally["now"][0])
        ours = {
            tuple(simulated.job_ids[window.rows].tolist()): window for window in sizer.windows(simulated.state, now)
        }
        theirs = on_snapshot(simulated, knows=knows)

        assert ours.keys() == theirs.keys()
        assert all(bits(ours[jobs]) == bits(theirs[jobs]) for jobs in ours)


def crowd(jobs: int) -> tuple[SimulatedSlurm, Trace, Cluster]:
    """Return a full node of 4 GPUs, for which elastic jobs of 4 GPUs wait."""
    wide = {"submit_time": 10, "gpus": 4, "gpus_min": 1, "gpus_max": 4, "run_time_s": 3600, "time_limit_s": 7200}
    trace = make_trace([{"gpus": 4, "run_time_s": 4000, "time_limit_s": 4200}, *[wide] * jobs])
    cluster = parse_cluster("nodes=1,gpus=4")
    simulated = started(trace, cluster)
    go_on(simulated, 600.0)
    return simulated, trace, cluster


@pytest.mark.parametrize("knows", [False, True])
def test_window_holds_the_jobs_whose_turn_is_near(knows: bool) -> None:
    simulated, trace, cluster = crowd(60)
    sizer = sizer_of(simulated, trace, cluster, knows=knows)

    (window,) = sizer.windows(simulated.state, 600.0)
    (same,) = on_snapshot(simulated, knows=knows).values()

    # No GPU is idle: the first asks for more than a quarter of all.
    assert simulated.job_ids[window.rows].tolist() == [2]
    assert bits(window) == bits(same)


def test_jobs_beyond_a_window_form_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    simulated, trace, cluster = crowd(100)
    monkeypatch.setattr(steps, "REACH_RATIO", 1000.0)
    sizer = sizer_of(simulated, trace, cluster, knows=False)

    assert [len(window.rows) for window in sizer.windows(simulated.state, 600.0)] == [WINDOW, WINDOW, 20]
    assert [len(ids) for ids in on_snapshot(simulated, knows=False)] == [WINDOW, WINDOW, 20]


@pytest.mark.parametrize(("scorer", "sizes"), [(as_asked, {4}), (by_price, {1})])
def test_jobs_shrink_where_many_wait(scorer: object, sizes: set[int]) -> None:
    simulated, trace, cluster = crowd(60)
    sizer = sizer_of(simulated, trace, cluster, knows=False)
    sizer.choose = by_score(scorer)  # type: ignore[arg-type]

    sizer.cycle(simulated.state, 600.0)

    jobs = simulated.state.jobs
    first = int(simulated.slurm.line[0])
    assert {int(jobs["gpus"][first])} == sizes
    # A smaller job gets a limit that is longer by as much as it is slower.
    assert jobs["limit_s"][first] >= 7200.0 * (4 / int(jobs["gpus"][first])) ** 0.9


def test_gang_of_several_nodes_is_not_given_fewer_gpus_than_nodes() -> None:
    """On nodes of two GPUs three take two nodes, on which one GPU would never start."""
    jobs = [{"gpus": 2, "run_time_s": 900}, *({"gpus": 1, "run_time_s": 1} for _ in range(5))]
    jobs.insert(3, {"gpus": 3, "run_time_s": 1, "gpus_min": 1, "gpus_max": 6, "nodes_max": 1})
    trace = make_trace([{"submit_time": 0, "model": "bert", **job} for job in jobs])

    run = run_of(trace, parse_cluster("nodes=2,gpus=2"), sized(by_score(by_price), is_true=True), IDEAL, 0)

    assert (run.outcomes["end"] == End.FINISHED).all()
