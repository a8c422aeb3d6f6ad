"""Section 1 of the manual: a page for `sadvise`, and one for each of its commands."""

import re
from collections.abc import Iterable, Mapping
from itertools import groupby
from pathlib import Path

import typer
from typer.core import TyperCommand, TyperGroup

from advisor.cli.app import app
from advisor.cli.simulation import INTERRUPTED
from advisor.config import FILE_VARIABLE
from advisor.errors import AdvisorError
from tools.man_pages.files import SITE_FILES, USED_FILES, file_lines
from tools.man_pages.options import Command, parameter_lines, subcommand_lines, synopsis, variables
from tools.man_pages.roff import Page, bold, example, heading, italic, item, prose, subheading

ROOT = Path(__file__).parent.parent.parent
PROGRAM = "sadvise"
# Commands as people read them first, with what they are good for behind the number sign.
_READ_FIRST = ("README.md", "docs/install.md")
_EXAMPLE = re.compile(r"^ {4}(?:\.venv/bin/)?(sadvise [^#&]+?) *(?:# *(.+))?$", re.MULTILINE)
_OWN_STATUS: Mapping[str, Mapping[int, str]] = {
    "recommend": {3: "There is something to recommend, and `recommend` was asked with `--exit-code` to say so."},
    "serve": {
        1: "An error, which one line on standard error says, or a round was stuck at the end. With `--once`: the "
        "cluster could not be read."
    },
}
SLURM_CONF = "The cluster's slurm.conf, as Slurm's own commands take it."
ANY_KEY = (
    f"{bold('SADVISE_')}{italic('TABLE')}{bold('__')}{italic('KEY')}",
    "One key of the configuration; `sadvise.toml`(5) lists them.",
)
_OTHERWISE = re.compile(r"\bexits?\s+with\s+1\b", re.IGNORECASE)
_SEE_ALSO = ("sadvise(1)", "sadvise.toml(5)", "sadvised(8)")
_SLURM = ("scontrol(1)", "sinfo(1)", "squeue(1)")


def command_pages() -> list[Page]:
    """Make the page of the program and those of its commands."""
    program = tree()
    return [_program_page(program), *(_page(name, command) for name, command in commands_of(program).items())]


def tree() -> TyperGroup:
    """Return the tree of commands."""
    program = typer.main.get_command(app)
    if not isinstance(program, TyperGroup):
        raise TypeError(f"{PROGRAM} has no commands: man pages are made for a tree of them")
    return program


def commands_of(group: TyperGroup) -> dict[str, Command]:
    """Map the names of a group's commands to them, without hidden ones."""
    return {
        name: command
        for name, command in group.commands.items()
        if isinstance(command, (TyperCommand, TyperGroup)) and not command.hidden
    }


def exit_status_lines(name: str | None, helps: str) -> list[str]:
    """Say what the exit status of a command with these helps means; without a name, that of every command."""
    otherwise = ", or what is said above" if _OTHERWISE.search(helps) else "" if name else ", or what a page names"
    told = {
        0: "Done.",
        AdvisorError.exit_code: f"An error, which one line on standard error says{otherwise}.",
        typer.BadParameter.exit_code: "Wrong usage.",
        INTERRUPTED: "Interrupted from the keyboard.",
    }
    if name == "serve":
        # The daemon takes it as the wish to end.
        del told[INTERRUPTED]
    told |= _OWN_STATUS.get(name or "recommend", {})
    return [*heading("EXIT STATUS"), *(line for code in sorted(told) for line in item(bold(str(code)), told[code]))]


def see_also(page: str, others: Iterable[str] = ()) -> list[str]:
    """Name other pages, without that itself."""
    names = [name for name in (*others, *_SEE_ALSO, *_SLURM) if name != page]
    return [*heading("SEE ALSO"), ".PP", ", ".join(f"{bold(name[:-3])}{name[-3:]}" for name in names)]


def summary_of(command: Command) -> str:
    """Return the one line that lists of pages show, in small letters and without a full stop."""
    line = command.short_help or _sentence(command)
    return (line[:1].lower() + line[1:]).rstrip(".")


