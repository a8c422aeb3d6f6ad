"""Writes the man pages into a folder: made of the tree of commands, the settings and two texts of their own.

Their date is SOURCE_DATE_EPOCH's, else that of the last commit.
"""

import argparse
import inspect
import json
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Final, get_type_hints

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from advisor import __version__
from advisor.cli.app import whole_tree
from advisor.cli.simulation import INTERRUPTED
from advisor.config import FOLDER, Config, describe
from advisor.daemon.run import END_S
from advisor.errors import AdvisorError
from advisor.site.pause_file import NAME as PAUSE
from tools.build_packages.distributions import default_time
from tools.roff import render

Command = TyperCommand | TyperGroup

ROOT: Final = Path(__file__).parent.parent
TEMPLATES: Final = ROOT / "tools" / "templates"
PROGRAM: Final = "sadvise"
_DEFAULTS: Final = Config()
# Commands as people read them first, with what they are good for behind the number sign.
_READ_FIRST: Final = ("README.md", "docs/five-minutes.md", "docs/simulation.md", "docs/install.md")
_EXAMPLE: Final = re.compile(r"^ {4}(?:\.venv/bin/)?(sadvise [^#&]+?) *(?:# *(.+))?$", re.MULTILINE)
_OTHERWISE: Final = re.compile(r"\bexits?\s+with\s+1\b", re.IGNORECASE)
_SEE_ALSO: Final = ("sadvise(1)", "sadvise.toml(5)", "sadvised(8)", "scontrol(1)", "sinfo(1)", "squeue(1)")
_OWN_STATUS: Final[Mapping[str, Mapping[int, str]]] = {
    "recommend": {3: "There is something to recommend, and `--exit-code` was given."},
    "serve": {
        1: "An error, which one line on standard error says, or a round was stuck at the end. With `--once`: the "
        "cluster could not be read."
    },
}
_CONFIGURATION: Final[Mapping[str, str]] = {
    str(FOLDER / "sadvise.toml"): "The configuration.",
    str(FOLDER / "conf.d/*.toml"): "More of it, read after the first file in the order of their names.",
}
_PAUSE: Final[Mapping[str, str]] = {
    f"{_DEFAULTS.daemon.runtime_folder}/{PAUSE}": "As long as it is there, the daemon changes nothing; mode 0644, gone "
    "when the machine restarts."
}
# The files that a command uses, by its options and by its name.
FILES: Final[Mapping[str, Mapping[str, str]]] = {
    "--config": _CONFIGURATION,
    "--journal": {
        _DEFAULTS.journal.file: "The journal: what was changed and why, and what is out; mode 0600 in a folder of mode "
        "0711."
    },
    "--models": {_DEFAULTS.forecasts.models: "The models that this site fitted."},
    "pause": _PAUSE,
    "resume": _PAUSE,
    PROGRAM: {
        "/usr/share/sadvise/slurm": "Scripts and settings for Slurm, with a README.md.",
        "/usr/share/sadvise/monitoring": "A Grafana dashboard, and alert rules for Prometheus.",
        "/usr/share/doc/sadvise": "How to install, configure and trust it, at length.",
    },
}
_SITE: Final = ("--config", "--journal", "--models", "pause")
_SLURM_CONF: Final = "The cluster's slurm.conf, as Slurm's own commands take it."
_ANY_KEY: Final = "*SADVISE_TABLE__KEY*\n: One key of the configuration; `sadvise.toml`(5) lists them."


def man_pages(built_time: float) -> dict[str, str]:
    """Map the file name of every page, such as `sadvise.1`, to its text; `built_time` gives its date."""
    program = tree()
    commands = commands_of(program)
    own = {f"{PROGRAM}-{name}.1": (summary_of(command), _page(name, command)) for name, command in commands.items()}
    pages = {
        f"{PROGRAM}.1": ("scheduling advisor for Slurm GPU clusters", _program_page(program)),
        **own,
        f"{PROGRAM}.toml.5": ("configuration of sadvise", _configuration_page()),
        "sadvised.8": ("scheduling advisor daemon for Slurm GPU clusters", _daemon_page(commands["serve"])),
    }
    return {
        name: render(name, summary, text, version=__version__, built_time=built_time)
        for name, (summary, text) in pages.items()
    }


def tree() -> TyperGroup:
    """Return the tree of commands."""
    program = whole_tree()
    if not isinstance(program, TyperGroup):
        raise TypeError(f"{PROGRAM} has no commands: man pages are made for a tree of them")
    return program


def commands_of(command: Command) -> dict[str, Command]:
    """Map the names of a group's commands to them, without hidden ones; a command alone has none."""
    commands = command.commands if isinstance(command, TyperGroup) else {}
    return {
        name: part
        for name, part in commands.items()
        if isinstance(part, (TyperCommand, TyperGroup)) and not part.hidden
    }


