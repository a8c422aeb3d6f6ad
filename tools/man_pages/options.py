"""What a man page says about the arguments, options and variables of a command."""

from collections.abc import Iterable, Sequence
from enum import Enum
from itertools import chain

from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from tools.man_pages.roff import bold, heading, italic, item, subheading

Command = TyperCommand | TyperGroup


def parameters(command: Command) -> tuple[list[TyperArgument], list[TyperOption]]:
    """Return the arguments and the options of a command that are not hidden, `--help` among them."""
    import typer

    listed = command.get_params(typer.Context(command))
    arguments = [each for each in listed if isinstance(each, TyperArgument) and not each.hidden]
    return arguments, [each for each in listed if isinstance(each, TyperOption) and not each.hidden]


def synopsis(typed: str, command: Command) -> str:
    """Write how a command is called."""
    arguments, _ = parameters(command)
    own = [bold(typed), f"[{italic('OPTION')}]..."]
    if isinstance(command, TyperGroup):
        return " ".join([*own, italic("COMMAND"), f"[{italic('ARGUMENT')}]..."])
    return " ".join([*own, *(_called(argument) for argument in arguments)])


def parameter_lines(command: Command) -> list[str]:
    """List the arguments, then the options: those of the command alone first, then the shared ones by what they do."""
    arguments, options = parameters(command)
    lines = [line for each in arguments for line in item(italic(_placeholder(each)), _about(each))]
    if lines:
        lines = [*heading("ARGUMENTS"), *lines]
    lines += heading("OPTIONS")
    for panel in dict.fromkeys([None, *(each.rich_help_panel for each in options)]):
        lines += subheading(panel) if panel else []
        lines += [line for each in options if each.rich_help_panel == panel for line in _option(each)]
    return lines


def subcommand_lines(typed: str, command: Command) -> list[str]:
    """Describe one command of a group, all on the page of the group."""
    arguments, options = parameters(command)
    lines = [line for each in arguments for line in item(italic(_placeholder(each)), _about(each))]
    lines += [line for each in options for line in _option(each)]
    return [".PP", synopsis(typed, command), *lines]


def variables(command: Command) -> dict[str, str]:
    """Map the variables of a command's options to the option that each stands for."""
    _, options = parameters(command)
    return {name: max(option.opts, key=len) for option in options for name in _names(option.envvar)}


def option_names(command: Command) -> list[str]:
    """List every spelling of every option of a command."""
    _, options = parameters(command)
    return list(chain.from_iterable((*option.opts, *option.secondary_opts) for option in options))


def _option(option: TyperOption) -> list[str]:
    short_first = sorted(option.opts, key=lambda name: name.startswith("--"))
    tag = ", ".join(bold(name) for name in short_first)
    tag += "".join(f" / {bold(name)}" for name in option.secondary_opts)
    return item(tag if option.is_flag else f"{tag} {italic(_placeholder(option))}", _about(option))


def _called(argument: TyperArgument) -> str:
    called = italic(_placeholder(argument)) + ("..." if argument.nargs == -1 else "")
    return called if argument.required else f"[{called}]"


def _placeholder(parameter: TyperArgument | TyperOption) -> str:
    """Name what is typed: as declared, else the choices there are, else the parameter."""
    if parameter.metavar:
        return parameter.metavar.removeprefix("[").removesuffix("...").removesuffix("]")
    return "|".join(_choices(parameter)) or str(parameter.name).upper()


def _about(parameter: TyperArgument | TyperOption) -> str:
    """Say what a parameter is for, then what it may be, what it is by default and which variable sets it."""
    return " ".join(filter(None, [parameter.help, *_facts(parameter)]))


def _facts(parameter: TyperArgument | TyperOption) -> Iterable[str]:
    choices = _choices(parameter)
    if choices and parameter.metavar:
        yield f"One of {', '.join(choices)}."
    if isinstance(parameter, TyperOption) and parameter.multiple and "repeat" not in (parameter.help or ""):
        yield "May be repeated."
    # An argument that may be repeated has its number of values here.
    if parameter.min is not None and parameter.nargs == 1:
        yield f"At least {parameter.min:g}."
    if parameter.max is not None and parameter.nargs == 1:
        yield f"At most {parameter.max:g}."
    default = _default(parameter)
    if default:
        yield f"Default: `{default}`."
    if parameter.required and isinstance(parameter, TyperOption):
        yield "Required."
    names = [f"`{name}`" for name in _names(parameter.envvar)]
    if names:
        yield f"{'Variables' if names[1:] else 'Variable'}: {', '.join(names)}."


def _choices(parameter: TyperArgument | TyperOption) -> list[str]:
    return [_word(choice) for choice in parameter.type_descriptor.choices or ()]


def _default(parameter: TyperArgument | TyperOption) -> str:
    """Return the default in words, empty where there is none or it goes without saying."""
    value = parameter.default
    if isinstance(parameter, TyperOption) and parameter.is_flag:
        return parameter.opts[0] if parameter.secondary_opts and value else ""
    if value is None or callable(value):
        return ""
    return ", ".join(map(_word, value)) if isinstance(value, (list, tuple)) else _word(value)


def _word(value: object) -> str:
    return str(value.value) if isinstance(value, Enum) else str(value)


def _names(variable: str | Sequence[str] | None) -> Sequence[str]:
    return [variable] if isinstance(variable, str) else variable or []
