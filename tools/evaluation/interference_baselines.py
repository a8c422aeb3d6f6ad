"""What a forecast of interference has to beat."""

from collections.abc import Hashable, Sequence

import numpy as np

from advisor.fit.interference_files import RelativeSpeeds
from advisor.predict.interference_items import Floats

# Keeps a sum of two effects determined; far below what any row weighs.
STEADY = 1e-3


def baselines(train: RelativeSpeeds, test: RelativeSpeeds) -> dict[str, Floats]:
    """Return the relative speeds that each baseline states for the rows of `test`, by its name."""
    models, jobs = list(train.pairs.items.model), _jobs(train)
    mine, other = train.pairs.mine.tolist(), train.pairs.other.tolist()
    test_models, test_jobs = list(test.pairs.items.model), _jobs(test)
    to_mine, to_other = test.pairs.mine.tolist(), test.pairs.other.tolist()
    overall = float(train.speed.mean())
    of_model = _means([models[row] for row in mine], train.speed)
    of_pair = _means([(models[a], models[b]) for a, b in zip(mine, other, strict=True)], train.speed)
    by_model = np.array([of_model.get(test_models[row], overall) for row in to_mine])
    by_pair = [
        of_pair.get((test_models[a], test_models[b]), by_model[row])
        for row, (a, b) in enumerate(zip(to_mine, to_other, strict=True))
    ]
    return {
        "no interference": np.ones(len(test)),
        "mean of all": np.full(len(test), overall),
        "mean of the model": by_model,
        "mean of the two models": np.array(by_pair),
        "model + model": _added(train.speed, (models, mine, other), (test_models, to_mine, to_other)),
        "job + job": _added(train.speed, (jobs, mine, other), (test_jobs, to_mine, to_other)),
    }


def _jobs(table: RelativeSpeeds) -> list[Hashable]:
    items = table.pairs.items
    settings = [tuple(np.nan_to_num(row, nan=-1.0).tolist()) for row in items.settings]
    return list(zip(items.group, items.model, items.variant, settings, strict=True))


def _means(keys: Sequence[Hashable], speed: Floats) -> dict[Hashable, float]:
    speeds: dict[Hashable, list[float]] = {}
    for key, value in zip(keys, speed.tolist(), strict=True):
        speeds.setdefault(key, []).append(value)
    return {key: float(np.mean(values)) for key, values in speeds.items()}


Table = tuple[Sequence[Hashable], Sequence[int], Sequence[int]]


def _added(speed: Floats, train: Table, test: Table) -> Floats:
    """Return the mean, plus what the slowed one and the other each add, by least squares; nothing if never seen."""
    names, mine, other = train
    place = {name: at for at, name in enumerate(dict.fromkeys(names))}
    width = len(place)
    design = np.zeros((len(speed), 2 * width))
    for row, (a, b) in enumerate(zip(mine, other, strict=True)):
        design[row, place[names[a]]] = 1.0
        design[row, width + place[names[b]]] = 1.0
    mean = float(speed.mean())
    gram = design.T @ design + STEADY * np.eye(2 * width)
    effects = np.linalg.solve(gram, design.T @ (speed - mean))
    asked, to_mine, to_other = test
    said = [
        mean
        + (effects[place[asked[a]]] if asked[a] in place else 0.0)
        + (effects[width + place[asked[b]]] if asked[b] in place else 0.0)
        for a, b in zip(to_mine, to_other, strict=True)
    ]
    clipped: Floats = np.clip(np.array(said), 0.0, float(speed.max()))
    return clipped
