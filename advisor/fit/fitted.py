"""Values that a fit passes on to publishing."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.domain.probation import Proof

# A fitted model of scikit-learn, which has no types.
Regressor = Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A file that a model was fitted on."""

    name: str
    sha256: str
    rows: int


def source_of(name: str, content: bytes, rows: int) -> Source:
    """Return the source that describes a file with this content."""
    return Source(name=name, sha256=hashlib.sha256(content).hexdigest(), rows=rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """A fitted predictor: its regressors, the parameters beside them, and a record of the fit.

    `outputs` names the columns that all regressors give together, in order. The graph must agree with scikit-learn on
    `probe` `(n_rows, n_columns)` float32: real rows, held out from the fit where there are enough. `metrics` maps
    names of figures to their values on held-out rows. `text` describes uses and limits of the model. `tested` is
    what held-out jobs of this site show of it; None for data of another one, or if nothing was held out.
    `reason` says why this model is served in place of another, "" where there was no choice.
    """

    kind: str
    columns: tuple[str, ...]
    outputs: tuple[str, ...]
    regressors: tuple[Regressor, ...]
    parameters: str
    probe: NDArray[np.float32]
    sources: tuple[Source, ...]
    metrics: Mapping[str, float]
    seed: int
    text: str
    settings: Mapping[str, str] = field(default_factory=dict)
    tested: Proof | None = None
    reason: str = ""
