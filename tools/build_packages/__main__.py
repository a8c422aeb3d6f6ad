"""Builds the .deb and the .rpm of this checkout, and those of the libraries of its extras.

Equal sources and equal dependencies give equal packages: every file carries SOURCE_DATE_EPOCH, else the time of the
last commit. The dependencies stand with their digests in /usr/share/doc/sadvise/dependencies.txt of the package, which
`--constraint` takes again.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path

from tools.build_packages.archives import FORMATS
from tools.build_packages.errors import BuildError
from tools.build_packages.staging import build_stages, default_time


def main() -> int:
    """Build what is asked for and print where it lies."""
    options = _parser().parse_args()
    os.umask(0o022)
    try:
        options.out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="sadvise-packages-") as folder:
            stages = build_stages(
                Path(folder),
                interpreter=options.python,
                constraint=options.constraint,
                built_time=default_time(os.environ),
            )
            for name in options.format or list(FORMATS):
                for stage in stages:
                    print(FORMATS[name](stage, options.out, options.maintainer), flush=True)
    except (BuildError, OSError) as err:
        print(f"build_packages: {err}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.build_packages", description=__doc__.splitlines()[0] if __doc__ else None
    )
    parser.add_argument("--out", type=Path, default=Path("dist"), help="where the packages go")
    parser.add_argument("--format", choices=sorted(FORMATS), action="append", help="only this one; both by default")
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
