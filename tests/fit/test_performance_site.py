"""The adaptation to a site: it finds the effects, follows a shift, and refuses what does not forecast later jobs."""

import json
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from advisor.errors import ModelError
from advisor.fit.performance_fit import MEMBERS, Samples, SitePrior, Spreads, adapted, no_samples
from advisor.fit.performance_gate import FAMILY_SPREAD, share_at_bound, tables_of
from advisor.fit.performance_graph import performance_exported
from advisor.fit.performance_samples import EndedJob, samples_of
from advisor.fit.performance_site import MOST_MODELS, SiteFit, extended, fitted_to_site, prior_of
from advisor.predict.performance import PerformanceModel
from tests.fit.performance_journal import MODELS, SPEEDS, TYPES, Truth, jobs_of, opened, shifted, shipped_prior

A100, H100, V100 = range(3)


@pytest.fixture(scope="module")
def shipped() -> PerformanceModel:
    """The model that ships."""
    return opened(shipped_prior())


def speeds(fit: SiteFit) -> list[float]:
    """The mean log speed of the models on each type, over that on the first."""
    by_type = tables_of(fit.model).log_speed[: len(MODELS), : len(TYPES)].mean(axis=0)
    return [float(value) for value in by_type - by_type[A100]]


def test_prior_is_read_back_from_the_model_that_ships(shipped: PerformanceModel) -> None:
    prior, written = prior_of(shipped), shipped_prior()

    assert (prior.models, prior.gpu_types, prior.spreads) == (written.models, written.gpu_types, written.spreads)
    assert np.abs(prior.log_speed - written.log_speed).max() < 1e-5
    assert np.abs(prior.floored - written.floored).max() < 1e-5


def test_model_of_a_site_that_counted_what_was_tried_is_opened(shipped: PerformanceModel) -> None:
    prior = prior_of(shipped)
    exported = performance_exported(adapted(prior, no_samples(len(MODELS)), seed=1), seed=1)
    counted = {**json.loads(exported.parameters), "subspaces": {"total": 3, "seen": {"bert|one leaf": [3, 1.0]}}}

    assert PerformanceModel.of(exported.graph, json.dumps(counted)).parameters.models == MODELS


def test_adapted_model_is_no_prior(shipped: PerformanceModel) -> None:
    fit = fitted_to_site(shipped, shipped, jobs_of(300), seed=1)
    exported = performance_exported(fit.model, seed=1)

    with pytest.raises(ModelError, match=r"was adapted to \d+ jobs, and is no prior"):
        prior_of(PerformanceModel.of(exported.graph, exported.parameters))


def test_models_and_types_of_a_site_begin_as_what_is_not_known() -> None:
    prior = shipped_prior()
    jobs = [replace(job, model="Own Model".lower().replace(" ", ""), gpu_type="l4") for job in jobs_of(3)]

    grown = extended(prior, jobs)

    assert grown.models == (*MODELS, "ownmodel") and grown.gpu_types == (*TYPES, "l4")
    assert grown.log_speed.shape == (len(MODELS) + 2, len(TYPES) + 2)
    assert (grown.log_speed[len(MODELS)] == grown.log_speed[-1]).all()
    assert (grown.log_speed[:, len(TYPES)] == grown.log_speed[:, -1]).all()
    assert grown.added.shape == (len(MODELS) + 2, len(MODELS) + 2)
    assert grown.spreads.family == FAMILY_SPREAD


def test_models_that_users_declare_are_bounded_and_those_of_most_jobs_stay() -> None:
    (job, *_) = jobs_of(1)
    jobs = [replace(job, model=f"own{number}") for number in range(MOST_MODELS + 50)] + [replace(job, model="own249")]

    grown = extended(shipped_prior(), jobs)

    assert len(grown.models) == len(MODELS) + MOST_MODELS and "own249" in grown.models


