"""Writes the pages of docs/ that are made from code or from results; `--check` only names those that are stale.

Of some documents, only the part between two comments is made, `<!-- made: NAME -->` and `<!-- end: NAME -->`.
"""

import argparse
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pydantic.json_schema import GenerateJsonSchema

from advisor.backends.snapshot_file import SnapshotFile
from advisor.config import example_toml
from advisor.domain.actions import Reason
from advisor.metrics.catalogue import METRICS
from advisor.web.answers import openapi
from tools.live import reported
from tools.pages.page_text import table
from tools.what_is_read import what_is_read_page

DOCS = Path(__file__).resolve().parent.parent / "docs"

SENTENCES = DOCS.parent / "tests" / "golden" / "sentences.json"
# How the names of sentences begin that are not of a job that waits.
_KINDS = ("rule ", "breaker ", "probation", "check ")

TEMPLATES = Path(__file__).parent / "templates"


def metrics_page() -> str:
    """Write the reference of the metrics from the table that the daemon exports them by."""
    rows = (
        [f"`{metric.name}`", metric.kind, ", ".join(f"`{label}`" for label in metric.labels), metric.sentence]
        for metric in METRICS
    )
    return filled("metrics.md", table=table(("metric", "kind", "labels", "meaning"), rows))


def filled(template: str, **values: str) -> str:
    """Return a template with its fields filled in."""
    return (TEMPLATES / template).read_text(encoding="utf-8").format(**values)


def snapshot_schema() -> str:
    """Write the JSON Schema of a snapshot file."""
    schema = {"$schema": GenerateJsonSchema.schema_dialect, **SnapshotFile.model_json_schema()}
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def sentences_page() -> str:
    """Write the list of sentences, as the golden of the tests holds them, for people to review."""
    listed = _first_forms(json.loads(SENTENCES.read_text(encoding="utf-8")))
    reasons = [_reason_section(str(reason), listed) for reason in Reason]
    breakers = [[name, text] for name, text in listed.items() if name.startswith(("breaker ", "probation"))]
    checks = [[name, text] for name, text in listed.items() if name.startswith("check ")]
    known = tuple(str(reason) for reason in Reason)
    causes = [[name, text] for name, text in listed.items() if not name.startswith((*known, *_KINDS))]
    return filled(
        "sentences.md",
        reasons="\n\n".join(reasons),
        breakers=table(("of", "sentence"), breakers),
        checks=table(("of", "sentence"), checks),
        causes=table(("of", "sentence"), causes),
    )


def _first_forms(listed: Mapping[str, str]) -> dict[str, str]:
    """Return of each sentence the first of its forms, which names end with a number."""
    return {name: text for name, text in listed.items() if not re.search(r" (?!1$)\d+$", name)}


def _reason_section(reason: str, listed: Mapping[str, str]) -> str:
    """Return what is printed for a reason: why, what the gain rests on, and the commands."""
    rows = [
        [label, text]
        for prefix, label in ((f"{reason} ", "why"), (f"{reason} if ", "assumes"))
        for name, text in listed.items()
        if name.removeprefix(prefix).isdecimal() and name.startswith(prefix)
    ]
    rows += [
        [label, f"`{listed[f'{reason} {label}']}`"] for label in ("apply", "revert") if listed[f"{reason} {label}"]
    ]
    return f"### {reason}\n\n{table(('', 'sentence'), rows)}"


def read_page() -> str:
    """Write which requests and settings are read."""
    return what_is_read_page((TEMPLATES / "what-is-read.md").read_text(encoding="utf-8"))


def api_document() -> str:
    """Write the OpenAPI document of the web view."""
    return json.dumps(openapi(), indent=1) + "\n"


PAGES: Mapping[str, Callable[[], str]] = {
    "metrics.md": metrics_page,
    "sentences.md": sentences_page,
    "openapi.json": api_document,
    "sadvise.example.toml": example_toml,
    "snapshot.schema.json": snapshot_schema,
    "what-is-read.md": read_page,
    reported.PICTURE: reported.live_picture,
}
# The parts of other documents by their paths from the folder of pages.
PARTS: Mapping[str, Callable[[], str]] = {
    "../README.md": reported.front_part,
    "live.md": reported.results_part,
}
_PART = re.compile(r"(?P<head><!-- made: live -->\n).*(?P<foot><!-- end: live -->\n)", re.DOTALL)


def stale_pages(folder: Path) -> list[str]:
    """Name the pages of a folder that are missing or not what the code makes now, and documents with such a part."""
    texts = {**{name: make() for name, make in PAGES.items()}, **_with_parts(folder)}
    return [name for name, text in texts.items() if not (folder / name).exists() or _read(folder / name) != text]


def write_pages(folder: Path) -> None:
    """Write every page, and the parts of documents that are there."""
    folder.mkdir(exist_ok=True)
    for name, text in {**{name: make() for name, make in PAGES.items()}, **_with_parts(folder)}.items():
        (folder / name).write_text(text, encoding="utf-8")


def _with_parts(folder: Path) -> Mapping[str, str]:
    """Map the documents that are there to their texts with the parts that are made."""
    return {name: with_part(_read(folder / name), make()) for name, make in PARTS.items() if (folder / name).exists()}


def with_part(text: str, part: str) -> str:
    """Put a part between its two comments; raises `ValueError` where they are not."""
    made, count = _PART.subn(lambda found: f"{found['head']}\n{part}\n\n{found['foot']}", text)
    if count != 1:
        raise ValueError("the comments around the part that is made are missing, or there twice")
    return made


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def main(arguments: Sequence[str] | None = None, *, folder: Path = DOCS) -> int:
    """Write or check the pages; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.generate_docs", description=__doc__)
    parser.add_argument("--check", action="store_true", help="exit 1 and name the pages that are stale")
    if not parser.parse_args(arguments).check:
        write_pages(folder)
        return 0
    stale = stale_pages(folder)
    for name in stale:
        print(f"{Path('docs', name).as_posix()} is stale: run `make docs`")
    return 1 if stale else 0


if __name__ == "__main__":
    raise SystemExit(main())
