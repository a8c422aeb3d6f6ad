"""The prior of the performance model: profiles and measured pairs, by name."""

import time

import numpy as np
import pytest

from advisor.predict.interference import KIND, InterferenceForecaster, neighbours_of
from advisor.predict.library import Library, shipped_folder
from advisor.sim.profiles import load_profiles
from tools.measured_prior import measured_prior


def test_models_are_those_of_the_profiles_without_batches() -> None:
    prior = measured_prior()

    assert {"resnet50", "dlrm"} <= set(prior.models)
    assert not {name for name in prior.models if "/" in name or name == "neutral"}
    assert prior.gpu_types == load_profiles().gpu_types
    assert prior.log_speed.shape == (len(prior.models) + 1, len(prior.gpu_types) + 1)
    assert prior.added.shape == (len(prior.models) + 1, len(prior.models) + 1)


def test_pairs_that_were_measured_are_those_of_the_interference_model() -> None:
    forecaster = InterferenceForecaster.from_bundle(Library(shipped_folder() / "none").load(KIND))
    names = ("dlrm", "fsdp", "graphsage", "mobilenetv3", "transformerxl")

    prior = measured_prior()

    rows = [prior.models.index(name) for name in names]
    assert prior.added[np.ix_(rows, rows)] == pytest.approx(neighbours_of(forecaster, names).added[:-1, :-1])


def test_pairs_that_were_not_measured_are_those_of_the_profiles() -> None:
    profiles = load_profiles()
    bert, dlrm = (profiles.rows[profiles.names.index(name)] for name in ("bert", "dlrm"))

    prior = measured_prior()

    row, column = prior.models.index("bert"), prior.models.index("dlrm")
    assert prior.added[row, column] == pytest.approx(bert["node_sensitivity"] * dlrm["node_pressure"])
    assert prior.added[column, row] == pytest.approx(dlrm["node_sensitivity"] * bert["node_pressure"])


def test_speeds_are_relative_to_the_mean_over_types_and_an_unknown_type_is_average() -> None:
    prior = measured_prior(["V100", "a100", "riscv"])

    row = prior.models.index("transformer")
    assert prior.gpu_types == ("v100", "a100", "riscv")
    assert prior.log_speed[row, 1] - prior.log_speed[row, 0] == pytest.approx(np.log(2.491))
    assert prior.log_speed[row].sum() == pytest.approx(0.0)
    assert not prior.log_speed[:, 2:].any()


def test_an_unknown_model_is_the_mean_of_all() -> None:
    prior = measured_prior()

    assert prior.log_speed[-1] == pytest.approx(prior.log_speed[:-1].mean(axis=0))
    assert prior.added[-1, :-1] == pytest.approx(prior.added[:-1, :-1].mean(axis=0))
    assert prior.added[:-1, -1] == pytest.approx(prior.added[:-1, :-1].mean(axis=1))
    assert prior.added[-1, -1] == pytest.approx(prior.added[:-1, :-1].mean())


def test_prior_is_quick_to_build_and_the_same_each_time() -> None:
    first = measured_prior()
    began_s = time.process_time()

    second = measured_prior()

    assert time.process_time() - began_s < 1.0
    assert (first.added == second.added).all()
