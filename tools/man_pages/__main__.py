"""Writes the man pages into a folder; their date is SOURCE_DATE_EPOCH's, else that of the last commit."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from tools.build_packages.staging import default_time
from tools.man_pages.manual import man_pages


def main(arguments: Sequence[str] | None = None) -> int:
    """Write every page and print where it lies."""
    parser = argparse.ArgumentParser(prog="python -m tools.man_pages", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="where the pages go; read one with man -l")
    out: Path = parser.parse_args(arguments).out
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, text in man_pages(default_time(os.environ)).items():
            (out / name).write_text(text, encoding="ascii")
            print(out / name)
    except OSError as err:
        print(f"man_pages: {err}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