def test_effects_of_types_places_and_neighbours_are_found(shipped: PerformanceModel) -> None:
    fit = fitted_to_site(shipped, shipped, jobs_of(1500), seed=1)

    tables = tables_of(fit.model)
    assert fit.verdict.faults == () and len(fit.jobs) == 1500
    assert speeds(fit) == pytest.approx([SPEEDS[name] for name in TYPES], abs=0.12)
    assert tables.place_weight[: len(MODELS)] == pytest.approx(1.0, abs=0.35)
    assert tables.neighbours.added[: len(MODELS), : len(MODELS)].mean() == pytest.approx(0.4, abs=0.1)
    assert fit.verdict.figures["gain"] > fit.verdict.figures["gain_error"] > 0.0


def test_errors_that_a_family_has_in_common_teach_nothing(shipped: PerformanceModel) -> None:
    jobs = jobs_of(1500, truth=Truth(misjudged=0.0))
    biased = [replace(job, log_speed=job.log_speed + 0.8) for job in jobs]

    plain, moved = (tables_of(fitted_to_site(shipped, shipped, these, seed=1).model) for these in (jobs, biased))

    assert np.abs(plain.log_speed - moved.log_speed).max() < 0.1


@pytest.mark.slow
def test_shift_of_the_last_days_is_learnt_in_one_run(shipped: PerformanceModel) -> None:
    jobs = shifted(jobs_of(5000), 0.12, "h100", -0.9)

    before, after = (fitted_to_site(shipped, shipped, these, seed=1) for these in (jobs[:4400], jobs))

    # Before the shift the type was faster than the first one, and now it is slower.
    assert after.verdict.faults == () and after.stretch < before.stretch == 4400
    assert speeds(before)[H100] > 0.25 and speeds(after)[H100] < -0.25
    assert speeds(after)[V100] == pytest.approx(SPEEDS["v100"], abs=0.2)


def test_site_that_stays_the_same_is_learnt_from_whole(shipped: PerformanceModel) -> None:
    fit = fitted_to_site(shipped, shipped, jobs_of(2000), seed=1)

    assert fit.stretch == fit.comparable == 2000


Spoilt = Callable[[EndedJob, np.random.Generator], EndedJob]


def at_random(job: EndedJob, rng: np.random.Generator) -> EndedJob:
    """Run times that have nothing to do with the forecast."""
    return replace(job, log_speed=float(rng.uniform(-3.0, 3.0)))


def at_both_ends(job: EndedJob, rng: np.random.Generator) -> EndedJob:
    """Run times that are 12 times too short or too long."""
    return replace(job, log_speed=float(rng.choice([-2.5, 2.5])))


def not_a_number(job: EndedJob, _: np.random.Generator) -> EndedJob:
    """Run times that are no numbers."""
    return replace(job, log_speed=float("nan"))


@pytest.mark.parametrize("spoilt", [at_random, at_both_ends])
def test_garbage_is_refused(shipped: PerformanceModel, spoilt: Spoilt) -> None:
    fit = fitted_to_site(shipped, shipped, jobs_of(1000, spoilt=spoilt), seed=1)

    assert any("of later jobs ran within their 80 % intervals" in fault for fault in fit.verdict.faults)


def test_numbers_that_are_none_are_refused(shipped: PerformanceModel) -> None:
    with pytest.raises(ModelError, match="it returns a value that is not a finite number"):
        fitted_to_site(shipped, shipped, jobs_of(300, spoilt=not_a_number), seed=1)


def test_candidate_that_forecasts_later_jobs_worse_than_the_version_in_use_is_refused(
    shipped: PerformanceModel,
) -> None:
    jobs = jobs_of(700)
    good = fitted_to_site(shipped, shipped, jobs, seed=1)
    exported = performance_exported(good.model, seed=1)
    in_use = PerformanceModel.of(exported.graph, exported.parameters)
    # The older jobs ran the other way round, and the last fifth as ever.
    wrong = [replace(job, log_speed=-job.log_speed) for job in jobs[:560]]

    fit = fitted_to_site(shipped, in_use, [*wrong, *jobs[560:]], seed=1)

    assert any("against the version in use" in fault for fault in fit.verdict.faults)


