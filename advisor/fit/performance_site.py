"""Adapts the performance model to a site: chooses how far back to learn from, fits, and has the result judged."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from advisor.errors import ModelError
from advisor.fit.performance_fit import Adapted, Floats, Rows, Samples, SitePrior, Spreads, adapted, no_samples
from advisor.fit.performance_gate import (
    ASIDE_SHARE,
    FAMILY_SPREAD,
    INSIDE,
    LEAST_SAMPLES,
    GateVerdict,
    Side,
    errors_of,
    family_constants,
    judged,
    log_likelihood,
    mean_by_family,
    share_at_bound,
    tables_of,
)
from advisor.fit.performance_graph import performance_exported
from advisor.fit.performance_samples import EndedJob, comparable, samples_of, with_noise
from advisor.predict.interference_items import name_key
from advisor.predict.performance import PerformanceModel
from advisor.trial.evidence import ACCOUNT_SHARE, USER_SHARE, capped

# The newest samples that are learnt from, and the fewest jobs to choose as a stretch of their own.
MOST_SAMPLES: Final = 10_000
LEAST_STRETCH: Final = 400
_FOLDS: Final = 3
# The least share of the noise of forecasts that jobs of one family show against each other.
_LEAST_NOISE_SHARE: Final = 0.2
# The most models, and the most GPU types, that a site adds to those of the prior.
MOST_MODELS: Final = 200
MOST_TYPES: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """The largest share of the samples that one user, and one account, can have."""

    user: float = USER_SHARE
    account: float = ACCOUNT_SHARE


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteFit:
    """A performance model of a site: what it was fitted on, and how the gate judged it.

    `stretch` is the number of jobs back to which it learns, `jobs` those of them that are learnt from.
    """

    model: Adapted
    verdict: GateVerdict
    stretch: int
    comparable: int
    jobs: tuple[EndedJob, ...]
    noise_share: float

    @property
    def until(self) -> float:
        """When the last job ended that it learnt from."""
        return max(job.end_time for job in self.jobs)


def fitted_to_site(
    shipped: PerformanceModel,
    in_use: PerformanceModel,
    ended: Sequence[EndedJob],
    *,
    seed: int,
    shares: Shares | None = None,
    progress: Callable[[float], None] = lambda _: None,
) -> SiteFit:
    """Adapt the model that ships to ended jobs, and judge it beside the version in use.

    The newest fifth of the jobs is kept aside for that; the result is then fitted on all of them. Raises `ModelError`
    if there are too few jobs or users. `progress` is called with the share that is done.
    """
    jobs = comparable(ended)
    shares = shares or Shares()
    learnt = _allowed(jobs, shares, seed)
    prior = extended(prior_of(shipped), learnt)
    stretch, learnt = _stretch(prior, jobs, learnt, shares, seed=seed, progress=progress)
    share = _noise_share(prior, learnt)
    count = len(learnt) - round(ASIDE_SHARE * len(learnt))
    older = learnt[:count]
    # A family of which nothing older is known could have any constant.
    known = {job.family for job in older}
    aside = [job for job in learnt[count:] if job.family in known]
    candidate = adapted(prior, _samples(prior, older, share), seed=seed)
    progress(0.85)
    served = _served(candidate, seed)
    unseen = np.flatnonzero([job.end_time > in_use.parameters.until for job in aside])
    verdict = judged(
        _side(served, older, aside, share, prior.spreads.misfit),
        _side(in_use, older, aside, share, prior.spreads.misfit),
        at_bound=share_at_bound(prior, candidate),
        unseen=unseen,
    )
    model = adapted(prior, _samples(prior, learnt, share), seed=seed) if not verdict.faults else candidate
    progress(1.0)
    return SiteFit(
        model=model,
        verdict=verdict,
        stretch=stretch,
        comparable=len(jobs),
        jobs=tuple(learnt),
        noise_share=share,
    )


def _allowed(jobs: Sequence[EndedJob], shares: Shares, seed: int) -> list[EndedJob]:
    """Return the jobs that are learnt from, no user and no account above its share; raises `ModelError` for too few."""
    if len(jobs) < LEAST_SAMPLES:
        raise ModelError(f"{len(jobs)} ended jobs can be compared with others like them, fewer than {LEAST_SAMPLES}")
    kept = _capped(jobs, shares, seed)
    if len(kept) < LEAST_SAMPLES:
        raise ModelError(
            f"{len(kept)} of {len(jobs)} jobs are left where no user has more than {shares.user:.0%} and no account "
            f"more than {shares.account:.0%} of them, fewer than {LEAST_SAMPLES}"
        )
    return kept


def _capped(jobs: Sequence[EndedJob], shares: Shares, seed: int) -> list[EndedJob]:
    return capped(jobs, seed=seed, user_share=shares.user, account_share=shares.account)[-MOST_SAMPLES:]


def _samples(prior: SitePrior, jobs: Sequence[EndedJob], noise_share: float) -> Samples:
    """Return jobs as samples, each less the constant that its family has under the prior.

    Else the level of the forecasts of a site would pass for an effect, and GPU types without jobs would fall behind.
    """
    samples = with_noise(samples_of(jobs, prior.models, prior.gpu_types), noise_share, prior.spreads.misfit)
    before = tables_of(adapted(prior, no_samples(len(prior.models)), seed=0, members=0))
    constant, _ = family_constants(before, samples, 1 + int(samples.family.max(initial=0)))
    return replace(samples, log_speed=samples.log_speed - constant[samples.family])


def _served(model: Adapted, seed: int) -> PerformanceModel:
    """Return a model as it would be served; raises `ModelError` if its graph does not agree with it."""
    exported = performance_exported(model, seed=seed)
    return PerformanceModel.of(exported.graph, exported.parameters)


def _side(
    model: PerformanceModel, older: Sequence[EndedJob], aside: Sequence[EndedJob], noise_share: float, misfit: float
) -> Side:
    models, gpu_types = model.parameters.models, model.parameters.gpu_types
    both = with_noise(samples_of([*older, *aside], models, gpu_types), noise_share, misfit)
    rows = np.arange(len(both))
    return Side(speeds=model.tabulated(), older=both.take(rows[: len(older)]), aside=both.take(rows[len(older) :]))


def _noise_share(prior: SitePrior, jobs: Sequence[EndedJob]) -> float:
    """Return which share of the noise of their forecasts jobs show against others of their family, at most 1.

    The interval of a forecast is also as wide as it is because of the error that jobs of a family have in common.
    """
    samples = _samples(prior, jobs, 1.0)
    model = adapted(prior, samples, seed=0, members=0)
    error, _ = errors_of(tables_of(model), samples, samples)
    deviations = np.abs(error) / np.sqrt(samples.noise**2 + prior.spreads.misfit**2)
    return float(np.clip(np.quantile(deviations, 0.8) / INSIDE, _LEAST_NOISE_SHARE, 1.0))


def _stretch(
    prior: SitePrior,
    jobs: Sequence[EndedJob],
    learnt: list[EndedJob],
    shares: Shares,
    *,
    seed: int,
    progress: Callable[[float], None],
) -> tuple[int, list[EndedJob]]:
    """Choose how many jobs back to learn from: all, two thirds of them, two thirds of those and so on, at least 400.

    A site changes. The newest jobs are forecast from the others of each stretch, three times a third of them; a shorter
    stretch is taken if it forecasts them better by more than the standard error.
    """
    stretches = {len(jobs): learnt}
    size = 2 * len(jobs) // 3
    while size >= LEAST_STRETCH:
        try:
            stretches[size] = _allowed(jobs[-size:], shares, seed)
        except ModelError:  # those of the last days are of few users
            break
        size = 2 * size // 3
    if len(stretches) == 1:
        return len(jobs), learnt
    share = _noise_share(prior, learnt)
    asked = stretches[min(stretches)]
    fold = np.random.default_rng([seed, 7]).integers(_FOLDS, size=len(asked))
    family = samples_of(asked, prior.models, prior.gpu_types).family
    best, best_likelihood = len(jobs), None
    for done, (length, there) in enumerate(stretches.items(), start=1):
        likelihood = _likelihood(prior, there, asked, fold, share)
        progress(0.7 * done / len(stretches))
        if best_likelihood is None:
            best_likelihood = likelihood
            continue
        gain, error = mean_by_family(likelihood - best_likelihood, family)
        if gain > error:
            best, best_likelihood = length, likelihood
    return best, stretches[best]


def _likelihood(
    prior: SitePrior, there: Sequence[EndedJob], asked: Sequence[EndedJob], fold: Rows, noise_share: float
) -> Floats:
    """Return the log likelihood of jobs, a third at a time, by a model of the others of a stretch, `(n_asked,)`."""
    likelihood = np.zeros(len(asked))
    for number in range(_FOLDS):
        hidden = np.flatnonzero(fold == number).tolist()
        is_hidden = {id(asked[row]) for row in hidden}
        others = [job for job in there if id(job) not in is_hidden]
        both = _samples(prior, [*others, *(asked[row] for row in hidden)], noise_share)
        rows = np.arange(len(both))
        older, newer = both.take(rows[: len(others)]), both.take(rows[len(others) :])
        model = adapted(prior, older, seed=0, members=0)
        likelihood[hidden] = log_likelihood(*errors_of(tables_of(model), older, newer))
    return likelihood


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
