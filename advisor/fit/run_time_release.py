"""Publishes a run-time model with the forests that ship and the history of a site."""

from dataclasses import replace
from pathlib import Path

from advisor.fit.card import card
from advisor.fit.fitted import Fitted
from advisor.fit.publish import exported_again, publish_graph
from advisor.predict.library import Held
from advisor.predict.manifest import Entry
from advisor.predict.run_time import RunTimeParameters


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
