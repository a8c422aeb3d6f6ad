"""Rules for sites: the one that teaches, which weighs what the performance model says of each place."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np

from advisor.features.observe.graph import Flags
from advisor.features.observe.pointer import BestFit, Choice, best_fit, choose_all
from tools.train.places.parts import Decision

# A gang that loses less than this share of its run time takes what is free.
LEAST_LOSS: Final = 0.05
# How long a gang waits for a better place, in what the place would save.
PATIENCE: Final = 1.0


def cheapest(choice: Choice) -> int | None:
    """Return the server at which a gang and those beside it lose least, or wait for at most as long as that saves.

    Per GPU type, or faster ones, the gang would take the servers of best fit; the type with the least loss is taken.
    """
    outlook = choice.outlook
    if outlook is None or not choice.legal.any():
        return best_fit(choice)
    behind = outlook.behind_best
    if choice.chosen:
        keeps = behind >= behind[choice.chosen].min() - 1e-9
        return best_fit(_within(choice, keeps)) if _holds(choice, keeps) else best_fit(choice)
    options = [(loss, server) for loss, server in _options(choice)]
    if not options:
        return best_fit(choice)
    loss, server = min(options)
    gang = choice.gang
    if loss > LEAST_LOSS and gang.wait_s < PATIENCE * loss * gang.run_s:
        return None
    return server


def cheapest_action(decision: Decision) -> int | None:
    """Return the action of `cheapest`; a gang that has waited for as long as it can takes the servers of best fit."""
    server = cheapest(decision.choice)
    return best_fit(decision.choice) if server is None and not decision.can_wait else server


def _options(choice: Choice) -> Iterator[tuple[float, int]]:
    """Yield the loss and the first server of each way to place a gang, in its own run times."""
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
        yield factor - 1.0 + others, servers[0]


def _holds(choice: Choice, keeps: Flags) -> bool:
    legal = choice.legal & keeps
    return int(choice.usable[legal].sum()) >= choice.rest


def _within(choice: Choice, keeps: Flags) -> Choice:
    """Return a copy of a choice that is restricted to some servers."""
    usable = np.where(keeps, choice.usable, 0)
    return replace(choice, usable=usable, chosen=list(choice.chosen), taken=list(choice.taken))
