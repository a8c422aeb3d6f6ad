"""Settings that pages name exist; decision records name those of their time."""

import re
from pathlib import Path

from advisor.config import Config, effective_values

ROOT = Path(__file__).parent.parent
KEYS = frozenset(value.key for value in effective_values(Config()))
TABLES = frozenset(key.partition(".")[0] for key in KEYS)
# A key in backticks, perhaps with its value, or one that a sentence names in parentheses.
_NAMED = re.compile(r"[`(]([a-z]+\.[a-z_]+)(?: = [^`)]*)?[`)]")
_FILES = (".md", ".toml", ".json", ".sqlite", ".socket", ".py", ".lua", ".csv", ".service")


def named_settings(text: str) -> set[str]:
    """Return the words of a text that look like a setting of sadvise.toml."""
    words = _NAMED.findall(text)
    return {word for word in words if word.partition(".")[0] in TABLES and not word.endswith(_FILES)}


def test_every_setting_that_a_page_names_exists() -> None:
    pages = [
        page for page in ROOT.rglob("*.md") if "decisions" not in page.parts and not page.name.startswith("CHANGELOG")
    ]
    pages = [page for page in pages if not any(part.startswith(".") for part in page.relative_to(ROOT).parts)]

    wrong = {f"{page.relative_to(ROOT)}: {name}" for page in pages for name in named_settings(page.read_text()) - KEYS}

    assert len(pages) > 30
    assert wrong == set()


def test_setting_that_does_not_exist_is_found() -> None:
    text = "`guard.fairness`, `planning.deepness = 3`, (daemon.every_s), `web.socket`, `numpy.random`, `journal.sqlite`"

    assert named_settings(text) - KEYS == {"planning.deepness", "daemon.every_s"}
