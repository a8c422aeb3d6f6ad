"""Configures and runs `sadvise serve` beside a test cluster."""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

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
