"""The rules as a policy: how each lever's options are scored where no learned policy is."""

from collections.abc import Callable, Mapping
from typing import Final

from advisor.domain.actions import Lever
from advisor.features.board import Board
from advisor.features.policy import Options, Policy, Scores

Columns = Mapping[str, Scores]


def weighted_saving(columns: Columns) -> Scores:
    """Return what a step back saves, each job's time weighted by how long it has waited (Smith's rule)."""
    return columns["work"] * columns["helped_weight"] - columns["weight"] * columns["passed_work"]


def marginal_gain(columns: Columns) -> Scores:
    """Return the speed that each GPU of a step to a larger size adds."""
    return columns["gain_per_gpu"]


SCORERS: Final[Mapping[Lever, Callable[[Columns], Scores]]] = {
    Lever.NICE: weighted_saving,
    Lever.GPU_COUNT: marginal_gain,
}


class Rules:
    """The rule of each lever; it takes any board and remembers nothing."""

    name = "rules"
    levers = frozenset(SCORERS)

    def act(self, _board: Board, options: Options, state: bytes) -> tuple[Scores, bytes]:
        """Return the score of each option."""
        return SCORERS[options.lever](options.columns), state


RULES: Final[Policy] = Rules()
