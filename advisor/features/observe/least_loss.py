"""Weighs the places that a gang could take by what it and others would lose there, as a performance model says.

For each GPU type, and faster ones, the gang would take the servers of best fit. The rule takes the type with the least
loss, or waits for a better place for at most as long as that would surely save.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Final

import numpy as np

from advisor.domain.actions import Lever
from advisor.domain.dataclass import dataclass
from advisor.features.observe.graph import Flags, Floats32
from advisor.features.observe.known_models import OUTLOOK_COLUMNS
from advisor.features.observe.pointer import CHOICE_COLUMNS, AgentView, Choice, Gang, best_fit, choose_all
from advisor.features.policy import Decider, Options

LOSS_COLUMNS: Final = ("loss", "is_planned", "overdue")
SEEN_COLUMNS: Final = OUTLOOK_COLUMNS + LOSS_COLUMNS
# A gang that surely loses less than this share of its run time takes what is free.
LEAST_LOSS: Final = 0.05
# A loss is sure by the lower end of how far a GPU type is behind the best one, this many standard deviations.
SURE: Final = 1.0
_LARGEST_LOSS: Final = 10.0
_LARGEST_LOG: Final = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedPlace:
    """One way to place a gang: its servers, and what it and others lose, in run times of the gang.

    `sure_loss` is what they lose if the gang is faster there than expected by `SURE` standard deviations.
    """

    servers: tuple[int, ...]
    loss: float
    sure_loss: float


def planned_places(choice: Choice) -> Iterator[PlannedPlace]:
    """Yield the ways to place a gang that has chosen no server, from all GPU types to the fastest alone."""
    outlook, gang = choice.outlook, choice.gang
    if outlook is None:
        return
    behind = outlook.behind_best
    surely = np.where(behind < 0.0, np.minimum(behind + SURE * outlook.unsure, 0.0), 0.0)
    best = 1.0 if gang.fewest_nodes == 1 else gang.leaf_inflation
    for least in np.unique(np.round(behind[choice.usable > 0], 6)):
        keeps = behind >= least - 1e-5
        if not _holds(choice, keeps):
            continue
        tried = _within(choice, keeps)
        if not choose_all(tried):
            continue
        servers = tried.chosen
        leaves = len(np.unique(choice.leaf[servers]))
        place = 1.0 if len(servers) == 1 else gang.leaf_inflation if leaves == 1 else gang.spine_inflation
        slows_me = float(choice.interference.slows_me[servers].max()) if len(servers) > 1 else 0.0
        factor = max(place / best, 1.0) * (1.0 + slows_me)
        others = float(outlook.slows_by_time[servers].sum()) if len(servers) > 1 else 0.0
        loss, sure_loss = (float(np.exp(-log[servers].min())) * factor - 1.0 + others for log in (behind, surely))
        yield PlannedPlace(servers=tuple(servers), loss=loss, sure_loss=sure_loss)


def worth_waiting_s(places: Sequence[PlannedPlace], gang: Gang) -> float:
    """Return for how long a gang waits for a better place than those: what it surely loses, 0 if that is little."""
    sure = min(one.sure_loss for one in places)
    return sure * gang.run_s if sure > LEAST_LOSS else 0.0


def least_loss(choice: Choice, *, can_wait: bool = True) -> int | None:
    """Return the next server by the rule, None to wait if it can, or where the gang does not fit."""
    if choice.outlook is None or not choice.legal.any():
        return best_fit(choice)
    if choice.chosen:
        behind = choice.outlook.behind_best
        keeps = behind >= behind[choice.chosen].min() - 1e-9
        return best_fit(_within(choice, keeps)) if _holds(choice, keeps) else best_fit(choice)
    places = sorted(planned_places(choice), key=lambda one: (one.loss, one.servers))
    if not places:
        return best_fit(choice)
    is_patient = can_wait and choice.gang.wait_s < worth_waiting_s(places, choice.gang)
    return None if is_patient else places[0].servers[0]


def seen_columns(choice: Choice) -> Floats32:
    """Return what a performance model says of each server as the next choice, `(n_servers, len(SEEN_COLUMNS))`.

    `loss` is the logarithm of 1 and the loss of the best plan with the server, `is_planned` marks the servers of the
    plan with the least loss, and `overdue` compares how long the gang has waited with how long that is worth.
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
            worth_s = worth_waiting_s(places, gang)
            overdue = float(np.clip(np.log((gang.wait_s + 60.0) / (worth_s + 60.0)), -_LARGEST_LOG, _LARGEST_LOG))
    own = np.stack([np.log1p(losses), is_planned, np.full(count, overdue)], axis=1)
    return np.concatenate([choice.outlook.columns(choice.chosen), own], axis=1).astype(np.float32)


def _holds(choice: Choice, keeps: Flags) -> bool:
    legal = choice.legal & keeps
    return int(choice.usable[legal].sum()) >= choice.rest


def _within(choice: Choice, keeps: Flags) -> Choice:
    """Return a copy of a choice that is restricted to some servers."""
    usable = np.where(keeps, choice.usable, 0)
    return replace(choice, usable=usable, chosen=list(choice.chosen), taken=list(choice.taken))


class ScoredChooser:
    """One agent, which owns all servers that it is shown; `view_now` is called once, and only if it chooses."""

    def __init__(self, decider: Decider, view_now: Callable[[], AgentView], job_id: int = 0) -> None:
        """Take what scores, and the job that is to start."""
        self._decider, self._view_now, self._job_id = decider, view_now, job_id

    def next_server(self, choice: Choice) -> int | None:
        """Return the next server; None to leave the gang to Slurm, where it would rather wait."""
        legal = np.flatnonzero(choice.legal)
        if not len(legal):
            return None
        best = None if self._has_failed() else self._decider.best(self._options(choice, legal))
        if self._has_failed():
            return best_fit(choice)
        return None if best is None else int(legal[best])

    def _has_failed(self) -> bool:
        return bool(self._decider.fault)

    @cached_property
    def _view(self) -> AgentView:
        return self._view_now()

    def _options(self, choice: Choice, legal: np.ndarray) -> Options:
        view, seen = self._view, choice.columns()
        names: tuple[str, ...] = CHOICE_COLUMNS
        graph = view.graph
        tensors = {
            "slots": graph.slots,
            "servers": graph.servers,
            "member": graph.member,
            "leaves": graph.leaves,
            "choice": seen,
            "gang": choice.gang_columns(view.neighbours),
            "own": view.report,
            "others": view.report[None],
        }
        if choice.outlook is not None:
            tensors["outlook"] = seen_columns(choice)
            names, seen = names + SEEN_COLUMNS, np.concatenate([seen, tensors["outlook"]], axis=1)
        return Options(
            lever=Lever.NODE_LIST,
            job_id=np.full(len(legal), self._job_id),
            columns={name: seen[legal, place].astype(np.float64) for place, name in enumerate(names)},
            tensors=tensors,
            place=legal,
            must_choose=bool(choice.chosen),
        )
