"""Configures, runs and ends `sadvise serve` beside a test cluster, and takes back the changes that it has left."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tools.stage.live_cluster import LiveCluster

PROGRAM = ("-m", "advisor.cli.main")
Table = Mapping[str, str | float]


def write_config(folder: Path, interval_s: float, tables: Mapping[str, Table] | None = None) -> Path:
    """Write the daemon's configuration: mode apply, an interval, the values of `tables`, and defaults."""
    ours: Mapping[str, Table] = {
        "mode": {"default": "apply"},
        "journal": {"file": f"{folder}/journal.sqlite"},
        "daemon": {"runtime_folder": str(folder), "interval_s": interval_s, "jitter_s": 0.0},
        # Several daemons can run at once on one machine.
        "metrics": {"listen": f"unix:{folder}/metrics"},
        # Jobs here live for minutes, so the first and the next change have to come sooner; and a throwaway cluster has
        # no past on which a model could prove itself.
        "guard": {"min_job_age_s": 5.0, "cooldown_s": 30.0, "probation_jobs": 0},
    }
    more = tables or {}
    path = folder / "sadvise.toml"
    path.write_text("".join(_table(name, {**ours.get(name, {}), **more.get(name, {})}) for name in {**ours, **more}))
    return path


@contextmanager
def daemon(
    live: LiveCluster,
    config: Path,
    log: Path,
    *,
    through: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    program: Sequence[str] = PROGRAM,
) -> Iterator[subprocess.Popen[bytes]]:
    """Run `sadvise serve` until the block ends, and kill it if it still runs.

    `through` is a command prefix, `program` the arguments of Python that start sadvise.
    """
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*through, sys.executable, *program, "serve", "--config", str(config)],
            env=live.env if env is None else env, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
        )  # fmt: skip
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def _table(name: str, values: Table) -> str:
    # TOML spells strings and numbers as JSON does.
    return "\n".join([f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in values.items())]) + "\n"


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
