"""Corrects a scaling law by a ridge regression of its residuals on few columns, smooth in the batch."""

import numpy as np

from advisor.predict.scaling import Vector, Work

KNOTS = 8
_PLACEMENT = 10
WEIGHTS = 2 * KNOTS + 4 * _PLACEMENT
# Noise over deviation of a weight, squared; chosen on held-out placements.
_RIDGE = 15.0


def columns_of(work: Work, lowest: float, highest: float) -> Vector:
    """Return the columns `(n_rows, WEIGHTS)`; beyond the batches of the fit, `lowest` to `highest`, they stay level."""
    width = max(np.log(highest / lowest), 1e-9)
    place = np.clip(np.log(work.batch / lowest) / width, 0.0, 1.0)
    hats = np.clip(1.0 - np.abs(place[:, None] * (KNOTS - 1) - np.arange(KNOTS)), 0.0, 1.0)
    alone = (work.nodes == 1).astype(np.float64)
    two, many = (work.nodes == 2).astype(np.float64), (work.nodes > 2).astype(np.float64)
    spread, pack, uneven = 1.0 - alone, np.log2(work.gpus / work.nodes), np.log2(work.most / work.least)
    placement = np.column_stack(
        [
            alone * np.log2(work.gpus),
            two,
            many,
            many * np.log2(np.maximum(work.nodes, 3.0) / 3.0),
            spread * pack,
            two * pack,
            spread * uneven,
            two * uneven,
            spread * (work.most == 1),
            spread * (work.least == 1),
        ]
    )
    tilt = (2.0 * place - 1.0)[:, None]
    return np.hstack(
        [hats, hats * alone[:, None], placement, placement * tilt, placement * tilt**2, placement * tilt**3]
    )


def regress(columns: Vector, left_over: Vector, before: Vector | None = None) -> Vector:
    """Return the weights `(WEIGHTS,)` that explain the residuals, shrunk towards `before`, or towards zero."""
    start = np.zeros(columns.shape[1]) if before is None else before
    if not len(columns):
        return start
    curvature = columns.T @ columns + _RIDGE * np.eye(columns.shape[1])
    return np.asarray(start + np.linalg.solve(curvature, columns.T @ (left_over - columns @ start)), dtype=np.float64)
