"""The shipped models on a simulated cluster: they learn from the jobs that end, and from nothing else."""

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from advisor.domain.forecast import Forecasts, Placement
from advisor.domain.topology import LocalityTier
from advisor.domain.units import DAY_S
from advisor.errors import ModelError
from advisor.predict.library import shipped_folder
from advisor.predict.run_time import RunTimeForecaster
from advisor.predict.run_time_features import EndedJobs, RunTimeTable
from advisor.settings import Limits
from advisor.sim.cluster import Cluster, Network, NodeGroup, SlurmParameters
from advisor.sim.policies.known_forecaster import KnownForecaster
from advisor.sim.policies.learning import EndedInOrder, LearnedRunTimes, LearningForecaster, opened
from advisor.sim.profiles import step_s
from advisor.sim.run_outcome import Run
from advisor.sim.simulated_policy import SimulationOptions
from advisor.sim.slurm.slurm_cluster import SimulatedSlurm
from advisor.sim.slurm.slurm_state import Slurm
from advisor.sim.slurm.slurmctld import run_slurm
from advisor.sim.state import State
from advisor.sim.traces.trace import Trace
from tests.sim.building import bytes_of, make_trace, model_of, run_of, starts_and_ends
from tests.sim.runs import random_trace

HOUR_S = 3600.0
CLUSTER = Cluster(
    nodes=(NodeGroup(count=1, gpus=4),),
    slurm=SlurmParameters(tick_s=0.0, batch_sched_delay_s=0.0, limit_check_s=0.0),
)


def queue_of_forty() -> tuple[Trace, State, Slurm]:
    """Return jobs alike, each of which runs for a twentieth of its limit of ten hours, one after the other."""
    rows: list[dict[str, Any]] = [
        {"submit_time": number, "gpus": 4, "run_time_s": HOUR_S / 2, "time_limit_s": 10 * HOUR_S}
        for number in range(40)
    ]
    trace = make_trace(rows)
    state, slurm = model_of(trace, CLUSTER, ideal=False)
    run_slurm(state, slurm, -1.0)
    return trace, state, slurm


def ended_of(run: Run) -> EndedJobs:
    """Return the jobs of a run as accounting would hold them."""
    jobs = run.trace.jobs
    count = len(jobs)
    nothing = np.zeros(count)
    return EndedJobs(
        jobs=RunTimeTable(
            user=tuple(run.trace.users[code] for code in jobs["user"]),
            account=tuple(run.trace.accounts[code] for code in jobs["account"]),
            **dict.fromkeys(("name", "partition", "qos"), ("",) * count),
            gpus=jobs["gpus"].astype(np.float64),
            cpus=jobs["gpus"].astype(np.float64),
            nodes=np.ones(count),
            memory_mib=np.full(count, np.nan),
            limit_s=jobs["time_limit_s"].astype(np.float64),
            submit_time=jobs["submit_time"].astype(np.float64),
            waited_s=nothing,
            elapsed_s=nothing,
        ),
        run_s=run.outcomes["end_time"] - run.outcomes["start_time"],
        end_time=run.outcomes["end_time"].astype(np.float64),
        state=("",) * count,
    )


def medians_after(*instants: float) -> list[float]:
    """Return the median run time that is forecast at each instant for the last of many jobs alike, in hours."""
    trace, state, slurm = queue_of_forty()
    simulated = SimulatedSlurm(trace, CLUSTER, state, slurm)
    learning = LearningForecaster(simulated)
    found = []
    for instant in instants:
        run_slurm(state, slurm, instant)
        run_time = learning.forecasts(simulated.snapshot()).of(40).run_time
        assert run_time is not None
        found.append(run_time.interval_s.median / HOUR_S)
    return found


def test_jobs_that_end_teach_what_the_user_runs() -> None:
    before, after = medians_after(60.0, 15 * HOUR_S)

    assert abs(after - 0.5) < abs(before - 0.5)
    assert np.isclose(after, 0.5, atol=0.25)


def test_each_ended_job_is_returned_once_with_its_run_time() -> None:
    trace = make_trace([{"gpus": 4, "run_time_s": 600.0, "time_limit_s": HOUR_S} for _ in range(3)])
    state, slurm = model_of(trace, CLUSTER, ideal=False)
    ended = EndedInOrder(SimulatedSlurm(trace, CLUSTER, state, slurm))
    run_slurm(state, slurm, -1.0)
    run_slurm(state, slurm, 1300.0)

    first, second = ended.since_last(), ended.since_last()

    assert first is not None and first.run_s.tolist() == [600.0, 600.0]
    assert first.state == ("COMPLETED", "COMPLETED")
    assert second is None


