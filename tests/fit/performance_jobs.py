"""Ended jobs with known effects, and the performance model that ships, for tests of the adaptation to a site."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from advisor.fit.performance_fit import SitePrior, Spreads, adapted, no_samples
from advisor.fit.performance_graph import performance_exported
from advisor.fit.performance_samples import EndedJob
from advisor.fit.publish import publish_graph
from advisor.predict.library import Library
from advisor.predict.performance import KIND, PerformanceModel
from tests.builders import TAKEN_AT
from tests.predict.shelf import TODAY

MODELS = ("bert", "resnet50", "gpt2", "vgg16")
TYPES = ("a100", "h100", "v100")
SPEEDS = {"a100": 0.0, "h100": 0.4, "v100": -0.5}
DAY_S = 86_400.0


def shipped_prior() -> SitePrior:
    """Return a prior in which types differ as in `SPEEDS`, half as much, and neighbours add little."""
    columns = np.array([*(0.5 * SPEEDS[name] for name in TYPES), 0.0])
    added = np.full((len(MODELS) + 1, len(MODELS) + 1), 0.1)
    return SitePrior(
        models=MODELS,
        gpu_types=TYPES,
        log_speed=np.tile(columns, (len(MODELS) + 1, 1)),
        added=added,
        spreads=Spreads(),
    )


def opened(prior: SitePrior) -> PerformanceModel:
    """Return the model of a prior without any samples, as it would be served."""
    exported = performance_exported(adapted(prior, no_samples(len(prior.models)), seed=1), seed=1)
    return PerformanceModel.of(exported.graph, exported.parameters)


def ship(folder: Path) -> Library:
    """Publish the prior as the model that ships, in use, and return the library of a site without models."""
    prior = shipped_prior()
    exported = performance_exported(adapted(prior, no_samples(len(MODELS)), seed=1), seed=1)
    publish_graph(exported, folder / "shipped", "default-1", today=TODAY, card=lambda entry: f"# {entry.kind}\n")
    Library(folder / "shipped", folder / "none").use(KIND, "default-1")
    return Library(folder / "site", folder / "shipped")


@dataclass(frozen=True, kw_only=True)
class Truth:
    """The effects of a site; `misjudged` is the spread of the constants of families."""

    speed: dict[str, float] = field(default_factory=lambda: dict(SPEEDS))
    place_weight: float = 1.0
    added: float = 0.4
    misjudged: float = 0.4
    noise: float = 0.2


def jobs_of(
    count: int,
    *,
    truth: Truth | None = None,
    users: int = 24,
    seed: int = 1,
    days: float = 20.0,
    until: float = TAKEN_AT,
    spoilt: Callable[[EndedJob, np.random.Generator], EndedJob] = lambda job, _: job,
) -> list[EndedJob]:
    """Return ended jobs in order of their ends, each family on all types and places."""
    truth, rng = truth or Truth(), np.random.default_rng(seed)
    constants = rng.normal(0.0, truth.misjudged, (users, len(MODELS)))
    jobs = []
    for number in range(count):
        user, model = int(rng.integers(users)), int(rng.integers(len(MODELS)))
        gpu_type = TYPES[int(rng.integers(len(TYPES)))]
        place = float(rng.choice([0.0, 0.0, 0.1, 0.26]))
        beside = {MODELS[int(rng.integers(len(MODELS)))]: float(rng.uniform(0.5, 2.0))} if rng.random() < 0.3 else {}
        expected = truth.speed[gpu_type] - truth.place_weight * place - np.log1p(truth.added * sum(beside.values()))
        job = EndedJob(
            user=f"user{user}",
            account=f"lab{user % 8}",
            model=MODELS[model],
            family=f"user{user}\n{MODELS[model]}",
            gpu_type=gpu_type,
            place=place,
            others=beside,
            log_speed=float(expected + constants[user, model] + rng.normal(0.0, truth.noise)),
            noise=0.4,
            end_time=until - days * DAY_S * (count - number) / count,
        )
        jobs.append(spoilt(job, rng))
    return jobs


def shifted(jobs: list[EndedJob], share: float, gpu_type: str, log_speed: float) -> list[EndedJob]:
    """Return jobs of which the newest share ran slower or faster on one GPU type."""
    first = round(len(jobs) * (1.0 - share))
    return [
        replace(job, log_speed=job.log_speed + log_speed) if place >= first and job.gpu_type == gpu_type else job
        for place, job in enumerate(jobs)
    ]
