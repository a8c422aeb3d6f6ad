"""The role of Ansible: what it takes is declared and documented. tests/test_packages.py runs it."""

import re
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parent.parent / "ansible"
ROLE = FOLDER / "roles" / "sadvise"
DEFAULTS: dict[str, Any] = yaml.safe_load((ROLE / "defaults" / "main.yml").read_text())


def test_declared_variables_are_those_with_a_default() -> None:
    declared = yaml.safe_load((ROLE / "meta" / "argument_specs.yml").read_text())["argument_specs"]["main"]["options"]

    assert {name: option["default"] for name, option in declared.items()} == DEFAULTS


def test_every_variable_is_documented_with_its_default() -> None:
    rows = re.findall(r"^\| `(sadvise_\w+)` \| `(.*?)` \|", (FOLDER / "README.md").read_text(), re.MULTILINE)

    assert {name: yaml.safe_load(default) for name, default in rows} == DEFAULTS
