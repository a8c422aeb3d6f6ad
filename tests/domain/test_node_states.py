"""What sadvise makes of the state of a node, against what slurmctld did with a job there (docs/node-states.md)."""

from dataclasses import replace

import pytest

from advisor.domain.node import NodeService, is_known
from tests.builders import make_node
from tools.stage.node_states import NOT_SHOWN, PAGE, PART, NodeRow, disagreement, node_with, page, read_states

ROWS = [
    pytest.param(row, words, id=f"{release} {row.how}: {'+'.join(words)}")
    for release, rows in read_states().items()
    for row in rows
    for words in sorted({tuple(row.words.split("+")), row.json_words})
    if words and row.words != NOT_SHOWN
]


@pytest.mark.parametrize(("row", "words"), ROWS)
def test_service_is_what_slurmctld_did(row: NodeRow, words: tuple[str, ...]) -> None:
    node = node_with(words)

    assert disagreement(row, replace(node, cpus_reserved=8) if PART in row.how else node) == ""


def test_page_shows_what_was_recorded() -> None:
    assert PAGE.read_text() == page(read_states())


def test_unknown_word_is_no_claim_that_a_node_is_out_of_service() -> None:
    node = make_node(flags=("SOMETHING_NEW",))

    assert not is_known("SOMETHING_NEW")
    assert (node.service, node.is_only_reserved, node.can_be_resumed) == (NodeService.LATER, False, False)


@pytest.mark.parametrize(
    ("state", "flags", "resumed"),
    [
        ("DOWN", (), True),
        ("IDLE", ("DRAIN",), True),
        ("DOWN", ("NOT_RESPONDING",), False),
        ("IDLE", ("DRAIN", "INVALID_REG"), False),
        ("MIXED", ("CLOUD", "NOT_RESPONDING", "POWERING_UP"), False),
        ("IDLE", ("RESERVED",), False),
    ],
)
def test_operator_resumes_only_what_slurmctld_would_resume(state: str, flags: tuple[str, ...], resumed: bool) -> None:
    assert make_node(state=state, flags=flags).can_be_resumed is resumed
