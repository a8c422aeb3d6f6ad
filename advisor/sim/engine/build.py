"""Compile the C sources into a library, once for each state of the sources."""

import hashlib
import importlib.util
import os
import shlex
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from advisor.backends.process import run
from advisor.errors import SimulationError, SlurmError

HERE: Final = Path(__file__).parent
# Contracted operations round otherwise on some processors, and results would differ between machines.
FLAGS: Final = ("-std=c11", "-O3", "-fPIC", "-shared", "-ffp-contract=off", "-fno-math-errno")
_COMPILE_S: Final = 120.0
_NO_COMPILER: Final = (
    "the simulator needs a C compiler on its first run, because only its sources are installed: install gcc, or type"
    f" {sys.executable} -m pip install ziglang; the wheel and the packages of sadvise hold it compiled"
)
# A compiler from the package index, for machines without one. Unlike others it makes code for this processor alone
# by default, and the library is kept in a folder that machines can share.
ZIG: Final = (sys.executable, "-m", "ziglang", "cc", "-mcpu=baseline")


def library_file() -> Path:
    """Return the library for the present sources: as shipped, as kept from an earlier run, or compiled now.

    Raises `SimulationError` if it has to be compiled and there is no compiler.
    """
    shipped = HERE / library_name()
    if shipped.is_file():
        return shipped
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sadvise"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        folder = Path(tempfile.mkdtemp(prefix="sadvise-"))
    kept = folder / library_name()
    if not kept.is_file():
        compile_to(kept)
    return kept


def library_name() -> str:
    """Return the name of the library for the present sources, flags and platform."""
    parts = hashlib.sha256(repr((FLAGS, sysconfig.get_platform())).encode())
    for path in sorted([*HERE.glob("*.c"), *HERE.glob("*.h")]):
        parts.update(path.name.encode() + path.read_bytes())
    return f"engine-{parts.hexdigest()[:16]}.so"


def has_compiler() -> bool:
    """Return whether there is a C compiler."""
    return bool(compiler())


def compiler() -> Sequence[str]:
    """Return the command of the compiler that CC names, else of `cc`, else of ziglang; empty where there is none."""
    if named := shlex.split(os.environ.get("CC", "")):
        return named if shutil.which(named[0]) else ()
    if shutil.which("cc"):
        return ("cc",)
    return ZIG if importlib.util.find_spec("ziglang") else ()


def compile_to(target: Path, flags: Sequence[str] = FLAGS) -> None:
    """Compile the library into a file, which appears whole or not at all."""
    if not has_compiler():
        raise SimulationError(_NO_COMPILER)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".engine-") as folder:
        made = Path(folder) / target.name
        try:
            run([*compiler(), *flags, str(HERE / "engine.c"), "-o", str(made), "-lm"], timeout_s=_COMPILE_S)
        except SlurmError as err:
            raise SimulationError(f"the simulator does not compile: {err}") from err
        made.replace(target)


if __name__ == "__main__":
    # Set-up compiles it, so that the first simulation finds it.
    library_file()
