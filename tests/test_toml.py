"""TOML that is nested to hurt: refused before the parser sees it."""

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.files import DEEPEST, parse_toml

# In 200 KB, the first three take the stack, the others up to minutes.
BOMBS = {
    "arrays": "a = " + "[" * 100_000,
    "tables in a line": "a = " + "{a=" * 50_000,
    "both": "a = " + "[{a=" * 50_000,
    "key": "a" + ".a" * 60_000 + " = 1",
    "key in a table": "[planning]\ndepth" + ".a" * 60_000 + " = 1",
    "header": "[a" + ".a" * 60_000 + "]",
    "many lines": "a = " + "[\n" * 50_000,
}


@pytest.mark.parametrize("text", BOMBS.values(), ids=BOMBS)
def test_deep_nesting_is_refused_unparsed(text: str) -> None:
    with pytest.raises(ValueError, match=r"^nested more than 32 deep: write its brackets and dotted keys flat$"):
        parse_toml(text)


def test_nesting_up_to_the_bound_is_parsed() -> None:
    nested = f"a = {'[' * DEEPEST}{']' * DEEPEST}\nb{'.b' * (DEEPEST - 1)} = 1"

    assert parse_toml(nested) == tomllib.loads(nested)


@given(st.text(alphabet="[]{}=.,#\"'a1 \n\\", max_size=400))
def test_any_text_is_parsed_as_tomllib_does_or_refused(text: str) -> None:
    try:
        tables = parse_toml(text)
    except ValueError:
        return

    assert tables == tomllib.loads(text)
