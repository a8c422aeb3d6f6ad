"""Programs of other people that tests run, and whether one that was killed is gone."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import AnyStr

import pytest


@contextmanager
def killed_after(process: subprocess.Popen[AnyStr]) -> Iterator[subprocess.Popen[AnyStr]]:
    """Lend a process to a block, and kill it if it still runs when the block ends.

    `with Popen(...)` alone waits for the process without limit, also when the block fails.
    """
    with process:
        try:
            yield process
        finally:
            process.kill()


def is_alive(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    # A killed process that nobody has waited for is still listed.
    return "\nState:\tZ" not in status


def wait_until_gone(pid: int) -> None:
    for _ in range(200):
        if not is_alive(pid):
            return
        time.sleep(0.01)
    pytest.fail(f"process {pid} is still there")


_SQUEUE = """#!{python}
import os
import re
import sys
sys.path.insert(0, {root!r})
from tests.backends.fake_slurm import job_row, printed

layout = os.environ["SQUEUE_FORMAT2"]
if not {obeys_widths}:
    layout = re.sub(r":\\d+", ":", layout)
changed = {{"JobID": "%d", "JobArrayID": "%d", **{changes!r}}}
row = printed([{{**job_row(), **changed}}], layout)
plain = row if {obeys_widths} else printed([job_row(JobID="%d")], layout)
for job_id in range(1, {jobs} + 1):
    shown = row if job_id % 3 else plain
    sys.stdout.buffer.write(shown.replace(b"%d", b"%d" % job_id))
"""
_SINFO = """#!{python}
import sys
sys.path.insert(0, {root!r})
from tests.backends.fake_slurm import NODE_ROW, printed

if "--version" in sys.argv:
    print("slurm 25.11.7")
else:
    sys.stdout.buffer.write(printed([NODE_ROW], sys.argv[sys.argv.index("-O") + 1]))
"""
_SCONTROL = """#!{python}
import sys
sys.path.insert(0, {root!r})
from tests.backends.fake_slurm import CONFIG_TEXT, TOPOLOGY_TEXT

print({{"config": CONFIG_TEXT, "topology": TOPOLOGY_TEXT}}.get(sys.argv[-1], ""))
"""


def write_slurm(folder: Path, *, jobs: int, changes: Mapping[str, str], obeys_widths: bool = True) -> dict[str, str]:
    """Write a squeue of like jobs, a sinfo of one node and a scontrol; return the environment that finds them.

    `%d` in a field of a job stands for its id. A squeue that does not obey widths prints every third job unchanged.
    """
    root = str(Path(__file__).parents[1])
    written = {
        "python": sys.executable,
        "root": root,
        "jobs": jobs,
        "changes": dict(changes),
        "obeys_widths": obeys_widths,
    }
    for name, program in (("squeue", _SQUEUE), ("sinfo", _SINFO), ("scontrol", _SCONTROL)):
        (folder / name).write_text(program.format(**written))
        (folder / name).chmod(0o755)
    (folder / "slurm.conf").write_text("ClusterName=written\n")
    variables = {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", "SLURM_CONF": str(folder / "slurm.conf")}
    return {**os.environ, **variables, "PYTHONPATH": root}
