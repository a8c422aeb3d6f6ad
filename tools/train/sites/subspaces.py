"""Counts what was tried at a site, by what sends from the same servers and where, and says what else is worth a try.

Yang et al. (IEEE TCC 2023) explore "combinatorial subspaces where the performance model may be inaccurate", and publish
no more than that. Signatures, score, and the test for shifts are our own interpretation.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from advisor.features.observe.graph import Floats

MOST_SIGNATURES: Final = 4096
# The part of a mean that one more residual leaves as it was.
KEPT: Final = 0.9
# Weight of a low count beside those of disagreement and residual.
COUNT_WEIGHT: Final = 0.5
# Model classes that a signature names; further ones are counted.
_MOST_NAMED: Final = 6
# Page-Hinkley: the rise of the mean that is tolerated, and the sum of what is above it that counts as a shift.
# Residuals are absolute and in standard deviations, about 0.8 in the mean where the model is right, and capped.
DELTA: Final = 0.25
THRESHOLD: Final = 15.0
LARGEST_RESIDUAL: Final = 5.0
# Residuals whose mean is the standard against which later ones are held.
FIRST_RESIDUALS: Final = 16

SHARES: Final = ("quarter", "half", "part", "whole")


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """The combination that a placement tries: what sends from the most loaded server, and the kind of place.

    `classes` are model classes, that of the gang among them; `share` is the gang's share of the GPUs of that server.
    """

    classes: tuple[str, ...]
    span: str
    share: str
    gpu_type: str

    @property
    def text(self) -> str:
        """The key under which it is counted: `bert+gpt2|one leaf|half|a100`."""
        named = sorted(_word(name) for name in self.classes)
        more = [f"{len(named) - _MOST_NAMED} more"] if len(named) > _MOST_NAMED else []
        return "|".join(["+".join(named[:_MOST_NAMED] + more), self.span, self.share, _word(self.gpu_type)])


def span_of(servers: int, leaves: int) -> str:
    """Return the span of a gang on some servers under some leaf switches."""
    if servers <= 1:
        return "one server"
    return "one leaf" if leaves <= 1 else "several leaves"


def share_of(gpus: int, of_server: int) -> str:
    """Return the class of a gang's share of the GPUs of a server."""
    ratio = gpus / max(of_server, 1)
    if ratio >= 1.0:
        return "whole"
    return "quarter" if ratio <= 0.25 else "half" if ratio <= 0.5 else "part"


def _word(name: str) -> str:
    return name.replace("|", " ").replace("+", " ").strip() or "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class PageHinkley:
    """The test of Page and Hinkley for a rise of the mean of residuals."""

    count: int = 0
    mean: float = 0.0
    rise: float = 0.0
    least: float = 0.0

    def updated(self, residual: float) -> "PageHinkley":
        """Return the test after one more residual."""
        count = self.count + 1
        mean = self.mean + (residual - self.mean) / count
        rise = self.rise + residual - mean - DELTA
        return PageHinkley(count=count, mean=mean, rise=rise, least=min(self.least, rise))

    @property
    def has_shifted(self) -> bool:
        """Whether the mean has risen."""
        return self.rise - self.least > THRESHOLD


@dataclass(frozen=True, slots=True, kw_only=True)
class TryAllowance:
    """How much a try is worth now: all at first and after a shift, less as residuals fall below the first ones."""

    test: PageHinkley = field(default_factory=PageHinkley)
    first: float = 0.0
    recent: float = 0.0

    def updated(self, residual: float) -> "TryAllowance":
        """Return the allowance after one more absolute residual, in standard deviations; a shift renews it."""
        size = min(abs(residual), LARGEST_RESIDUAL)
        test = self.test.updated(size)
        if test.has_shifted:
            return TryAllowance()
        is_early = test.count <= FIRST_RESIDUALS
        recent = size if test.count == 1 else KEPT * self.recent + (1.0 - KEPT) * size
        return TryAllowance(test=test, first=test.mean if is_early else self.first, recent=recent)

    @property
    def kappa(self) -> float:
        """The weight of what a try can teach, from 0 to 1."""
        if self.test.count <= FIRST_RESIDUALS or self.first <= 0.0:
            return 1.0
        return min(1.0, self.recent / self.first)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subspace:
    """What is known of one signature: how often it was seen, and the mean of its squared residuals."""

    count: int = 0
    squared: float = 0.0

    def updated(self, residual: float) -> "Subspace":
        """Return it after one more residual, in standard deviations."""
        size = min(abs(residual), LARGEST_RESIDUAL) ** 2
        return Subspace(
            count=self.count + 1, squared=size if not self.count else KEPT * self.squared + (1.0 - KEPT) * size
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Subspaces:
    """What was seen of each signature, `total` placements in all, and how much a try is worth now."""

    seen: Mapping[str, Subspace] = field(default_factory=dict)
    total: int = 0
    allowance: TryAllowance = field(default_factory=TryAllowance)

    def updated(self, signature: str, residual: float) -> "Subspaces":
        """Return them after one more placement; beyond the bound, the signature seen least often is dropped."""
        if not math.isfinite(residual):
            return self
        seen = {**self.seen, signature: self.of(signature).updated(residual)}
        if len(seen) > MOST_SIGNATURES:
            del seen[min((name for name in seen if name != signature), key=lambda name: (seen[name].count, name))]
        return Subspaces(seen=seen, total=self.total + 1, allowance=self.allowance.updated(residual))

    def of(self, signature: str) -> Subspace:
        """Return what was seen of a signature."""
        return self.seen.get(signature, Subspace())

    def utilities(self, signatures: Sequence[str], disagreement: Floats) -> Floats:
        """Return what a try of each signature can teach, `(n,)`; `disagreement` `(n,)` are variances of log speeds.

        A signature that was never seen counts with the mean residual of the others.
        """
        here = [self.of(signature) for signature in signatures]
        counts = np.array([one.count for one in here], np.float64)
        squared = np.array([one.squared for one in here], np.float64)
        known = counts > 0
        residual = np.where(known, squared, squared[known].mean() if known.any() else 0.0)
        rare = np.sqrt(np.log(max(self.total, 1)) / (1.0 + counts))
        utility: Floats = _standardised(disagreement) + _standardised(residual) + COUNT_WEIGHT * rare
        return utility


def _standardised(values: Floats) -> Floats:
    """Return values less their mean, in their standard deviations; zeros where they are all alike."""
    spread = float(values.std()) if len(values) else 0.0
    return (values - values.mean()) / spread if spread > 1e-12 else np.zeros(len(values))
