"""How far off the effects of GPU types are for a model that was left out, before and after a few measurements of it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Final

import numpy as np

from advisor.errors import ConfigError
from advisor.fit.interference_files import number, read_table, text
from advisor.fit.performance_fit import Floats, Samples, SitePrior, Spreads, adapted, no_samples
from advisor.sim.profiles import load_profiles, model_key
from tools.evaluation.performance_rows import NOISE, served
from tools.evaluation.report import Report, counted, score

COLUMNS: Final = ("gpu_type", "consolidated", "model", "batch_size", "scale_factor", "steps_per_s_physical_file")
# Every model with several batch sizes has two others, so that all rows are judged with each number.
MOST_MEASURED: Final = 2
# Both speeds of a ratio were measured: there is no error of a forecast that jobs of a family share. With the spreads of
# a site, such an error stands for the batch size, which the model does not know.
_MEASURED: Final = replace(Spreads(), family=0.01)
_OF_A_SITE: Final = Spreads()
MEANS: Final = "mean over models"
SAME: Final = "mean over models, where others are adapted"
PROFILES: Final = "shipped profiles, fitted on these rows"


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeSpeeds:
    """Logarithms of speeds of models at batch sizes, `(n_rows, n_types)`, relative to their mean over the types."""

    gpu_types: tuple[str, ...]
    model: tuple[str, ...]
    batch: tuple[str, ...]
    log_speed: Floats

    @property
    def models(self) -> tuple[str, ...]:
        """The models, in order of their names."""
        return tuple(sorted(set(self.model)))

    def rows_of(self, model: str) -> list[int]:
        """Return the rows of a model."""
        return [row for row, name in enumerate(self.model) if name == model]


def read_types(path: Path) -> tuple[TypeSpeeds, Mapping[str, int]]:
    """Read the speeds on one GPU, and count the rows that are left out by reason; raises `ConfigError`."""
    table = read_table(path)
    if missing := [name for name in COLUMNS if name not in table.header]:
        raise ConfigError(f"{path}: column {missing[0]} is missing: it is no table of speeds by GPU type")
    speeds: dict[tuple[str, str], dict[str, float]] = {}
    for line, row in enumerate(table.rows):
        if row["consolidated"] == "1" and row["scale_factor"] == "1":
            key = model_key(text(table, line, "model")), (row["batch_size"] or "").strip()
            speeds.setdefault(key, {})[text(table, line, "gpu_type").lower()] = number(table, line, COLUMNS[-1])
    gpu_types = tuple(sorted({name for by_type in speeds.values() for name in by_type}))
    whole = {key: by for key, by in speeds.items() if len(by) == len(gpu_types) and min(by.values()) > 0}
    if len(gpu_types) < 2 or len({model for model, _ in whole}) < 2:
        raise ConfigError(f"{path}: give the speeds of two models or more on two GPU types or more")
    logs = np.log([[by[name] for name in gpu_types] for by in whole.values()])
    single = sum(row["consolidated"] == "1" and row["scale_factor"] == "1" for row in table.rows)
    distinct, used = sum(map(len, speeds.values())), len(whole) * len(gpu_types)
    left_out = {
        "not of one GPU": len(table.rows) - single,
        "there twice": single - distinct,
        "of batch sizes that did not run on every type": distinct - used,
    }
    return TypeSpeeds(
        gpu_types=gpu_types,
        model=tuple(model for model, _ in whole),
        batch=tuple(batch for _, batch in whole),
        log_speed=logs - logs.mean(axis=1, keepdims=True),
    ), counted(left_out)


def type_report(path: Path, *, seed: int) -> Report:
    """Judge the speeds of each model on each GPU type by those of the other models; raises `ConfigError`.

    Errors are those of the speed relative to the mean over types, in percent.
    """
    speeds, left_out = read_types(path)
    errors: dict[str, list[float]] = {}
    by_model: dict[str, list[float]] = {}
    for name, model, error in _errors(speeds, seed):
        errors.setdefault(name, []).append(error)
        if name in {MEANS, _adapted_name(1)}:
            by_model.setdefault(f"{name}, {model}", []).append(error)
    return Report(
        what="performance, GPU types",
        train_rows=speeds.log_speed.size,
        test_rows=speeds.log_speed.size,
        left_out=left_out,
        scores=tuple(score(name, "%", np.array(some)) for name, some in (errors | by_model).items()),
        notes=(
            f"{len(speeds.model)} batch sizes of {len(speeds.models)} models on {', '.join(speeds.gpu_types)}.",
            (
                "Each model in turn is left out. Its prior is the mean over the others; it adapts to its speeds at"
                " other batch sizes, all sets of them. A model with one batch size has no others to adapt to."
            ),
        ),
    )


def _adapted_name(count: int) -> str:
    return f"adapted to {count} other batch size{'s' if count > 1 else ''}"


def _errors(speeds: TypeSpeeds, seed: int) -> Iterator[tuple[str, str, float]]:
    """Yield the name of a forecast, the model and the error in percent, for each judged speed."""
    shipped = load_profiles()
    columns = [shipped.gpu_types.index(name) if name in shipped.gpu_types else -1 for name in speeds.gpu_types]
    for model in speeds.models:
        prior = _prior_without(speeds, model)
        rows = speeds.rows_of(model)
        for judged in rows:
            stated: dict[str, list[Floats]] = {MEANS: [_forecast(prior, _samples(prior, []), seed)]}
            if min(columns) >= 0:
                logs = np.log(shipped.type_speed[shipped.codes((model,))[0], columns])
                stated[PROFILES] = [logs - logs.mean()]
            others = [speeds.log_speed[row] for row in rows if row != judged]
            if others:
                stated[SAME] = stated[MEANS]
            for count in range(1, min(MOST_MEASURED, len(others)) + 1):
                chosen = [list(some) for some in combinations(others, count)]
                for name, spreads in (("", _MEASURED), (", spreads of a site", _OF_A_SITE)):
                    believed = replace(prior, spreads=spreads)
                    stated[f"{_adapted_name(count)}{name}"] = [
                        _forecast(believed, _samples(prior, some), seed) for some in chosen
                    ]
                stated[f"mean of {count} other batch size{'s' if count > 1 else ''}"] = [
                    np.mean(some, axis=0) for some in chosen
                ]
            yield from _percent(stated, model, speeds.log_speed[judged])


def _percent(stated: Mapping[str, Sequence[Floats]], model: str, true: Floats) -> Iterator[tuple[str, str, float]]:
    for name, logs in stated.items():
        errors = [100.0 * np.abs(np.expm1(each - true)) for each in logs]
        for error in np.mean(errors, axis=0).tolist():
            yield name, model, error


def _prior_without(speeds: TypeSpeeds, model: str) -> SitePrior:
    """Return a prior in which a model has the mean over all others of their mean over batch sizes."""
    others = [name for name in speeds.models if name != model]
    known = np.array([speeds.log_speed[speeds.rows_of(name)].mean(axis=0) for name in others])
    # A column for a type that is not known by name, rows for the model that is left out and for one without a name.
    table = np.pad(np.vstack([known, known.mean(axis=0), known.mean(axis=0)]), ((0, 0), (0, 1)))
    return SitePrior(
        models=(*others, model),
        gpu_types=speeds.gpu_types,
        log_speed=table,
        added=np.zeros((len(table), len(table))),
        spreads=_MEASURED,
    )


def _samples(prior: SitePrior, measured: Sequence[Floats]) -> Samples:
    """Return a sample for each measured speed of the model that is left out."""
    types = len(prior.gpu_types)
    count = types * len(measured)
    if not count:
        return no_samples(len(prior.models))
    return Samples(
        model=np.full(count, len(prior.models) - 1, np.intp),
        gpu_type=np.tile(np.arange(types), len(measured)),
        place=np.zeros(count),
        others=np.zeros((count, len(prior.models) + 1)),
        log_speed=np.concatenate(measured),
        noise=np.full(count, NOISE),
        family=np.full(count, -1, np.intp),
    )


def _forecast(prior: SitePrior, samples: Samples, seed: int) -> Floats:
    """Return the logarithm of speed by type of the model that is left out, as the served model states it."""
    model = served(adapted(prior, samples, seed=seed), seed=seed)
    return model.tabulated().log_speed[len(prior.models) - 1, : len(prior.gpu_types)]
