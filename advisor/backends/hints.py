"""Decodes the hints in the comment of a job, after `sadvise:`."""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from functools import lru_cache

from advisor.backends.spelling import CACHED_TEXTS
from advisor.domain.job import LATEST_TIME, GpuRange, JobHints, Sensitivity

_OURS = re.compile(r"(?<![\w-])sadvise:([^;]*)", re.IGNORECASE | re.DOTALL)
_SEPARATORS = re.compile(r"[\s,]+")
_RANGE = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?", re.ASCII)
_NODES = re.compile(r"[1-9]\d{0,5}", re.ASCII)
_SECONDS = re.compile(r"\d{1,9}", re.ASCII)
_INSTANT = re.compile(r"\d{4}-\d\d-\d\d(?:T\d\d:\d\d(?::\d\d)?)?", re.ASCII)
_DECIMALS = re.compile(r"\d{1,6}(?:\.\d{1,9})?", re.ASCII)
# A comment can contain anything; the part that is repeated to the user is bounded.
_WORD_LENGTH = 40
_MOST_UNKNOWN = 8


@lru_cache(CACHED_TEXTS)
def hints(comment: str) -> JobHints:
    """Read the hints of a comment; an unknown word or an invalid value is kept as unknown, never an error."""
    known = JobHints()
    unknown: list[str] = []
    match = _OURS.search(comment)
    for word in _SEPARATORS.split(match[1]) if match else ():
        if not word:
            continue
        key, equals, value = word.partition("=")
        read = _READERS.get(key.lower() + equals)
        changed = read(known, value) if read else None
        if changed is None:
            unknown.append(word[:_WORD_LENGTH])
        else:
            known = changed
    return replace(known, unknown=tuple(unknown[:_MOST_UNKNOWN]))


def _model(known: JobHints, value: str) -> JobHints | None:
    return replace(known, model=value) if value and len(value) <= _WORD_LENGTH else None


def _gpus(known: JobHints, value: str) -> JobHints | None:
    match = _RANGE.fullmatch(value)
    if match is None:
        return None
    low, high = int(match[1]), int(match[2] or match[1])
    return replace(known, gpus=GpuRange(low=low, high=high)) if 1 <= low <= high else None


def _step(known: JobHints, value: str) -> JobHints | None:
    step_s = float(value) if _DECIMALS.fullmatch(value) else 0.0
    return replace(known, step_s=step_s) if step_s > 0.0 else None


def _by(known: JobHints, value: str) -> JobHints | None:
    """Read an instant in local time, as options of Slurm are."""
    try:
        instant = datetime.fromisoformat(value).timestamp() if _INSTANT.fullmatch(value) else -1.0
    except (ValueError, OverflowError, OSError):
        return None
    return replace(known, deadline_time=instant) if 0.0 <= instant <= LATEST_TIME else None


def _sensitivity(known: JobHints, value: str) -> JobHints | None:
    spelled = value.lower()
    return replace(known, sensitivity=Sensitivity(spelled)) if spelled in list(Sensitivity) else None


_READERS: Mapping[str, Callable[[JobHints, str], JobHints | None]] = {
    "model=": _model,
    "gpus=": _gpus,
    "ckpt=": lambda known, value: replace(known, checkpoint_s=float(value)) if _SECONDS.fullmatch(value) else None,
    "step=": _step,
    "sensitivity=": _sensitivity,
    "by=": _by,
    "off": lambda known, _: replace(known, opted_out=True),
    "pinned=": lambda known, value: replace(known, pinned=int(value)) if _NODES.fullmatch(value) else None,
    "mail": lambda known, _: replace(known, wants_mail=True),
}
