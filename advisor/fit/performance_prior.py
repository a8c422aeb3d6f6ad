"""Reads the prior of the performance model back from the version that ships, and adds what only a site has."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

import numpy as np

from advisor.errors import ModelError
from advisor.fit.performance_fit import Floats, SitePrior, Spreads
from advisor.fit.performance_samples import EndedJob
from advisor.predict.interference_items import name_key
from advisor.predict.performance import PerformanceModel

# The most models, and the most GPU types, that a site adds to those of the prior.
MOST_MODELS: Final = 200
MOST_TYPES: Final = 16
# The constant of a family is as good as free: only differences between its jobs count.
FAMILY_SPREAD: Final = 1.0


def prior_of(model: PerformanceModel) -> SitePrior:
    """Return the prior of a model that was not adapted, whose members all equal it; raises `ModelError` for others."""
    parameters = model.parameters
    if parameters.samples:
        raise ModelError(f"the performance model was adapted to {parameters.samples} jobs, and is no prior")
    try:
        spreads = Spreads(**parameters.spreads)
    except TypeError as err:
        raise ModelError("the performance model has other spreads than this release: fit it again") from err
    speeds = model.tabulated()
    return SitePrior(
        models=parameters.models,
        gpu_types=parameters.gpu_types,
        log_speed=speeds.log_speed,
        added=speeds.neighbours.added,
        spreads=spreads,
    )


def extended(prior: SitePrior, jobs: Iterable[EndedJob]) -> SitePrior:
    """Return a prior with rows and columns for the models and GPU types of a site, each that of what is not known.

    At most 200 models and 16 GPU types are added, those of most jobs.
    """
    jobs = tuple(jobs)
    known = {name_key(name) for name in prior.models}
    models = _most_frequent((job.model for job in jobs if job.model and job.model not in known), MOST_MODELS)
    gpu_types = _most_frequent(
        (job.gpu_type for job in jobs if job.gpu_type and job.gpu_type not in prior.gpu_types), MOST_TYPES
    )
    return replace(
        prior,
        models=(*prior.models, *models),
        gpu_types=(*prior.gpu_types, *gpu_types),
        log_speed=_repeated(prior.log_speed, len(models), len(gpu_types)),
        added=_repeated(prior.added, len(models), len(models)),
        spreads=replace(prior.spreads, family=max(FAMILY_SPREAD, prior.spreads.family)),
    )


def _most_frequent(names: Iterable[str], most: int) -> list[str]:
    counts = Counter(names)
    return sorted(sorted(counts, key=lambda name: (-counts[name], name))[:most])


def _repeated(table: Floats, rows: int, columns: int) -> Floats:
    """Repeat the last row and the last column of a table."""
    return np.pad(table, ((0, rows), (0, columns)), mode="edge")
