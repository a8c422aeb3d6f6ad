"""The rule that teaches: it weighs what the performance model says of each place."""

from advisor.features.observe.least_loss import least_loss
from tools.train.places.parts import Decision


def cheapest_action(decision: Decision) -> int | None:
    """Return the action of `least_loss`."""
    return least_loss(decision.choice, can_wait=decision.can_wait)