def examples(name: str | None = None) -> list[str]:
    """Take the examples of a command, without a name those of all, from what people read first."""
    told: dict[str, str] = {}
    for page in _READ_FIRST:
        for command, sentence in _EXAMPLE.findall((ROOT / page).read_text(encoding="utf-8")):
            told.setdefault(command, sentence)
    chosen = {command: sentence for command, sentence in told.items() if name in (None, command.split()[1])}
    lines: list[str] = []
    # Commands without a sentence of their own belong together, and to what stands before them.
    for sentence, commands in groupby(chosen, key=lambda command: chosen[command]):
        lines += prose(f"{sentence[0].upper()}{sentence[1:]}:") if sentence else []
        lines += example(list(commands))
    return [*heading("EXAMPLES"), *lines] if lines else []


def _program_page(program: TyperGroup) -> Page:
    commands = commands_of(program)
    listed = [
        line
        for name, command in commands.items()
        for line in item(f"{bold(f'{PROGRAM}-{name}')}(1)", command.short_help or _sentence(command))
    ]
    lines = [
        *heading("SYNOPSIS"),
        synopsis(PROGRAM, program),
        *heading("DESCRIPTION"),
        *prose(program.help or ""),
        *prose(f"`{PROGRAM} COMMAND --help` says in short what the page of a command says."),
        *heading("COMMANDS"),
        *listed,
        *parameter_lines(program),
        *_environment(_by_variable(commands)),
        *heading("FILES"),
        *file_lines(SITE_FILES),
        *exit_status_lines(None, ""),
        *examples(),
        *see_also("sadvise(1)", (f"{PROGRAM}-{name}(1)" for name in commands)),
    ]
    return Page(name=PROGRAM, section=1, summary="scheduling advisor for Slurm GPU clusters", lines=lines)


def _page(name: str, command: Command) -> Page:
    typed, called = f"{PROGRAM} {name}", f"{PROGRAM}-{name}"
    parts = commands_of(command) if isinstance(command, TyperGroup) else {}
    lines = [*heading("SYNOPSIS"), synopsis(typed, command)]
    for part, each in parts.items():
        lines += [".br", synopsis(f"{typed} {part}", each)]
    lines += [*heading("DESCRIPTION"), *prose(command.help or ""), *parameter_lines(command)]
    lines += heading("COMMANDS") if parts else []
    for part, each in parts.items():
        lines += [*subheading(part), *prose(each.help or ""), *subcommand_lines(f"{typed} {part}", each)]
    own = {
        variable: f"As `{option}`."
        for each in (command, *parts.values())
        for variable, option in variables(each).items()
    }
    lines += _environment(own)
    files = _files_of(name, (command, *parts.values()))
    lines += [*heading("FILES"), *file_lines(files)] if files else []
    lines += [
        *exit_status_lines(name, " ".join(each.help or "" for each in (command, *parts.values()))),
        *examples(name),
        *see_also(f"{called}(1)"),
    ]
    return Page(name=called, section=1, summary=summary_of(command), lines=lines)


def _sentence(command: Command) -> str:
    """Return what a command is for, without what else its help says."""
    return (command.help or "").partition("\n")[0].partition(";")[0].rstrip(".") + "."


def _environment(told: Mapping[str, str]) -> list[str]:
    """List variables; what asks Slurm, or reads the configuration, also goes by theirs."""
    lines = [line for name, text in told.items() for line in item(bold(name), text)]
    lines += item(bold("SLURM_CONF"), SLURM_CONF) if "SLURM_CLUSTERS" in told else []
    lines += item(*ANY_KEY) if FILE_VARIABLE in told else []
    return [*heading("ENVIRONMENT"), *lines] if lines else []


def _by_variable(commands: Mapping[str, Command]) -> dict[str, str]:
    """Say of each variable which option of which commands it stands for."""
    users: dict[tuple[str, str], list[str]] = {}
    for name, command in commands.items():
        parts = commands_of(command) if isinstance(command, TyperGroup) else {}
        for each in (command, *parts.values()):
            for used in variables(each).items():
                users.setdefault(used, []).append(name)
    return {
        variable: f"As `{option}` of {', '.join(dict.fromkeys(names))}."
        for (variable, option), names in sorted(users.items())
    }


def _files_of(name: str, commands: Iterable[Command]) -> Mapping[str, str]:
    """Return the files that a command with these parts uses, by its name and by its options."""
    used = {name, *(option for command in commands for option in variables(command).values())}
    return {path: text for user, files in USED_FILES.items() if user in used for path, text in files.items()}
