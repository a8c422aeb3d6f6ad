"""The documentation shows what its commands print, and names only commands, options and pages that exist."""

import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import fromstring

import pytest
import typer

from advisor.cli.app import whole_tree
from tools.console_pages import COLUMNS, ConsoleError, Shell, pages, renewed, renewed_page
from tools.terminal_page import PICTURE, drawn, picture

ROOT = Path(__file__).parent.parent
DOCS = tuple(sorted((ROOT / "docs").glob("*.md")))
DOCUMENTS = (
    ROOT / "README.md",
    ROOT / "SECURITY.md",
    ROOT / "slurm" / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
)
FENCED = re.compile(r"^```(\w*).*?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`([^`]+)`|^    +(.*)$", re.MULTILINE)
COMMAND = re.compile(r"(?:^|[;&|(] *|\$ |until |-u sadvise )sadvise ([^#|;&()\n]*)")
LINK = re.compile(r"\]\(([^)#:\s]+\.(?:md|svg))(?:#([\w-]+))?\)")


@pytest.mark.slow
@pytest.mark.needs("terminal")
@pytest.mark.parametrize("page", pages(), ids=lambda path: path.name)
def test_page_shows_what_its_commands_print(page: Path) -> None:
    assert renewed_page(page) == page.read_text(encoding="utf-8")


@pytest.mark.needs("terminal")
def test_block_that_is_stale_or_fails_is_found(tmp_path: Path) -> None:
    shell = Shell(tmp_path)

    assert renewed("```console\n$ echo one\nother\n```\n", shell) == "```console\n$ echo one\none\n```\n"
    assert renewed("```console most=1\n$ seq 3\n```\n", shell) == "```console most=1\n$ seq 3\n1\n[...]\n```\n"
    assert "80" in renewed("```console\n$ echo $COLUMNS\n```\n", shell).split()
    wide = "```console columns=120 most=1\n$ echo $COLUMNS\n120\n```\n"
    assert renewed(wide, shell) == wide
    with pytest.raises(ConsoleError, match="exit status 3"):
        renewed("```console\n$ exit 3\n```\n", shell)


@pytest.mark.slow
@pytest.mark.needs("terminal")
def test_picture_of_the_front_page_shows_what_its_command_prints() -> None:
    assert picture() == PICTURE.read_text(encoding="utf-8")
    assert f"](docs/{PICTURE.name})" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_picture_has_every_character_and_the_colours_and_loads_nothing() -> None:
    drawing = drawn("plain  \x1b[33myellow\x1b[0m\n" + "x" * 80 + "\n", columns=80, title="a <title>")

    texts = [element.text or "" for element in fromstring(drawing).iter() if element.tag.endswith("text")]  # noqa: S314
    shown = [text.replace("\N{NO-BREAK SPACE}", " ").strip() for text in texts]
    assert list(filter(None, shown)) == ["a <title>", "plain", "yellow", "x" * 80]
    assert len(set(re.findall(r"-r\d+ \{ fill: (#\w+)", drawing))) == 2
    assert not re.search(r"url\((?!#)|@font-face|@import|<image", drawing)


def code_of(text: str) -> Iterator[str]:
    """Yield the lines and the words of a document that are code; of a console, what is typed."""
    for kind, body in FENCED.findall(text):
        yield from (line for line in body.splitlines() if kind != "console" or line.startswith("$ "))
    for inline, line in CODE.findall(FENCED.sub("", text)):
        yield inline.replace("\n", " ") or line


def named_commands(text: str) -> Iterator[list[str]]:
    """Yield the words of each `sadvise ...` in the code of a document."""
    for code in code_of(text):
        for command in COMMAND.findall(code):
            yield shlex.split(command)


@cache
def tree() -> Any:
    """Return the commands; those that typer makes cost more than all that is asked of them."""
    return whole_tree()


def unknown_of(words: list[str]) -> str:
    """Return what of a command line does not exist, "" if all does."""
    command = tree()
    context = typer.Context(command, info_name="sadvise")
    while hasattr(command, "get_command") and words and not words[0].startswith("-"):
        name, *words = words
        if not re.fullmatch(r"[a-z-]+", name):
            return ""
        child = command.get_command(context, name)
        if child is None:
            return name
        command, context = child, typer.Context(child, parent=context)
    known = {
        option for parameter in command.get_params(context) for option in (*parameter.opts, *parameter.secondary_opts)
    }
    given = [word.partition("=")[0] for word in words if re.match(r"--?[a-zA-Z]", word)]
    return next((word for word in given if word not in known and word[:2] not in known), "")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_document_names_commands_and_options_that_exist(document: Path) -> None:
    found = [words for words in named_commands(document.read_text(encoding="utf-8")) if unknown_of(list(words))]

    assert found == []


def test_commands_that_do_not_exist_are_found() -> None:
    inline = "`sadvise recomend`, `sadvise recommend --demmo`, `sadvise models list`"
    text = f"{inline}\n    sadvise fit runtime --from live  # a\n"

    assert [unknown_of(words) for words in named_commands(text)] == ["recomend", "--demmo", "", ""]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_pages_and_headings_that_exist(document: Path) -> None:
    broken = []
    for target, heading in LINK.findall(document.read_text(encoding="utf-8")):
        page = document.parent / target
        if not page.exists() or (heading and heading not in headings(page)):
            broken.append(f"{target}#{heading}")

    assert broken == []


def headings(page: Path) -> set[str]:
    """Return the anchors of a page as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    linked = {page for page in DOCS if f"({page.name}" in index}

    assert {page.name for page in DOCS} - {page.name for page in linked} - {
        "README.md",
    } == set()
    assert COLUMNS == 80
