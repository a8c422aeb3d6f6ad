"""Forecasts the step times of one job on other placements, from its observed speeds or its model's measurements."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from advisor.predict.correction import columns_of, regress
from advisor.predict.intervals import Intervals
from advisor.predict.scaling import SCALE, Law, Prior, Vector, Work, learn, log_step, shape_of
from advisor.predict.throughput_knowledge import Belief, Calibration, Knowledge, believe

# Without repetitions of a placement its scatter is taken to be this, in log step time.
USUAL_NOISE = 0.06
# The largest stated deviation of a log step time with which a row still counts as known.
LARGEST_DEVIATION = 0.35
# Deviation of the log step for each doubling of GPUs or nodes beyond those that were seen.
PER_DOUBLING = 0.1
# Of a normal distribution, the 90 % quantile in deviations.
NORMAL = 1.2816
_SCALE_DEVIATION = 1.0
_FEW = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class JobForecaster:
    """The forecaster of one job, after its measured points.

    `gpus` and `nodes` are the most that it, or others on its network, showed; `seen_gpus` and `seen_nodes` it alone.
    """

    law: Law
    weights: Vector
    noise: float
    calibration: Calibration
    reference: float
    batch: tuple[float, float]
    gpus: float
    nodes: float
    seen_gpus: float
    seen_nodes: float
    is_grounded: bool

    def step_s(self, work: Work) -> Intervals:
        """Return the step time in seconds; the batches of `work` count in samples per GPU."""
        scaled = _scaled(work, self.reference)
        shape = shape_of(scaled)
        scatter = np.hypot(self.noise, self._stretch(work))
        tails = _tails(lambda theta: log_step(theta, scaled, shape), self.law, scatter)
        return self._intervals(self._log_step(scaled), tails, self._supports(work))

    def _log_step(self, scaled: Work) -> Vector:
        columns = columns_of(scaled, self.batch[0] / self.reference, self.batch[1] / self.reference)
        return np.asarray(log_step(self.law.theta, scaled) + columns @ self.weights, dtype=np.float64)

    def _intervals(self, median: Vector, tails: tuple[Vector, Vector], is_supported: NDArray[np.bool_]) -> Intervals:
        # Beyond this nothing is known, and the exponential would overflow.
        low = np.maximum(self.calibration.low * tails[0], -30.0)
        high = np.minimum(self.calibration.high * tails[1], 30.0)
        median = np.clip(median, -200.0, 200.0)
        return Intervals(
            low=np.exp(median + low),
            median=np.exp(median),
            high=np.exp(median + high),
            # Half of an interval as wide as that of a normal distribution of the largest deviation.
            known=is_supported & (high - low <= 2.0 * NORMAL * LARGEST_DEVIATION),
        )

    def _stretch(self, work: Work) -> Vector:
        """Return the scatter to add beyond the measured sizes of the job, where the law is less accurate."""
        gpus = np.maximum(np.log2(work.gpus / self.seen_gpus), 0.0)
        nodes = np.maximum(np.log2(work.nodes / self.seen_nodes), 0.0)
        return np.asarray(PER_DOUBLING * np.hypot(gpus, nodes), dtype=np.float64)

    def _supports(self, work: Work) -> NDArray[np.bool_]:
        within = (work.gpus <= self.gpus) & (work.nodes <= self.nodes)
        within &= (work.batch >= 0.5 * self.batch[0]) & (work.batch <= 2.0 * self.batch[1])
        return within & self.is_grounded


def adapt(knowledge: Knowledge, work: Work, step_s: Vector, *, model: str | None, cluster: str | None) -> JobForecaster:
    """Return the forecaster of a job from its own points, which can be none, and the prior."""
    belief = believe(knowledge, model, cluster)
    profile = belief.profile
    if not len(work):
        if profile is not None and belief.is_same_cluster:
            law, calibration = profile.law(), knowledge.profiled
        else:
            law, calibration = _as_law(belief.prior), knowledge.unseen
        weights = np.zeros_like(regress(columns_of(work, 1.0, 2.0), np.zeros(0)))
        if profile is not None:
            weights = np.array(profile.weights)
        noise = USUAL_NOISE if profile is None else profile.noise
        batch = (1.0, 1.0) if profile is None else profile.batch
        return JobForecaster(
            law=law, weights=weights, noise=noise, calibration=calibration, batch=batch, gpus=belief.gpus,
            nodes=belief.nodes, is_grounded=belief.is_same_cluster,
            reference=1.0 if profile is None else profile.reference,
            seen_gpus=belief.gpus if profile is None else profile.gpus,
            seen_nodes=belief.nodes if profile is None else profile.nodes,
        )  # fmt: skip
    lowest, highest = float(work.batch.min()), float(work.batch.max())
    reference = reference_batch(work)
    if profile is not None:
        # The columns of its correction and the units of its law are those of the profile.
        (lowest, highest), reference = profile.batch, profile.reference
    law, weights, noise = taught(belief, work, step_s, reference, (lowest, highest))
    return JobForecaster(
        law=law,
        weights=weights,
        noise=noise,
        calibration=knowledge.adapted if work.nodes.max() > 1 else knowledge.one_node,
        reference=reference,
        batch=(lowest, highest),
        gpus=max(belief.gpus, float(work.gpus.max())),
        nodes=max(belief.nodes, float(work.nodes.max())),
        seen_gpus=max(0.0 if profile is None else profile.gpus, float(work.gpus.max())),
        seen_nodes=max(0.0 if profile is None else profile.nodes, float(work.nodes.max())),
        is_grounded=True,
    )


def reference_batch(work: Work) -> float:
    """Return the smallest batch within one node, or of all where none is."""
    alone = work.nodes == 1
    return float(work.batch[alone].min() if alone.any() else work.batch.min())


def taught(
    belief: Belief, work: Work, step_s: Vector, reference: float, batch: tuple[float, float]
) -> tuple[Law, Vector, float]:
    """Return the law, the weights of the correction and the scatter around both that points teach."""
    scaled, log_steps = _scaled(work, reference), np.log(step_s)
    before = None
    mean, deviation = belief.prior.mean.copy(), belief.prior.deviation.copy()
    if belief.profile is not None:
        before = np.array(belief.profile.weights)
    mean[SCALE] += np.median(log_steps - log_step(mean, scaled))
    deviation[SCALE] = _SCALE_DEVIATION
    law = learn(scaled, log_steps, Prior(mean=mean, deviation=deviation))
    columns = columns_of(scaled, batch[0] / reference, batch[1] / reference)
    left_over = log_steps - log_step(law.theta, scaled)
    weights = regress(columns, left_over, before)
    off = left_over - columns @ weights
    # Rows that the usual scatter counts for, so that few points that happen to fit do not count as certainty.
    noise = float(np.sqrt((np.sum(off**2) + _FEW * USUAL_NOISE**2) / (len(off) + _FEW)))
    return law, weights, noise


def _scaled(work: Work, reference: float) -> Work:
    return Work(
        gpus=work.gpus, nodes=work.nodes, least=work.least, most=work.most, batch=np.asarray(work.batch / reference)
    )


def _as_law(prior: Prior) -> Law:
    return Law(theta=prior.mean, covariance=np.diag(prior.deviation**2))


def _tails(answer: Callable[[Vector], Vector], law: Law, scatter: Vector) -> tuple[Vector, Vector]:
    """Return one deviation downwards and one upwards, `(n_rows,)` each, `scatter` `(n_rows,)` in both.

    The law is moved along each axis of its covariance to the end of the 80 % interval there: a volume that is not
    known costs little where it is small and much where it is large, which no slope at the middle would tell.
    """
    centre = answer(law.theta)
    sizes, axes = np.linalg.eigh(law.covariance)
    moves = NORMAL * axes * np.sqrt(np.maximum(sizes, 0.0))
    down, up = scatter**2, scatter**2
    for move in moves.T:
        one, other = answer(law.theta + move) - centre, answer(law.theta - move) - centre
        down = down + np.minimum(np.minimum(one, other), 0.0) ** 2 / NORMAL**2
        up = up + np.maximum(np.maximum(one, other), 0.0) ** 2 / NORMAL**2
    return np.sqrt(down), np.sqrt(up)
