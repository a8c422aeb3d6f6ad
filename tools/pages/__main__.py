"""Simulate an experiment and write its page: `python -m tools.pages NAME [OPTIONS]`.

The TOML file of its name in this folder describes it, and every key there is an option. With `--store`, finished runs
are kept as JSON, and the same command goes on where it was interrupted; a change of the simulator runs all again.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Final

from advisor.errors import AdvisorError, SimulationError
from advisor.sim.study.sweep import SweepInterrupted
from tools.chosen import chosen
from tools.data.simulated_traces import add_data_option
from tools.pages.page_experiment import PROG, Runner, add_options, command_of, described, experiment_of, summaries

ROOT: Final = Path(__file__).parent.parent.parent
INTERRUPTED: Final = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the options, simulate, write the page; return the exit code."""
    name, given = chosen(PROG, summaries(), arguments)
    description = described(name)
    parser = argparse.ArgumentParser(prog=f"{PROG} {name}", description=description["summary"])
    add_options(parser, description)
    add_data_option(parser)
    parser.add_argument("--store", type=Path, metavar="FOLDER", help="keep finished runs there")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)), help="runs at once")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help=f"default: {description.get('output', '-')}")
    options = parser.parse_args(given)
    try:
        if options.workers < 1:
            raise SimulationError(f"--workers {options.workers}: give 1 or more")
        experiment = experiment_of(description, options)
        make = import_module(f"tools.pages.{experiment.page}").make
        runner = Runner(store=options.store, workers=options.workers)
        text = make(experiment, runner, command_of(name, description, options), options.data)
        _write(options.output or (ROOT / experiment.output if experiment.output else None), text)
    except SweepInterrupted as err:
        print(f"interrupted: {err}", file=sys.stderr)
        return INTERRUPTED
    except AdvisorError as err:
        print(err, file=sys.stderr)
        return err.exit_code
    return 0


def _write(output: Path | None, text: str) -> None:
    """Write a page to a file, or to the standard output; raises `SimulationError` where that cannot be."""
    if output is None:
        print(text, end="")
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as err:
        raise SimulationError(f"{output}: cannot be written: {err.strerror}") from err


if __name__ == "__main__":
    raise SystemExit(main())
