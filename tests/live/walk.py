"""The first evening of a site: the commands that its administrator types, and what each has to print."""

import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tests.live.controller import Prompt, Typed

_WAIT_S: Final = 480.0
_POLL_S: Final = 2.0
_CHANGED: Final = "sadvise journal -P -h | grep -m1 '|nice|out|' | cut -d'|' -f1"


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedStep:
    """A command, and regular expressions of what it has to print.

    `awaits` is a line that has to succeed before; what it prints replaces `JOBID` in the command. A command that
    `is_repeated` is typed until it prints what it has to, each time for the job that `awaits` prints then.
    """

    line: str
    holds: tuple[str, ...]
    exit_status: int = 0
    is_repeated: bool = False
    awaits: str = ""


LOOK: Final = (
    TypedStep(
        line="sadvise check",
        holds=(r"Slurm release +ok", r"lever nice +ok", r"topology +ok"),
    ),
)
HISTORY: Final = (
    TypedStep(
        line="sadvise import sacct live -o history.csv",
        holds=(r"history\.csv: \d+ jobs", "next: sadvise simulate history.csv --cluster live"),
    ),
    TypedStep(
        line="sadvise fit runtime --from live",
        holds=(r"\d+ ended GPU jobs", "version site-1 is in use", "run_time: (not )?on probation"),
    ),
    TypedStep(
        line="sadvise tune live --no-slurm --repeats 2 --jobs 20",
        holds=(r"\nfree +\w+: ", r"\ntrade +\w+", r"\nadvised +\w+"),
    ),
    TypedStep(
        line="sadvise simulate history.csv --cluster live --jobs 40",
        holds=("mean JCT", "rules against slurm"),
    ),
)
QUEUE: Final = (
    TypedStep(
        line="sadvise recommend --long",
        holds=(r"reorder job \d+", r"scontrol update JobId=\d+ Nice=-?\d+"),
        is_repeated=True,
    ),
)
DAEMON: Final = (
    TypedStep(
        line="sadvise journal",
        awaits=f'test -n "$({_CHANGED})"',
        holds=(r"\d+ +nice +out",),
    ),
    TypedStep(
        line="sadvise explain JOBID",
        awaits=f"set -o pipefail; {_CHANGED} | grep .",
        # The job can start before it is explained, and then nothing of its change is left to show.
        is_repeated=True,
        holds=(r"job +\d+ .*, user \w+", r"changed +since "),
    ),
    TypedStep(
        line="sadvise status",
        awaits="sadvise status",
        holds=("daemon +running, pid", r"out +\d+ changes? in effect"),
    ),
    TypedStep(
        line="sadvise report",
        awaits="sadvise report | grep '[1-9][0-9]* GPU jobs ended, [1-9]'",
        holds=(r"\d+ GPU jobs ended, [1-9]\d* were changed", r"nice +\d+"),
    ),
    TypedStep(
        line='sadvise pause --reason "end of the evening"; sudo -u sadvise sadvise revert --all',
        holds=("paused", "(Nice=0|nothing of ours is out)"),
    ),
    TypedStep(
        line="sadvise journal",
        # A change that was being sent when the pause began goes back with the next revert.
        awaits="sudo -u sadvise sadvise revert --all; sadvise journal | grep 'nothing of ours is out'",
        holds=("nothing of ours is out",),
    ),
)
WRONG: Final = (
    TypedStep(
        line="sadvise import sacct live --since yesterdy -o history.csv",
        exit_status=2,
        holds=("sacct does not take this time: .*now-90days",),
    ),
    TypedStep(
        line="sadvise import sacct live -o /proc/history.csv",
        exit_status=1,
        holds=("/proc/history.csv: cannot be written",),
    ),
    TypedStep(
        line="sadvise simulate history.csv --cluster lvie",
        exit_status=1,
        holds=("lvie: no such cluster file",),
    ),
    TypedStep(
        line="sadvise report --since yesterdy",
        exit_status=2,
        holds=("give a time ago such as 2h",),
    ),
)
WITHOUT_SLURMDBD: Final = (
    TypedStep(
        line="sadvise fit runtime --from live",
        exit_status=1,
        holds=("sacct cannot reach slurmdbd: check that it runs",),
    ),
    TypedStep(line="sadvise import sacct live -o none.csv", exit_status=1, holds=("sacct cannot reach slurmdbd",)),
    TypedStep(line="sadvise check", holds=(r"Slurm release +ok",)),
)


def walk(prompt: Prompt, steps: Sequence[TypedStep]) -> Iterator[tuple[TypedStep, Typed]]:
    """Type the commands one after the other, and yield what each printed."""
    for step in steps:
        yield step, _answer(prompt, step)


def faults(step: TypedStep, typed: Typed) -> Iterator[str]:
    """Yield what is wrong with the answer to a command."""
    if typed.exit_status != step.exit_status:
        yield f"{typed.line}: exit status {typed.exit_status}, not {step.exit_status}: {typed.printed[-400:]}"
    if "Traceback" in typed.printed:
        yield f"{typed.line}: a traceback"
    for pattern in step.holds:
        if not re.search(pattern, typed.printed):
            yield f"{typed.line}: does not print {pattern}: {typed.printed[-400:]}"


def _answer(prompt: Prompt, step: TypedStep) -> Typed:
    """Type the command of a step, one that is repeated until it prints what it has to; return the last answer."""

    def type_once() -> Typed:
        awaited = _repeated(lambda: prompt.type(step.awaits), _has_succeeded).printed if step.awaits else ""
        return prompt.type(step.line.replace("JOBID", awaited.strip()))

    return _repeated(type_once, lambda typed: not any(faults(step, typed))) if step.is_repeated else type_once()


def _has_succeeded(typed: Typed) -> bool:
    return typed.exit_status == 0


def _repeated(type_once: Callable[[], Typed], is_right: Callable[[Typed], bool]) -> Typed:
    """Type until the answer is right, or the time is over; return the last answer."""
    until = time.monotonic() + _WAIT_S
    while True:
        typed = type_once()
        if is_right(typed) or time.monotonic() > until:
            return typed
        time.sleep(_POLL_S)
