"""Words what a user declared of a job in its comment."""

from collections.abc import Iterator

from advisor.domain.job import JobHints
from advisor.domain.units import duration, plural


def hint_sentences(hints: JobHints) -> Iterator[tuple[str, str]]:
    """Yield labels and sentences about the hints of a job; none where its user gave none."""
    declared = list(_declared(hints))
    if declared:
        yield "hints", f"its user declares in --comment: {'; '.join(declared)}"
    if hints.unknown:
        yield "hints", f"not understood in --comment: {' '.join(hints.unknown)}"


def _declared(hints: JobHints) -> Iterator[str]:
    if hints.opted_out:
        yield "sadvise is to leave it alone"
    if hints.model is not None:
        yield f"it trains the model {hints.model}"
    if hints.gpus is not None:
        low, high = hints.gpus.low, hints.gpus.high
        yield f"it can run on {plural(low, 'GPU') if low == high else f'{low} to {high} GPUs'}"
    if hints.checkpoint_s is not None:
        yield f"it saves its state every {duration(hints.checkpoint_s)}"
    if hints.step_s is not None:
        yield f"a step takes {hints.step_s:.3g} s"
    if hints.wants_mail:
        yield "its user wants mail"
    if hints.sensitivity is not None:
        yield f"spreading it out costs {'much' if hints.sensitivity == 'high' else 'little'}"
