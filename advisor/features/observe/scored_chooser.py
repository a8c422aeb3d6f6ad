"""Chooses the servers of gangs by the scores of a policy; where the policy fails, by the rule."""

from collections.abc import Callable
from functools import cached_property

import numpy as np

from advisor.domain.actions import Lever
from advisor.features.observe.least_loss import SEEN_COLUMNS, seen_columns
from advisor.features.observe.pointer import CHOICE_COLUMNS, AgentView, Choice, best_fit
from advisor.features.policy import Decider, Options


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
