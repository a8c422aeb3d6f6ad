"""Publishes a run-time model with the forests that ship and the history of a site."""

from dataclasses import replace
from pathlib import Path

from advisor.fit.card import card
from advisor.fit.fitted import Fitted
from advisor.fit.publish import Exported, publish_graph
from advisor.predict.library import Held, checked_content
from advisor.predict.manifest import GRAPH, PARAMETERS, Entry
from advisor.predict.run_time import RunTimeParameters


def publish_with_forests_of(
    shipped: Held, fitted: Fitted, folder: Path, version: str, *, today: str, private: bool = False
) -> Entry:
    """Write a version as `publish` does, with the graph of a shipped one and the history of a fit.

    Raises `ModelError` where the shipped model is damaged.
    """
    content, entry = checked_content(shipped), shipped.entry
    parameters = RunTimeParameters.model_validate_json(content[PARAMETERS])
    history = RunTimeParameters.model_validate_json(fitted.parameters).history
    exported = Exported(
        graph=content[GRAPH],
        kind=entry.kind,
        columns=entry.columns,
        outputs=entry.outputs,
        parameters=parameters.model_copy(update={"history": history}).model_dump_json(),
        parity=entry.parity,
        seed=entry.seed,
        private=private,
        tested=fitted.tested,
        reason=fitted.reason,
    )
    text = (
        f"The forests of {shipped.name}, fitted on another site (`sadvise models show {entry.kind} {entry.version}`), "
        "with the history of the users of this one. It learns from every job that ends."
    )
    described = replace(fitted, text=text, settings={})
    return publish_graph(exported, folder, version, today=today, card=lambda entry: card(described, entry))
