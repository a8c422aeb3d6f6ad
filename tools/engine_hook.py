"""Compiles the simulator's C functions into the wheel, for the platform on which it is built."""

import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class EngineHook(BuildHookInterface[Any]):
    """Adds the compiled library to a wheel; without a compiler the wheel holds the sources only."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile before the files of the wheel are collected; an editable install compiles on the first run."""
        if version == "editable":
            return
        sys.path.insert(0, self.root)
        from advisor.sim.engine.build import compile_to, has_compiler, library_name

        if not has_compiler():
            self.app.display_warning("no C compiler: the wheel holds the sources of the simulator only")
            return
        made = Path(self.directory) / library_name()
        made.parent.mkdir(parents=True, exist_ok=True)
        compile_to(made)
        build_data["force_include"][str(made)] = f"advisor/sim/engine/{made.name}"
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002 -- the interface
        """Remove the library, which is in the wheel now."""
        for path in Path(self.directory).glob("engine-*.so"):
            path.unlink()
