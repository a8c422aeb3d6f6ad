"""Name the command that installs what an optional feature needs, by how sadvise itself was installed."""

import shutil
import sys
from importlib.metadata import distribution
from typing import Final, Literal

# The installer that a .deb or an .rpm names in its metadata; pip names itself there.
PACKAGED: Final = "sadvise-packages"
# Holds the libraries of every extra.
_PACKAGE: Final = "sadvise-fit"


def how_to_install(extra: Literal["fit", "slurm"]) -> str:
    """Return the command that installs the libraries of an extra: that of the system's package manager, or of pip."""
    if (distribution("sadvise").read_text("INSTALLER") or "").strip() == PACKAGED:
        # It was built with the program, and no repository has it.
        return (
            f"apt-get install ./{_PACKAGE}_*.deb" if shutil.which("apt-get") else f"dnf install ./{_PACKAGE}-[0-9]*.rpm"
        )
    return f"{sys.executable} -m pip install 'sadvise[{extra}]'"
