"""Scores the options of each lever by rule, where there is no learned policy."""

from collections.abc import Callable, Mapping
from typing import Final

from advisor.domain.actions import Lever
from advisor.features.policy import Options, Scores

Columns = Mapping[str, Scores]


def marginal_gain(columns: Columns) -> Scores:
    """Return the speed that each GPU of a step to a larger size adds."""
    return columns["gain_per_gpu"]


SCORERS: Final[Mapping[Lever, Callable[[Columns], Scores]]] = {Lever.GPU_COUNT: marginal_gain}


def by_rule(options: Options) -> Scores:
    """Return the score of each option by the rule of its lever."""
    return SCORERS[options.lever](options.columns)
