"""The prior of the performance model: profiles and measured pairs, by name."""

import time
from pathlib import Path

import numpy as np
import pytest

from advisor.errors import TraceError
from advisor.predict.interference import KIND, InterferenceForecaster, neighbours_of
from advisor.predict.library import Library, shipped_folder
from advisor.sim.profiles import load_profiles
from tests.fit.interference_tables import BLOX, LUCID, LUCID_SINGLES, write
from tools.data.measured_pairs import read_counted
from tools.data.step_times import COULD_NOT_RUN, OTHER_PLAN, read_measured
from tools.data.step_times import read_counted as counted_steps
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
    prior = measured_prior()

    row, v100, a100 = prior.models.index("transformer"), *map(prior.gpu_types.index, ("v100", "a100"))
    assert prior.log_speed[row, a100] - prior.log_speed[row, v100] == pytest.approx(np.log(2.491))
    assert prior.log_speed[row].sum() == pytest.approx(0.0)
    assert not prior.log_speed[:, -1].any()


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


def written(tmp_path: Path, text: str, name: str = "alpha-x.csv") -> Path:
    file = tmp_path / name
    file.write_text(text)
    return file


def test_plan_is_compared_to_the_same_plan_alone(tmp_path: Path) -> None:
    rows = ['0,Bert,W,2,256/16,0.5,NA,"6,6",Empty,NA,0,0,0.0', '1,Bert,W,2,256/16,0.4,"0,1","6,6",Res,I,2,32,0.9']
    path = write(tmp_path, BLOX, [*rows, '2,Bert,W,2,256/16,0,"0,1",DP,Res,I,2,32,0'])

    sides = read_counted(path, "blox")[0]

    assert [side.speed for side in sides] == [0.8, 0.9]
    assert sides[0].mine.variant == "6,6"


def test_use_of_the_gpu_alone_comes_from_the_singles(tmp_path: Path) -> None:
    pairs = write(tmp_path, LUCID, ["ResNet,C,1,64,0,0.8,VGG,C,1,128,1,0.7,90,50,3000"])
    singles = write(tmp_path, LUCID_SINGLES, ["ResNet,C,64,0,12.5,55,20,1500,x"], name="singles.csv")

    sides = read_counted(pairs, "lucid", singles)[0]

    assert sides[0].mine.gpu_busy == 55.0
    assert sides[0].mine.steps_per_s == 12.5
    assert sides[1].speed == 0.7


def test_elasticflow_rows_are_read_by_column_and_zeros_are_left_out(tmp_path: Path) -> None:
    file = written(tmp_path, "global_batch_size,1,4,16\n64,2.0,,8\n128,0,4,0", "vgg.csv")

    found = read_measured([file], "auto")

    assert found.gpus.tolist() == [1.0, 16.0, 4.0] and found.nodes.tolist() == [1.0, 2.0, 1.0]
    assert found.batch.tolist() == [64.0, 4.0, 32.0] and found.batch_asked.tolist() == [64.0, 64.0, 128.0]
    assert found.step_s.tolist() == [0.5, 0.125, 0.25]


def test_rubick_rows_of_plain_data_parallelism_are_read_by_digit(tmp_path: Path) -> None:
    lines = "exec_plan,placement,iter_time,forward\nga,26,0.25,1\ngc,8,0.5,1\nga,44,0,1\nga,2,1.5,1\n"

    found = read_measured([written(tmp_path, lines)], "auto")

    assert found.gpus.tolist() == [8.0, 2.0] and found.least.tolist() == [2.0, 2.0]
    # The file states no batch: one for the whole job, the same at every size.
    assert (found.batch * found.gpus).tolist() == found.batch_asked.tolist() == [64.0, 64.0]
    assert found.step_s.tolist() == [0.25, 1.5]


def test_measurements_left_out_are_counted_by_reason(tmp_path: Path) -> None:
    file = written(tmp_path, "exec_plan,placement,iter_time\nga,26,0.25\ngc,8,0.5\nga,44,0\n")

    assert counted_steps([file], "rubick")[1] == {OTHER_PLAN: 1, COULD_NOT_RUN: 1}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("global_batch_size,x\n1,2\n", "numbers of GPUs"),
        ("exec_plan,placement\nga,1\n", "iter_time is missing"),
        ("global_batch_size,1,2\n64,-3,1\n", "cannot be negative"),
        ("global_batch_size,1,2\n64,x,1\n", "1 is 'x'"),
        ("global_batch_size,1,2\n64,0,\n", "no measurement in it"),
    ],
)
def test_wrong_file_is_refused_in_one_line(tmp_path: Path, text: str, said: str) -> None:
    file = written(tmp_path, text)

    with pytest.raises(TraceError) as caught:
        read_measured([file], "auto")

    assert said in str(caught.value) and file.name in str(caught.value) and "\n" not in str(caught.value)


def test_form_that_is_not_known_is_refused() -> None:
    with pytest.raises(TraceError, match="unknown format"):
        read_measured([], "excel")
