"""What a graph may answer, and what is refused."""

import numpy as np
import pytest
from onnx import TensorProto, helper
from sklearn.linear_model import LinearRegression

from advisor.errors import ModelError
from advisor.fit.export import to_onnx
from advisor.predict.onnx_model import OnnxModel

ROWS = np.array([[1.0, 2.0], [3.0, 4.0]], dtype=np.float32)


def line() -> bytes:
    """The sum of two columns."""
    return to_onnx([LinearRegression().fit(np.eye(2, dtype=np.float32), [1.0, 1.0])], 2)


def graph_of(operator: str) -> bytes:
    """A graph of one operator over all rows."""
    shape = [None, 2]
    graph = helper.make_graph(
        [helper.make_node(operator, ["rows"], ["outputs"])],
        "test",
        [helper.make_tensor_value_info("rows", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("outputs", TensorProto.FLOAT, shape)],
    )
    content: bytes = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9
    ).SerializeToString()
    return content


def test_no_rows_are_no_answers() -> None:
    model = OnnxModel(line(), name="line", columns=2, outputs=1)

    assert model.run(np.empty((0, 2), dtype=np.float32)).shape == (0, 1)


def test_answer_that_is_no_number_is_refused() -> None:
    model = OnnxModel(graph_of("Sqrt"), name="root", columns=2, outputs=2)

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
