"""Makes the site's configuration of Slurm's `Key=value` pairs, from slurm.conf or from `scontrol show config`.

slurm.conf leaves out what has its default, scontrol prints every value in its own spelling; both come to the same.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from advisor.backends.spelling import count, duration_s, names, optional_text, unreadable
from advisor.domain.releases import traits_of
from advisor.domain.site import SiteConfig
from advisor.domain.topology import TopologyKind
from advisor.errors import DecodeError

# Counted whatever the site asks for.
_ALWAYS_COUNTED: Final = ("billing", "cpu", "energy", "fs/disk", "mem", "node", "pages", "vmem")
# slurmctld adds these wherever GPUs are counted, without slurm.conf naming them; nothing here needs them.
_ADDED: Final = frozenset(("gres/gpumem", "gres/gpuutil"))
_SPELLED_OUT: Final[Mapping[str, str]] = {"memory": "mem"}
_WEIGHTS: Final[Mapping[str, str]] = {
    "age": "priorityweightage",
    "assoc": "priorityweightassoc",
    "fair_share": "priorityweightfairshare",
    "job_size": "priorityweightjobsize",
    "partition": "priorityweightpartition",
    "qos": "priorityweightqos",
}
_IMPLIED: Final[Mapping[str, tuple[str, ...]]] = {
    "1": ("associations",),
    "all": ("associations", "limits", "qos", "safe", "wckeys"),
    "limits": ("associations",),
    "qos": ("associations",),
    "safe": ("associations", "limits"),
    "wckeys": ("associations",),
    "nojobs": ("nosteps",),
}
# Settings that are kept by their names, and their defaults besides `_NONE`, as `_plain` spells them.
_FURTHER: Final[Mapping[str, frozenset[str]]] = {
    "BurstBufferType": frozenset(),
    "CompleteWait": frozenset({"0"}),
    "EnforcePartLimits": frozenset({"no"}),
    "FairShareDampeningFactor": frozenset({"1"}),
    "FederationParameters": frozenset(),
    "KillWait": frozenset({"30"}),
    "Licenses": frozenset(),
    "MessageTimeout": frozenset({"10"}),
    "OverTimeLimit": frozenset({"0"}),
    "PreemptExemptTime": frozenset({"00:00:00"}),
    "PreemptMode": frozenset({"OFF"}),
    "PreemptParameters": frozenset(),
    "PriorityUsageResetPeriod": frozenset(),
    "SelectType": frozenset({"select/cons_tres"}),
    "SuspendTime": frozenset({"infinite"}),
}
# slurm.conf has these as numbers, to which scontrol adds a unit.
_WITH_UNIT: Final = frozenset(("CompleteWait", "KillWait", "MessageTimeout", "OverTimeLimit", "SuspendTime"))
_ENDLESS: Final = frozenset(("infinite", "unlimited", "-1"))
_SAME: Final[Mapping[str, Mapping[str, str]]] = {"EnforcePartLimits": {"yes": "all"}}
_UNIT: Final = re.compile(r"(-?\d+) *(?:sec|min)s?", re.IGNORECASE)
_UNSET: Final = frozenset(("", "(null)", "none", "n/a"))
_NONE: Final = _UNSET | {"0"}
_FLAT: Final = ("", "topology/none", "topology/default")
_KINDS: Final[Mapping[str, TopologyKind]] = {
    "topology/flat": TopologyKind.FLAT,
    "topology/tree": TopologyKind.TREE,
    "topology/block": TopologyKind.BLOCK,
}
_MULTIFACTOR: Final = "priority/multifactor"


def config_lines(text: str) -> dict[str, str]:
    """Read `scontrol show config`, keys in small letters."""
    pairs = (line.partition(" = ") for line in text.splitlines())
    values = {key.strip().lower(): value.strip() for key, equals, value in pairs if equals}
    if "clustername" not in values or "slurm_version" not in values:
        raise DecodeError("scontrol show config names no ClusterName and no SLURM_VERSION: try again")
    return values


def site_config(raw: Mapping[str, str], *, version: str) -> SiteConfig:
    """Make the configuration from pairs whose keys are in small letters; a key that is absent has its default."""
    default_priority = traits_of(version).default_priority_type
    priority_type = _value(raw, "prioritytype") or default_priority
    is_multifactor = priority_type == _MULTIFACTOR
    topology = _value(raw, "topologyplugin").lower()
    return SiteConfig(
        cluster=_value(raw, "clustername").lower(),
        slurm_version=version,
        scheduler_type=_value(raw, "schedulertype") or "sched/backfill",
        scheduler_parameters=_parameters(_value(raw, "schedulerparameters")),
        select_parameters=_words(_value(raw, "selecttypeparameters") or "CR_CORE_MEMORY", upper=True),
        topology_plugin="topology/flat" if topology in _FLAT else topology,
        priority_type=priority_type,
        priority_weights={name: count(_value(raw, key) or "0", field=key) for name, key in _WEIGHTS.items()}
        if is_multifactor
        else {},
        priority_max_age_s=_duration(raw, "prioritymaxage", "7-0") if is_multifactor else None,
        priority_calc_period_s=_duration(raw, "prioritycalcperiod", "5") if is_multifactor else None,
        site_factor_plugin=_value(raw, "prioritysitefactorplugin").removesuffix("site_factor/none"),
        private_data=_words(_value(raw, "privatedata")),
        accounting_enforce=_enforced(_value(raw, "accountingstorageenforce")),
        accounting_tres=_counted(_value(raw, "accountingstoragetres")),
        preempt_type=_value(raw, "preempttype").removesuffix("preempt/none"),
        priority_flags=_words(_value(raw, "priorityflags"), upper=True),
        priority_favor_small=_value(raw, "priorityfavorsmall").lower() == "yes",
        priority_decay_half_life_s=_duration(raw, "prioritydecayhalflife", "7-0") if is_multifactor else None,
        tres_weights=_tres_weights(raw) if is_multifactor else {},
        further_settings=further_settings(raw),
    )


def further_settings(raw: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that are kept by their names and differ from their defaults; keys of `raw` are small."""
    values = {name: _plain(name, raw.get(name.lower(), "").strip()) for name in _FURTHER}
    return {name: value for name, value in values.items() if value and value not in _FURTHER[name]}