def test_user_who_lies_within_the_shares_moves_little(shipped: PerformanceModel) -> None:
    honest = jobs_of(1500)
    lies = [
        replace(
            job,
            user="eve",
            account="evil",
            family=f"eve\n{job.model}",
            log_speed=2.9 if job.gpu_type == "v100" else -2.9,
        )
        for job in jobs_of(3000, seed=5)
    ]

    plain = fitted_to_site(shipped, shipped, honest, seed=1)
    lied = fitted_to_site(shipped, shipped, sorted([*honest, *lies], key=lambda job: job.end_time), seed=1)

    share = sum(job.user == "eve" for job in lied.jobs) / len(lied.jobs)
    assert 0.05 < share <= 0.1
    assert speeds(lied) == pytest.approx(speeds(plain), abs=0.15)


def test_version_that_has_seen_the_later_jobs_is_compared_on_newer_ones(shipped: PerformanceModel) -> None:
    jobs = jobs_of(600)
    first = fitted_to_site(shipped, shipped, jobs, seed=1)
    exported = performance_exported(first.model, seed=1, origin={"until": first.until})
    in_use = PerformanceModel.of(exported.graph, exported.parameters)

    again = fitted_to_site(shipped, in_use, jobs, seed=1)
    later = fitted_to_site(shipped, in_use, jobs_of(700, until=first.until + 86_400.0), seed=1)

    assert again.verdict.faults == ("0 jobs that neither it nor the version in use has seen, fewer than 20",)
    assert later.verdict.figures["unseen"] >= 20


@pytest.mark.parametrize(
    ("jobs", "fault"),
    [
        (jobs_of(90), r"\d\d ended jobs can be compared with others like them, fewer than 100"),
        (jobs_of(400, users=5), "400 samples of 5 users are too few to learn from"),
        ([replace(job, family=str(place)) for place, job in enumerate(jobs_of(400))], "0 ended jobs can be compared"),
    ],
    ids=["few jobs", "few users", "no two of a family"],
)
def test_too_little_is_refused(shipped: PerformanceModel, jobs: list[EndedJob], fault: str) -> None:
    with pytest.raises(ModelError, match=fault):
        fitted_to_site(shipped, shipped, jobs, seed=1)


def test_effects_at_their_bound_are_counted() -> None:
    prior = shipped_prior()
    model = adapted(prior, samples_of(jobs_of(200), MODELS, TYPES), seed=1)
    middle = model.middle
    high = replace(middle, speed=prior.log_speed + np.where(np.arange(4) == 0, 3.5, 0.0))
    none = replace(middle, place=np.full_like(middle.place, np.nan))

    assert share_at_bound(prior, model) == 0.0
    assert share_at_bound(prior, replace(model, middle=high)) == pytest.approx(0.25)
    assert share_at_bound(prior, replace(model, middle=none)) == 1.0


def alone_samples(log_speed: float, count: int) -> Samples:
    """Return ended jobs of the first model on the first GPU type, alone."""
    return Samples(
        model=np.zeros(count, np.intp),
        gpu_type=np.zeros(count, np.intp),
        place=np.zeros(count),
        others=np.zeros((count, 2)),
        log_speed=np.full(count, log_speed),
        noise=np.full(count, 0.02),
        family=np.full(count, -1, np.intp),
    )


@pytest.mark.parametrize("seed", range(5))
def test_every_member_learns_from_one_sample(seed: int) -> None:
    prior = SitePrior(
        models=("a",),
        gpu_types=("v100",),
        log_speed=np.zeros((2, 2)),
        added=np.zeros((2, 2)),
        spreads=Spreads(family=0.01),
    )

    model = adapted(prior, alone_samples(0.5, 1), seed=seed)

    speeds = [member.speed[0, 0] for member in model.members]
    assert len(speeds) == MEMBERS
    assert min(speeds) > 0.35
    assert np.ptp(speeds) > 0.0
