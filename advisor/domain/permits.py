"""Defines what the guard allows a plan to change."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Permits:
    """The jobs of one cycle that can be changed, and by how much they can be delayed.

    `left_alone` maps pending GPU jobs that must not be changed to the rule that refuses. `nice_only` names those
    among them whose nice can be changed all the same, and nothing else. `delay_left_s` maps jobs to how much longer
    they can be delayed, where that is less than the full bound. `late_s` maps the jobs that can be lifted to how long
    they have waited since they would have started as submitted.
    """

    left_alone: Mapping[int, str] = field(default_factory=dict)
    nice_only: frozenset[int] = frozenset()
    delay_left_s: Mapping[int, float] = field(default_factory=dict)
    late_s: Mapping[int, float] = field(default_factory=dict)
