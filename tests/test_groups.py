"""Which tests pytest-xdist keeps together, and in which order they begin."""

from pathlib import Path
from typing import Final

import pytest

from tests import groups

FOLDER: Final = Path(groups.__file__).parent


@pytest.mark.parametrize(
    ("node_id", "group"),
    [
        ("tests/live/test_apply.py::test_a[22.05]", "tests/live/test_apply.py 22.05"),
        ("tests/live/test_apply.py::test_a[before-26.05]", "tests/live/test_apply.py 26.05"),
        ("tests/live/test_apply.py::test_a[26.05-before]", "tests/live/test_apply.py 26.05"),
        ("tests/test_packages.py::test_a[sadvise]", "tests/test_packages.py"),
        ("tests/browser/test_web.py::test_a[line]", "tests/browser/test_web.py"),
        ("tests/test_text.py::test_a[22.05]", "tests/test_text.py::test_a[22.05]"),
    ],
)
def test_group_is_a_file_on_a_release_where_tests_share_something(node_id: str, group: str) -> None:
    assert groups.group_of(node_id) == group


def test_order_names_files_that_are_there() -> None:
    names = {path.stem.removeprefix("test_") for path in FOLDER.rglob("test_*.py")}

    assert set(groups.ORDER) <= names
    assert len(set(groups.ORDER)) == len(groups.ORDER)


def test_files_are_together_that_are_there() -> None:
    assert [path for path in groups.TOGETHER if not (FOLDER.parent / path).exists()] == []
