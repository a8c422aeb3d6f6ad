"""The clusters of a run: slurm.conf of a sensible GPU site and the daemon's configuration, with their times compressed.

What Slurm or the daemon does not take that short keeps its shortest value, and is stated.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final, Literal, get_args

from advisor.domain.units import DAY_S, HOUR_S, MINUTE_S
from advisor.errors import SimulationError
from advisor.settings import PLANNING_BOUNDS, BudgetSettings, DaemonSettings, Limits, PlanningSettings
from advisor.sim.cluster import Cluster, Costs, Network
from advisor.sim.policies.lifted import LIFT, PLAIN, policy_with
from advisor.sim.policies.slurm import SlurmPolicy
from tools.live.window import SHORT_LIMIT_S
from tools.stage import LiveCluster, uniform_cluster
from tools.stage.daemon import Table

GPUS_PER_NODE: Final = 8
Policy = Literal["none", "default", "rules", "dl2", "price"]
POLICIES: Final = get_args(Policy)
# The submit script of a cluster that pins its gangs.
PINS: Final = f"return {{ pin_gangs = true, gpus_per_node = {{ default = {GPUS_PER_NODE} }} }}"
# Of a site, in seconds.
SCHED_INTERVAL_S: Final = MINUTE_S
BF_INTERVAL_S: Final = 30.0
BF_YIELD_INTERVAL_US: Final = 10_000_000
BF_RESOLUTION_S: Final = MINUTE_S
BF_WINDOW_S: Final = 7 * DAY_S
MAX_SWITCH_WAIT_S: Final = DAY_S
PRIORITY_MAX_AGE_S: Final = 7 * DAY_S
PRIORITY_HALF_LIFE_S: Final = 7 * DAY_S
PRIORITY_CALC_S: Final = 5 * MINUTE_S
WEIGHTS: Final = {"Age": 1000, "Fairshare": 10_000, "JobSize": 0, "Partition": 2000, "QOS": 0}
# The shortest that slurmctld and the daemon take.
_SECOND_S: Final = 1.0
_TWIN_INTERVAL_S: Final = 5.0
_BF_WINDOW_MIN: Final = 60.0
# Times of the machine, not of the cluster.
_REAL: Final = frozenset({"rollout_deadline_s", "deadline_s", "strain_cycle_s"})
_SHORTEST: Final[Mapping[str, float]] = {
    "interval_s": _SECOND_S,
    "interval_max_s": 10.0,
    "twin_interval_s": _TWIN_INTERVAL_S,
    # What the daemon takes at least.
    **{name: least for name, (least, _) in PLANNING_BOUNDS.items() if name.endswith("_s")},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedArm:
    """What runs on a cluster, as it is written: `[LABEL=]POLICY[:OPTIONS]`.

    `options` are those of the simulated policies `slurm` and `lift`; `pins` and `parameters`, times as in the trace,
    are what they say of the site, and `fairness` is that of the daemon.
    """

    text: str
    label: str = ""
    policy: Policy = "none"
    options: tuple[str, ...] = ()
    pins: bool = False
    parameters: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, text: str) -> "PlannedArm":
        """Read one; raises `SimulationError`."""
        head, _, options = text.partition(":")
        label, _, name = head.rpartition("=")
        for policy in POLICIES:
            if policy == name and not any(alone in options for alone in _SIMULATED_ALONE):
                base = PLAIN if policy == "none" else LIFT
                site = policy_with(f"{base}:{options}") if options else SlurmPolicy(name=base, summary="")
                return cls(
                    text=text,
                    label=label,
                    policy=policy,
                    options=tuple(filter(None, options.split(","))),
                    pins=site.pins,
                    parameters=site.parameters,
                )
        raise SimulationError(f"policy {text!r}: known are {', '.join(POLICIES)}, as in default:fairness=site,pin=yes")

    @property
    def fairness(self) -> str:
        """The fairness of the daemon."""
        named = (one.removeprefix(_FAIRNESS) for one in self.options if one.startswith(_FAIRNESS))
        return next(named, Limits().fairness)

    def simulated(self) -> Iterator[str]:
        """Yield the simulated policies that stand for it on the model of its cluster, the one most like it last."""
        own = [option for option in self.options if not option.startswith(_IN_MODEL)]
        match self.policy:
            case "none":
                yield _with(PLAIN, own)
            case "default":
                yield _with(LIFT, own)
                yield _with(LIFT, ["run-times=forecast", *own]) if own else "lift-forecast"
            case "rules":
                yield _with(LIFT, own)
                yield self.policy
            case other:
                yield other


# The model of a live cluster has its slurm.conf.
_IN_MODEL: Final = ("reserve-after=", "reserve-first=", "backfill-every=")
_FAIRNESS: Final = "fairness="
_SIMULATED_ALONE: Final = ("run-times", "interactive")


def _with(policy: str, options: Sequence[str]) -> str:
    return f"{policy}:{','.join(options)}" if options else policy


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressedSite:
    """Holds what all clusters of a run have in common; `oversubscription` is that of the leaf uplinks."""

    release: str
    nodes: int
    leaf_nodes: int
    speedup: float
    nic_gbps: float
    oversubscription: float

    def cluster(self, arm: PlannedArm) -> LiveCluster:
        """Return a cluster that is not yet started."""
        parameters = {**self.scheduler_parameters(), **self._own_parameters(arm)}
        return uniform_cluster(
            self.release,
            self.nodes,
            gpus_per_node=GPUS_PER_NODE,
            leaf_nodes=self.leaf_nodes,
            scheduler_parameters=",".join(f"{name}={value}" for name, value in parameters.items()),
            extra_lines=tuple(self.lines()),
            accounting=True,
        )

    def scheduler_parameters(self) -> Mapping[str, int]:
        """Return SchedulerParameters of slurm.conf."""
        return {
            "sched_interval": self._whole_s(SCHED_INTERVAL_S),
            "bf_interval": self._whole_s(BF_INTERVAL_S),
            # A pass takes as much real time as at the site, where none is cut short.
            "bf_max_time": round(BF_INTERVAL_S),
            "bf_yield_interval": BF_YIELD_INTERVAL_US,
            "bf_resolution": self._whole_s(BF_RESOLUTION_S),
            "bf_window": round(max(_BF_WINDOW_MIN, BF_WINDOW_S / self.speedup / MINUTE_S)),
            "bf_max_job_test": 1000,
            "default_queue_depth": 1000,
            "max_switch_wait": self._whole_s(MAX_SWITCH_WAIT_S),
        }

    def _own_parameters(self, arm: PlannedArm) -> Mapping[str, int]:
        own = arm.parameters.items()
        return {name.removesuffix("_s"): self._whole_s(n) if name.endswith("_s") else int(n) for name, n in own}

    @property
    def priority_calc_s(self) -> float:
        """PriorityCalcPeriod in live seconds."""
        return self._minutes(PRIORITY_CALC_S) * MINUTE_S

    def lines(self) -> Iterator[str]:
        """Yield the other lines of slurm.conf, of which the last of a key counts."""
        for name, weight in WEIGHTS.items():
            yield f"PriorityWeight{name}={weight}"
        yield f"PriorityMaxAge={self._whole_min(PRIORITY_MAX_AGE_S)}"
        yield f"PriorityDecayHalfLife={self._whole_min(PRIORITY_HALF_LIFE_S)}"
        yield f"PriorityCalcPeriod={self._whole_min(PRIORITY_CALC_S)}"
        yield "AccountingStorageEnforce=associations,limits"
        yield f"PartitionName=short Nodes=ALL MaxTime={self._minutes(SHORT_LIMIT_S)} PriorityJobFactor=10 State=UP"

    def as_model(self, shown: Cluster) -> Cluster:
        """Return the model of a live cluster: as it is shown, with the network and the costs of the run."""
        return replace(
            shown,
            network=Network(nic_gbps=self.nic_gbps, oversubscription=self.oversubscription),
            costs=Costs(restart_s=Costs().restart_s / self.speedup),
        )

    def daemon_tables(self, arm: PlannedArm, models: Path | None) -> Mapping[str, Table]:
        """Return the daemon's tables: its defaults with all times of the cluster compressed.

        `models` holds the run-time model that was fitted to the past of the cluster, which is trusted at once.
        """
        trusted_after = Limits().probation_jobs if models is None else 0
        guard = self._compressed(Limits()) | {"fairness": arm.fairness, "probation_jobs": trusted_after}
        served = {"policy": arm.policy} if arm.policy in ("dl2", "price") else {}
        return {
            "guard": guard,
            "planning": self._compressed(PlanningSettings()),
            "daemon": self._compressed(DaemonSettings()) | {"jitter_s": 0.0} | served,
            "budget": {"time_ratio": min(1.0, BudgetSettings().time_ratio * self.speedup)},
            "forecasts": {"enabled": arm.policy != "rules"} | ({} if models is None else {"models": str(models)}),
        }

    def exceptions(self) -> Iterator[str]:
        """Yield a sentence for each time that is longer than compressed it would be."""
        for name, wanted_s, least_s in self._longer():
            yield f"{name} is {least_s * self.speedup / MINUTE_S:g} min of the trace, not {wanted_s / MINUTE_S:g} min"
        yield f"time limits are whole minutes: steps of {self.speedup:g} min of the trace"
        yield f"slurmctld checks limits every 30 s: every {self.speedup / 2:g} min of the trace"
        yield f"starting a job takes up to about 1 s: {self.speedup:g} s of the trace"

    def _longer(self) -> Iterator[tuple[str, float, float]]:
        wanted = {
            "bf_interval": (BF_INTERVAL_S, _SECOND_S),
            "sched_interval": (SCHED_INTERVAL_S, _SECOND_S),
            "PriorityCalcPeriod": (PRIORITY_CALC_S, MINUTE_S),
            "daemon.interval_s": (DaemonSettings().interval_s, _SECOND_S),
            "daemon.twin_interval_s": (DaemonSettings().twin_interval_s, _TWIN_INTERVAL_S),
        }
        for name, (wanted_s, least_s) in wanted.items():
            if wanted_s / self.speedup < least_s:
                yield name, wanted_s, least_s

    def _compressed(self, settings: Any) -> dict[str, str | float]:
        """Return the fields of a table that hold times of the cluster, compressed."""
        return {
            field.name: max(_SHORTEST.get(field.name, 0.0), getattr(settings, field.name) / self.speedup)
            for field in fields(settings)
            if field.name.endswith("_s") and field.name not in _REAL
        }

    def _whole_s(self, seconds: float) -> int:
        return max(1, round(seconds / self.speedup))

    def _minutes(self, seconds: float) -> int:
        return max(1, round(seconds / self.speedup / MINUTE_S))

    def _whole_min(self, seconds: float) -> str:
        minutes = self._minutes(seconds)
        return f"{minutes * MINUTE_S // HOUR_S:02.0f}:{minutes % 60:02d}:00"
