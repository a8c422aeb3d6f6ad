"""Defines policies, which score the legal choices that the planner enumerates."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from advisor.domain.actions import Lever
from advisor.errors import ModelError
from advisor.features.board import Board

Scores = NDArray[np.float64]
NO_STATE: Final = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The legal choices of one decision, one row each; forbidden ones are not included.

    `columns` are the numbers behind the choices, `(n_options,)` each. `job` indexes the rows of the board.
    """

    lever: Lever
    job: NDArray[np.intp]  # (n_options,)
    columns: Mapping[str, NDArray[np.float64]]

    def __len__(self) -> int:
        return len(self.job)

    def features(self) -> NDArray[np.float32]:
        """Return the columns side by side `(n_options, n_columns)`."""
        return np.stack([self.columns[name] for name in self.columns], axis=1).astype(np.float32)


class Policy(Protocol):
    """Scores options; the best above 0 is chosen, none if all are 0 or below."""

    @property
    def name(self) -> str:
        """The policy's name."""

    def act(self, board: Board, options: Options, state: bytes) -> tuple[Scores, bytes]:
        """Return a score for each option, and the new state; raises `ModelError` on failure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredDecision:
    """One decision that a policy scored, as needed to repeat it without the policy."""

    lever: Lever
    scores: tuple[float, ...]
    state: bytes = NO_STATE


@dataclass(slots=True)
class Decider:
    """Scores with a policy until it fails once, and with a fallback from then on; records the scores."""

    policy: Policy
    fallback: Policy
    decisions: list[ScoredDecision] = field(default_factory=list)
    fault: str = ""
    _state: bytes = NO_STATE

    def best(self, board: Board, options: Options) -> int | None:
        """Return the index of the option to choose; None for none."""
        if not len(options):
            return None
        scores = self._scores(board, options)
        best = int(scores.argmax())
        return best if scores[best] > 0.0 else None

    def _scores(self, board: Board, options: Options) -> Scores:
        if self.policy is not self.fallback and not self.fault:
            try:
                scores, self._state = self._checked(board, options)
            except ModelError as err:
                self.fault = str(err)
            else:
                kept = tuple(map(float, scores))
                self.decisions.append(ScoredDecision(lever=options.lever, scores=kept, state=self._state))
                return scores
        return self.fallback.act(board, options, NO_STATE)[0]

    def _checked(self, board: Board, options: Options) -> tuple[Scores, bytes]:
        scores, state = self.policy.act(board, options, self._state)
        if scores.shape != (len(options),) or not np.isfinite(scores).all():
            raise ModelError(f"policy {self.policy.name}: it does not score each option by a finite number")
        return scores, state


class RecordedPolicy:
    """A policy that returns the scores of a recorded cycle in order, so that a replay needs no model."""

    name = "recorded"

    def __init__(self, decisions: Sequence[ScoredDecision]) -> None:
        self._left = list(decisions)

    def act(self, _board: Board, options: Options, _state: bytes) -> tuple[Scores, bytes]:
        """Return the next scores; raises `ModelError` if none is left, since the policy failed there."""
        if not self._left:
            raise ModelError("policy recorded: nothing more was scored")
        decision = self._left.pop(0)
        if decision.lever is not options.lever or len(decision.scores) != len(options):
            raise ModelError("policy recorded: another decision was scored")
        return np.array(decision.scores), decision.state
