"""Text from outside stays on one line, controls no terminal and can be read back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.text import blanked, escaped, named

HOSTILE = "a\nb\x1b[31mc\x00d\u2028e\u202ef\x85g\x7fh\ud800i"


@given(st.text())
def test_what_is_escaped_is_one_printable_line(text: str) -> None:
    shown = escaped(text)

    assert shown.isprintable()
    assert shown == text or not text.isprintable()


@pytest.mark.parametrize("text", ["", "plain", "é漢", "a\\b", '"quoted"'])
def test_printable_text_stays_as_it_is(text: str) -> None:
    assert escaped(text) == blanked(text) == named(text) == text


def test_unprintable_characters_are_spelled_in_their_place() -> None:
    assert escaped(HOSTILE) == r"a\nb\x1b[31mc\x00d\u2028e\u202ef\x85g\x7fh\ud800i"
    assert escaped("é\x1b漢") == r"é\x1b漢"


def test_unprintable_characters_become_spaces_one_for_one() -> None:
    shown = blanked(HOSTILE)

    assert shown == "a b [31mc d e f g h i"
    assert len(shown) == len(HOSTILE)


@pytest.mark.parametrize(
    ("text", "longest", "shown"),
    [
        ("é", None, "é"),
        ("é\x1b", None, r"'\xe9\x1b'"),
        ("abcd", 4, "abcd"),
        ("abcde", 4, "'abcd'"),
        ("abc\nefgh", 4, r"'abc\n'"),
    ],
)
def test_a_name_is_cut_and_quoted_where_it_is_long_or_hostile(text: str, longest: int | None, shown: str) -> None:
    assert named(text, longest=longest) == shown
