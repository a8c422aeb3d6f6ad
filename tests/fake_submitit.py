"""A Slurm that runs job arrays on this machine, for the real submitit: `sbatch`, `srun`, `squeue` and `scancel`."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from advisor.sim.study import engines

_SBATCH: Final = """#!{python}
import os, re, subprocess, sys
from pathlib import Path

folder, text = Path({folder!r}), Path(sys.argv[1]).read_text()
options = dict(re.findall(r"^#SBATCH --([a-z-]+)=(.*)$", text, re.MULTILINE))
array = 100 * (len(list(folder.glob("*.options"))) + 1)
tasks = int(re.match(r"0-(\\d+)", options["array"])[1]) + 1 if "array" in options else 1
names = [f"{{array}}_{{task}}" if "array" in options else f"{{array}}" for task in range(tasks)]
(folder / f"{{array}}.options").write_text("\\n".join(f"{{name}}={{value}}" for name, value in options.items()))
# submitit moves its file once it is submitted.
script = folder / f"{{array}}.sh"
script.write_text(text)
for name in names:
    (folder / f"{{name}}.queued").touch()
print("Submitted batch job", array, flush=True)
if os.fork():
    sys.exit()
os.setsid()
for stream in range(3):
    os.dup2(os.open(os.devnull, os.O_RDWR), stream)
killed = os.environ.get("FAKE_SLURM_KILLS", "").split()


def log_of(kind, task):
    path = Path(options[kind].replace("%A", str(array)).replace("%a", str(task)).replace("%j", str(array + task)))
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


# Jobs end in another order than they were submitted in.
for task in reversed(range(tasks)):
    queued = folder / f"{{names[task]}}.queued"
    if str(task) not in killed and queued.exists():
        of_job = {{"JOB_ID": array + task, "NTASKS": 1, "JOB_NUM_NODES": 1, "PROCID": 0, "LOCALID": 0, "NODEID": 0}}
        of_array = {{"ARRAY_JOB_ID": array, "ARRAY_TASK_ID": task}} if "array" in options else {{}}
        variables = {{f"SLURM_{{name}}": str(value) for name, value in (of_job | of_array).items()}}
        variables["SLURM_JOB_NODELIST"] = "n01"
        with open(log_of("output", task), "w") as output, open(log_of("error", task), "w") as errors:
            subprocess.run(
                ["/bin/bash", script],
                env=os.environ | variables,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
            )
    queued.unlink(missing_ok=True)
"""
_SRUN: Final = """#!/bin/bash
while [[ $1 == -* ]]; do [[ $1 == --unbuffered ]] && shift || shift 2; done
exec "$@"
"""
_SQUEUE: Final = """#!/bin/bash
cd {folder}
for job in "${{@: -1}}"{{,_*}}.queued; do [[ -e $job ]] && echo "${{job%.queued}}"; done
exit 0
"""
_SCANCEL: Final = """#!/bin/bash
cd {folder}
echo "$1" >>cancelled
rm -f "$1.queued"
"""


@dataclass(frozen=True, slots=True)
class FakeSlurm:
    """What the programs left in their folder."""

    folder: Path

    @property
    def arrays(self) -> list[dict[str, str]]:
        """The options of the arrays that were submitted, in their order."""
        files = sorted(self.folder.glob("*.options"))
        return [dict(line.split("=", 1) for line in file.read_text().splitlines()) for file in files]

    @property
    def submitted(self) -> list[int]:
        """The number of jobs in each array."""
        return [int(options.get("array", "0-0").partition("%")[0].partition("-")[2]) + 1 for options in self.arrays]

    @property
    def cancelled(self) -> list[str]:
        """The jobs that were cancelled."""
        file = self.folder / "cancelled"
        return file.read_text().split() if file.exists() else []


def put_in_place(folder: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    """Put the programs into `folder`, and that before all others on PATH."""
    for name, text in (("sbatch", _SBATCH), ("srun", _SRUN), ("squeue", _SQUEUE), ("scancel", _SCANCEL)):
        is_plain = name == "srun"
        (folder / name).write_text(text if is_plain else text.format(python=sys.executable, folder=str(folder)))
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    for name, value in (("_POLL_S", 0.05), ("_LOOK_S", 0.5), ("_SETTLE_S", 0.05)):
        monkeypatch.setattr(engines, name, value)
    return FakeSlurm(folder)
