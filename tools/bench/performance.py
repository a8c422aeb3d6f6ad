"""CPU time of the performance model: one adaptation to a site by the number of samples, and opening the model.

    python -m tools.bench performance [--samples 100 1000 5000] [--users 40]

The samples are drawn: jobs of the models and GPU types of the measured prior, some of them beside others. Jobs of one
user and model share an error of the forecast. Times are those of all threads; ratios are those of one run.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Final

import numpy as np

from advisor.fit.performance_fit import SitePrior, Samples, adapted
from advisor.fit.performance_graph import performance_exported
from advisor.predict.onnx_model import TensorGraph
from advisor.predict.performance import KIND, Parameters, PerformanceModel
from tools.measured_prior import measured_prior

REPEATS: Final = 3
SIZES: Final = (100, 1000, 5000)
USERS: Final = 40
NOISE: Final = 0.1


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--samples", type=int, nargs="+", default=SIZES, help="numbers of ended jobs")
    parser.add_argument("--users", type=int, default=USERS, help="users of the jobs, default %(default)s")


def run(options: argparse.Namespace) -> int:
    """Measure and print."""
    prior = measured_prior()
    print(f"{len(prior.models)} models, {len(prior.gpu_types)} GPU types, {options.users} users")
    print(f"prior built: {1e3 * cpu_s(measured_prior):.0f} ms")
    first_s = 0.0
    for count in options.samples:
        samples = drawn(prior, count, options.users)
        spent_s = cpu_s(partial(adapted, prior, samples, seed=0))
        first_s = first_s or spent_s
        print(f"adaptation to {count:6,} samples: {1e3 * spent_s:7.0f} ms, {spent_s / first_s:5.1f} times the first")
    exported = performance_exported(adapted(prior, samples, seed=0), seed=0)
    parameters = Parameters.model_validate_json(exported.parameters)

    def opened() -> PerformanceModel:
        return PerformanceModel(TensorGraph(exported.graph, name=KIND), parameters)

    model = opened()
    for name, work in (("opened", opened), ("tabulated", model.tabulated)):
        spent_s = cpu_s(work)
        print(f"{name:9} {1e3 * spent_s:7.1f} ms, {spent_s / first_s:5.2f} times the first adaptation")
    print(f"the graph has {len(exported.graph):,} bytes")
    return 0


def cpu_s(work: Callable[[], object]) -> float:
    """Return the median CPU time of a call, once it has run before."""
    work()
    taken = []
    for _ in range(REPEATS):
        began = time.process_time()
        work()
        taken.append(time.process_time() - began)
    return float(np.median(taken))


def drawn(prior: SitePrior, count: int, users: int) -> Samples:
    """Return samples of a site whose effects are those of the prior, beside up to two others."""
    rng = np.random.default_rng(0)
    known = len(prior.models)
    model, gpu_type = rng.integers(known, size=count), rng.integers(len(prior.gpu_types), size=count)
    others = np.zeros((count, known + 1))
    for _ in range(2):
        others[np.arange(count), rng.integers(known + 1, size=count)] += rng.integers(2, size=count)
    place = np.where(rng.random(count) < 0.5, 0.0, rng.uniform(0.0, 1.0, count))
    beside = np.log1p((others * prior.floored[model]).sum(axis=1))
    return Samples(
        model=model,
        gpu_type=gpu_type,
        place=place,
        others=others,
        log_speed=prior.log_speed[model, gpu_type] - place - beside + NOISE * rng.standard_normal(count),
        noise=np.full(count, NOISE),
        family=rng.integers(users, size=count) * known + model,
    )
