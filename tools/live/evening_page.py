"""Writes the page of the first evening: the commands, what they printed, shortened, and how long they took."""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from advisor.domain.units import DAY_S
from tools.live.controller import Typed
from tools.live.past import Past
from tools.live.walk import Step
from tools.live.window import Cut

_WIDTH: Final = 120
_HEAD: Final = """\
# The first evening

From the package to the report on the controller of a running cluster, as {command} typed
it and as it answered; seconds are on two busy cores. Lines are left out, and cut (`...`). [install.md](install.md)
explains the installation, [simulation.md](simulation.md), [tune.md](tune.md), [forecasts.md](forecasts.md) and
[report.md](report.md) the commands.

- **The site**: Slurm 22.05 with slurmdbd, 4 nodes of 8 fake GPUs under two leaf switches.
- **Its past**: {jobs} jobs of {users} users of the trace that ships ran there in {wall_s:.0f} s. Then their times in
  the database of slurmdbd were made {speedup:g} times as long, and their limits those of the trace, so that accounting
  holds {days:.1f} days of jobs of hours.
- **Its present**: the same users submit on, but these jobs end after 15 to 90 s, whatever they ask for. So nothing
  here measures a gain, and the report finds the forecasts of run times wrong, as it should.
"""
_COMMAND: Final = "`python -m tools.live.evening --out docs/first-evening.md`"


def page(past: Past, cut: Cut, answers: Sequence[tuple[Step, Typed]]) -> str:
    """Return the page in Markdown."""
    span_s = float(past.trace.jobs["submit_time"][-1])
    head = _HEAD.format(
        command=_COMMAND,
        jobs=len(past.trace),
        users=past.users,
        wall_s=past.wall_s,
        speedup=cut.speedup,
        days=span_s / DAY_S,
    )
    return head + "\n".join(_blocks(answers)) + "```\n"


def _blocks(answers: Sequence[tuple[Step, Typed]]) -> Iterator[str]:
    """Yield the lines of the page; a step without a sentence goes on with the block before it."""
    for place, (step, typed) in enumerate(answers):
        if step.says:
            yield from ([] if place == 0 else ["```"])
            yield from ("", step.says, "", "```")
        yield f"# {typed.line}    ({typed.wall_s:.1f} s)"
        yield from _shortened(typed.printed, step)
    yield ""


def _shortened(printed: str, step: Step) -> Iterator[str]:
    """Yield the lines to show, each cut to the width of a page."""
    shown = [line for line in printed.splitlines() if line.strip() and re.search(step.shown, line)]
    for line in shown[: step.most]:
        narrow = re.sub(r" {3,}", "   ", line)
        yield narrow[:_WIDTH].rstrip() + ("..." if len(narrow) > _WIDTH else "")