def option_names(command: Command) -> list[str]:
    """List every spelling of every option of a command."""
    return [name for option in _options(command) for name in (*option.opts, *option.secondary_opts)]


def summary_of(command: Command) -> str:
    """Return the one line that lists of pages show, in small letters and without a full stop."""
    line = command.short_help or _sentence(command)
    return (line[:1].lower() + line[1:]).rstrip(".")


def examples(name: str | None = None) -> str:
    """Take the examples of a command, without a name those of all, from what people read first."""
    sentences: dict[str, str] = {}
    for page in _READ_FIRST:
        for command, sentence in _EXAMPLE.findall((ROOT / page).read_text(encoding="utf-8")):
            sentences.setdefault(command, sentence)
    chosen = [command for command in sentences if name in (None, command.split()[1])]
    blocks = []
    # Commands without a sentence of their own belong together, and to what stands before them.
    for sentence, commands in groupby(chosen, key=lambda command: sentences[command]):
        blocks += [f"{sentence[0].upper()}{sentence[1:]}:"] if sentence else []
        blocks.append("\n".join(f"    {command}" for command in commands))
    return _section("EXAMPLES", *blocks)


def parameters(command: Command) -> str:
    """List the arguments, then the options: those of the command alone first, then the shared ones by what they do."""
    options = _options(command)
    by_panel = {panel: [each for each in options if each.rich_help_panel == panel] for panel in
                dict.fromkeys([None, *(each.rich_help_panel for each in options)])}  # fmt: skip
    listed = [
        block
        for panel, own in by_panel.items()
        for block in ([f"### {panel}"] if panel else []) + _described(command, own)
    ]
    return _text(_section("ARGUMENTS", *_described(command, _arguments(command))), _section("OPTIONS", *listed))


def _program_page(program: TyperGroup) -> str:
    commands = commands_of(program)
    listed = [f"`{PROGRAM}-{name}`(1)\n: {part.short_help or _sentence(part)}" for name, part in commands.items()]
    return _text(
        _section("SYNOPSIS", _synopsis(PROGRAM, program)),
        _section(
            "DESCRIPTION",
            program.help or "",
            f"`{PROGRAM} COMMAND --help` says in short what the page of a command says.",
        ),
        _section("COMMANDS", *listed),
        parameters(program),
        _section("ENVIRONMENT", "Variables that stand for an option are named with it.", _environment()),
        _section("FILES", _files((*_SITE, PROGRAM))),
        _exit_status(None, ""),
        examples(),
        _see_also(*(f"{PROGRAM}-{name}(1)" for name in commands), without="sadvise(1)"),
    )


def _page(name: str, command: Command) -> str:
    typed, parts = f"{PROGRAM} {name}", commands_of(command)
    all_of_it = (command, *parts.values())
    used = [name, *(option for part in all_of_it for option in option_names(part))]
    return _text(
        _section(
            "SYNOPSIS",
            _synopsis(typed, command),
            *(_synopsis(f"{typed} {part}", of_part) for part, of_part in parts.items()),
        ),
        _section("DESCRIPTION", command.help or ""),
        parameters(command),
        _section("COMMANDS", *(_part(f"{typed} {part}", of_part) for part, of_part in parts.items())),
        _section("ENVIRONMENT", _environment()) if "--config" in used else "",
        _section("FILES", _files(used)),
        _exit_status(name, " ".join(part.help or "" for part in all_of_it)),
        examples(name),
        _see_also(without=f"{PROGRAM}-{name}(1)"),
    )


def _part(typed: str, command: Command) -> str:
    """Describe one command of a group, all on the page of the group."""
    described = _described(command, [*_arguments(command), *_options(command)])
    return _text(f"### {typed.rsplit(maxsplit=1)[-1]}", command.help or "", _synopsis(typed, command), *described)


def _configuration_page() -> str:
    sentences = {table: inspect.getdoc(settings) or "" for table, settings in get_type_hints(Config).items()}
    blocks = []
    for table, keys in groupby(describe(), key=lambda entry: entry[0].partition(".")[0]):
        blocks += [f"### [{table}]", sentences[table]]
        blocks += [
            f"`{key.partition('.')[2]}` = `{json.dumps(default)}`\n: {sentence}" for key, default, sentence in keys
        ]
    template = (TEMPLATES / "sadvise.toml.md").read_text(encoding="utf-8")
    page = template.format(files=_files(["--config"]), tables="\n\n".join(blocks))
    return _text(page, _see_also("sadvise-config(1)", without="sadvise.toml(5)"))


