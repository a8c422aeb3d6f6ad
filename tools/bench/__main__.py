"""Run one benchmark: `python -m tools.bench NAME [OPTIONS]`; `python -m tools.bench NAME --help` lists its options."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Final

from advisor.errors import AdvisorError
from tools.chosen import chosen

PROG: Final = "python -m tools.bench"
# Each is a module of this package with `add_options(parser)` and `run(options)`, which returns the exit code.
BENCHES: Final[Mapping[str, str]] = {
    "commands": "time and CPU of --version, recommend and explain on a long queue",
    "soak": "CPU and memory of the daemon's rounds over a large synthetic cluster, for a day",
    "journal": "CPU and size of whole cycles in the journal",
    "read": "CPU and requests of a snapshot, by reader; starts its own Slurm",
    "submit": "what the Lua script adds to a submission; starts its own Slurm",
    "simulate": "speed and memory of the simulator on published traces",
    "rollout": "time of plans rolled out from a snapshot",
    "web": "time and bytes of the pages of sadvise web",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the options of one benchmark, measure, print; return the exit code."""
    name, given = chosen(PROG, BENCHES, arguments)
    # Only the chosen one is imported: what the others need would count in its memory.
    bench = import_module(f"tools.bench.{name}")
    parser = argparse.ArgumentParser(
        prog=f"{PROG} {name}", description=bench.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    bench.add_options(parser)
    options = parser.parse_args(given)
    try:
        status: int = bench.run(options)
    except AdvisorError as err:
        print(err, file=sys.stderr)
        return err.exit_code
    return status


if __name__ == "__main__":
    raise SystemExit(main())
