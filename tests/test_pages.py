"""The experiments of docs/: their descriptions, their templates, and that the pages kept are theirs."""

import argparse
import re
from pathlib import Path

import pytest

from advisor.errors import SimulationError
from tools.pages.__main__ import main
from tools.pages.page_experiment import PROG, Experiment, add_options, command_of, described, experiment_of, summaries
from tools.pages.page_text import FOLDER, paragraph, render, table

ROOT = Path(__file__).parent.parent
NAMES = tuple(summaries())
KEPT = tuple(name for name in NAMES if "output" in described(name))


def experiment_by_default(name: str, *arguments: str) -> tuple[Experiment, str]:
    """Return the experiment of a name and its command, with the options given."""
    parser = argparse.ArgumentParser()
    description = described(name)
    add_options(parser, description)
    options = parser.parse_args(arguments)
    return experiment_of(description, options), command_of(name, description, options)


@pytest.mark.parametrize("name", NAMES)
def test_a_description_is_the_default_of_its_options(name: str) -> None:
    experiment, command = experiment_by_default(name)

    assert experiment == Experiment(**described(name))
    assert command == f"{PROG} {name}"


def test_options_that_differ_stand_in_the_command() -> None:
    experiment, command = experiment_by_default("advice", "--traces", "itp 02,itp 04", "--seeds", "2")

    assert experiment.traces == ("itp 02", "itp 04")
    assert experiment.seeds == 2
    assert command == f"{PROG} advice --traces 'itp 02,itp 04' --seeds 2"


def test_all_jobs_at_once_is_no_load() -> None:
    experiment, _ = experiment_by_default("dally", "--loads", "batch,0.9")

    assert experiment.loads == (None, 0.9)


def test_an_option_that_a_page_has_no_use_for_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["dally", "--first-jobs", "3"])

    assert "unrecognized arguments: --first-jobs 3" in capsys.readouterr().err


def test_a_value_that_cannot_be_names_its_option() -> None:
    with pytest.raises(SimulationError, match=r"--first-jobs -1: input should be greater than or equal to 0"):
        experiment_by_default("results", "--first-jobs", "-1")


@pytest.mark.parametrize("name", KEPT)
def test_the_page_that_is_kept_has_the_prose_of_its_template(name: str) -> None:
    experiment, command = experiment_by_default(name)
    kept = " ".join((ROOT / experiment.output).read_text(encoding="utf-8").split())
    template = (FOLDER / f"{experiment.page}.md").read_text(encoding="utf-8").partition("%%")[0]

    blocks = [" ".join(block.split()) for block in template.split("\n\n") if not block.startswith("|")]

    assert f"Written by `{command}`; do not edit." in kept
    assert [block for block in blocks if not re.search(re.sub(r"\\\{.+?\\\}", ".*", re.escape(block)), kept)] == []


def test_no_policy_of_the_page_on_advice_leaves_all_traces_as_they_were() -> None:
    text = (ROOT / described("advice")["output"]).read_text(encoding="utf-8")
    _, _, below = text.partition("## Against slurm, over all traces\n\n")
    heads, _, *rows = [line.strip("| ").split(" | ") for line in below.split("\n\n")[0].splitlines()]

    assert heads[3:7] == ["lower", "higher", "no clear difference", "no change"]
    acted = {row[0]: any(count != "0" for count in row[3:6]) for row in rows}
    assert len(acted) > 10 and all(acted.values()), acted


def test_paragraphs_are_wrapped_and_fields_alone_are_not() -> None:
    text = render("holds", "corner", oversubscription=4.0, record="x\ny", added="z")

    assert text.startswith(
        "## Oversubscription 4:1\n\nChange of the mean JCT from plain Slurm:\n\nx\ny\n\nWhat one lever"
    )


def test_a_field_alone_that_is_empty_leaves_no_gap() -> None:
    text = render("holds", "corner", oversubscription=4.0, record="", added="z")

    assert "from plain Slurm:\n\nWhat one lever" in text


def test_a_duration_is_in_words() -> None:
    text = render(
        "dally_slurm",
        command="c", version="1", policy="p", slurm="s", summary="-", cut="", max_switch_wait_s=7200.0,
        options=argparse.Namespace(advise_every_s=300.0),
    )  # fmt: skip

    assert "with `max_switch_wait` of 2.0 h;" in " ".join(text.split())


def test_no_line_of_a_paragraph_is_longer_than_120() -> None:
    assert [len(line) for line in paragraph("word " * 30).splitlines()] == [119, 29]


def test_columns_of_figures_are_aligned_right() -> None:
    assert table(("name", "jobs:"), [["one", "2"]]) == "| name | jobs |\n|---|--:|\n| one | 2 |"
