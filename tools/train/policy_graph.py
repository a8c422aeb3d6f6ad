"""Exports networks as ONNX graphs that are served."""

import json
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from onnx import TensorProto, helper, load, numpy_helper
from torch import Tensor, nn

from advisor.domain.actions import Lever
from advisor.errors import ModelError
from advisor.fit.publish import Exported
from advisor.predict.manifest import Entry, Parity
from advisor.predict.onnx_model import TensorGraph
from advisor.predict.served_policy import LEVER, OBSERVATION, SCORES
from tools.train.networks import PerOption

# The largest difference of a score between graph and network, and on how many options at least.
TOLERANCE: Final = 1e-4
LEAST_ROWS: Final = 10_000
Rows = NDArray[np.float32]  # (n_options, n_columns): the options of one decision


@dataclass(frozen=True, slots=True, kw_only=True)
class CardText:
    """What the card of a policy says of how it was trained: plain sentences and figures by name."""

    text: str
    data: Mapping[str, str]
    metrics: Mapping[str, float]
    limits: Sequence[str]
    settings: Mapping[str, str] = field(default_factory=dict)


def to_onnx(network: PerOption) -> bytes:
    """Return the graph of a network from `options` `(n_options, n_columns)` to `scores` `(n_options,)`.

    The weights are its initializers, under the names of the network.
    """
    weights = {name: tensor.detach().cpu().numpy() for name, tensor in network.state_dict().items()}
    constants = {"over_options": np.array([0]), "over_outputs": np.array([1])}
    nodes = [
        helper.make_node("Sub", ["options", "mean"], ["centred"]),
        helper.make_node("Div", ["centred", "scale"], ["normalised"]),
        helper.make_node("Gemm", ["normalised", "encode.weight", "encode.bias"], ["encoded"], transB=1),
        helper.make_node("Relu", ["encoded"], ["codes"]),
        helper.make_node("ReduceMean", ["codes", "over_options"], ["mean_code"], keepdims=1),
        helper.make_node("Gemm", ["codes", "own.weight", "own.bias"], ["of_own"], transB=1),
        helper.make_node("Gemm", ["mean_code", "pooled.weight"], ["of_pooled"], transB=1),
        helper.make_node("Add", ["of_own", "of_pooled"], ["joined"]),
        helper.make_node("Relu", ["joined"], ["hidden"]),
        helper.make_node("Gemm", ["hidden", "score.weight", "score.bias"], ["scored"], transB=1),
        helper.make_node("Squeeze", ["scored", "over_outputs"], [SCORES]),
    ]
    graph = helper.make_graph(
        nodes,
        "policy",
        [helper.make_tensor_value_info("options", TensorProto.FLOAT, [None, len(weights["mean"])])],
        [helper.make_tensor_value_info(SCORES, TensorProto.FLOAT, [None])],
        [numpy_helper.from_array(value, name) for name, value in (weights | constants).items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    helper.set_model_props(model, {LEVER: str(Lever.GPU_COUNT)})
    content: bytes = model.SerializeToString()
    return content


def checked_parity(network: PerOption, graph: bytes, decisions: Sequence[Rows]) -> Parity:
    """Compare the scores of a graph with those of its network; raises `ModelError` if they differ by too much.

    The options of `decisions` are at least `LEAST_ROWS`.
    """
    rows = sum(map(len, decisions))
    if rows < LEAST_ROWS:
        raise ModelError(f"{rows} options are too few to check an exported policy on: at least {LEAST_ROWS} are needed")
    served = TensorGraph(graph, name="policy")
    error = 0.0
    with torch.no_grad():
        for options in decisions:
            expected = network(torch.from_numpy(options)).numpy()
            error = max(error, float(np.abs(served.run({"options": options})[SCORES] - expected).max()))
    return _within_tolerance(error, rows)


class OneObservation(nn.Module):
    """A network that points to nodes, for one observation; `scores` calls it with the tensors as a batch of one."""

    def __init__(self, actor: nn.Module, scores: Callable[[Iterator[Tensor]], Tensor]) -> None:
        """Take the network."""
        super().__init__()
        self.actor, self.scores = actor, scores

    def forward(self, *tensors: Tensor) -> Tensor:
        """Return the scores of the actions `(n_actions,)`."""
        return self.scores(tensor.unsqueeze(0) for tensor in tensors).squeeze(0)


def pointer_to_onnx(
    one: nn.Module,
    names: Sequence[str],
    axes: Mapping[str, Mapping[int, str]],
    fingerprint: str,
    example: Mapping[str, np.ndarray],
) -> bytes:
    """Return the graph of a network that points to nodes, from the arrays of one observation to scores of actions.

    `axes` names the axes of the inputs that may have any length; `fingerprint` is that of what the policy sees.
    """
    with warnings.catch_warnings(), TemporaryDirectory() as folder:
        file = Path(folder) / "policy.onnx"
        # The newer exporter needs a package that nothing else here needs.
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.onnx.export(
            one,
            tuple(torch.from_numpy(example[name]) for name in names),
            file,
            input_names=list(names),
            output_names=[SCORES],
            dynamic_axes={**axes, SCORES: {0: "actions"}},
            opset_version=18,
            dynamo=False,
        )
        model = load(file)
    helper.set_model_props(model, {LEVER: str(Lever.NODE_LIST), OBSERVATION: fingerprint})
    content: bytes = model.SerializeToString()
    return content


def pointer_parity(
    one: nn.Module,
    names: Sequence[str],
    graph: bytes,
    of_sizes: Iterable[Iterable[Mapping[str, np.ndarray]]],
    least_rows: int = LEAST_ROWS,
) -> Parity:
    """Compare the scores of a graph with those of its network; raises `ModelError` if they differ by too much.

    `of_sizes` are the observations on clusters of each size; enough of them are compared for `least_rows` scores.
    """
    served = TensorGraph(graph, name="policy")
    error, rows = 0.0, 0
    for observations in of_sizes:
        of_size = 0
        for tensors in observations:
            with torch.no_grad():
                expected = one(*(torch.from_numpy(tensors[name]) for name in names)).numpy()
            error = max(error, float(np.abs(served.run(dict(tensors))[SCORES] - expected).max()))
            of_size += len(expected)
            if of_size >= least_rows:
                break
        rows += of_size
    return _within_tolerance(error, rows)


def _within_tolerance(error: float, rows: int) -> Parity:
    if not error <= TOLERANCE:
        raise ModelError(f"the exported policy scores {error:.2g} off its network, more than {TOLERANCE:g}")
    return Parity(rows=rows, max_error=error, tolerance=TOLERANCE)


def exported(
    network: PerOption,
    *,
    kind: str,
    columns: tuple[str, ...],
    decisions: Sequence[Rows],
    seed: int,
    parameters: Mapping[str, Any],
) -> Exported:
    """Export a network with its parity; raises `ModelError` if the graph does not agree with it."""
    graph = to_onnx(network)
    return Exported(
        graph=graph,
        kind=kind,
        columns=columns,
        outputs=(SCORES,),
        parameters=json.dumps(dict(parameters), sort_keys=True),
        parity=checked_parity(network, graph, decisions),
        seed=seed,
    )


def card_of(training: CardText) -> Callable[[Entry], str]:
    """Return what writes the card of a policy as Markdown."""

    def written(entry: Entry) -> str:
        figures = "\n".join(f"| {name} | {value:.4g} |" for name, value in training.metrics.items())
        data = "\n".join(f"| {name} | {value} |" for name, value in training.data.items())
        settings = "".join(f"- {name}: {value}\n" for name, value in training.settings.items())
        limits = "\n".join(f"- {limit}" for limit in training.limits)
        made = ", ".join(f"{name} {version}" for name, version in entry.made_with.items())
        return (
            f"# {entry.kind} {entry.version}\n\n{training.text}\n\nTrained {entry.fitted} with seed {entry.seed}.\n\n"
            f"## Data\n\n| what | value |\n|---|---|\n{data}\n\n"
            f"## Figures\n\n| figure | value |\n|---|--:|\n{figures}\n\n"
            f"## Settings\n\n{settings}\n"
            f"## Limits\n\n{limits}\n\n"
            f"## Graph\n\n- columns: {', '.join(f'`{name}`' for name in entry.columns)}\n"
            f"- largest difference of a score to torch {torch.__version__}: {entry.parity.max_error:.2g} over "
            f"{entry.parity.rows} options; {entry.parity.tolerance:g} would have been let through\n"
            f"- made with {made}\n"
        )

    return written
