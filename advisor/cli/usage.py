"""Words the errors of typer about wrong usage, in one line each."""

from collections.abc import Mapping
from typing import Any, Final

import typer

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
