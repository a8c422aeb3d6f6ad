"""A made-up cluster that obeys a scaling law, with scatter, for tests of the throughput predictor."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from advisor.fit.throughput_data import StepTimes
from advisor.predict.scaling import SCALE, VOLUME, Vector, Work, log_step

THETA = np.array([-1.0, 0.5, 0.3, -3.5, 0.6, 0.3, -2.5, -0.1, 0.15, 0.2, 0.1, 0.03])
PLACEMENTS = ("1", "2", "3", "4", "11", "22", "33", "44", "13", "111", "222", "444", "1111", "2222", "4444")
BATCHES = (8.0, 16.0, 32.0, 64.0)
MODELS = ("alpha", "beta", "gamma", "delta")


def theta_of(number: int, network: float = 0.0) -> Vector:
    """Return the law of a model; further ones are slower and send a little more; `network` adds to all volumes."""
    theta = THETA.copy()
    theta[SCALE] += 0.8 * number
    theta[VOLUME] += 0.15 * number + network
    return theta


def work(*placements: str, batch: float = 16.0) -> Work:
    """Return placements of one digit per node."""
    digits = [[int(digit) for digit in each] for each in placements]
    columns = ([f(each) for each in digits] for f in (sum, len, min, max))
    gpus, nodes, least, most = (np.array(each, dtype=np.float64) for each in columns)
    return Work(gpus=gpus, nodes=nodes, least=least, most=most, batch=np.full(len(placements), batch))


def steps(theta: Vector, placements: Work, reference: float = BATCHES[0]) -> Vector:
    """Return the true step times, seconds."""
    return np.exp(log_step(theta, replace(placements, batch=placements.batch / reference)))


def write_cluster(
    folder: Path, *, models: tuple[str, ...] = MODELS, network: float = 0.0, scatter: float = 0.02
) -> list[Path]:
    """Write one file per model, as Pollux publishes them."""
    folder.mkdir(parents=True)
    generator = np.random.default_rng(5)
    files = []
    for number, model in enumerate(models):
        lines = ["placement,local_bsz,step_time,sync_time"]
        for placement in PLACEMENTS:
            for batch in BATCHES:
                true = float(steps(theta_of(number, network), work(placement, batch=batch))[0])
                lines.append(f"{placement},{batch:g},{float(true * np.exp(scatter * generator.normal()))!r},0")
        files.append(folder / f"{model}-placements.csv")
        files[-1].write_text("\n".join(lines) + "\n")
    return files


def make_measured(**columns: Vector) -> StepTimes:
    """Return rows of one model, by default of one step on one GPU."""
    rows = len(next(iter(columns.values()))) if columns else 1
    one = np.ones(rows)
    names = ("gpus", "nodes", "least", "most", "batch", "batch_asked", "step_s")
    return StepTimes(
        model=np.array(["alpha"] * rows),
        cluster=np.array(["net_t4"] * rows),
        file=np.zeros(rows, dtype=np.int64),
        **{name: columns.get(name, one) for name in names},
    )
