"""Fits run times and tries other settings on the last weeks of the site, each in a process of its own."""

import signal
import sys
from dataclasses import replace
from typing import Final

from advisor.backends.process import Deadline, printable, run, text_of
from advisor.config import Config
from advisor.domain.tune_verdict import Tuned, TuneVerdict
from advisor.domain.units import DAY_S, HOUR_S, duration
from advisor.errors import SlurmError
from advisor.site.frontier_file import DOCUMENT, TunedChange, TunedDocument

DEADLINE_S: Final = HOUR_S


def refit(config: Config, patience: Deadline) -> str:
    """Run `sadvise fit runtime` at the lowest priority, and return its messages.

    Raises `SlurmError` if it fails or takes too long; the models in use then stay.
    """
    answer = run(
        ("nice", "-n", "19", sys.executable, "-m", "advisor.cli.main", "fit", "runtime", "--from", "live",
         "--models", config.forecasts.models),
        timeout_s=DEADLINE_S,
        patience=patience,
    )  # fmt: skip
    return printable(text_of(answer.complaints))


_WEEKS: Final = "now-28days"
_COPIES: Final = 2
# By the clock, on a controller that has other things to do.
_DEADLINE_S: Final = DAY_S
_OUTPUT_BYTES: Final = 64 << 20
# Of CPU, after which a process that goes on is killed.
_SPARE_S: Final = 5.0


def weekly_tune(config: Config, patience: Deadline) -> Tuned:
    """Run `sadvise tune live` at the lowest priority and within its budget of CPU, and return what it found.

    Raises `SlurmError` if it fails, takes too long, or prints what cannot be read.
    """
    budget_s = config.daemon.tune_cpu_s
    argv = (
        "nice", "-n", "19", "prlimit", f"--cpu={budget_s:.0f}:{budget_s + _SPARE_S:.0f}", "--core=0",
        sys.executable, "-m", "advisor.cli.main",
        "tune", "live", "--since", _WEEKS, "--repeats", str(_COPIES), "--workers", "1", "--json",
    )  # fmt: skip
    try:
        answer = run(argv, timeout_s=_DEADLINE_S, limit_bytes=_OUTPUT_BYTES, patience=patience)
    except SlurmError as err:
        # SIGXCPU, which the kernel sends a process that has spent its time; signal 9 could be for want of memory.
        is_spent = f"signal {signal.SIGXCPU}" in str(err)
        spent = f": {duration(budget_s)} of CPU are spent, raise daemon.tune_cpu_s" if is_spent else ""
        raise SlurmError(f"sadvise tune: {err}{spent}") from err
    try:
        document = DOCUMENT.validate_json(text_of(answer.output))
        move = document.moves_to
        return Tuned(
            advised=_verdict(document, document.advised, document.against_in_force),
            move=None
            if move is None
            else replace(
                _verdict(document, move.setting, move.change),
                fairness=move.fairness,
                priority_decades=move.priority_decades,
            ),
        )
    except (ValueError, KeyError) as err:
        raise SlurmError(f"the output of sadvise tune cannot be read: {err}") from err


def _verdict(document: TunedDocument, setting: str | None, change: TunedChange | None) -> TuneVerdict:
    point_by_name = {point.setting: point for point in document.points}
    point, now = point_by_name.get(setting or ""), point_by_name[document.in_force]
    if point is None or change is None or None in (change.percent, change.low, change.high):
        return TuneVerdict(jobs=document.jobs, in_force=document.in_force)
    return TuneVerdict(
        jobs=document.jobs,
        in_force=document.in_force,
        preset=point.preset or "",
        setting=point.setting,
        lines="; ".join(f"{line.file}: {line.text}" for line in point.lines),
        percent=change.percent or 0.0,
        low=change.low or 0.0,
        high=change.high or 0.0,
        users=point.users,
        worse=point.users_worse,
        beyond_chance=point.users_worse_beyond_chance,
        beyond_chance_now=now.users_worse_beyond_chance,
    )
