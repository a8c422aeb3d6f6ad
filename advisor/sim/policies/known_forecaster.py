"""Forecasts that are exact, or off by a given share: an upper bound on what better models could gain."""

from collections.abc import Mapping

import numpy as np

from advisor.domain.forecast import Forecasts, Interval, JobForecast, Placement, RunTime
from advisor.domain.job import GpuRange, Job
from advisor.domain.snapshot import Snapshot
from advisor.domain.topology import LocalityTier
from advisor.predict.memo import Memo
from advisor.sim.profiles import inflation, step_s
from advisor.sim.slurm.slurm_cluster import SimulatedSlurm

_Speeds = Mapping[Placement, Interval]


class KnownForecaster:
    """Forecast run times, scaling and the cost of spreading from the truth, each off by a share called noise.

    One fair coin per job decides whether its run time is forecast too long or too short, another one does so for its
    scaling: relative speeds are raised to the power of 1 + noise or 1 - noise. Start times are not forecast.
    """

    def __init__(self, cluster: SimulatedSlurm, noise: float, rng: np.random.Generator) -> None:
        """Read the arrays of a run; `noise` is below 1."""
        count = len(cluster.state.jobs)
        self._cluster = cluster
        self._noise = noise
        self._run_time_factor = 1.0 + noise * rng.choice((-1.0, 1.0), count)
        self._speed_power = 1.0 + noise * rng.choice((-1.0, 1.0), count)
        self._speeds: dict[tuple[float, ...], _Speeds] = {}
        self._forecasts = Memo[int, Job, JobForecast]()

    def forecasts(self, snapshot: Snapshot) -> Forecasts:
        """Forecast every job of the snapshot."""
        job_ids = [job.job_id for job in snapshot.jobs]
        forecasts = self._forecasts.fill(job_ids, snapshot.jobs, lambda fresh: map(self.forecast, fresh.values()))
        name = "truth" if self._noise == 0.0 else f"truth within {self._noise * 100:g} %"
        return Forecasts(by_job=dict(zip(job_ids, forecasts, strict=True)), models=(name,))

    def forecast(self, job: Job) -> JobForecast:
        """Forecast one pending job."""
        row = self._cluster.row_of(job.job_id)
        job_row = self._cluster.state.jobs[row]
        profile = self._cluster.state.profiles[job_row["profile"]]
        resized = 1.0
        if job_row["gpus"] != job_row["work_gpus"]:
            resized = step_s(profile, int(job_row["gpus"])) / step_s(profile, int(job_row["work_gpus"]))
        run_s = min(float(job_row["work_s"]) * resized * self._run_time_factor[row], float(job_row["limit_s"]))
        interval = Interval(low=run_s / (1.0 + self._noise), median=run_s, high=run_s / (1.0 - self._noise))
        return JobForecast(
            run_time=RunTime(interval_s=interval, mean_s=run_s),
            speed_by_placement=self._speeds_of(row),
        )

    def _speeds_of(self, row: int) -> _Speeds:
        job_row = self._cluster.state.jobs[row]
        shape = ("profile", "gpus", "gpus_min", "gpus_max", "node_gpus")
        key = (*(float(job_row[name]) for name in shape), float(self._speed_power[row]))
        if key not in self._speeds:
            self._speeds[key] = self._make_speeds(row)
        return self._speeds[key]

    def _make_speeds(self, row: int) -> _Speeds:
        """Compute the speeds of a job alone on its links, relative to its requested size on its best placement."""
        state, power = self._cluster.state, float(self._speed_power[row])
        job_row, rules = state.jobs[row], state.rules[0]
        profile, asked, on_node = state.profiles[job_row["profile"]], int(job_row["gpus"]), int(job_row["node_gpus"])
        speeds: dict[Placement, Interval] = {}
        if not asked:
            return speeds
        for gpus in sorted({asked, *GpuRange(low=int(job_row["gpus_min"]), high=int(job_row["gpus_max"])).sizes}):
            scaled = step_s(profile, asked) / step_s(profile, gpus)
            fewest = -(-gpus // on_node)
            best = rules["nic_gbps"] if fewest <= rules["leaf_nodes"] else rules["nic_gbps"] / rules["oversubscription"]
            for tier in (LocalityTier.NODE, LocalityTier.LEAF, LocalityTier.SPINE):
                nodes = max(fewest, 1 if tier is LocalityTier.NODE else 2)
                if (tier is LocalityTier.NODE and fewest > 1) or nodes > gpus:
                    continue
                link = rules["nic_gbps"] / (rules["oversubscription"] if tier is LocalityTier.SPINE else 1.0)
                pace = float(job_row["reference_speed"]) * scaled
                slower = inflation(profile, gpus, nodes, link / pace, fewest, best / pace)
                speed = float(scaled / slower) ** power
                low, high = sorted((speed ** (1.0 - self._noise), speed ** (1.0 + self._noise)))
                interval = Interval(low=min(low, speed), median=speed, high=max(high, speed))
                speeds[Placement(gpus=gpus, tier=tier)] = interval
        return speeds
