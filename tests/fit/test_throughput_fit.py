"""Reading measured step times, learning from them, and the fit that is published."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from advisor.errors import TraceError
from advisor.fit.publish import publish
from advisor.fit.throughput_data import files_of, model_of, read_step_times
from advisor.fit.throughput_fit import calibrate, fit_throughput
from advisor.fit.throughput_population import learn_laws
from advisor.predict.scaling import VOLUME
from advisor.predict.throughput_knowledge import Calibration
from tests.predict.throughput_cluster import theta_of, write_cluster

HEADER = "placement,local_bsz,step_time,sync_time"


def written(tmp_path: Path, text: str, name: str = "alpha-x.csv") -> Path:
    file = tmp_path / name
    file.write_text(text)
    return file


def test_pollux_rows_are_read_by_digit(tmp_path: Path) -> None:
    file = written(tmp_path, f"{HEADER},further\n142,16,0.5,0.1,x\n1,8,0.25,,\n\n")

    found = read_step_times([file])

    assert found.gpus.tolist() == [7.0, 1.0] and found.nodes.tolist() == [3.0, 1.0]
    assert found.least.tolist() == [1.0, 1.0] and found.most.tolist() == [4.0, 1.0]
    assert found.step_s.tolist() == [0.5, 0.25] and found.model.tolist() == ["alpha", "alpha"]
    assert set(found.cluster.tolist()) == {tmp_path.name}


def test_counts_of_nodes_and_replicas_are_spread_evenly(tmp_path: Path) -> None:
    file = written(tmp_path, "num_nodes,num_replicas,local_bsz,step_time,sync_time\n3,8,16,0.5,0.1\n")

    found = read_step_times([file])

    assert (found.gpus[0], found.nodes[0], found.least[0], found.most[0]) == (8.0, 3.0, 2.0, 3.0)


def test_compressed_files_and_folders_are_read_alike(tmp_path: Path) -> None:
    plain = written(tmp_path, f"{HEADER}\n1,8,0.5,0\n")
    packed = tmp_path / "beta.csv.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    written(tmp_path, "no measurement", "readme.txt")

    found = files_of([tmp_path, plain])

    assert [model_of(each) for each in found] == ["alpha", "beta"]
    assert read_step_times(found).step_s.tolist() == [0.5, 0.5]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no line below its header"),
        (HEADER, "no line below its header"),
        ("placement,step_time\n1,2\n", "local_bsz is missing"),
        ("a,b\n1,2\n", "num_nodes is missing"),
        (f"{HEADER}\n1,8,fast,0\n", "line 2: step_time is 'fast'"),
        (f"{HEADER}\n1,8\n", "line 2: step_time is ''"),
        (f"{HEADER}\n1,8,-1,0\n", "above 0"),
        (f"{HEADER}\n1,8,inf,0\n", "no finite number"),
        (f"{HEADER}\n1,0,1,0\n", "local_bsz is 0"),
        (f"{HEADER}\n1x,8,1,0\n", "placement '1x'"),
        (f"{HEADER}\n104,8,1,0\n", "placement '104'"),
        ("num_nodes,num_replicas,local_bsz,step_time\n3,2,8,1\n", "2 GPUs on 3 nodes"),
        ("num_nodes,num_replicas,local_bsz,step_time\n1.5,2,8,1\n", "whole number"),
    ],
)
def test_wrong_file_is_told_in_one_line(tmp_path: Path, text: str, said: str) -> None:
    file = written(tmp_path, text)

    with pytest.raises(TraceError) as caught:
        read_step_times([file])

    assert said in str(caught.value) and file.name in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_what_is_no_text_is_told(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"\xff\xfe\x00\x9c")

    with pytest.raises(TraceError, match="cannot be read"):
        read_step_times([tmp_path / name])


def test_missing_paths_and_empty_folders_are_told(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no such file"):
        files_of([tmp_path / "none"])
    with pytest.raises(TraceError, match="name a folder"):
        files_of([tmp_path])


def test_laws_of_a_cluster_agree_with_those_it_was_made_with(tmp_path: Path) -> None:
    measured = read_step_times(write_cluster(tmp_path / "net_t4"))

    knowledge = learn_laws(measured).knowledge()

    volumes = {each.model: each.theta[VOLUME] for each in knowledge.profiles}
    assert volumes["alpha"] == pytest.approx(theta_of(0)[VOLUME], abs=0.3)
    assert volumes["delta"] > volumes["alpha"]
    assert knowledge.clusters["net_t4"].doubt[VOLUME] < 0.5 * knowledge.pooled.doubt[VOLUME]


def test_order_of_rows_does_not_matter(tmp_path: Path) -> None:
    measured = read_step_times(write_cluster(tmp_path / "net_t4"))
    shuffled = measured.take(np.random.default_rng(2).permutation(len(measured)))

    one, other = learn_laws(measured).knowledge(), learn_laws(shuffled).knowledge()

    assert one.pooled.mean == pytest.approx(other.pooled.mean, abs=1e-3)
    assert one.clusters["net_t4"].doubt == pytest.approx(other.clusters["net_t4"].doubt, abs=1e-3)


def test_calibration_widens_for_errors_larger_than_stated_and_each_model_weighs_the_same() -> None:
    errors, before = np.linspace(-3.0, 3.0, 101), Calibration()

    wide, narrow = calibrate([errors] * 8, before), calibrate([0.1 * errors] * 8, before)
    mixed = calibrate([*[np.zeros(1000)] * 1, *[errors] * 8], before)

    assert wide.high > 2.0 > narrow.high and wide.low < -2.0
    assert mixed.high > 1.8
    assert calibrate([], wide) == wide
    assert wide.high > calibrate([0.1 * errors], wide).high > narrow.high


def test_fit_is_the_same_twice_and_passes_the_gate(tmp_path: Path) -> None:
    files = write_cluster(tmp_path / "net_t4")

    one, other = (fit_throughput(files, seed=11) for _ in range(2))

    assert one.parameters == other.parameters
    assert np.array_equal(one.probe, other.probe) and one.probe.dtype == np.float32
    assert [each.rows for each in one.sources] == [60] * 4
    entry = publish(one, tmp_path / "models", "site-1", today="2026-11-21")
    assert entry.kind == "throughput" and entry.parity.rows >= 20


def test_one_model_is_too_few_to_fit(tmp_path: Path) -> None:
    files = write_cluster(tmp_path / "net_t4", models=("alpha",))

    with pytest.raises(TraceError, match="60 rows of 1 models are too few"):
        fit_throughput(files, seed=0)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bomb.csv.gz", "bomb.csv"])
def test_file_that_holds_more_than_a_table_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    with gzip.open(path, "wb") if name.endswith(".gz") else path.open("wb") as stream:
        for _ in range(257):
            stream.write(b"\n" * 2**20)

    with pytest.raises(TraceError, match=r"cannot be read .*it is larger than 268435456 bytes"):
        read_step_times([path])


def test_damaged_gzip_file_is_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "resnet.csv.gz"
    whole = bytearray(gzip.compress(b"placement,local_bsz\n" * 1000))
    whole[20] ^= 0xFF
    path.write_bytes(whole)

    with pytest.raises(TraceError, match="cannot be read"):
        read_step_times([path])
