"""Publishes a fitted predictor as a model that can be served: graph, parity check, card, manifest."""

import importlib.metadata
import platform
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor import __version__
from advisor.domain.dataclass import dataclass
from advisor.domain.probation import Proof
from advisor.errors import ModelError
from advisor.files import EVERYONE, OWNER_AND_GROUP
from advisor.fit.fitted import Fitted, predictions, to_onnx
from advisor.predict.library import Held, checked_content
from advisor.predict.manifest import (
    CARD,
    GRAPH,
    PARAMETERS,
    Entry,
    Parity,
    digest,
    fingerprint,
    read_manifest,
    tested_by,
    write_file,
    write_manifest,
)
from advisor.predict.onnx_model import FINGERPRINT_KEY, OnnxModel
from advisor.predict.run_time import RunTimeParameters
from advisor.predict.tryout import admit
from advisor.text import escaped

# The largest difference between graph and origin, as a share of the spread of the origin's answers.
TOLERANCE = 1e-4
LEAST_PROBE_ROWS = 20
_PACKAGES = ("numpy", "scikit-learn", "skl2onnx", "onnx", "onnxruntime")


def publish(fitted: Fitted, folder: Path, version: str, *, today: str, private: bool = False) -> Entry:
    """Write a fitted model as `folder/<kind>/<version>/`, without putting it in use; `today` is an ISO date.

    With `private` its parameters, which can hold the history of users, are closed to other users.

    Raises `ModelError`, and writes nothing, if the graph disagrees with the regressors or the version exists.
    """
    graph = to_onnx(fitted.regressors, len(fitted.columns))
    exported = Exported(
        graph=graph,
        kind=fitted.kind,
        columns=fitted.columns,
        outputs=fitted.outputs,
        parameters=fitted.parameters,
        parity=check_parity(fitted, graph),
        seed=fitted.seed,
        private=private,
        tested=fitted.tested,
        reason=fitted.reason,
    )
    return publish_graph(exported, folder, version, today=today, card=lambda entry: card(fitted, entry))


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """A graph that agrees with its origin, and the entries of its manifest and parameters."""

    graph: bytes
    kind: str
    columns: tuple[str, ...]
    outputs: tuple[str, ...]
    parameters: str
    parity: Parity
    seed: int
    private: bool = False
    tested: Proof | None = None
    reason: str = ""


def exported_again(held: Held, change: Callable[[str], str], **facts: Any) -> Exported:
    """Return the graph of a version with changed parameters, and more facts; raises `ModelError` for a damaged one."""
    content, entry = checked_content(held), held.entry
    return Exported(
        graph=content[GRAPH],
        kind=entry.kind,
        columns=entry.columns,
        outputs=entry.outputs,
        parameters=change(content[PARAMETERS].decode()),
        parity=entry.parity,
        seed=entry.seed,
        **facts,
    )


def publish_graph(exported: Exported, folder: Path, version: str, *, today: str, card: Callable[[Entry], str]) -> Entry:
    """Write a graph as `folder/<kind>/<version>/` with its fingerprint, without putting it in use.

    Raises `ModelError`, and writes nothing, if the version exists or the graph is not admitted.
    """
    kind, columns, outputs, tested = exported.kind, exported.columns, exported.outputs, exported.tested
    manifest = read_manifest(folder)
    if manifest.entry(kind, version) is not None:
        raise ModelError(f"{folder}: version {version} of {kind} is there already")
    admit(exported.graph, name=f"{kind} {version}")
    print_of = fingerprint(kind, columns, outputs)
    files = {GRAPH: _marked(exported.graph, print_of), PARAMETERS: exported.parameters.encode()}
    entry = Entry(
        kind=kind,
        version=version,
        fitted=today,
        seed=exported.seed,
        columns=columns,
        outputs=outputs,
        fingerprint=print_of,
        parity=exported.parity,
        made_with=_versions(),
        digests={name: digest(content) for name, content in files.items()},
        tested=None if tested is None else tested_by(tested),
        reason=exported.reason,
    )
    files[CARD] = card(entry).encode()
    for name, content in files.items():
        is_closed = exported.private and name == PARAMETERS
        write_file(folder / kind / version / name, content, mode=OWNER_AND_GROUP if is_closed else EVERYONE)
    # The manifest is written last, so that every version that it lists is complete.
    write_manifest(folder, manifest.model_copy(update={"model": (*manifest.model, entry)}))
    return entry


