"""Measures what slurm/job_submit.lua adds to a submission: the same ones with and without it, in turn, on live Slurm.

python -m tools.bench submit [--release 22.05] [--jobs 50] [--rounds 4] [--bounds 1000]

With `--bounds` the script also follows a submit table with that many users. The CPU time of the script alone is
measured as well, in a loop inside slurmctld: machines that are busy with other work hardly change it.
"""

import argparse
import re
import statistics
import sys
import time
from collections.abc import Mapping

from tools.stage import LiveCluster, LiveSlurmError
from tools.stage.program import add_release
from tools.stage.submit_scripts import PLUGINS, install_scripts, replace_script

# Many rules of which the last one fits, and an environment to look into: the dearest case.
RULES = "\n".join(f'{{ name = "kind{number}-", hints = "model=kind{number} ckpt=600" }},' for number in range(64))
SITE = f'return {{ variable = "SADVISE_HINTS", variables = {{ model = "MODEL_NAME" }}, rules = {{ {RULES} }} }}\n'
OPTIONS = ("--gpus=2", "--job-name=kind63-x", "--comment=", "--time=10", "--partition=gpu")
VARIABLES: Mapping[str, str] = {f"VARIABLE_{number}": "x" * 40 for number in range(200)}


# As many calls as jobs that one table lifts; every call finds the job as it was submitted.
_LOOP = """
dofile("FOLDER/measured.lua")
local measured = slurm_job_submit
local function microseconds(count, job, partitions, uid)
  local began = os.clock()
  for _ = 1, count do
    job.nice, job.comment = 4294967294, ""
    measured(job, partitions, uid)
  end
  return (os.clock() - began) / count * 1e6
end
function slurm_job_submit(job, partitions, uid)
  local first = microseconds(1, job, partitions, uid)
  local further = microseconds(99, job, partitions, uid)
  slurm.log_info("measured: first call %.0f microseconds, further ones %.1f", first, further)
  return slurm.SUCCESS
end
return slurm.SUCCESS
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_release(parser)
    parser.add_argument("--jobs", type=int, default=50, help="submissions in a row")
    parser.add_argument("--bounds", type=int, default=0, help="users in a submit table; 0: there is no table")
    parser.add_argument("--rounds", type=int, default=4, help="how often, with and without")


def run(options: argparse.Namespace) -> int:
    """Measure one release and print the figures."""
    try:
        with LiveCluster(options.release, node_count=2, start_slurmd=False) as cluster:
            cluster.env |= {**VARIABLES, "SADVISE_HINTS": "gpus=2-8 ckpt=300"}
            times: dict[str, list[float]] = {"without": [], "with": []}
            served: dict[str, list[float]] = {"without": [], "with": []}
            for _ in range(options.rounds):
                for name in times:
                    _set_up(cluster, scripted=name == "with", bounds=options.bounds)
                    times[name] += _submissions(cluster, options.jobs)
                    served[name].append(_served_us(cluster))
            version, alone = cluster.version, _alone(cluster, options.bounds)
    except LiveSlurmError as err:
        print(f"bench submit: {err}", file=sys.stderr)
        return 1
    total = options.jobs * options.rounds
    for name, seconds in times.items():
        sbatch_ms, slurmctld_us = statistics.median(seconds) * 1000, statistics.median(served[name])
        print(f"Slurm {version}, {total} submissions {name} the script, medians: sbatch {sbatch_ms:.1f} ms,", end=" ")
        print(f"of which slurmctld {slurmctld_us:.0f} microseconds")
    added_us = statistics.median(served["with"]) - statistics.median(served["without"])
    print(f"the script adds {added_us:.0f} microseconds, {added_us / statistics.median(served['without']):.1%}")
    print(f"the script alone, CPU time of slurmctld: {alone}")
    return 0


def _submissions(cluster: LiveCluster, count: int) -> list[float]:
    """Submit one job after the other and return how long each took."""
    seconds = []
    for _ in range(count):
        began = time.perf_counter()
        # The nodes never start; a held job gets no nice.
        cluster.submit(*OPTIONS)
        seconds.append(time.perf_counter() - began)
    return seconds


def _served_us(cluster: LiveCluster) -> float:
    """Return the mean time in which slurmctld has served a submission since its start."""
    match = re.search(r"REQUEST_SUBMIT_BATCH_JOB\s.*?ave_time:(\d+)", cluster.run("sdiag"))
    if match is None:
        raise LiveSlurmError("sdiag does not tell how long submissions took")
    return float(match[1])


def _alone(cluster: LiveCluster, bounds: int) -> str:
    """Return the CPU time of the script, measured inside slurmctld: of its first call and of each further one."""
    _set_up(cluster, scripted=True, bounds=bounds)
    script = cluster.folder / "job_submit.lua"
    (cluster.folder / "measured.lua").write_text(script.read_text())
    replace_script(script, _LOOP.replace("FOLDER", str(cluster.folder)))
    cluster.submit("--gpus=2", "--time=10", "--partition=gpu", "--job-name=kind63-x")
    match = re.search(r"measured: (.*)", (cluster.folder / "slurmctld.log").read_text(errors="replace"))
    if match is None:
        raise LiveSlurmError("the loop was not run")
    return match[1]


def _set_up(cluster: LiveCluster, *, scripted: bool, bounds: int) -> None:
    """Start slurmctld again, with or without the script; the filter, which runs in sbatch, is never there."""
    conf = cluster.folder / "slurm.conf"
    if scripted:
        path = cluster.folder / "submit-table"
        path.write_text(_table(bounds))
        install_scripts(
            cluster, SITE.replace("variable =", f'submit_table = "{path if bounds else ""}", variable =', 1)
        )
    conf.write_text(conf.read_text().replace(PLUGINS, PLUGINS.splitlines()[0] + "\n" if scripted else ""))
    cluster.stop_controller()
    cluster.start_controller(clean=True)
    conf.write_text(conf.read_text().replace(PLUGINS.splitlines()[0] + "\n", ""))


def _table(bounds: int) -> str:
    """Return a submit table with a number of users, the last of them root."""
    written = int(time.time())
    lines = ["sadvise submit table 1", f"written {written}", f"valid {written + 900}", "lifts 100"]
    lines += ["partition gpu -200007 1000 20", "bound gpu * 5000.000 0.200000"]
    lines += [f"bound gpu {uid} 12345.678 0.234567" for uid in reversed(range(bounds))]
    return "".join(f"{line}\n" for line in (*lines, f"end {len(lines)}"))
