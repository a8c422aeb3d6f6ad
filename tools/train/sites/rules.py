"""The rule that teaches: it weighs what the performance model says of each place."""

from advisor.features.observe.least_loss import least_loss
from advisor.features.observe.pointer import best_fit
from tools.train.places.parts import Decision


def cheapest_action(decision: Decision) -> int | None:
    """Return the action of `least_loss`; a gang that has waited for as long as it can takes the servers of best fit."""
    server = least_loss(decision.choice)
    return best_fit(decision.choice) if server is None and not decision.can_wait else server
