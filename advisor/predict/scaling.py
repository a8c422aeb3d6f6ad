"""Defines the scaling law of training steps by batch, GPUs and nodes, with twelve parameters, and fits it to points.

Computing is a floor and a part in proportion to the batch, `(floor^p + (slope * batch)^p)^(1/p)`; communication is the
ring term `2 (g - 1) / g` within a node and, between nodes, a volume times a power law of nodes, GPUs per node and
unevenness; the two overlap as `(computing^q + communication^q)^(1/q)`. The forms of computing and overlap are those of
Pollux (Qiao and others, OSDI 2021); that two nodes stand apart from three and more was found in its measurements.
"""

import numpy as np
from numpy.typing import NDArray

from advisor.domain.dataclass import dataclass
from advisor.features.columns import Columns

Vector = NDArray[np.float64]

# The largest deviation of a log speed with which a row still counts as known: an interval of a factor of 2.5.
LARGEST_DEVIATION = 0.35
# Of a normal distribution, the 90 % quantile in deviations.
NORMAL = 1.2816
_SCALE_DEVIATION = 1.0

# All but the first are ratios or exponents, so that they carry over from model to model.
PARAMETERS = (
    "scale",  # log of the step of one GPU at the reference batch, seconds
    "floor",  # log odds of the part of it that a smaller batch does not shorten
    "bend",  # log of the exponent p
    "crowding",  # log of what each doubling of the GPUs on a node adds to computing
    "overlap",  # log of the exponent q
    "volume",  # log of the communication of two GPUs on two nodes, in steps at the reference batch
    "volume_inside",  # the same within a node
    "beyond_two",  # log of what three nodes take, over what two take
    "by_nodes",  # exponent of the nodes beyond three
    "by_pack",  # exponent of the GPUs per node
    "by_pack_of_two",  # the same, further, on exactly two nodes
    "by_unevenness",  # exponent of the most GPUs on a node over the least
)
SCALE, FLOOR, BEND, CROWDING, OVERLAP, VOLUME, INSIDE, SHAPE = range(8)
COUNT = len(PARAMETERS)
_NOTHING = -60.0  # the log of a communication time that is none
_STEP = 1e-4
_LEAST_ERROR = 0.08  # measured: steps of one placement scatter by 4 to 9 %
_ROBUST = 2.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Work(Columns):
    """Placements and batches, all arrays `(n_rows,)`; `batch` is per GPU, in units of the reference batch."""

    gpus: Vector
    nodes: Vector
    least: Vector
    most: Vector
    batch: Vector


@dataclass(frozen=True, slots=True, kw_only=True)
class Prior:
    """The prior of the twelve numbers of the law: `(12,)` each."""

    mean: Vector
    deviation: Vector


@dataclass(frozen=True, slots=True, kw_only=True)
class Law:
    """The twelve numbers `(12,)` and their covariance `(12, 12)`."""

    theta: Vector
    covariance: Vector


# Where nothing at all was measured. The volume is our guess: nearer to InfiniBand than to a cloud, and as wide as both.
DEFAULT = Prior(
    mean=np.array([0.0, 0.0, 0.35, -4.0, 0.7, -1.5, -2.5, 0.0, 0.15, 0.2, 0.0, 0.05]),
    deviation=np.array([2.0, 2.0, 0.4, 1.0, 0.25, 2.0, 1.5, 0.4, 0.3, 0.2, 0.2, 0.15]),
)


