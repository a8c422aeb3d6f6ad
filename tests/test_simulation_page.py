"""The user guide of the simulator names every key of the cluster file with its default."""

from dataclasses import MISSING, fields
from pathlib import Path

import pytest

from advisor.sim.cluster import _SHORT, _TABLES, parse_cluster
from advisor.sim.policies import POLICIES

PAGE = (Path(__file__).parent.parent / "docs" / "simulation.md").read_text(encoding="utf-8")


def spelled(default: object) -> str:
    """Return a default as the page spells it."""
    match default:
        case bool():
            return str(default).lower()
        case float() | int():
            return f"{default:.12g}"
        case str() if default:
            return f"`{default}`"
        case _:
            return "must be given" if default is MISSING else "none"


KEYS = [
    (f"{table}.{key.name}", "none" if key.default_factory is not MISSING else spelled(key.default))
    for table, kind in _TABLES.items()
    for key in fields(kind)
]


@pytest.mark.parametrize(("key", "default"), KEYS, ids=[key for key, _ in KEYS])
def test_every_key_has_a_row_with_its_default(key: str, default: str) -> None:
    row = next((line for line in PAGE.splitlines() if line.startswith(f"| `{key}` |")), "")

    assert row.split(" | ")[2:3] == [default]


def test_no_row_is_of_a_key_that_is_not_there() -> None:
    section = PAGE.partition("## The cluster file")[2].partition("## How jobs run")[0]
    named = [line.split("`")[1] for line in section.splitlines() if line.startswith("| `")]

    assert sorted(named) == sorted(key for key, _ in KEYS)


def test_every_policy_and_every_word_of_the_short_form_is_named() -> None:
    assert [name for name in (*POLICIES, *_SHORT) if f"`{name}`" not in PAGE] == []


def test_the_example_is_a_cluster_file(tmp_path: Path) -> None:
    file = tmp_path / "site.toml"
    file.write_text(PAGE.partition("```toml\n")[2].partition("```")[0], encoding="utf-8")

    cluster = parse_cluster(str(file))

    assert cluster.gpus == 48 * 8 + 16 * 4
