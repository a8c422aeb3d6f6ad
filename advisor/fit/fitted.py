"""What a fit hands to publishing."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One file that was fitted on."""

    name: str
    sha256: str
    rows: int


def source_of(name: str, content: bytes, rows: int) -> Source:
    """Return the source of a file's content."""
    return Source(name=name, sha256=hashlib.sha256(content).hexdigest(), rows=rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """A fitted predictor: regressors whose outputs stand side by side, what goes beside them, and how it came about.

    `probe` `(n_rows, n_columns)` float32 are real rows, held out from the fit where there are enough, on which the
    graph has to agree with scikit-learn. `metrics` maps what was measured on held-out rows to its value; `text` says
    in words what it is good for and what not.
    """

    kind: str
    columns: tuple[str, ...]
    outputs: tuple[str, ...]
    regressors: tuple[Any, ...]
    parameters: str
    probe: NDArray[np.float32]
    sources: tuple[Source, ...]
    metrics: Mapping[str, float]
    seed: int
    text: str
    settings: Mapping[str, str] = field(default_factory=dict)
