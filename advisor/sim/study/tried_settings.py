"""The settings that `sadvise tune` tries: fairness of the lifts, and the parameters of slurm.conf that matter.

Each is one policy on one cluster with one set of options, and the lines that put it into effect.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Any, Final

import numpy as np

from advisor.domain.dataclass import dataclass
from advisor.domain.tune_verdict import PRESETS, Preset
from advisor.domain.units import DAY_S, HOUR_S, MINUTE_S
from advisor.settings import Fairness
from advisor.sim.cluster import Cluster
from advisor.sim.simulated_policy import SimulationOptions
from advisor.sim.traces.trace import Trace

# The name of Slurm as it is.
PLAIN: Final = "slurm"
_SCOPES: Final[tuple[Fairness, ...]] = ("account", "user", "lane")
DECADES: Final = (0.0, 2.0, 4.0, 6.0)
_SCALES: Final = (0.3, 3.0)
# Slurm accepts no longer window.
_LONGEST_WINDOW_S: Final = 30 * DAY_S
_DEPTH_FACTORS: Final = (0.2, 4.0)
_RESOLUTION_FACTOR: Final = 5.0
_INTERVAL_FACTOR: Final = 4.0
_SWITCH_WAITS_S: Final = (0.0, HOUR_S)
_RESERVE_AGES_S: Final = (6 * HOUR_S, 3 * DAY_S, 14 * DAY_S, 30 * DAY_S)
# The first jobs of each partition for which backfill holds nodes; with more of them nothing was gained.
_RESERVE_FIRST: Final = 1
_RESERVATIONS: Final = ("bf_min_age_reserve_s", "bf_job_part_count_reserve")
# Policies, and the same with open gangs on the fewest nodes.
_PINNED: Final = {"slurm": "pin", "lift": "lift-pin", "lift-forecast": "lift:run-times=forecast,pin=yes"}


class Family(StrEnum):
    """What a setting changes, compared with Slurm as it is."""

    PLAIN = "plain"
    LIFT = "lift"
    PIN = "pin"
    CEILING = "ceiling"  # lifts that know the true run times, which no site has
    SLURM = "slurm"
    BOTH = "both"


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingLine:
    """A line of sadvise.toml or slurm.conf."""

    file: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedSetting:
    """A setting to try, and the lines that put it into effect."""

    name: str
    family: Family
    policy: str
    cluster: Cluster
    options: SimulationOptions
    lines: tuple[SettingLine, ...] = ()
    preset: Preset | None = None

    @property
    def can_be_set(self) -> bool:
        """Whether a site can put it into effect."""
        return self.family is not Family.CEILING


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmChange:
    """One parameter of slurm.conf with another value: `field` of `SlurmParameters`."""

    name: str
    field: str
    value: Any
    line: SettingLine


def plain_setting(cluster: Cluster, options: SimulationOptions) -> TriedSetting:
    """Return Slurm as it is, which all others are compared with."""
    return TriedSetting(name=PLAIN, family=Family.PLAIN, policy="slurm", cluster=cluster, options=options)


def lift_settings(cluster: Cluster, options: SimulationOptions, *, with_ceilings: bool = True) -> list[TriedSetting]:
    """Return the lifts over fairness and decades, also those that know the true run times with ceilings."""
    in_force = options.planning.priority_decades
    decades = sorted({*DECADES, in_force})
    settings = [_lift(cluster, options, "site", None)]
    settings += [_lift(cluster, options, "trade", count) for count in decades]
    settings += [_lift(cluster, options, scope, None) for scope in _SCOPES]

    def informed(policy: str) -> list[TriedSetting]:
        return [
            _lift(cluster, options, "site", None, policy),
            _lift(cluster, options, "trade", in_force, policy),
            _lift(cluster, options, "lane", None, policy),
        ]

    settings += informed("lift-forecast")
    if not with_ceilings:
        return settings
    settings += informed("lift-oracle")
    settings += [_lift(cluster, options, scope, None, "lift-oracle") for scope in _SCOPES if scope != "lane"]
    return settings


def pin_settings(base: TriedSetting, trace: Trace) -> tuple[list[TriedSetting], list[str]]:
    """Return a setting with open gangs on the fewest nodes, if the trace has any; and why it is left out."""
    jobs = trace.jobs
    if not np.any((jobs["gpus"] > 1) & (jobs["nodes_max"] == 0)):
        return [], ["pin_gangs: no gang of the trace leaves its node count open"]
    is_plain = base.family is Family.PLAIN
    pinned = replace(
        base,
        name="pin" if is_plain else f"{base.name}, pin",
        family=Family.PIN if is_plain else Family.BOTH,
        policy=_PINNED[base.policy],
        lines=(*base.lines, SettingLine(file="sadvise_site.lua", text="pin_gangs = true")),
        preset=Preset.FREE if is_plain else base.preset,
    )
    return [pinned], []


def joined_settings(base: TriedSetting, trace: Trace, changes: Sequence[SlurmChange]) -> list[TriedSetting]:
    """Return the pins or the lifts of a preset together with reservations, and lifts with pins.

    `changes` are those of slurm.conf that are tried; those of reservations count here.
    """
    reservations = [change for change in changes if change.field in _RESERVATIONS]
    pinned = pin_settings(base, trace)[0] if base.family is Family.LIFT else []
    return [*pinned, *(setting for one in (base, *pinned) for setting in slurm_settings(one, reservations))]


def slurm_settings(base: TriedSetting, changes: Sequence[SlurmChange]) -> list[TriedSetting]:
    """Return a setting with each change of slurm.conf, one at a time."""
    is_plain = base.family is Family.PLAIN
    return [
        replace(
            base,
            name=change.name if is_plain else f"{base.name}, {change.name}",
            family=Family.SLURM if is_plain else Family.BOTH,
            preset=Preset.GENTLE if base.preset is Preset.FREE else base.preset,
            cluster=replace(base.cluster, slurm=replace(base.cluster.slurm, **{change.field: change.value})),
            lines=(*base.lines, change.line),
        )
        for change in changes
    ]


def slurm_changes(trace: Trace, cluster: Cluster) -> tuple[list[SlurmChange], list[str]]:
    """Return the changes of slurm.conf that can matter to a trace, and why others are left out."""
    changes = [*_weights(cluster), *_scheduler_words(cluster)]
    left_out: list[str] = []
    for made, reason in (_window(trace, cluster), _switch_waits(trace, cluster), _soft_limits(trace, cluster)):
        changes += made
        left_out += [reason] if reason else []
    return changes, left_out


def name_in_force(options: SimulationOptions, *, applies: bool, forecasts: bool) -> str:
    """Return the name of the setting by which a site runs now: plain Slurm unless its daemon `applies` changes."""
    if not applies:
        return PLAIN
    fairness = options.limits.fairness
    decades = options.planning.priority_decades if fairness == "trade" else None
    return _lift_name(policy_in_force(fairness, forecasts=forecasts), fairness, decades)


def policy_in_force(fairness: Fairness, *, forecasts: bool) -> str:
    """Return the policy of the lifts of a daemon at a fairness, by whether forecasts are enabled."""
    return "lift-forecast" if forecasts and fairness in ("site", "trade", "lane") else "lift"


def _lift_name(policy: str, fairness: Fairness, decades: float | None) -> str:
    return " ".join([policy, fairness, *([] if decades is None else [f"{decades:g}"])])


def _lift(
    cluster: Cluster, options: SimulationOptions, fairness: Fairness, decades: float | None, policy: str = "lift"
) -> TriedSetting:
    """Return the lifts of one fairness under a policy; without `decades` they do not count."""
    planning = options.planning if decades is None else replace(options.planning, priority_decades=decades)
    knows = policy == "lift-oracle"
    texts = [f'[guard] fairness = "{fairness}"']
    if decades is not None:
        texts.append(f"[planning] priority_decades = {decades:.1f}")
    texts.append(f"[forecasts] enabled = {'false' if policy == 'lift' else 'true'}")
    return TriedSetting(
        name=_lift_name(policy, fairness, decades),
        family=Family.CEILING if knows else Family.LIFT,
        policy=policy,
        cluster=cluster,
        options=replace(options, planning=planning, limits=replace(options.limits, fairness=fairness)),
        lines=() if knows else tuple(SettingLine(file="sadvise.toml", text=text) for text in texts),
        preset=None if knows else PRESETS.get(fairness),
    )


def _weights(cluster: Cluster) -> Iterator[SlurmChange]:
    """Yield other weights of fair share and age, where the site gives them any."""
    for field, name in (
        ("priority_weight_fairshare", "PriorityWeightFairshare"),
        ("priority_weight_age", "PriorityWeightAge"),
    ):
        weight = getattr(cluster.slurm, field)
        for scale in _SCALES if weight > 0.0 else ():
            value = float(round(weight * scale))
            line = SettingLine(file="slurm.conf", text=f"{name}={value:.0f}")
            yield SlurmChange(name=f"{name} x{scale:g}", field=field, value=value, line=line)


def _scheduler_words(cluster: Cluster) -> Iterator[SlurmChange]:
    """Yield another depth, resolution and interval of backfill, and fewer jobs that hold nodes in it."""
    slurm = cluster.slurm
    for factor in _DEPTH_FACTORS:
        yield _word("bf_max_job_test", "bf_max_job_test", max(1, round(slurm.bf_max_job_test * factor)))
    yield _word("bf_resolution_s", "bf_resolution", slurm.bf_resolution_s * _RESOLUTION_FACTOR)
    yield _word("bf_interval_s", "bf_interval", slurm.bf_interval_s * _INTERVAL_FACTOR)
    for age_s in _RESERVE_AGES_S:
        if age_s != slurm.bf_min_age_reserve_s:
            yield _word("bf_min_age_reserve_s", "bf_min_age_reserve", age_s, spelled=f"{age_s:.0f}")
    if slurm.bf_job_part_count_reserve != _RESERVE_FIRST:
        yield _word("bf_job_part_count_reserve", "bf_job_part_count_reserve", _RESERVE_FIRST)


def _window(trace: Trace, cluster: Cluster) -> tuple[list[SlurmChange], str]:
    """Return a window of backfill as long as the longest time limit, if the site's is shorter."""
    limits_s = trace.jobs["time_limit_s"]
    longest_s = float(limits_s[np.isfinite(limits_s)].max(initial=0.0))
    window_s = min(math.ceil(longest_s / HOUR_S) * HOUR_S, _LONGEST_WINDOW_S)
    if window_s <= cluster.slurm.bf_window_s:
        return [], "bf_window: already as long as the longest time limit of the trace"
    change = _word("bf_window_s", "bf_window", window_s, spelled=f"{window_s / MINUTE_S:.0f}")
    return [change], ""


