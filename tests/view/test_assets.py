"""The files of pages: Chart.js is the released one, and no script can end its element early."""

import hashlib
import re
from importlib.resources import files

import pytest

from advisor.view.markup import TYPES, asset, inlined

STATIC = files("advisor.view") / "static"


def test_chart_js_is_what_the_readme_says() -> None:
    readme = (STATIC / "README.md").read_text()
    version, digest = re.findall(r"Chart\.js (\d[\d.]+\d),.*SHA-256 `([0-9a-f]{64})`", readme)[0]

    assert hashlib.sha256((STATIC / "chart.umd.min.js").read_bytes()).hexdigest() == digest
    assert f"Chart.js v{version}" in asset("chart.umd.min.js")
    assert "MIT License" in (STATIC / "chart.LICENSE.md").read_text()


@pytest.mark.parametrize("name", TYPES)
def test_files_can_stand_inside_a_page(name: str) -> None:
    text = inlined(name)

    assert not re.search(r"</script|</style|<!--|sourceMappingURL", text, re.IGNORECASE)
    assert text in asset(name)


@pytest.mark.parametrize("name", ["charts.js", "tables.js"])
def test_our_scripts_make_no_markup_of_text(name: str) -> None:
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function", asset(name))
