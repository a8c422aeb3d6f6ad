"""What `simulate` and `compare` share: their options, and from options to traces, policies and cells."""

import math
import os
import shlex
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from advisor.config import Config
    from advisor.sim.comparison import Difference
    from advisor.sim.metrics import RunSummary
    from advisor.sim.result import RunResult
    from advisor.sim.runner import Options
    from advisor.sim.trace import Trace

RUNS = "What is simulated"
BASELINE = ("slurm", "rules")
INTERRUPTED = 130
# A few hundred jobs.
SMALL_TRACE_BYTES = 60_000
SLOW_JOBS = 2_000


class Execution(StrEnum):
    """How true run times come about."""

    MEASURED = "measured"
    IDEAL = "ideal"


Policies = Annotated[
    list[str] | None,
    typer.Option(
        "--policy",
        metavar="NAME",
        envvar="SADVISE_SIM_POLICY",
        help="A policy to simulate; repeat it for more. The others are compared with the first. Default: slurm, rules.",
        rich_help_panel=RUNS,
    ),
]
FirstJobs = Annotated[
    int | None,
    typer.Option(
        "--jobs",
        metavar="N",
        min=1,
        envvar="SADVISE_SIM_JOBS",
        help="Only the first N jobs of a trace.",
        rich_help_panel=RUNS,
    ),
]
ExecutionOf = Annotated[
    Execution,
    typer.Option(
        "--execution",
        envvar="SADVISE_SIM_EXECUTION",
        help="measured: placement and neighbours slow jobs down as measured; ideal: they do not.",
        rich_help_panel=RUNS,
    ),
]
Speeds = Annotated[
    str,
    typer.Option(
        "--speeds",
        metavar="SOURCE",
        envvar="SADVISE_SIM_SPEEDS",
        help="Where policies know speeds from: oracle, estimated, or noisy=X for X percent of error.",
        rich_help_panel=RUNS,
    ),
]
SkipBad = Annotated[
    bool, typer.Option("--skip-bad", help="Leave bad rows of a trace out, and say so.", rich_help_panel=RUNS)
]
Report = Annotated[
    Path | None, typer.Option("--report", metavar="FILE", help="Also write a report, one self-contained HTML page.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What holds for every run of a command; `changed` are the settings that differ from the defaults."""

    policies: tuple[str, ...]
    execution: Execution
    speeds: str
    options: "Options"
    changed: tuple[str, ...]


def setting_of(policies: Sequence[str] | None, execution: Execution, speeds: str, config: "Config") -> Setting:
    """Check what was asked for; raises `SimulationError` for a policy or a source of speeds that is not known."""
    from advisor.config import DEFAULT, effective_values
    from advisor.sim.runner import Options, known_policy

    return Setting(
        policies=tuple(dict.fromkeys(known_policy(name).name for name in policies or BASELINE)),
        execution=execution,
        speeds=speeds,
        options=Options(execution=execution.value, speeds=speeds, planning=config.planning, limits=config.guard),
        changed=tuple(
            f"{each.key} = {each.value} ({each.origin})"
            for each in effective_values(config)
            if each.origin != DEFAULT and not each.key.startswith("source.")
        ),
    )


def spare_the_compiler(path: Path) -> None:
    """Let a small trace run as plain Python: compiling the simulator would take longer than it saves.

    To be called before anything of the simulator is imported.
    """
    with suppress(OSError):  # a missing file is reported where it is read
        if path.is_file() and path.stat().st_size < SMALL_TRACE_BYTES:
            os.environ.setdefault("NUMBA_DISABLE_JIT", "1")


def warn_if_slow(jobs: int) -> None:
    """Say on standard error when many jobs are about to be simulated by plain Python."""
    from advisor.sim.compiled import IS_COMPILED

    if not IS_COMPILED and jobs > SLOW_JOBS:
        sys.stderr.write(
            f"sadvise: {jobs:,} jobs without numba take about a hundred times longer: pip install 'sadvise[simulate]'\n"
        )


def load_trace(path: Path, *, first: int | None, skip_bad: bool) -> "Trace":
    """Read a trace, or the first jobs of it."""
    from advisor.sim.trace_file import read_trace

    trace = read_trace(path, skip_bad=skip_bad)
    return trace if first is None else replace(trace, jobs=trace.jobs[:first])


def demo_trace_path() -> Path:
    """Return the trace that ships with the package."""
    return Path(str(files("advisor") / "demo" / "trace.csv"))


def command_line(command: str, words: Sequence[str], setting: Setting, more: Sequence[tuple[str, object]]) -> str:
    """Spell a command with every choice it made, those of variables and defaults too; None and False are left out."""
    options = [
        *(("--policy", policy) for policy in setting.policies),
        ("--execution", setting.execution.value),
        ("--speeds", setting.speeds),
        *more,
    ]
    spelled = ["sadvise", command, *words]
    for name, value in options:
        if value is True:
            spelled.append(name)
        elif value is not None and value is not False:
            spelled += [name, str(value)]
    return shlex.join(spelled)


@contextmanager
def progress_bar(total: int, noun: str) -> Iterator[Callable[[float], None] | None]:
    """Show on standard error how much of `total` is done, if that is a terminal; else give None."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (
        BarColumn(),
        TextColumn(f"{{task.completed:.1f}} of {{task.total:.0f}} {noun}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(noun, total=total)
        yield lambda done: bar.update(task, completed=done)


@contextmanager
def terminated_as_interrupted() -> Iterator[None]:
    """Let SIGTERM end a run as Ctrl-C does, so that it says what it keeps."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def interrupted(text: str) -> typer.Exit:
    """Say on standard error what an interruption leaves; the answer is to be raised."""
    sys.stderr.write(f"sadvise: interrupted: {text}\n")
    return typer.Exit(INTERRUPTED)


def drawn_in_words(told: "Trace", sampled: Sequence[str]) -> list[str]:
    """Say which columns were drawn at random: when the trace was made, and now."""
    now = [column for column in sampled if column not in told.sampled]
    earlier = [f"{', '.join(told.sampled)}: when the trace was made"] if told.sampled else []
    return [*earlier, *([f"{', '.join(now)}: not in the trace, now from the seed"] if now else [])]


def meta(schema: str, command: str, setting: Setting) -> dict[str, Any]:
    """Return what opens a published document; what was simulated on comes on top of it."""
    from advisor import __version__

    return {
        "tool": "sadvise",
        "version": __version__,
        "schema": schema,
        "command": command,
        "execution": setting.execution.value,
        "speeds": setting.speeds,
        "settings": list(setting.changed),
    }


def run_values(summary: "RunSummary") -> dict[str, Any]:
    """Return the metrics of a run as published; null where there is none."""
    return {name: _known(value) for name, value in asdict(summary).items()}


def end_values(result: "RunResult") -> dict[str, Any]:
    """Return how the jobs of a run ended, as published."""
    summary = result.summary
    return {"policy": summary.policy, "trace": summary.trace, "seed": summary.seed, **asdict(result.ends)}


def change_values(difference: "Difference") -> dict[str, Any]:
    """Return a change against the first policy as published; null where there is none."""
    change = {name: _known(value) for name, value in asdict(difference.change).items()}
    return {
        "trace": difference.trace,
        "policy": difference.policy,
        "against": difference.against,
        "metric": difference.metric,
        **change,
        "pairing": str(difference.change.pairing),
    }


def _known(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value