def _switch_waits(trace: Trace, cluster: Cluster) -> tuple[list[SlurmChange], str]:
    """Return other bounds on how long jobs can wait for few leaf switches, if any asks for that."""
    if not np.any(trace.jobs["switches"] > 0):
        return [], "max_switch_wait: no job of the trace asks for --switches"
    waits_s = (wait_s for wait_s in _SWITCH_WAITS_S if wait_s != cluster.slurm.max_switch_wait_s)
    return [_word("max_switch_wait_s", "max_switch_wait", wait_s) for wait_s in waits_s], ""


def _soft_limits(trace: Trace, cluster: Cluster) -> tuple[list[SlurmChange], str]:
    """Return soft limits switched on or off, if any job has one."""
    if not np.any(trace.jobs["time_min_s"] > 0.0):
        return [], "time_min_as_soft_limit: no job of the trace has a --time-min"
    is_on = cluster.slurm.time_min_as_soft_limit
    word = "time_min_as_soft_limit"
    name = f"without {word}" if is_on else word
    line = SettingLine(file="slurm.conf", text=f"SchedulerParameters {name}" if is_on else _added(word))
    return [SlurmChange(name=name, field=word, value=not is_on, line=line)], ""


def _word(field: str, word: str, value: float, *, spelled: str = "") -> SlurmChange:
    """Return the change of one word of SchedulerParameters."""
    setting = f"{word}={spelled or f'{value:g}'}"
    return SlurmChange(
        name=setting, field=field, value=value, line=SettingLine(file="slurm.conf", text=_added(setting))
    )


def _added(word: str) -> str:
    """Return the line of slurm.conf with one more word."""
    return f"SchedulerParameters=...,{word}"
