"""What slurm/job_submit.lua adds to a submission: the same ones with and without it, in turn, on live Slurm.

python -m tools.bench submit [--release 22.05] [--jobs 50] [--rounds 4]
"""

import argparse
import re
import statistics
import sys
import time
from collections.abc import Mapping

from tools.live_slurm import LiveCluster, LiveSlurmError
from tools.live_slurm.roots import RELEASES
from tools.live_slurm.submit_scripts import PLUGINS, install_scripts

# Many rules of which the last one fits, and an environment to look into: the dearest case.
RULES = "\n".join(f'{{ name = "kind{number}-", hints = "model=kind{number} ckpt=600" }},' for number in range(64))
SITE = f'return {{ variable = "SADVISE_HINTS", variables = {{ model = "MODEL_NAME" }}, rules = {{ {RULES} }} }}\n'
OPTIONS = ("--gpus=2", "--job-name=kind63-x", "--comment=")
VARIABLES: Mapping[str, str] = {f"VARIABLE_{number}": "x" * 40 for number in range(200)}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--release", choices=list(RELEASES), default="22.05")
    parser.add_argument("--jobs", type=int, default=50, help="submissions in a row")
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
                    _set_up(cluster, scripted=name == "with")
                    times[name] += _submissions(cluster, options.jobs)
                    served[name].append(_served_us(cluster))
            version = cluster.version
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
    return 0


def _submissions(cluster: LiveCluster, count: int) -> list[float]:
    """Submit one job after the other and return how long each took."""
    seconds = []
    for _ in range(count):
        began = time.perf_counter()
        cluster.submit("--hold", *OPTIONS)
        seconds.append(time.perf_counter() - began)
    return seconds


def _served_us(cluster: LiveCluster) -> float:
    """Return the mean time in which slurmctld has served a submission since its start."""
    match = re.search(r"REQUEST_SUBMIT_BATCH_JOB\s.*?ave_time:(\d+)", cluster.run("sdiag"))
    if match is None:
        raise LiveSlurmError("sdiag does not tell how long submissions took")
    return float(match[1])


def _set_up(cluster: LiveCluster, *, scripted: bool) -> None:
    """Start slurmctld again, with or without the script; the filter, which runs in sbatch, is never there."""
    conf = cluster.folder / "slurm.conf"
    if scripted:
        install_scripts(cluster, SITE)
    conf.write_text(conf.read_text().replace(PLUGINS, PLUGINS.splitlines()[0] + "\n" if scripted else ""))
    cluster.stop_controller()
    cluster.start_controller(clean=True)
    conf.write_text(conf.read_text().replace(PLUGINS.splitlines()[0] + "\n", ""))
