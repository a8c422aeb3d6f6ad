"""Ends what runs on a live cluster: the daemon, then the changes that it has left."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tools.stage.daemon import PROGRAM
from tools.stage.live_cluster import LiveCluster

_LOOK_S: Final = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class Reverted:
    """Holds what `sadvise revert --all` printed of each change, and what went wrong, "" for nothing."""

    changes: Sequence[Mapping[str, Any]] = ()
    fault: str = ""


def end_daemon(process: "subprocess.Popen[bytes]", within_s: float, *, any_status: bool = False) -> list[str]:
    """End a daemon as the service manager does, and return what is wrong with how it ended.

    With `any_status` its exit status counts for nothing, as that of one which is asked before it is ready.
    """
    if process.poll() is not None:
        return [f"the daemon ended by itself with {process.returncode}"]
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(within_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return [f"the daemon did not end within {within_s:g} s"]
    return [f"the daemon ended with {process.returncode}"] if process.returncode and not any_status else []


def revert_all(live: LiveCluster, config: Path, meanwhile: Callable[[], None] = lambda: None) -> Reverted:
    """Run `sadvise revert --all` on a cluster to its end; `meanwhile` is called now and then until it has ended."""
    argv = [sys.executable, *PROGRAM, "revert", "--all", "--json", "--config", str(config)]
    asked = subprocess.Popen(argv, env=live.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8")
    while True:
        try:
            output, complaints = asked.communicate(timeout=_LOOK_S)
            break
        except subprocess.TimeoutExpired:
            meanwhile()
    if asked.returncode != 0:
        return Reverted(fault=" ".join(f"revert --all: exit status {asked.returncode}: {complaints}".split()))
    return Reverted(changes=json.loads(output)["changes"])


def log_end(log: Path, lines: int) -> str:
    """Return the last lines of a daemon's log, "" where there is none."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:]) if log.exists() else ""
