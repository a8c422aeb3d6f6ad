"""Learns the law of a job from points, with what is believed of its model and network as the prior."""

import numpy as np

from advisor.predict.scaling import SCALE, Law, Prior, Vector, Work, learn, log_step

# The largest deviation of a log speed with which a row still counts as known: an interval of a factor of 2.5.
LARGEST_DEVIATION = 0.35
# Of a normal distribution, the 90 % quantile in deviations.
NORMAL = 1.2816
_SCALE_DEVIATION = 1.0


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
