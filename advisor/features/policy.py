"""Defines policies, which score the legal choices that the planner enumerates."""

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from advisor.domain.actions import Lever
from advisor.domain.dataclass import dataclass
from advisor.errors import ModelError

if TYPE_CHECKING:
    from advisor.features.observe.known_models import KnownModels

Scores = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The legal choices of one decision, one row each; forbidden ones are not included.

    `columns` are the numbers behind the choices, `(n_options,)` each; `job_id` is whose they are. Where a policy looks
    at more than its options, `tensors` holds that by name, and `place` is the index of each option's score in
    its output. With `must_choose` one of the options is taken.
    """

    lever: Lever
    job_id: NDArray[np.int64]  # (n_options,)
    columns: Mapping[str, NDArray[np.float64]]
    tensors: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)
    place: NDArray[np.intp] | None = None  # (n_options,)
    must_choose: bool = False

    def __len__(self) -> int:
        return len(self.job_id)

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

    def act(self, options: Options) -> Scores:
        """Return a score for each option; raises `ModelError` on failure."""


@runtime_checkable
class KnowsSite(Protocol):
    """A policy that was adapted to a site, and brings what it believes of its models."""

    @property
    def models(self) -> "KnownModels | None":
        """The models that it knows, with what they add to each other; None for those in use at the site."""


def models_of(policy: object, in_use: "KnownModels | None") -> "KnownModels | None":
    """Return the models that a policy is shown: its own where it brings any, else those in use, None for none."""
    if policy is None or not isinstance(policy, KnowsSite) or policy.models is None:
        return in_use
    return policy.models


def best_of(scores: Scores) -> int | None:
    """Return the option with the highest score, the first among equals; None if it is 0 or below."""
    best = int(scores.argmax())
    return best if scores[best] > 0.0 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredDecision:
    """One decision that a policy scored, as needed to repeat it without the policy.

    Where one option was to be chosen of `options`, `scores` is the score of the `best` alone: a cycle can hold hundreds
    of decisions. Else `best` and `options` are None, and `scores` is that of each option.
    """

    lever: Lever
    scores: tuple[float, ...]
    best: int | None = None
    options: int | None = None

    def __post_init__(self) -> None:
        if self.best is not None and (len(self.scores) != 1 or not 0 <= self.best < (self.options or 0)):
            raise ValueError("the best option of a decision is none of its options")

    def __len__(self) -> int:
        return len(self.scores) if self.options is None else self.options

    @classmethod
    def of_best(cls, options: Options, scores: Scores) -> "ScoredDecision":
        """Return a decision for the option with the highest score, or for none of them."""
        best = int(scores.argmax())
        return cls(lever=options.lever, scores=(float(scores[best]),), best=best, options=len(options))

    @property
    def chosen(self) -> int | None:
        """The option with the highest score; None if that is 0 or below, as no option was chosen."""
        if max(self.scores, default=0.0) <= 0.0:
            return None
        return int(np.argmax(self.scores)) if self.best is None else self.best

    def repeated(self) -> Scores:
        """Return scores that lead to the same choice, `(n_options,)`."""
        if self.best is None:
            return np.array(self.scores)
        (highest,) = self.scores
        scores = np.full(len(self), min(highest, 0.0) - 1.0)
        scores[self.best] = highest
        return scores


@dataclass(slots=True)
class Decider:
    """Asks a policy for as long as it answers as it should; keeps what was scored. Without one the rules decide."""

    policy: Policy | None = None
    decisions: list[ScoredDecision] = field(default_factory=list)
    fault: str = ""

    def decides(self, lever: Lever) -> bool:
        """Return whether there is a policy that scores the options of a lever, and has not failed."""
        return self.policy is not None and lever in self.policy.levers and not self.fault

    def best(self, options: Options) -> int | None:
        """Return the option to choose; None for none of them, and where the policy fails, which sets `fault`."""
        if self.policy is None or not len(options):
            return None
        try:
            scores = _checked(self.policy, options)
        except ModelError as err:
            self.fault = str(err)
            return None
        self.decisions.append(ScoredDecision.of_best(options, scores))
        return best_of(scores)


def _checked(policy: Policy, options: Options) -> Scores:
    scores = policy.act(options)
    if scores.shape != (len(options),) or not np.isfinite(scores).all():
        raise ModelError(f"policy {policy.name}: it does not score each option by a finite number")
    return scores


class RefusedPolicy:
    """A policy that could not be opened: the rules decide, and the record says why."""

    digest = ""
    levers = frozenset(Lever)

    def __init__(self, name: str, fault: str) -> None:
        """Take its name and what is wrong with it."""
        self.name = name
        self._fault = fault

    def act(self, _options: Options) -> Scores:
        """Raise `ModelError` with the fault."""
        raise ModelError(self._fault)


class RecordedPolicy:
    """A policy that returns the scores of a recorded cycle in order, so that a replay needs no model."""

    name = "recorded"
    digest = ""

    def __init__(self, decisions: Sequence[ScoredDecision]) -> None:
        self._left = list(decisions)
        self.levers = frozenset(decision.lever for decision in decisions)

    def act(self, options: Options) -> Scores:
        """Return the next scores; raises `ModelError` where none is left, as the policy failed there."""
        if not self._left:
            raise ModelError("policy recorded: nothing more was scored")
        decision = self._left.pop(0)
        if decision.lever is not options.lever or len(decision) != len(options):
            raise ModelError("policy recorded: another decision was scored")
        return decision.repeated()