def _plain(name: str, text: str) -> str:
    """Spell a setting in the one way for all that mean the same, as a file and scontrol spell it; "" for none."""
    if text.lower() in _UNSET:
        return ""
    if name in _WITH_UNIT:
        number = _UNIT.fullmatch(text)
        text = number[1] if number else text
        if text.lower() in _ENDLESS:
            return "infinite"
        return (text.lstrip("0") or "0") if text.isdecimal() else text
    if name == "Licenses":
        return ",".join(sorted(names(text)))
    if name == "PreemptMode":
        return ",".join(sorted(names(text.upper())))
    lowered = ",".join(sorted(names(text.lower().removeprefix("burst_buffer/"))))
    return _SAME.get(name, {}).get(lowered, lowered)


def topology_kind(config: SiteConfig) -> TopologyKind:
    """Return what the topology plugin describes."""
    return _KINDS.get(config.topology_plugin, TopologyKind.OTHER)


def _value(raw: Mapping[str, str], key: str) -> str:
    value = optional_text(raw.get(key, "").strip())
    return "" if value.lower() in _NONE else value


def _words(text: str, *, upper: bool = False) -> tuple[str, ...]:
    return tuple(sorted({word.upper() if upper else word.lower() for word in names(text)}))


def _parameters(text: str) -> dict[str, str]:
    """Map each word of SchedulerParameters to its value, by word, so that their order does not matter."""
    pairs = (word.partition("=") for word in names(text))
    return dict(sorted((key.strip().lower(), value.strip()) for key, _, value in pairs))


def _tres_weights(raw: Mapping[str, str]) -> dict[str, float]:
    """Map each TRES of PriorityWeightTRES to its weight; a weight that is no number is left out."""
    pairs = (word.partition("=") for word in names(_value(raw, "priorityweighttres")))
    weights = {key.strip().lower(): value.strip() for key, _, value in pairs}
    return {key: float(value) for key, value in sorted(weights.items()) if value.isdecimal() and len(value) <= 9}


def _duration(raw: Mapping[str, str], key: str, default: str) -> float:
    given = raw.get(key, "").strip()
    text = default if given.lower() in _UNSET else given
    seconds = duration_s(text, field=key)
    if seconds is None:
        raise unreadable(key, text, "a duration")
    return seconds


def _enforced(text: str) -> tuple[str, ...]:
    words = _words(text)
    implied: Iterable[str] = (word for outer in words for word in _IMPLIED.get(outer, ()))
    return tuple(sorted({*words, *implied} - {"1", "all"}))


def _counted(text: str) -> tuple[str, ...]:
    words = (_SPELLED_OUT.get(word, word) for word in _words(text))
    return tuple(sorted({*_ALWAYS_COUNTED, *words} - _ADDED))
