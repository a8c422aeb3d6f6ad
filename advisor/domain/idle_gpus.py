"""Defines measurements of GPUs, the jobs that hold idle ones, and the settings that say where measurements are."""

import re
from typing import Annotated, Final

from advisor.domain.dataclass import dataclass
from advisor.domain.notice import check_url
from advisor.domain.units import DAY_S, HOUR_S

# How far back measurements are asked for.
MEASURED_S: Final = DAY_S
# Most idle jobs that the daemon publishes, the longest first.
MOST_JOBS: Final = 100
_METRIC: Final = re.compile(r"[A-Za-z_:][A-Za-z0-9_:]{0,199}", re.ASCII)
_LABEL: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}", re.ASCII)
# The step of the queries is 5 minutes.
_SHORTEST_IDLE_S: Final = 900.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuReading:
    """A GPU that is measured now: `idle_s` is for how long it has been idle without a gap, at most `MEASURED_S`.

    `node` is a name without its domain. `job_id` is the job that the measurement names, None where it names none.
    """

    node: str
    index: int
    idle_s: float
    job_id: int | None = None

    def __post_init__(self) -> None:
        if not (0.0 <= self.idle_s <= MEASURED_S and 0 <= self.index < 10_000):
            raise ValueError(f"GPU {self.index} of {self.node} cannot be idle for {self.idle_s} s")


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleJob:
    """A running job that holds `gpus` GPUs, `idle_gpus` of which have all been idle since an instant or longer.

    `is_at_least` is whether they were idle as far back as measurements were asked for.
    """

    job_id: int
    gpus: int
    idle_gpus: int
    since_time: float
    is_at_least: bool = False

    def gpu_hours(self, now: float) -> float:
        """Return the GPU-time that was idle until now, in hours."""
        return self.idle_gpus * max(0.0, now - self.since_time) / HOUR_S


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleLook:
    """What a look at the measurements found; `fault` is why there was none, "" if there was.

    `jobs` are the longest idle first, and `unmapped` those with idle GPUs on their nodes of which it is not known
    whether they are theirs, because of `gap` if Slurm could not be asked. Of the `gpus` on the nodes where GPU jobs run
    `measured` are measured; of those that jobs hold, where measurements name jobs.
    """

    looked_time: float
    jobs: tuple[IdleJob, ...] = ()
    unmapped: tuple[int, ...] = ()
    gap: str = ""
    gpus: int = 0
    measured: int = 0
    fault: str = ""

    @property
    def idle_gpus(self) -> int:
        """The idle GPUs of all jobs."""
        return sum(job.idle_gpus for job in self.jobs)

    def of(self, job_id: int) -> IdleJob | None:
        """Return a job if it holds idle GPUs."""
        return next((job for job in self.jobs if job.job_id == job_id), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleOfUser:
    """The GPU-time that the jobs of a user held idle in some days, in hours, as far as the daemon saw it."""

    user: str
    jobs: int
    gpu_hours: float


@dataclass(frozen=True, slots=True, kw_only=True)
class UtilisationSettings:
    """Where Prometheus holds how busy the GPUs are, and which GPUs of running jobs count as idle."""

    prometheus: Annotated[
        str,
        "URL of a Prometheus that scrapes the GPUs, https or http on a loopback address, or the absolute path of a "
        "file that holds it, with a password if it takes one; empty for none",
    ] = ""
    metric: Annotated[str, "series with the utilisation of each GPU in percent"] = "DCGM_FI_DEV_GPU_UTIL"
    node_label: Annotated[str, "label that names the node; a domain or a port behind it does not count"] = "Hostname"
    gpu_label: Annotated[str, "label with the index of the GPU on its node, as in gres.conf: 3 or nvidia3"] = "gpu"
    job_label: Annotated[
        str, "label with the id of the job, such as hpc_job; empty to go by nodes and the indices that Slurm shows"
    ] = ""
    idle_percent: Annotated[float, "a GPU at or below this utilisation is idle"] = 1.0
    idle_after_s: Annotated[float, "time after which idle GPUs of a running job are named"] = 7200.0
    timeout_s: Annotated[float, "time limit of what Prometheus is asked"] = 10.0

    def __post_init__(self) -> None:
        if self.prometheus and not self.prometheus.startswith("/"):
            check_url(self.prometheus, "prometheus", "https://prometheus.example.org")
        if not _METRIC.fullmatch(self.metric):
            raise ValueError("metric must be the name of a series, such as DCGM_FI_DEV_GPU_UTIL")
        for name in ("node_label", "gpu_label", "job_label"):
            label = getattr(self, name)
            if not _LABEL.fullmatch(label) and (label or name != "job_label"):
                raise ValueError(f"{name} must be the name of a label, such as Hostname")
        if len({self.node_label, self.gpu_label, self.job_label}) < 3:
            raise ValueError("node_label, gpu_label and job_label must differ")
        if not 0 <= self.idle_percent < 100:
            raise ValueError("idle_percent must be at least 0 and below 100")
        if not _SHORTEST_IDLE_S <= self.idle_after_s <= DAY_S:
            raise ValueError("idle_after_s must be at least 900 and at most 86400")
        if not 1 <= self.timeout_s <= 120:
            raise ValueError("timeout_s must be from 1 to 120")

    @property
    def is_on(self) -> bool:
        """Whether a Prometheus is named."""
        return bool(self.prometheus)
