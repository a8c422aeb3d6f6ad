"""The man pages: whole, printed as they are meant by groff, and the same for the same time."""

import json
import re
import subprocess
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.core import TyperCommand, TyperGroup, TyperOption

from advisor.config import describe, load_config
from advisor.errors import AdvisorError
from tools.build_packages.staging import FILES
from tools.man_pages import TEMPLATES, Command, commands_of, examples, main, man_pages, option_names, parameters, tree
from tools.roff import DOCS_FOLDER, bold, escape, marked, render

BUILT_TIME = 1_700_000_000
HOSTILE = [
    ".so /etc/passwd",
    "'br",
    "...",
    r"\fBbold\n \*[x] \\ \e",
    "--option -x a-b 1-2",
    "it's \"quoted\" 'so' and ^ ~ as they are",
    "a | b <b>&lt;</b> @ # $ % * [ ] { }",
    "naïve Ünïcode \u2014 “so” 漢 🙂 한글 ế",
    "\u212b \ufb01",
    "\u212a \u037e \u1fef",
]


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    """Every page, by its file name."""
    return man_pages(BUILT_TIME)


@pytest.fixture
def groff(need: Callable[[str], Path]) -> str:
    """Return groff's path."""
    return str(need("groff"))


def printed(groff: str, text: str) -> str:
    """Return what a reader sees of a page on a wide terminal; fails on a warning."""
    answer = subprocess.run(
        [groff, "-man", "-Tutf8", "-ww", "-rLL=4000n", "-P-cbou"],
        input=text.encode(),
        capture_output=True,
        timeout=60,
        check=True,
    )
    assert answer.stderr == b""
    return answer.stdout.decode()


def all_commands(group: TyperGroup, typed: str = "sadvise") -> Iterator[tuple[str, Command]]:
    """List every command below a group with how it is typed."""
    for name, command in commands_of(group).items():
        yield f"{typed} {name}", command
        if isinstance(command, TyperGroup):
            yield from all_commands(command, f"{typed} {name}")


def page_of(typed: str) -> str:
    """Name the page that tells of a command."""
    return f"{'-'.join(typed.split()[:2])}.1"


def made_page(*blocks: str) -> str:
    """Render a page of these blocks."""
    return render("made.1", "made up", "\n\n".join(blocks), version="1.0", built_time=BUILT_TIME)


def test_every_command_and_option_stands_in_a_page(pages: dict[str, str]) -> None:
    commands = [("sadvise", tree()), *all_commands(tree())]

    missing = [
        f"{page_of(typed)}: {text}"
        for typed, command in commands
        for text in (typed, *option_names(command))
        if bold(text) not in pages[page_of(typed)]
    ]
    assert len(commands) > 25
    assert missing == []
    assert {"--snapshot", "-M", "--help"} <= {name for _, command in commands for name in option_names(command)}
    assert r"[env var: SADVISE_CLUSTERS, SLURM_CLUSTERS]" in pages["sadvise-recommend.1"]


def test_page_of_the_program_lists_every_command(pages: dict[str, str]) -> None:
    listed = re.findall(r"^\\fBsadvise\\-([a-z]+)\\fR\(1\)$", pages["sadvise.1"], re.MULTILINE)

    assert listed == list(commands_of(tree()))
    assert {f"sadvise-{name}.1" for name in listed} | {"sadvise.1", "sadvise.toml.5", "sadvised.8"} == set(pages)


def test_every_key_of_the_configuration_stands_in_section_5_with_its_default(pages: dict[str, str]) -> None:
    missing = [
        key
        for key, default, sentence in describe()
        if f".TP\n{bold(key.partition('.')[2])} = {bold(json.dumps(default))}\n{marked(sentence)}\n"
        not in pages["sadvise.toml.5"]
    ]

    assert missing == []


def test_every_exit_code_of_an_error_is_told(pages: dict[str, str]) -> None:
    errors = [AdvisorError]
    for error in errors:
        errors += error.__subclasses__()

    section = pages["sadvise.1"].partition('.SH "EXIT STATUS"')[2].partition(".SH")[0]
    assert {bold(str(error.exit_code)) for error in errors} <= set(section.splitlines())
    assert all(bold(code) in section.splitlines() for code in ("0", "2", "3", "130"))


def test_daemon_page_says_what_signals_do(pages: dict[str, str]) -> None:
    page = pages["sadvised.8"]

    assert all(bold(name) in page for name in ("SIGHUP", "SIGTERM, SIGINT", "observe", "recommend", "apply", "--once"))
    assert all(escape(path) in page for path in ("/run/sadvise/pause", "/var/lib/sadvise/journal.sqlite"))


