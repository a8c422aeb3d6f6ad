"""Weighs the places that a gang could take by what it and others would lose there, as a performance model says.

For each GPU type, and faster ones, the gang would take the servers of best fit. The rule takes the type with the least
loss, or waits for a better place for at most as long as that would save.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from advisor.features.observe.graph import Flags, Floats32
from advisor.features.observe.pointer import BestFit, Choice, best_fit, choose_all
from advisor.features.observe.site_speeds import OUTLOOK_COLUMNS

LOSS_COLUMNS: Final = ("loss", "is_planned", "overdue")
SEEN_COLUMNS: Final = OUTLOOK_COLUMNS + LOSS_COLUMNS
# A gang that loses less than this share of its run time takes what is free.
LEAST_LOSS: Final = 0.05
_LARGEST_LOSS: Final = 10.0
_LARGEST_LOG: Final = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedPlace:
    """One way to place a gang: its servers, and what it and others lose, in run times of the gang."""

    servers: tuple[int, ...]
    loss: float


def planned_places(choice: Choice) -> Iterator[PlannedPlace]:
    """Yield the ways to place a gang that has chosen no server, from all GPU types to the fastest alone."""
    outlook, gang = choice.outlook, choice.gang
    if outlook is None:
        return
    behind = outlook.behind_best
    best = 1.0 if gang.fewest_nodes == 1 else gang.leaf_inflation
    for least in np.unique(np.round(behind[choice.usable > 0], 6)):
        keeps = behind >= least - 1e-5
        if not _holds(choice, keeps):
            continue
        tried = _within(choice, keeps)
        if not choose_all(tried, BestFit()):
            continue
        servers = tried.chosen
        leaves = len(np.unique(choice.leaf[servers]))
        place = 1.0 if len(servers) == 1 else gang.leaf_inflation if leaves == 1 else gang.spine_inflation
        slows_me = float(choice.interference.slows_me[servers].max()) if len(servers) > 1 else 0.0
        factor = float(np.exp(-behind[servers].min())) * max(place / best, 1.0) * (1.0 + slows_me)
        others = float(outlook.slows_by_time[servers].sum()) if len(servers) > 1 else 0.0
        yield PlannedPlace(servers=tuple(servers), loss=factor - 1.0 + others)


def least_loss(choice: Choice) -> int | None:
    """Return the next server by the rule, None to wait, or where the gang does not fit."""
    if choice.outlook is None or not choice.legal.any():
        return best_fit(choice)
    if choice.chosen:
        behind = choice.outlook.behind_best
        keeps = behind >= behind[choice.chosen].min() - 1e-9
        return best_fit(_within(choice, keeps)) if _holds(choice, keeps) else best_fit(choice)
    planned = min(planned_places(choice), key=lambda one: (one.loss, one.servers), default=None)
    if planned is None:
        return best_fit(choice)
    gang = choice.gang
    is_patient = planned.loss > LEAST_LOSS and gang.wait_s < planned.loss * gang.run_s
    return None if is_patient else planned.servers[0]


def seen_columns(choice: Choice) -> Floats32:
    """Return what a performance model says of each server as the next choice, `(n_servers, len(SEEN_COLUMNS))`.

    `loss` is the logarithm of 1 and the loss of the best plan with the server, `is_planned` marks the servers of the
    plan with the least loss, and `overdue` compares how long the gang has waited with what that plan loses.
    """
    count = len(choice.usable)
    if choice.outlook is None:
        return np.zeros((count, len(SEEN_COLUMNS)), np.float32)
    losses, is_planned, overdue = np.full(count, _LARGEST_LOSS), np.zeros(count), 0.0
    gang = choice.gang
    if choice.chosen:
        following = least_loss(choice)
        if following is not None:
            losses[following], is_planned[following] = 0.0, 1.0
    else:
        places = sorted(planned_places(choice), key=lambda one: (one.loss, one.servers))
        for planned in reversed(places):
            losses[list(planned.servers)] = min(max(planned.loss, 0.0), _LARGEST_LOSS)
        if places:
            is_planned[list(places[0].servers)] = 1.0
            lost_s = max(places[0].loss, 0.0) * gang.run_s
            overdue = float(np.clip(np.log((gang.wait_s + 60.0) / (lost_s + 60.0)), -_LARGEST_LOG, _LARGEST_LOG))
    own = np.stack([np.log1p(losses), is_planned, np.full(count, overdue)], axis=1)
    return np.concatenate([choice.outlook.columns(choice.chosen), own], axis=1).astype(np.float32)


def _holds(choice: Choice, keeps: Flags) -> bool:
    legal = choice.legal & keeps
    return int(choice.usable[legal].sum()) >= choice.rest


def _within(choice: Choice, keeps: Flags) -> Choice:
    """Return a copy of a choice that is restricted to some servers."""
    usable = np.where(keeps, choice.usable, 0)
    return replace(choice, usable=usable, chosen=list(choice.chosen), taken=list(choice.taken))
