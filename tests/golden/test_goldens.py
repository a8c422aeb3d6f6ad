"""What the program came to before its inside was rebuilt, it still comes to."""

import json
from difflib import unified_diff

import pytest

from tests.golden.documents import DOCUMENTS
from tests.golden.numbers import compact
from tests.golden.table import FOLDER, GOLDENS, written

WRITE = "if that is the point of the change: python -m tests.golden.write"
# A text of that many words is a sentence, unless it is what was typed or set.
WORDS_OF_A_SENTENCE = 4
TYPED = ("command", "settings", "value")


def golden(name: str) -> object:
    """Return a golden as a parameter; the sentences, and two of three random queues, are slow."""
    seed = name.removeprefix("plans/random/seed-").removesuffix(".txt")
    is_slow = name == "sentences.json" or (seed.isdecimal() and int(seed) % 3 != 0)
    return pytest.param(name, marks=pytest.mark.slow if is_slow else ())


# They run the same lines for thousands of jobs; coverage counts what the tests of each part reach.
@pytest.mark.no_cover
@pytest.mark.parametrize("name", [golden(name) for name in GOLDENS])
def test_golden_is_the_same(name: str) -> None:
    path = FOLDER / name
    before = path.read_text(encoding="utf-8") if path.exists() else ""

    after = GOLDENS[name]()

    if not path.exists() or after != before:
        lines = unified_diff(before.splitlines(), after.splitlines(), "golden", "now", n=1, lineterm="")
        pytest.fail("\n".join((f"{name} differs; {WRITE}", *lines)), pytrace=False)


def test_every_file_is_a_golden() -> None:
    assert written() - GOLDENS.keys() == set(), WRITE


@pytest.mark.parametrize("name", DOCUMENTS)
def test_golden_of_a_document_has_no_sentence(name: str) -> None:
    def texts(value: object, key: str = "") -> list[str]:
        match value:
            case dict():
                return [text for name, each in value.items() if name not in TYPED for text in texts(each, name)]
            case list():
                return [text for each in value for text in texts(each, key)]
            case str():
                return [f"{key}: {value}"]
            case _:
                return []

    found = texts(json.loads((FOLDER / f"documents/{name}.json").read_text(encoding="utf-8")))

    assert [text for text in found if len(text.split()) > WORDS_OF_A_SENTENCE] == [], "see ENGLISH in documents.py"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        pytest.param(1234.5678, "1234.57", id="six digits"),
        pytest.param(12345678.9, "12345700", id="no exponent"),
        pytest.param(600.0, "600", id="whole"),
        pytest.param(-0.0, "0", id="negative zero"),
        pytest.param(-1e-13, "0", id="remainder of a sum"),
        pytest.param(float("inf"), "inf", id="infinite"),
        pytest.param({"taken_at": 1795235404.5}, '{"taken_at":1795235404}', id="instant"),
        pytest.param({"low": None, "high": (1.0, True)}, '{"high":[1,true],"low":null}', id="nested"),
    ],
)
def test_number_reads_the_same_on_every_machine(value: object, text: str) -> None:
    assert compact(value) == text