def shape_of(work: Work) -> Vector:
    """Return the factors of the last five numbers of the law: `(n_rows, 5)`, zero within a node."""
    pack = np.log2(work.gpus / work.nodes)
    columns = np.column_stack(
        [
            work.nodes > 2,
            np.log2(np.maximum(work.nodes, 3.0) / 3.0),
            pack,
            np.where(work.nodes == 2, pack, 0.0),
            np.log2(work.most / work.least),
        ]
    )
    return np.asarray(columns * (work.nodes > 1)[:, None], dtype=np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The parts of a step, each as a log in steps at the reference batch, `(n_rows,)`; `overlap` is the exponent."""

    computing: Vector
    inside: Vector
    between: Vector
    overlap: Vector

    def total(self, volume: Vector | float = 0.0, inside: Vector | float = 0.0) -> Vector:
        """Return the log of the step, in steps at the reference batch.

        `volume` adds to the log of what is sent between nodes, `inside` to that within a node.
        """
        sending = np.logaddexp(self.inside + inside, self.between + volume)
        return np.asarray(np.logaddexp(self.overlap * self.computing, self.overlap * sending) / self.overlap)


def parts_of(theta: Vector, work: Work, shape: Vector | None = None) -> Parts:
    """Return the parts of each step; `theta` is `(12,)`, or `(n_rows, 12)` for jobs of many kinds."""
    t = theta.T[:, None] if theta.ndim == 1 else theta.T
    shape = shape_of(work) if shape is None else shape
    computing = computing_of(t[FLOOR], np.exp(t[BEND]), work) + np.log1p(np.exp(t[CROWDING]) * np.log2(work.most))
    ring = np.log(np.maximum(2.0 * (work.most - 1.0) / work.most, 1e-9))
    between = t[VOLUME] + np.einsum("ij,ij->i", shape, np.broadcast_to(t[SHAPE:].T, shape.shape))
    # Hierarchical: the sum over the GPUs of a node, then over the nodes.
    return Parts(
        computing=np.asarray(computing, dtype=np.float64),
        inside=np.where(work.most > 1, t[INSIDE] + ring, _NOTHING),
        between=np.where(work.nodes > 1, between, _NOTHING),
        overlap=np.exp(t[OVERLAP]),
    )


def computing_of(floor: Vector, bend: Vector, work: Work) -> Vector:
    """Return the log of the computing of one GPU, in steps at the reference batch; `bend` is the exponent itself."""
    # Log of the floor's share and of the rest; together they make one step at the reference batch.
    fixed, growing = -np.logaddexp(0.0, -floor), -np.logaddexp(0.0, floor)
    return np.asarray(np.logaddexp(fixed, growing + bend * np.log(work.batch)) / bend, dtype=np.float64)


def log_step(theta: Vector, work: Work, shape: Vector | None = None) -> Vector:
    """Return the log of the step time, seconds; `theta` is `(12,)`, or `(n_rows, 12)` for jobs of many kinds."""
    scale = theta[SCALE] if theta.ndim == 1 else theta[:, SCALE]
    return np.asarray(scale + parts_of(theta, work, shape).total(), dtype=np.float64)


def slopes(theta: Vector, work: Work) -> Vector:
    """Return the derivatives of the log step by the twelve numbers, `(n_rows, 12)`."""
    shape = shape_of(work)
    centre = log_step(theta, work, shape)
    moved = theta + _STEP * np.eye(COUNT)
    return np.column_stack([(log_step(moved_theta, work, shape) - centre) / _STEP for moved_theta in moved])


def learn(work: Work, log_steps: Vector, prior: Prior, *, rounds: int = 25) -> Law:
    """Return the most likely law given points, by damped Gauss-Newton steps that weigh outliers down.

    Without points it is the prior itself.
    """
    theta, damping = prior.mean.copy(), 1e-2
    precision = 1.0 / prior.deviation**2
    cost = _cost(theta, work, log_steps, prior)
    curvature = np.diag(precision)
    for _ in range(rounds if len(work) else 0):
        jacobian = slopes(theta, work)
        off = log_steps - log_step(theta, work)
        weight = np.minimum(1.0, _ROBUST * _LEAST_ERROR / np.maximum(np.abs(off), 1e-12)) / _LEAST_ERROR**2
        curvature = (jacobian * weight[:, None]).T @ jacobian + np.diag(precision)
        downhill = jacobian.T @ (weight * off) - (theta - prior.mean) * precision
        for _ in range(8):
            tried = theta + np.linalg.solve(curvature + damping * np.diag(np.diag(curvature)), downhill)
            new_cost = _cost(tried, work, log_steps, prior)
            if new_cost < cost:
                break
            damping *= 4.0
        else:
            break
        gained, theta, cost = cost - new_cost, tried, new_cost
        damping = max(damping / 5.0, 1e-7)
        if gained < 1e-4:
            break
    return Law(theta=theta, covariance=np.asarray(np.linalg.inv(curvature), dtype=np.float64))


def _cost(theta: Vector, work: Work, log_steps: Vector, prior: Prior) -> float:
    off = np.abs(log_steps - log_step(theta, work)) / _LEAST_ERROR
    misfit = np.where(off < _ROBUST, off**2, 2.0 * _ROBUST * off - _ROBUST**2).sum()
    cost = float(misfit + (((theta - prior.mean) / prior.deviation) ** 2).sum())
    return cost if np.isfinite(cost) else np.inf


def reference_batch(work: Work) -> float:
    """Return the smallest batch within one node, or of all where none is."""
    alone = work.nodes == 1
    return float(work.batch[alone].min() if alone.any() else work.batch.min())


def taught(prior: Prior, work: Work, step_s: Vector, reference: float) -> Law:
    """Return the law that points teach; the batches of `work` are per GPU, those of the law in units of `reference`."""
    scaled = Work(gpus=work.gpus, nodes=work.nodes, least=work.least, most=work.most, batch=work.batch / reference)
    log_steps = np.log(step_s)
    mean, deviation = prior.mean.copy(), prior.deviation.copy()
    mean[SCALE] += np.median(log_steps - log_step(mean, scaled))
    deviation[SCALE] = _SCALE_DEVIATION
    return learn(scaled, log_steps, Prior(mean=mean, deviation=deviation))
