"""Writes the card of a model: its purpose, the data it was fitted on, and its errors on other data."""

from collections.abc import Iterator

from advisor.fit.fitted import Fitted
from advisor.predict.manifest import Entry
from advisor.text import escaped


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
