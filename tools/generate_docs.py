"""Writes the pages of docs/ that are made from code; `--check` names those that are stale and writes nothing."""

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pydantic.json_schema import GenerateJsonSchema

from advisor.backends.snapshot_file import SnapshotFile
from advisor.config import describe, example_toml, variable_of
from tools.metrics_page import metrics_page

DOCS = Path(__file__).resolve().parent.parent / "docs"

CONFIGURATION = """\
<!-- Made by `python -m tools.generate_docs`; edit the settings in the code instead. -->
# Configuration

`sadvise` needs no configuration. What it reads, later ones over earlier ones:

1. the defaults below,
2. `/etc/sadvise/sadvise.toml`,
3. `/etc/sadvise/conf.d/*.toml`, in the order of their names,
4. environment variables,
5. the options of a command.

`--config FILE`, or `SADVISE_CONFIG=FILE`, names one file to read in place of 2 and 3. A variable is written like a
value in the file; text needs no quotes there. An unknown table or key, a wrong type or a value out of bounds is an
error. `sadvise config show` prints every value in force with where it came from. All defaults as a file:
[sadvise.example.toml](sadvise.example.toml). Names that end in `_s` are seconds, those that end in `_ratio` go from
0 to 1.
"""


def configuration_page() -> str:
    """Write the reference of sadvise.toml."""
    lines = [CONFIGURATION]
    table = ""
    for key, default, sentence in describe():
        of_key, _, name = key.partition(".")
        if of_key != table:
            table = of_key
            lines += ["", f"## [{table}]", "", "| key | default | variable | meaning |", "|---|---|---|---|"]
        lines.append(f"| `{name}` | `{json.dumps(default)}` | `{variable_of(key)}` | {sentence} |")
    return "\n".join(lines).replace("\n\n\n", "\n\n") + "\n"


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
