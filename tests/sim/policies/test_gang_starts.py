"""Every gang that slurmctld starts on several nodes gets the nodes that are chosen, and failures are not lost."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from advisor.features.observe.pointer import BestFit, Choice, Chooser
from advisor.sim.cluster import Cluster, parse_cluster
from advisor.sim.policies.gang_starts import GangStarts
from advisor.sim.queueing import FULL
from advisor.sim.slurm.slurm_cluster import SimulatedSlurm
from advisor.sim.state import RUNNING, with_room
from advisor.sim.traces.trace import Trace
from tests.examples import examples
from tests.sim.building import make_trace
from tests.sim.policies.test_placer import TIMES, LastFirst, Waits, held, placed
from tests.sim.policies.test_state_board import clusters, traces

FOUR_NODES = "nodes=4,gpus=4,leaf=2"
GANG = {"gpus": 8, "nodes_min": 2, "nodes_max": 2, "run_time_s": 500, "time_limit_s": 600}


class Recorded:
    """Chooses as another chooser does, and keeps the choices."""

    def __init__(self, chooser: Chooser) -> None:
        self.chooser = chooser
        self.choices: list[Choice] = []

    def next_server(self, choice: Choice) -> int | None:
        if not any(choice is kept for kept in self.choices):
            self.choices.append(choice)
        return self.chooser.next_server(choice)


class Fails:
    """Fails."""

    def next_server(self, _choice: Choice) -> int | None:
        raise ArithmeticError("no number")


def begun(trace: Trace, cluster: Cluster, chooser: Chooser) -> tuple[SimulatedSlurm, GangStarts]:
    """Return a simulated Slurm before the first submission, which asks for the nodes of gangs."""
    simulated, placer = placed(trace, cluster, chooser)
    return simulated, GangStarts(placer)


def run(simulated: SimulatedSlurm, starts: GangStarts, until: float) -> None:
    while starts.run(simulated.state, simulated.slurm, until) == FULL:
        simulated.state = with_room(simulated.state)


@pytest.mark.parametrize("nodes", [2, 0])
def test_gang_that_starts_at_its_submission_runs_on_the_chosen_nodes(nodes: int) -> None:
    trace = make_trace([GANG | {"nodes_min": nodes, "nodes_max": nodes}])
    simulated, starts = begun(trace, parse_cluster(FOUR_NODES), LastFirst())

    run(simulated, starts, 60.0)

    assert held(simulated, 0) == {2, 3}
    assert starts.chosen == 1


def test_gang_that_is_left_to_slurm_runs_where_slurm_puts_it() -> None:
    simulated, starts = begun(make_trace([GANG]), parse_cluster(FOUR_NODES), Waits())

    run(simulated, starts, 60.0)

    assert held(simulated, 0) == {0, 1}
    assert starts.chosen == 0


def test_job_on_one_node_is_not_asked_about() -> None:
    recorded = Recorded(LastFirst())
    simulated, starts = begun(make_trace([{"gpus": 4}]), parse_cluster(FOUR_NODES), recorded)

    run(simulated, starts, 60.0)

    assert held(simulated, 0) == {0}
    assert not recorded.choices


def test_node_that_backfill_reserves_for_an_earlier_job_is_not_offered() -> None:
    # The second job waits for the first and reserves all nodes from its end on; the third ends before that.
    first = {"gpus": 4, "run_time_s": 900, "time_limit_s": 1000}
    wide = {"submit_time": 10, "gpus": 16, "nodes_min": 4, "nodes_max": 4, "run_time_s": 100, "time_limit_s": 200}
    short, long = ({**GANG, "submit_time": 20, "time_limit_s": limit_s} for limit_s in (600, 6000))
    recorded = Recorded(LastFirst())
    simulated, starts = begun(
        make_trace([first, wide, short, {**long, "run_time_s": 5000}]), parse_cluster(FOUR_NODES), recorded
    )

    run(simulated, starts, 200.0)

    assert simulated.state.jobs["phase"].tolist()[2] == RUNNING
    assert held(simulated, 2) == {2, 3}
    assert len(recorded.choices) == 1


@settings(max_examples=examples(60), deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(trace=traces(), cluster=clusters(), times=TIMES, chooser=st.sampled_from([BestFit(), LastFirst()]))
def test_every_choice_fits_the_nodes_that_are_free(
    trace: Trace, cluster: Cluster, times: list[float], chooser: Chooser
) -> None:
    simulated, starts = begun(trace, cluster, chooser)

    for time in times:
        run(simulated, starts, time)
        nodes = simulated.state.nodes

        assert (nodes["gpus_free"] >= 0).all() and (nodes["cpus_free"] >= 0).all()
        assert (nodes["memory_free_mib"] >= 0).all()
        running = np.flatnonzero(simulated.state.jobs["phase"] == RUNNING)
        jobs = simulated.state.jobs[running]
        assert (jobs["held"] == jobs["gpus"]).all()


def test_failure_of_a_chooser_ends_the_run() -> None:
    simulated, starts = begun(make_trace([GANG]), parse_cluster(FOUR_NODES), Fails())

    with pytest.raises(ArithmeticError, match="no number"):
        run(simulated, starts, 60.0)

    assert simulated.slurm.control["chooser"][0] == 0