def check_parity(fitted: Fitted, graph: bytes) -> Parity:
    """Compare a graph with its regressors on the probe rows; raises `ModelError` if they differ by too much."""
    if len(fitted.probe) < LEAST_PROBE_ROWS:
        raise ModelError(f"{fitted.kind}: {len(fitted.probe)} rows are too few to check the exported model on")
    model = OnnxModel(graph, name=fitted.kind, columns=len(fitted.columns), outputs=len(fitted.outputs))
    expected = predictions(fitted.regressors, fitted.probe)
    error = float(np.max(np.abs(model.run(fitted.probe) - expected) / _spread(expected)))
    if not error <= TOLERANCE:
        raise ModelError(
            f"{fitted.kind}: the exported model is off by {error:.2g} of the spread of its answers, more than "
            f"{TOLERANCE:g}: not published"
        )
    return Parity(rows=len(fitted.probe), max_error=error, tolerance=TOLERANCE)


def _spread(expected: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the standard deviation of each output; 1 for one that is constant. `(n_outputs,)`."""
    deviation: NDArray[np.float64] = expected.std(axis=0)
    return np.where(deviation > 0.0, deviation, 1.0)


def _marked(graph: bytes, print_of: str) -> bytes:
    import onnx

    model = onnx.load_model_from_string(graph)
    kept = {entry.key: entry.value for entry in model.metadata_props}
    onnx.helper.set_model_props(model, {**kept, FINGERPRINT_KEY: print_of})
    content: bytes = model.SerializeToString()
    return content


def _versions() -> dict[str, str]:
    return {
        "sadvise": __version__,
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in _PACKAGES},
    }


def card(fitted: Fitted, entry: Entry) -> str:
    """Return the card of a fitted model as Markdown."""
    return "\n".join(_lines(fitted, entry)) + "\n"


def _lines(fitted: Fitted, entry: Entry) -> Iterator[str]:
    yield f"# {entry.kind} {entry.version}"
    yield ""
    yield fitted.text
    yield ""
    yield f"Fitted {entry.fitted} with seed {entry.seed}. Written by `sadvise fit`; do not edit."
    yield ""
    yield "## Fitted on"
    yield ""
    yield "| file | rows | SHA-256 |"
    yield "|---|--:|---|"
    for source in fitted.sources:
        yield f"| `{escaped(source.name)}` | {source.rows:,} | `{source.sha256}` |"
    yield ""
    yield "## On rows that were not fitted on"
    yield ""
    yield "| figure | value |"
    yield "|---|--:|"
    for name, value in fitted.metrics.items():
        yield f"| {name} | {value:.4g} |"
    if entry.tested is not None:
        yield ""
        yield (
            f"Tested on jobs of this site that it was not fitted on: {entry.tested.inside} of {entry.tested.jobs} ran "
            f"for a time within their 80 % intervals. It {entry.tested.order.words}."
        )
    if entry.reason:
        yield ""
        yield f"Served: {entry.reason}."
    if fitted.settings:
        yield ""
        yield "## Settings"
        yield ""
        yield from (f"- {name}: {value}" for name, value in fitted.settings.items())
    yield ""
    yield "## Graph"
    yield ""
    yield f"- columns: {', '.join(f'`{name}`' for name in entry.columns)}"
    yield f"- outputs: {', '.join(f'`{name}`' for name in entry.outputs)}"
    yield (
        f"- largest difference to scikit-learn: {entry.parity.max_error:.2g} of the spread of its answers over "
        f"{entry.parity.rows} rows; {entry.parity.tolerance:g} would have been let through"
    )
    yield f"- made with {', '.join(f'{name} {version}' for name, version in entry.made_with.items())}"


def publish_with_forests_of(
    shipped: Held, fitted: Fitted, folder: Path, version: str, *, today: str, private: bool = False
) -> Entry:
    """Write a version as `publish` does, with the graph of a shipped one and the history of a fit.

    Raises `ModelError` where the shipped model is damaged.
    """
    history = RunTimeParameters.model_validate_json(fitted.parameters).history

    def with_history(parameters: str) -> str:
        forests = RunTimeParameters.model_validate_json(parameters)
        return forests.model_copy(update={"history": history}).model_dump_json()

    kept = {"private": private, "tested": fitted.tested, "reason": fitted.reason}
    exported, entry = exported_again(shipped, with_history, **kept), shipped.entry
    text = (
        f"The forests of {shipped.name}, fitted on another site (`sadvise models show {entry.kind} {entry.version}`), "
        "with the history of the users of this one. It learns from every job that ends."
    )
    described = replace(fitted, text=text, settings={})
    return publish_graph(exported, folder, version, today=today, card=lambda entry: card(described, entry))