def _daemon_page(serve: Command) -> str:
    template = (TEMPLATES / "sadvised.md").read_text(encoding="utf-8")
    page = template.format(
        options=parameters(serve),
        end_s=END_S,
        environment=_environment(),
        files=_files(_SITE),
        runtime=_DEFAULTS.daemon.runtime_folder,
        journal=_DEFAULTS.journal.file,
    )
    others = ("sadvise-serve(1)", "sadvise-pause(1)", "sadvise-journal(1)", "systemctl(1)")
    return _text(
        _section("SYNOPSIS", _synopsis("sadvised", serve)),
        page,
        _exit_status("serve", ""),
        _see_also(*others, without="sadvised(8)"),
    )


def _text(*blocks: str) -> str:
    return "\n\n".join(filter(None, blocks))


def _section(title: str, *blocks: str) -> str:
    """Return a section, nothing where it is empty."""
    return _text(f"## {title}", *blocks) if any(blocks) else ""


def _synopsis(typed: str, command: Command) -> str:
    called = ["*COMMAND*", "[*ARGUMENT*]..."] if isinstance(command, TyperGroup) else []
    for argument in _arguments(command):
        word = f"*{_placeholder(argument)}*"
        called.append((word if argument.required else f"[{word}]") + ("..." if argument.nargs == -1 else ""))
    return " ".join([f"`{typed}`", "[*OPTION*]...", *called])


def _arguments(command: Command) -> list[TyperArgument]:
    listed = command.get_params(typer.Context(command))
    return [each for each in listed if isinstance(each, TyperArgument) and not each.hidden]


def _options(command: Command) -> list[TyperOption]:
    listed = command.get_params(typer.Context(command))
    return [each for each in listed if isinstance(each, TyperOption) and not each.hidden]


def _described(command: Command, listed: Iterable[TyperArgument | TyperOption]) -> list[str]:
    """Describe parameters in the words of `--help`."""
    context = typer.Context(command)
    return [f"{_tag(each)}\n: {(each.get_help_record(context) or ('', ''))[1]}" for each in listed]


def _tag(parameter: TyperArgument | TyperOption) -> str:
    if isinstance(parameter, TyperArgument):
        return f"*{_placeholder(parameter)}*"
    names = ", ".join(f"`{name}`" for name in sorted(parameter.opts, key=lambda name: name.startswith("--")))
    names += "".join(f" / `{name}`" for name in parameter.secondary_opts)
    return names if parameter.is_flag else f"{names} *{_placeholder(parameter)}*"


def _placeholder(parameter: TyperArgument | TyperOption) -> str:
    """Name what is typed: as declared, else the choices there are, else the parameter."""
    if parameter.metavar:
        return parameter.metavar.removeprefix("[").removesuffix("...").removesuffix("]")
    choices = [str(getattr(choice, "value", choice)) for choice in parameter.type_descriptor.choices or ()]
    return "|".join(choices) or str(parameter.name).upper()


def _environment() -> str:
    return _text(f"`SLURM_CONF`\n: {_SLURM_CONF}", _ANY_KEY)


def _files(users: Iterable[str]) -> str:
    files = {path: text for user, own in FILES.items() if user in users for path, text in own.items()}
    return _text(*(f"`{path}`\n: {text}" for path, text in files.items()))


def _exit_status(name: str | None, helps: str) -> str:
    """Say what the exit status of a command with these helps means; without a name, that of every command."""
    otherwise = ", or as described above" if _OTHERWISE.search(helps) else "" if name else ", or what a page names"
    meanings = {
        0: "Done.",
        AdvisorError.exit_code: f"An error, which one line on standard error says{otherwise}.",
        typer.BadParameter.exit_code: "Wrong usage: an unknown option, or a value that cannot be parsed.",
        INTERRUPTED: "Interrupted from the keyboard.",
    }
    if name == "serve":
        # The daemon takes it as the wish to end.
        del meanings[INTERRUPTED]
    meanings |= _OWN_STATUS.get(name or "recommend", {})
    return _section("EXIT STATUS", *(f"`{code}`\n: {text}" for code, text in sorted(meanings.items())))


def _see_also(*others: str, without: str) -> str:
    names = [name for name in (*others, *_SEE_ALSO) if name != without]
    return _section("SEE ALSO", ", ".join(f"`{name[:-3]}`{name[-3:]}" for name in names))


def _sentence(command: Command) -> str:
    """Return what a command is for, without what else its help says."""
    return (command.help or "").partition("\n")[0].partition(";")[0].rstrip(".") + "."


def main(arguments: Sequence[str] | None = None) -> int:
    """Write every page and print where it lies."""
    parser = argparse.ArgumentParser(prog="python -m tools.man_pages", description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="where the pages go; read one with man -l")
    out: Path = parser.parse_args(arguments).out
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, text in man_pages(default_time(os.environ)).items():
            (out / name).write_text(text, encoding="ascii")
            print(out / name)
    except OSError as err:
        print(f"man_pages: {err}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
