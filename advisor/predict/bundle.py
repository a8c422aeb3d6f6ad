"""A model as served: its graph, its parameters, and the columns it was fitted for."""

from dataclasses import dataclass

from advisor.domain.probation import Coverage
from advisor.predict.onnx_model import OnnxModel


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """A checked model: its digests and its fingerprint were right.

    `parameters` is the JSON text that the predictor of this kind wrote at the fit and reads itself: quantile
    corrections, supports, tables. It never holds code. `tested` is how the intervals held on jobs of this site
    that were kept aside from the fit; None where none were.
    """

    kind: str
    version: str
    columns: tuple[str, ...]
    outputs: tuple[str, ...]
    model: OnnxModel
    parameters: str
    tested: Coverage | None = None
