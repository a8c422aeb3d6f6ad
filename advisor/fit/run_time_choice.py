"""Chooses between the forests of a site's fit and those that ship, by the jobs that were kept aside from the fit."""

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from advisor.domain.dataclass import dataclass
from advisor.domain.probation import NO_ORDER, Coverage, OrderProof, Proof
from advisor.domain.units import HOUR_S
from advisor.predict.order_share import WaitedJobs, order_proof
from advisor.predict.run_time_curve import AdaptiveLevels, Curves, are_inside, quantiles_and_mean
from advisor.predict.run_time_features import LEVELS, Features

Floats = NDArray[np.float64]
# Draws the curves of feature rows, given the logarithms of their time limits in seconds.
Draw = Callable[[Features, Floats], Curves]

# The prefixes of the figures of the fit and of the model that it is compared with.
OURS: Final = "held_out"
RIVAL: Final = "held_out_shipped"
_DIFFERENCE: Final = "held_out_loss_difference"
_LIMIT: Final = "held_out_limit_ordered"
_USERS: Final = "held_out_order_users"


@dataclass(frozen=True, slots=True, kw_only=True)
class ForestChoice:
    """Which forests to serve, why in plain words, and what the jobs kept aside show of them; None without any."""

    ours: bool
    reason: str
    tested: Proof | None


def figures(
    drawn: Mapping[str, Curves], group: NDArray[np.int64], run_s: Floats, waited: WaitedJobs, limit_s: Floats
) -> dict[str, float]:
    """Return the figures of each model on jobs that ran for `run_s` `(n_rows,)` seconds, at most for `limit_s`.

    `loss` is the pinball loss of log10 of seconds, the mean over levels and bursts. The difference between both models
    has a standard error over bursts. `ordered` is the share of the GPU-time that the mean of the model, or the limit,
    puts in the right order; `order_gain` is by how much the model's is larger, the mean over users.
    """
    burst = np.unique(waited.burst, return_inverse=True)[1]
    count, losses = np.bincount(burst), []
    found = {f"{OURS}_rows": float(len(run_s)), f"{OURS}_bursts": float(len(count))}
    for name, curves in drawn.items():
        quantiles_s, mean_s = quantiles_and_mean(curves, AdaptiveLevels(0.0, 0.0), group, np.zeros(len(run_s)))
        inside = are_inside(run_s, quantiles_s)
        losses.append(np.bincount(burst, _pinball(run_s, quantiles_s)) / count)
        found |= {
            f"{name}_coverage": float(np.mean(inside)),
            f"{name}_coverage_by_burst": float(np.mean(np.bincount(burst, inside) / count)),
            f"{name}_median_error_h": float(np.mean(np.abs(run_s - quantiles_s[:, 2]))) / HOUR_S,
            f"{name}_loss": float(np.mean(losses[-1])),
        }
        order = order_proof(waited, run_s, mean_s, limit_s)
        if order is not NO_ORDER:
            found |= {
                f"{name}_ordered": order.ordered_ratio,
                f"{name}_order_gain": order.gain_ratio,
                f"{name}_order_gain_error": order.error_ratio,
                _LIMIT: order.limit_ratio,
                _USERS: float(order.users),
            }
    if RIVAL in drawn and len(count) > 1:
        difference = losses[0] - losses[1]
        found |= {
            _DIFFERENCE: float(np.mean(difference)),
            f"{_DIFFERENCE}_error": float(np.std(difference, ddof=1) / np.sqrt(len(count))),
        }
    return found


def chosen(found: Mapping[str, float], rival: str) -> ForestChoice:
    """Choose by the figures of a fit; `rival` is the version of the model that ships.

    The forests of the fit are served where their loss is lower by more than its standard error.
    """
    if _DIFFERENCE not in found:
        reason = f"forests of {rival}: too few jobs could be kept aside to judge forests of this site"
        return ForestChoice(ours=False, reason=reason, tested=proof(found, RIVAL))
    ours = found[_DIFFERENCE] < -found[f"{_DIFFERENCE}_error"]
    name = OURS if ours else RIVAL
    reason = (
        f"forests of {'this site' if ours else rival}: on {found[f'{OURS}_rows']:,.0f} jobs kept aside, "
        f"{found[f'{OURS}_bursts']:,.0f} bursts, those of this site have a loss of {found[f'{OURS}_loss']:.3f}, those "
        f"of {rival} of {found[f'{RIVAL}_loss']:.3f} (difference {found[_DIFFERENCE]:+.3f}, standard error "
        f"{found[f'{_DIFFERENCE}_error']:.3f})"
    )
    return ForestChoice(ours=ours, reason=f"{reason}; {_order_words(found, rival)}", tested=proof(found, name))


def _order_words(found: Mapping[str, float], rival: str) -> str:
    """Say how well the forests and the limits order the jobs that were kept aside."""
    if _LIMIT not in found:
        return "hardly any of these jobs waited together, so that no order of them is known"
    ours, theirs, limit = (100.0 * found[name] for name in (f"{OURS}_ordered", f"{RIVAL}_ordered", _LIMIT))
    return (
        f"of the GPU-time in question those of this site order {ours:.1f} % right, those of {rival} {theirs:.1f} %, "
        f"time limits {limit:.1f} %"
    )


def proof(found: Mapping[str, float], name: str) -> Proof | None:
    """Return what the jobs that were kept aside show of a model; None if none were."""
    if f"{name}_coverage" not in found:
        return None
    jobs = round(found[f"{OURS}_rows"])
    coverage = Coverage(jobs=jobs, inside=round(jobs * found[f"{name}_coverage"]))
    if _LIMIT not in found:
        return Proof(coverage=coverage, order=NO_ORDER)
    order = OrderProof(
        jobs=jobs,
        users=round(found[_USERS]),
        ordered_ratio=found[f"{name}_ordered"],
        limit_ratio=found[_LIMIT],
        gain_ratio=found[f"{name}_order_gain"],
        error_ratio=found[f"{name}_order_gain_error"],
    )
    return Proof(coverage=coverage, order=order)


def _pinball(run_s: Floats, quantiles_s: Floats) -> Floats:
    """Return the pinball loss of log10 of seconds of each job, the mean over levels."""
    error = np.log10(run_s)[:, None] - np.log10(np.maximum(quantiles_s, 1.0))
    levels = np.array(LEVELS)
    return np.asarray(np.mean(np.maximum(levels * error, (levels - 1.0) * error), axis=1))
