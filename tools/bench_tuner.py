"""The auto-tuner of delay timers: against the best fixed timers, and after a step; writes the page.

    python -m tools.bench_tuner [--seeds N] [--jobs N] [--store FOLDER] [--workers N] [-o docs/tuner.md]

The cluster and the workload are those of `tools/bench_dally.py`. With `--store`, finished runs are kept, and the same
command goes on where it was interrupted; a change of the simulator makes them anew.
"""

import argparse
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import advisor
from tools.dally.page import paragraph
from tools.dally.regret import Regrets, regret_section, run_regrets
from tools.dally.step_page import step_section
from tools.page_file import check_counts, command_of, exit_code_of, write_page

PAGE: Final = Path(__file__).parent.parent / "docs" / "tuner.md"
SEEDS: Final = 10
JOBS: Final = 500


def page(regrets: Regrets, steps: Iterator[str], command: str) -> str:
    """Return the page; `command` is what makes it again."""
    return "\n".join([*_head(regrets, command), *regret_section(regrets), *steps]).rstrip("\n") + "\n"


def _head(regrets: Regrets, command: str) -> Iterator[str]:
    seeds, jobs = next((len(results), results[0].summary.jobs) for own in regrets.values() for results in own.values())
    yield "# How good the tuned timers are"
    yield ""
    yield from paragraph(f"Written by `{command}`; do not edit. sadvise {advisor.__version__}.")
    yield from paragraph(
        f"""Gangs wait for a place close together until a delay timer ends. Under `dally` the timers tune themselves, by
        a rule of ours (`advisor/planning/tuning.py`), as the paper's is not published. Workload and cluster are those
        of [dally.md](dally.md): {jobs} jobs a trace on 512 GPUs, {seeds} seeds, the same traces for all timers. A
        change is the geometric mean over seeds of what it is on one, in brackets its 95 % interval."""
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the options, simulate, write the page."""
    parser = argparse.ArgumentParser(prog="python -m tools.bench_tuner", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs", type=int, default=JOBS, help="of a trace, default %(default)s")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="default %(default)s; below 3 there is no interval")
    parser.add_argument("--store", type=Path, metavar="FOLDER", help="keep finished runs there")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)), help="runs at once")
    parser.add_argument("-o", "--output", type=Path, default=PAGE, metavar="FILE")
    options = parser.parse_args(arguments)

    def work() -> None:
        check_counts(options, ("jobs", "seeds", "workers"))
        regrets = run_regrets(options.seeds, options.jobs, store=options.store, workers=options.workers)
        steps = step_section(options.seeds, options.workers)
        write_page(options.output, page(regrets, steps, command_of(parser, options, ("jobs", "seeds"))))

    return exit_code_of(work)


if __name__ == "__main__":
    raise SystemExit(main())