def test_the_clock_of_the_site_moves_the_history_of_the_simulation_along() -> None:
    trace, state, slurm = queue_of_forty()
    problems: list[Any] = [
        SimpleNamespace(trace=trace, cluster=CLUSTER, state=state, options=SimulationOptions(begins_at=days * DAY_S))
        for days in (0.0, 20_000.0)
    ]
    run_times = [LearnedRunTimes(problem, slurm) for problem in problems]
    run_slurm(state, slurm, 15 * HOUR_S)
    for known in run_times:
        known.update(state, np.array([39]), 15 * HOUR_S)

    first, later = (float(known.run_s[39]) for known in run_times)

    assert first == later < np.inf


def crowd(seed: int, count: int = 160) -> Trace:
    """Return jobs of a few users with few requests, some of them in bursts; run times from seconds to beyond limits."""
    rng = np.random.default_rng(seed)
    rows: list[dict[str, Any]] = []
    for user in rng.integers(0, 5, count).tolist():
        limit_s = float(rng.choice([900.0, HOUR_S, 8 * HOUR_S]))
        rows.append(
            {
                "submit_time": float(rng.choice([0.0, rng.uniform(0.0, 40 * HOUR_S)])),
                "gpus": int(rng.choice([1, 2, 4])),
                # One user of five has no name, and nor do two accounts.
                "user": ("", "ann", "bob", "cy", "dee")[user],
                "account": user % 2 if user > 1 else 2,
                "run_time_s": float(rng.choice([5.0, 60.0, 0.3 * limit_s, 0.31 * limit_s, 1.2 * limit_s])),
                "time_limit_s": limit_s,
            }
        )
    trace = make_trace(sorted(rows, key=lambda row: row["submit_time"]), users=("", "ann", "bob", "cy", "dee"))
    return replace(trace, accounts=("lab", "works", ""))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("begins_at", [0.0, 20_000 * DAY_S])
def test_run_times_of_a_simulation_are_those_of_the_forecaster(seed: int, begins_at: float) -> None:
    trace = crowd(seed)
    state, slurm = model_of(trace, CLUSTER, ideal=False)
    options = SimulationOptions(begins_at=begins_at)
    problem: Any = SimpleNamespace(trace=trace, cluster=CLUSTER, state=state, options=options)
    # What the model remembers when it is opened counts as well, half of the time.
    remembered = run_of(crowd(seed + 100, 60), CLUSTER, "slurm")
    forecasters = [RunTimeForecaster.from_bundle(opened("run_time")) for _ in range(2)]
    for forecaster in forecasters if seed % 2 else ():
        forecaster.add_ended(ended_of(remembered))
    run_times = LearnedRunTimes(problem, slurm, forecasters[0])
    simulated, forecaster = SimulatedSlurm(trace, CLUSTER, state, slurm), forecasters[1]
    ended = EndedInOrder(simulated)
    run_slurm(state, slurm, -1.0)
    groups: set[int] = set()
    equal_rows = 0
    for now in np.arange(0.5, 60.0, 2.5) * HOUR_S:
        run_slurm(state, slurm, now)
        rows = simulated.pending_rows().astype(np.intp)
        run_times.update(state, rows, now)
        equal_rows += int((run_times.tables.settings["due"] - run_times.tables.settings["rows"])[0])
        if (fresh := ended.since_last()) is not None:
            jobs = replace(fresh.jobs, submit_time=fresh.jobs.submit_time + begins_at)
            forecaster.add_ended(replace(fresh, jobs=jobs, end_time=fresh.end_time + begins_at))
        if not len(rows):
            continue
        table = simulated.run_time_table(rows)
        table = replace(table, waited_s=now - table.submit_time, submit_time=table.submit_time + begins_at)
        found = forecaster.forecast(table)
        groups |= set(found.group.tolist())
        limit_s = state.jobs["limit_s"][rows]
        mean_s = np.where(found.known, found.mean_s, options.planning.used_limit_ratio_low * limit_s)
        assert run_times.run_s[rows] == pytest.approx(np.minimum(mean_s, limit_s), rel=1e-9)
    assert len(groups) > 2
    assert equal_rows > 0


def test_models_of_the_site_are_opened_where_there_are_any(tmp_path: Path) -> None:
    trace = random_trace(60)
    shipped, same = (
        run_of(trace, "nodes=2,gpus=4", "lift-forecast", SimulationOptions(models=models))
        for models in ("", str(tmp_path))
    )
    shutil.copytree(shipped_folder(), tmp_path / "broken")
    (tmp_path / "broken" / "manifest.toml").write_text("[")

    assert bytes_of(shipped) == bytes_of(same)
    with pytest.raises(ModelError, match="broken"):
        run_of(trace, "nodes=2,gpus=4", "lift-forecast", SimulationOptions(models=str(tmp_path / "broken")))


