"""Defines the tree of commands, each imported when it is run, and words the errors of typer about wrong usage."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from advisor.domain.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Branch:
    """Where a command, or a group of commands, stands in `advisor.cli`, and its line in the help of the program."""

    module: str
    attribute: str
    short_help: str


BRANCHES: Final[Mapping[str, Branch]] = {
    "recommend": Branch("recommend", "recommend", "What should change, why, and how."),
    "explain": Branch("explain", "explain", "Explain why a job is not starting."),
    "apply": Branch("apply", "apply", "One cycle that changes pending jobs."),
    "revert": Branch("apply", "revert", "Take changes back."),
    "serve": Branch("serve", "serve", "The daemon, which is also sadvised."),
    "pause": Branch("pause", "pause", "Stop the daemon from changing jobs, at once."),
    "resume": Branch("pause", "resume", "Let the daemon change jobs again."),
    "acknowledge": Branch("pause", "acknowledge", "Let the daemon go on after a circuit breaker."),
    "status": Branch("status", "status", "How the daemon is doing, and why nothing happens."),
    "notify": Branch("notify", "notify", "What digests and mails say, and whether they arrive."),
    "web": Branch("web", "web", "Serve the web view."),
    "top": Branch("top", "top", "The cluster live in a terminal, with keys to act."),
    "report": Branch("report", "report", "Report what the changes achieved, with intervals."),
    "journal": Branch("journal", "journal", "Changes in effect, and what was proposed and done."),
    "replay": Branch("replay", "replay", "Plan a recorded cycle again."),
    "snapshot": Branch("snapshot", "snapshot", "Save the state of the cluster to a file."),
    "check": Branch("check", "check", "Check what this site supports, and what each lack costs."),
    "simulate": Branch("simulate", "simulate", "Simulate a trace under policies."),
    "compare": Branch("compare", "compare", "Compare policies over traces and seeds."),
    "tune": Branch("tune", "tune", "Replay a trace under other settings, and weigh gains against losses."),
    "limits": Branch("limits", "limits", "Shorter time limits for users, and how much sooner jobs would start."),
    "maintenance": Branch("maintenance", "maintenance", "Jobs that would fit before a maintenance if shortened."),
    "idle": Branch("idle", "idle", "Running jobs that hold GPUs which do nothing."),
    "import": Branch("import_", "import_", "Convert accounting or a public trace into a trace file."),
    "fit": Branch("fit", "app", "Fit a model on this site's own data and put it in use."),
    "models": Branch("models", "app", "List, check, compare and choose models and learned policies."),
    "config": Branch("config", "app", "Check, show or exemplify the configuration."),
}


class LazyGroup(TyperGroup):
    """A group whose help and completion name its commands without importing them."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = {
            name: TyperCommand(name=name, short_help=branch.short_help) for name, branch in BRANCHES.items()
        }

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Return the command that the arguments name, imported, and the arguments behind its name."""
        name, _, rest = super().resolve_command(ctx, args)
        return name, None if name is None else command_of(name), rest


def command_of(name: str) -> Any:
    """Return a command or a group of commands of the program, imported; typer keeps the type of both to itself."""
    # The help of the program needs no options of commands.
    from advisor.cli.options import spread

    branch = BRANCHES[name]
    found = getattr(import_module(f"advisor.cli.{branch.module}"), branch.attribute)
    if isinstance(found, typer.Typer):
        for command in found.registered_commands:
            command.callback = command.callback and spread(command.callback)
        return typer.main.get_command(found)
    alone = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)
    alone.command(name, short_help=branch.short_help)(spread(found))
    return typer.main.get_command(alone)


def whole_tree() -> Any:
    """Return the program with all its commands imported, for what documents them."""
    program: Any = typer.main.get_command(app)
    program.commands = {name: command_of(name) for name in BRANCHES}
    return program


def _version(value: bool) -> None:
    if value:
        from advisor.cli.main import print_version

        print_version()
        raise typer.Exit


app = typer.Typer(
    name="sadvise",
    cls=LazyGroup,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Advice for the pending GPU jobs of a Slurm cluster: reorder, resize, consolidate. "
    "Nothing changes anything but apply, revert and the daemon where [mode] says apply.",
    epilog="Exit codes: 0 fine, 1 error, 2 usage, 3 recommend --exit-code found something to change, "
    "4 status: the daemon needs attention, 5 status: no daemon runs.",
)


@app.callback()
def options(
    version: bool = typer.Option(False, "--version", "-V", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    """Accept the options before the command."""


# The base of BadParameter and of all other errors of usage, which typer does not export.
UsageError: Final[type[Exception]] = typer.BadParameter.__mro__[1]
# What pydantic, which converts the values for typer, calls the faults of numbers.
_FAULTS: Final[Mapping[str, str]] = {
    "greater_than": "must be more than {gt:g}",
    "greater_than_equal": "must be at least {ge:g}",
    "less_than": "must be less than {lt:g}",
    "less_than_equal": "must be at most {le:g}",
    "int_parsing": "must be a whole number",
    "float_parsing": "must be a number",
}


def is_help(err: Exception) -> bool:
    """Return whether an error is no more than a group of commands without a command, which prints its help."""
    return type(err).__name__ == "NoArgsIsHelpError"


def usage_line(err: Any) -> str:
    """Return the line for an error of usage: the command, what is wrong with which option, and where to look it up."""
    command = "sadvise" if err.ctx is None else err.ctx.command_path
    return f"{command}: {_fault(err)} (see {command} --help)"


def _fault(err: Any) -> str:
    """Return what is wrong, after the name of the option or the argument if it is that of one."""
    message: str = err.message.strip().removesuffix(".")
    if getattr(err, "possibilities", None):
        message = f"{message}; did you mean {' or '.join(sorted(err.possibilities))}?"
    if getattr(err, "param", None) is None:
        return message[:1].lower() + message[1:]
    name = _name(err)
    if not message:
        return f"{name} is missing"
    fault = _first_fault(err.__cause__)
    if fault.get("type") in _FAULTS:
        return f"{name} {fault['input']}: {_FAULTS[fault['type']].format(**fault.get('ctx', {}))}"
    return f"{name}: {message.removeprefix('Value error, ')}"


def _name(err: Any) -> str:
    """Return the name of the option or argument that is wrong, as --help prints it."""
    if err.param.param_type_name == "option":
        return str(max(err.param.opts, key=len))
    return str(err.param.display_name_raw).strip("[].")


def _first_fault(cause: BaseException | None) -> Mapping[str, Any]:
    """Return the first fault that pydantic found; empty where it is another error."""
    errors = getattr(cause, "errors", None)
    return {} if errors is None else errors()[0]
