"""Writes the pages of docs/ that are made from code; `--check` names those that are stale and writes nothing."""

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from pathlib import Path

from pydantic.json_schema import GenerateJsonSchema

from advisor.backends.snapshot_file import SnapshotFile
from advisor.config import describe, example_toml, variable_of
from advisor.metrics.catalogue import METRICS
from tools.pages.text import table

DOCS = Path(__file__).resolve().parent.parent / "docs"

TEMPLATES = Path(__file__).parent / "templates"


def configuration_page() -> str:
    """Write the reference of sadvise.toml."""
    tables = []
    for name, keys in groupby(describe(), key=lambda entry: entry[0].partition(".")[0]):
        rows = (
            [f"`{key.partition('.')[2]}`", f"`{json.dumps(default)}`", f"`{variable_of(key)}`", sentence]
            for key, default, sentence in keys
        )
        tables.append(f"## [{name}]\n\n{table(('key', 'default', 'variable', 'meaning'), rows)}")
    return filled("configuration.md", tables="\n\n".join(tables))


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


PAGES: Mapping[str, Callable[[], str]] = {
    "configuration.md": configuration_page,
    "metrics.md": metrics_page,
    "sadvise.example.toml": example_toml,
    "snapshot.schema.json": snapshot_schema,
}


def stale_pages(folder: Path) -> list[str]:
    """Name the pages of a folder that are missing or not what the code makes now."""
    return [
        name
        for name, make in PAGES.items()
        if not (folder / name).exists() or (folder / name).read_text(encoding="utf-8") != make()
    ]


def write_pages(folder: Path) -> None:
    """Write every page."""
    folder.mkdir(exist_ok=True)
    for name, make in PAGES.items():
        (folder / name).write_text(make(), encoding="utf-8")


def main(arguments: Sequence[str] | None = None, *, folder: Path = DOCS) -> int:
    """Write or check the pages; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.generate_docs", description=__doc__)
    parser.add_argument("--check", action="store_true", help="exit 1 and name the pages that are stale")
    if not parser.parse_args(arguments).check:
        write_pages(folder)
        return 0
    stale = stale_pages(folder)
    for name in stale:
        print(f"docs/{name} is stale: run `make docs`")
    return 1 if stale else 0


if __name__ == "__main__":
    raise SystemExit(main())
