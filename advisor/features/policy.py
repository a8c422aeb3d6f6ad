"""Defines policies, which score the legal choices that the planner enumerates."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from advisor.domain.actions import Lever
from advisor.domain.memory import NO_STATE, PolicyState
from advisor.errors import ModelError
from advisor.features.board import Board

Scores = NDArray[np.float64]


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

    @property
    def digest(self) -> str:
        """The digest of its model, "" where it has none."""

    @property
    def levers(self) -> frozenset[Lever]:
        """The levers whose options it scores; those of the others are left to the rules."""

    def act(self, board: Board, options: Options, state: bytes) -> tuple[Scores, bytes]:
        """Return a score for each option, and the new state; raises `ModelError` on failure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredDecision:
    """One decision that a policy scored, as needed to repeat it without the policy."""

    lever: Lever
    scores: tuple[float, ...]


@dataclass(slots=True)
class Decider:
    """Asks a policy for as long as it answers as it should, and the rule from then on; keeps what was scored.

    `state` is what the policy remembers; that of another policy, or of one that failed, is dropped.
    """

    rule: Callable[[Options], Scores]
    policy: Policy | None = None
    state: PolicyState = NO_STATE
    decisions: list[ScoredDecision] = field(default_factory=list)
    fault: str = ""

    def __post_init__(self) -> None:
        if self.policy is None or (self.state.policy, self.state.digest) != (self.policy.name, self.policy.digest):
            self.state = NO_STATE

    def best(self, board: Callable[[], Board], options: Options) -> int | None:
        """Return the option to choose, None for none of them; the rule needs no board."""
        if not len(options):
            return None
        scores = self.scores(board, options)
        best = int(scores.argmax())
        return best if scores[best] > 0.0 else None

    def scores(self, board: Callable[[], Board], options: Options) -> Scores:
        """Return a score for each option, `(n_options,)`; one of 0 or below is not to be chosen."""
        if self.policy is not None and options.lever in self.policy.levers and not self.fault:
            try:
                scores = self._checked(self.policy, board(), options)
            except ModelError as err:
                self.fault, self.state = str(err), NO_STATE
            else:
                self.decisions.append(ScoredDecision(lever=options.lever, scores=tuple(map(float, scores))))
                return scores
        return self.rule(options)

    def _checked(self, policy: Policy, board: Board, options: Options) -> Scores:
        scores, content = policy.act(board, options, self.state.content)
        if scores.shape != (len(options),) or not np.isfinite(scores).all():
            raise ModelError(f"policy {policy.name}: it does not score each option by a finite number")
        self.state = PolicyState(policy=policy.name, digest=policy.digest, content=content) if content else NO_STATE
        return scores


class RecordedPolicy:
    """A policy that returns the scores of a recorded cycle in order, so that a replay needs no model."""

    name = "recorded"
    digest = ""

    def __init__(self, decisions: Sequence[ScoredDecision]) -> None:
        self._left = list(decisions)
        self.levers = frozenset(decision.lever for decision in decisions)

    def act(self, _board: Board, options: Options, state: bytes) -> tuple[Scores, bytes]:
        """Return the next scores; raises `ModelError` where none is left, as the policy failed there."""
        if not self._left:
            raise ModelError("policy recorded: nothing more was scored")
        decision = self._left.pop(0)
        if decision.lever is not options.lever or len(decision.scores) != len(options):
            raise ModelError("policy recorded: another decision was scored")
        return np.array(decision.scores), state
