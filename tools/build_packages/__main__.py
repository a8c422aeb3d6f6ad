"""Builds the .deb and the .rpm of this checkout, those of the libraries of its extras, and the wheel and the sdist.

Equal sources and equal dependencies give equal packages: every file carries SOURCE_DATE_EPOCH, else the time of the
last commit. The dependencies stand with their digests in /usr/share/doc/sadvise/dependencies.txt of the package, which
`--constraint` takes again.
"""

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from itertools import product
from pathlib import Path

from tools.build_packages.archives import FORMATS
from tools.build_packages.distributions import ROOT, BuildError, build_sdist, build_wheel, copied_sources, default_time
from tools.build_packages.staging import build_stages

WHEEL, SDIST = "wheel", "sdist"
ALL_FORMATS = (*FORMATS, WHEEL, SDIST)


def main() -> int:
    """Build what is asked for and print where it lies."""
    options = _parser().parse_args()
    os.umask(0o022)
    # The builders of the wheel and the sdist read it.
    os.environ["SOURCE_DATE_EPOCH"] = str(default_time(os.environ))
    try:
        options.out.mkdir(parents=True, exist_ok=True)
        for package in _built(options, set(options.format or ALL_FORMATS)):
            print(package, flush=True)
    except (BuildError, OSError) as err:
        print(f"build_packages: {err}", file=sys.stderr)
        return 1
    return 0


def _built(options: argparse.Namespace, wanted: set[str]) -> Iterator[Path]:
    """Yield each package, built."""
    with tempfile.TemporaryDirectory(prefix="sadvise-packages-") as folder:
        sources = copied_sources(ROOT, Path(folder) / "sources")
        if SDIST in wanted:
            yield build_sdist(sources, options.out)
        if wanted == {SDIST}:
            return
        wheel = build_wheel(sources, Path(folder) / WHEEL)
        if WHEEL in wanted:
            yield Path(shutil.copy(wheel, options.out))
        builders = [FORMATS[name] for name in FORMATS if name in wanted]
        if not builders:
            return
        stages = build_stages(
            Path(folder),
            wheel,
            sources=sources,
            interpreter=options.python,
            constraint=options.constraint,
            built_time=int(os.environ["SOURCE_DATE_EPOCH"]),
        )
        for build, stage in product(builders, stages):
            yield build(stage, options.out, options.maintainer)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.build_packages", description=__doc__.splitlines()[0] if __doc__ else None
    )
    parser.add_argument("--out", type=Path, default=Path("dist"), help="where the packages go")
    parser.add_argument("--format", choices=sorted(ALL_FORMATS), action="append", help="only this one; all by default")
    parser.add_argument(
        "--python", type=Path, default=Path("/usr/bin/python3"), help="interpreter of the target, of the same release"
    )
    parser.add_argument("--constraint", type=Path, help="a pip constraint file that says which dependencies to take")
    parser.add_argument(
        "--maintainer",
        default="The sadvise developers <sadvise@localhost>",
        help="who the .deb names as its maintainer",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