SLURM = SlurmParameters(tick_s=0.0, batch_sched_delay_s=0.0, limit_check_s=0.0)
SLOW_LINKS = Cluster(nodes=(NodeGroup(count=4, gpus=4),), slurm=SLURM, network=Network(nic_gbps=10.0))


def told(noise: float, *jobs: Mapping[str, object]) -> tuple[Forecasts, State]:
    """Forecast jobs that wait behind one that holds all GPUs."""
    holder = {"gpus": 16, "run_time_s": HOUR_S, "time_limit_s": HOUR_S}
    trace = make_trace([holder, *({"submit_time": 10, **job} for job in jobs)])
    state, slurm = model_of(trace, SLOW_LINKS, ideal=False)
    run_slurm(state, slurm, -1.0)
    run_slurm(state, slurm, 100.0)
    simulated = SimulatedSlurm(trace, SLOW_LINKS, state, slurm)
    return KnownForecaster(simulated, noise, np.random.default_rng(0)).forecasts(simulated.snapshot()), state


def test_truth_is_the_run_time_of_every_job() -> None:
    forecasts, _ = told(0.0, {"gpus": 2, "run_time_s": 500, "time_limit_s": HOUR_S})

    run_times = {job_id: known.run_time for job_id, known in forecasts.by_job.items()}
    assert {job_id: each.mean_s for job_id, each in run_times.items() if each} == {1: HOUR_S, 2: 500.0}


def test_no_run_time_is_believed_beyond_its_limit() -> None:
    forecasts, _ = told(0.0, {"gpus": 2, "run_time_s": 5000, "time_limit_s": 600})

    run_time = forecasts.of(2).run_time
    assert run_time is not None
    assert run_time.mean_s == 600.0


def test_noise_is_off_by_its_share_and_says_so() -> None:
    forecasts, _ = told(0.3, *({"gpus": 1, "run_time_s": 1000, "time_limit_s": HOUR_S} for _ in range(20)))

    means, inside = set(), []
    for job_id in range(2, 22):
        run_time = forecasts.of(job_id).run_time
        assert run_time is not None
        means.add(round(run_time.mean_s))
        inside.append(run_time.interval_s.low <= 1000.0 <= run_time.interval_s.high)
    assert means == {700, 1300}
    assert all(inside)


def test_speeds_follow_the_profile_and_spreading_costs() -> None:
    job = {"gpus": 4, "gpus_min": 2, "gpus_max": 8, "model": "bert", "run_time_s": 1000, "time_limit_s": HOUR_S}
    forecasts, state = told(0.0, job)

    speeds = forecasts.of(2).speed_by_placement
    profile = state.profiles[state.jobs["profile"][1]]
    node, leaf = (Placement(gpus=4, tier=tier) for tier in (LocalityTier.NODE, LocalityTier.LEAF))
    assert speeds[node].median == 1.0
    assert speeds[leaf].median < 1.0
    half = speeds[Placement(gpus=2, tier=LocalityTier.NODE)].median
    assert half == pytest.approx(step_s(profile, 4) / step_s(profile, 2))
    assert Placement(gpus=8, tier=LocalityTier.NODE) not in speeds


def test_short_job_that_asks_for_long_goes_first_where_the_truth_is_known() -> None:
    first = {"gpus": 4, "run_time_s": 1000, "time_limit_s": 1200}
    alike = {"gpus": 4, "time_limit_s": 4 * HOUR_S}
    trace = make_trace(
        [
            first,
            {"submit_time": 10, "run_time_s": 4 * HOUR_S, **alike},
            {"submit_time": 20, "run_time_s": 600, **alike},
        ]
    )
    cluster = Cluster(nodes=(NodeGroup(count=1, gpus=4),), slurm=SLURM)
    # The long job steps back twice, each time for four hours at most and right after the other.
    lenient = Limits(max_added_delay_s=12 * HOUR_S, cooldown_s=0.0)
    eager = SimulationOptions(execution="ideal", advise_every_s=100.0, limits=lenient)

    by_rule, known = (run_of(trace, cluster, policy, eager) for policy in ("rules", "forecast-oracle"))

    assert starts_and_ends(by_rule)[1][0] == 1000.0
    assert starts_and_ends(known)[1][0] == pytest.approx(1600.0)
