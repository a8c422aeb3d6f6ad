"""Reports on runs of live clusters: what advice did to the jobs, to their users and to slurmctld.

    python -m tools.live.arms_report DIR... [--html FILE] [-o FILE.md] [--json FILE] [--store DIR]

Each folder is a run that `python -m tools.live.twins --out DIR` has left. Times are those of the trace. The first
cluster, a plain one if there is one, is what the others are compared with; a second plain one shows the noise of the
method. Runs of several traces and seeds are paired run by run. `--html` writes the page of `sadvise compare --report`.
The same jobs also run in the simulator; `--store` keeps what it found, `--no-simulator` leaves it out.
"""

import argparse
import shlex
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from advisor.errors import AdvisorError, SimulationError
from advisor.sim.study.comparison import traces_of
from advisor.sim.study.statistics import CellName
from advisor.view.html_report import Origin, write_report
from tools.live.advice_sections import fidelity_values, savings_values, slurmctld_values
from tools.live.compressed_site import GPUS_PER_NODE
from tools.live.job_sections import metrics_values, runs_values, sizes_values
from tools.live.kept import Kept, Report, Runs, plain_values, read_kept
from tools.live.reported import markdown, sections, write_values
from tools.live.user_sections import losses_values, users_values

SEED: Final = 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Write what is asked for, or print the tables; return the exit code."""
    args = _parser().parse_args(arguments)
    try:
        runs = read_runs(args.folders)
        if args.html:
            command = shlex.join(["python", "-m", "tools.live.arms_report", *map(str, args.folders)])
            write_report(runs.results, args.html, origin=origin_of(runs, command), seed=SEED)
        report = report_of(runs, simulator=args.simulator, store=args.store, again=args.again)
    except AdvisorError as err:
        print(f"live report: {err}", file=sys.stderr)
        return 1
    if args.json:
        write_values(args.json, report)
    text = markdown(sections(report))
    if args.output:
        args.output.write_text(text, encoding="utf-8")
    else:
        print(text, end="")
    return 0


def read_runs(folders: Iterable[Path]) -> Runs:
    """Read the clusters of all folders; raises `SimulationError` where one trace and seed was run twice."""
    arms: list[Kept] = []
    seen: dict[tuple[str, CellName], Path] = {}
    for folder in folders:
        for arm in read_kept(folder):
            if (arm.name, arm.cell) in seen:
                raise SimulationError(
                    f"{folder}: {arm.name} on {arm.cell.trace} with seed {arm.cell.seed} is also in "
                    f"{seen[arm.name, arm.cell]}: report runs with other settings by themselves"
                )
            seen[arm.name, arm.cell] = folder
            arms.append(arm)
    return Runs(arms)


def report_of(runs: Runs, *, simulator: bool, store: Path | None, again: bool = False) -> Report:
    """Return what the parts of the report show, by their names."""
    found = {
        "runs": runs_values(runs),
        "metrics": metrics_values(runs, SEED),
        "users": users_values(runs, SEED),
        "losses": losses_values(runs, SEED),
        "sizes": sizes_values(runs, SEED),
        "changes": savings_values(runs, again=again),
        "slurmctld": slurmctld_values(runs),
        **({"fidelity": fidelity_values(runs, store)} if simulator else {}),
    }
    return {name: plain_values(values) for name, values in found.items()}


def origin_of(runs: Runs, command: str) -> Origin:
    """Return where the runs come from, for the page."""
    site = runs.arms[0].site
    note = f"Parts of the trace, one for each seed, run on live clusters {site.speedup:g} times as fast."
    cluster = f"{site.nodes} nodes of {GPUS_PER_NODE} GPUs, {site.leaf_nodes} below a leaf switch, Slurm {site.release}"
    traces = traces_of(runs.results)
    return Origin(
        command=command,
        traces={name: replace(runs.jobs(name), note=note) for name in traces},
        clusters=dict.fromkeys(traces, cluster),
        jobs_by_seed=True,
    )


def _parser() -> argparse.ArgumentParser:
    description = (__doc__ or "").partition("\n")[0]
    parser = argparse.ArgumentParser(prog="python -m tools.live.arms_report", description=description)
    add = parser.add_argument
    add("folders", type=Path, nargs="+", metavar="DIR", help="what tools.live.twins has left")
    add("--html", type=Path, metavar="FILE", help="write the page of sadvise compare")
    add("-o", "--output", type=Path, metavar="FILE", help="write the tables as Markdown, not on the screen")
    add("--json", type=Path, metavar="FILE", help="write the figures as JSON")
    add("--store", type=Path, metavar="DIR", help="keep simulated runs there, and take those that are there")
    add("--plan-again", dest="again", action="store_true", help="what this version would have promised")
    add("--no-simulator", dest="simulator", action="store_false", help="leave out the comparison with the simulator")
    return parser


if __name__ == "__main__":
    sys.exit(main())