@pytest.mark.needs("groff")
def test_pages_print_without_a_warning_and_with_hyphens_that_can_be_copied(groff: str, pages: dict[str, str]) -> None:
    text = printed(groff, "".join(pages.values()))

    assert all(f"\n{name.upper().replace('.1', '(1)')} " in f"\n{text}" for name in pages if name.endswith(".1"))
    assert re.search(r"^ +-M, --clusters NAME$", text, re.MULTILINE)
    assert "scontrol(1), sinfo(1), squeue(1)" in text
    assert "sadvise import sacct live -o history.csv" in text
    assert "\u2010" not in text
    # mandoc's only complaint would be this.
    assert not re.search(r"^\.S[HS] .*\n\.PP$", "".join(pages.values()), re.MULTILINE)
    assert "\\" not in text


@pytest.mark.needs("groff")
@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_printed_as_it_stands(groff: str, text: str) -> None:
    page = made_page(f"`{text}`\n: {text}", f"`{text}` then", f"    {text}")

    lines = [" ".join(line.split()) for line in printed(groff, page).splitlines()]
    # groff composes what it was given by its parts.
    shown = unicodedata.normalize("NFC", text)
    assert page.isascii()
    assert lines.count(shown) + lines.count(f"{shown} {shown}") >= 2
    assert f"{shown} then" in lines


def test_help_that_begins_with_a_dot_or_holds_lines_and_colours_makes_no_request() -> None:
    option = TyperOption(
        param_decls=["evil", "--evil"],
        type_descriptor=next(iter(tree().params)).type_descriptor,  # type: ignore[attr-defined]
        is_flag=True,
        help=".ex\n'br\x1b[31m\n.so x",
    )
    command = TyperCommand("evil", params=[option], help=".ex")

    lines = made_page(".ex", parameters(command)).splitlines()[5:]

    assert [line for line in lines if re.match(r"[.'](?!PP$|TP$|SH |SS )", line)] == []
    assert r"\&.ex \(aqbr [31m .so x" in lines


def test_long_list_may_go_on_in_the_next_line_and_nothing_else_is_broken() -> None:
    long = ",".join(["column"] * 20)

    assert escape(long).count(r",\:") == 19
    assert escape("a,b") == "a,b"


def test_page_carries_the_time_of_the_build_and_is_the_same_for_the_same_time(pages: dict[str, str]) -> None:
    assert man_pages(BUILT_TIME) == pages
    assert pages["sadvised.8"].startswith('.TH "SADVISED" "8" "2023-11-14" "sadvise ')


def test_example_of_the_configuration_is_valid(tmp_path: Path) -> None:
    _, _, example = (TEMPLATES / "sadvise.toml.md").read_text().partition("# /etc/sadvise/conf.d/mode.toml\n")
    (tmp_path / "sadvise.toml").write_text("\n".join(line.strip() for line in example.splitlines()))

    config = load_config(tmp_path / "sadvise.toml", {})
    assert config.mode.accounts == "vision=apply"
    assert config.guard.max_added_delay_s == 7200.0


def test_examples_are_those_of_the_readme_and_name_commands_that_exist() -> None:
    shown = [line.strip() for line in examples().splitlines() if line.startswith("    ")]

    assert "sadvise recommend" in shown
    assert {line.split()[1] for line in shown} <= set(commands_of(tree()))
    assert [line for line in examples("explain").splitlines() if line.startswith("    ")] == ["    sadvise explain 123"]
    assert examples("resume") == ""


def test_every_document_that_a_page_names_is_in_the_package(pages: dict[str, str]) -> None:
    named = {
        path.replace(r"\-", "-")
        for text in pages.values()
        for path in re.findall(rf"{DOCS_FOLDER}[\w/\\.-]+?\.(?:md|json)", text)
    }

    packed = tuple(f"/{target}" for target in FILES.values())
    assert len(named) >= 3
    assert all(path.startswith(packed) for path in named)
    assert not any(re.search(r"(?<!/)docs/", text) for text in pages.values())


def test_tool_writes_every_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pages: dict[str, str]) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", str(BUILT_TIME))

    assert main(["--out", str(tmp_path / "man")]) == 0
    assert {path.name: path.read_text() for path in (tmp_path / "man").iterdir()} == pages
    (tmp_path / "file").touch()
    assert main(["--out", str(tmp_path / "file")]) == 1
