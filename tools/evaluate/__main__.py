"""Judge the predictors on files of your own.

    python -m tools.evaluate throughput --format pollux --train DIR... --test FILE... [--profile "nodes==1"]
    python -m tools.evaluate interference --format gavel --train FILE... --test FILE...
    python -m tools.evaluate runtime --format drac --train FILE... --test FILE...
    python -m tools.evaluate start --format drac --train FILE... --test FILE...

Each fits on the files of --train, forecasts the rows of --test that were not fitted on, and prints its errors beside
those of the stated baselines. It needs the extra `fit`: python -m pip install 'sadvise[fit]'.
"""

import sys

import typer

from advisor.errors import AdvisorError
from tools.evaluate.interference_errors import interference
from tools.evaluate.run_time_errors import runtime
from tools.evaluate.score_report import ManyFiles
from tools.evaluate.start_time_errors import start
from tools.evaluate.throughput_errors import throughput

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    help="Judge the predictors on files of your own, next to their baselines, on rows that were not fitted on.",
)
for judge in (throughput, interference, runtime, start):
    app.command(cls=ManyFiles)(judge)


def main() -> None:
    """Run the command; an error is one line."""
    try:
        app(prog_name="python -m tools.evaluate")
    except AdvisorError as err:
        sys.stderr.write(f"evaluate: error: {err}\n")
        sys.exit(err.exit_code)


if __name__ == "__main__":
    main()
