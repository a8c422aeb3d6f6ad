"""The table of policies in the documentation."""

import re
from pathlib import Path

from advisor.sim.policies import POLICIES

PAGE = Path(__file__).parents[3] / "docs" / "policies.md"


def test_every_policy_stands_in_the_table_and_no_other() -> None:
    rows = re.findall(r"^\| `([\w+-]+)` \|", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)

    assert sorted(rows) == sorted(POLICIES)
