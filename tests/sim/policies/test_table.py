"""The table of policies: complete, without doubles, and as in the documentation."""

import pkgutil
import re
from importlib import import_module
from pathlib import Path

from advisor.sim import policies
from advisor.sim.policies import POLICIES

PAGE = Path(__file__).parents[3] / "docs" / "policies.md"


def test_every_policy_stands_in_the_documentation_and_no_other() -> None:
    rows = re.findall(r"^\| `([\w+-]+)` \|", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)

    assert sorted(rows) == sorted(POLICIES)


def test_every_file_with_a_policy_has_its_row() -> None:
    modules = [
        import_module(f"{policies.__name__}.{module.name}") for module in pkgutil.iter_modules(policies.__path__)
    ]
    own = [module.POLICY for module in modules if hasattr(module, "POLICY")]

    assert len(own) > 5
    assert all(POLICIES[policy.name] is policy for policy in own)


def test_every_name_is_given_once() -> None:
    assert len(POLICIES) == len(policies._TABLE)
