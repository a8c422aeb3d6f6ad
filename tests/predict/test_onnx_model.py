"""What a graph may answer, and what is refused."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from sklearn.linear_model import LinearRegression

from advisor.errors import ModelError
from advisor.fit.fitted import to_onnx
from advisor.predict.onnx_model import MOST_ROWS, OnnxModel, TensorGraph
from tests.predict.graphs import doubling, endless, quadratic, unary

ROWS = np.array([[1.0, 2.0], [3.0, 4.0]], dtype=np.float32)


def line() -> bytes:
    """The sum of two columns."""
    return to_onnx([LinearRegression().fit(np.eye(2, dtype=np.float32), [1.0, 1.0])], 2)


def test_no_rows_are_no_answers() -> None:
    model = OnnxModel(line(), name="line", columns=2, outputs=1)

    assert model.run(np.empty((0, 2), dtype=np.float32)).shape == (0, 1)


def test_answer_that_is_no_number_is_refused() -> None:
    model = OnnxModel(unary("Sqrt"), name="root", columns=2, outputs=2)

    with pytest.raises(ModelError, match="not a finite number"):
        model.run(-ROWS)


@pytest.mark.parametrize("rows", [ROWS.astype(np.float64), ROWS[:, :1], ROWS[0]], ids=["float64", "narrow", "flat"])
def test_rows_of_another_form_are_refused(rows: np.ndarray) -> None:
    model = OnnxModel(line(), name="line", columns=2, outputs=1)

    with pytest.raises(ModelError, match="takes 2 columns of float32"):
        model.run(rows)


@pytest.mark.parametrize(("columns", "outputs"), [(3, 1), (2, 2)])
def test_graph_of_another_shape_is_refused(columns: int, outputs: int) -> None:
    with pytest.raises(ModelError, match="not a graph of"):
        OnnxModel(line(), name="line", columns=columns, outputs=outputs)


def test_bytes_that_are_no_graph_are_refused_in_one_line() -> None:
    with pytest.raises(ModelError, match="cannot open it") as caught:
        OnnxModel(b"\x00" * 100, name="noise", columns=2, outputs=1)

    assert "\n" not in str(caught.value)


def test_more_rows_than_a_model_was_tried_with_are_run_in_parts() -> None:
    rows = np.arange(2 * (3 * MOST_ROWS + 1), dtype=np.float32).reshape(-1, 2)

    answers = OnnxModel(unary("Neg"), name="negative", columns=2, outputs=2).run(rows)

    assert np.array_equal(answers, -rows)


def test_memory_that_grows_with_the_parts_does_not_grow_with_the_rows() -> None:
    # All rows at once would need 256 MiB for each of the last doublings.
    rows = np.zeros((4 * MOST_ROWS, 2), dtype=np.float32)
    whole = TensorGraph(doubling(9), name="large")

    with pytest.raises(ModelError, match=r"^model large: .* cannot run it: it needs more than 256 MiB of memory"):
        whole.run({"rows": np.concatenate([rows] * 4)})
    assert len(OnnxModel(doubling(9), name="large", columns=2, outputs=2).run(rows)) == len(rows) * 2**9


def test_run_that_needs_too_much_memory_leaves_room_for_the_next() -> None:
    square = TensorGraph(quadratic(), name="square")
    rows = np.zeros((20_000, 2), dtype=np.float32)

    for _ in range(3):
        with pytest.raises(ModelError, match="it needs more than 256 MiB of memory"):
            square.run({"rows": rows})

    assert square.run({"rows": rows[:MOST_ROWS]})["outputs"] == 0.0


def test_run_that_takes_too_long_is_ended() -> None:
    with pytest.raises(ModelError, match=r"^model endless: it took longer than 0\.5 s for an answer"):
        TensorGraph(endless(), name="endless").run({"rows": ROWS}, limit_s=0.5)


def test_bytes_of_another_format_than_the_checked_one_are_not_opened(tmp_path: Path) -> None:
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "graph.ort")
    onnxruntime.InferenceSession(endless(), options, providers=["CPUExecutionProvider"])
    content = (tmp_path / "graph.ort").read_bytes()

    assert onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"]).get_inputs()
    with pytest.raises(ModelError, match="ONNX Runtime cannot open it"):
        TensorGraph(content, name="other")


ROOT = Path(__file__).parent.parent.parent
OPENED = """
import sys
from advisor.predict.onnx_model import OnnxModel
try:
    OnnxModel(open(sys.argv[1], "rb").read(), name="any", columns=1, outputs=1)
except Exception as err:
    print(err)
import onnxruntime
assert onnxruntime.get_available_providers()
"""


def test_opening_a_model_leaves_nothing_in_the_home_folder(tmp_path: Path) -> None:
    model = next((ROOT / "models").rglob("*.onnx"))
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ORT_", "XDG_"))}

    subprocess.run(
        [sys.executable, "-c", OPENED, str(model)],
        env={**kept, "HOME": str(tmp_path)},
        check=True,
        cwd=ROOT,
        timeout=60,
    )

    assert list(tmp_path.rglob("*")) == []
