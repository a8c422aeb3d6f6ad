"""Runs live clusters on the same part of a real trace, one of them plain, the others with sadvise in mode apply.

    python -m tools.live.twins --trace "itp 02" --seed 1 --policy none --policy default:fairness=site --out runs/itp02-1

Every cluster is a real slurmctld with fake nodes. All get the same jobs of several users in the same second, in
compressed time; a job ends when its work is done, at the rate that the model of execution gives for the nodes that
slurmctld chose and for its neighbours there. The first policy is what the others are compared with; `none` beside
`none` measures the noise of the method. The options of a policy are those of `simulate --policy slurm:...` and
`lift:...`, as in `none:reserve-after=3d` and `default:fairness=user,pin=yes`; `NAME=default:...` names the cluster in
reports. With `--past` a run-time model is fitted to jobs of the trace that ended before this part, for the policies
that use forecasts. `python -m tools.live.arms_report` reads the folders of any number of runs.
"""

import argparse
import re
import statistics
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from advisor.cli.progress import progress_bar
from advisor.clock import SystemClock
from advisor.domain.units import HOUR_S, MINUTE_S
from advisor.errors import AdvisorError, SimulationError
from advisor.sim.cluster import parse_cluster
from advisor.sim.traces.sampling import REQUESTS
from advisor.sim.traces.trace import Trace
from advisor.sim.traces.trace_file import read_trace
from tools.data.simulated_traces import add_data_option, data_folder, read_workload
from tools.live.arm import LiveArm, model_of, play
from tools.live.compressed_site import GPUS_PER_NODE, PINS, POLICIES, CompressedSite, PlannedArm, Policy
from tools.live.kept import keep
from tools.live.trace_jobs import fit_past
from tools.live.window import Cut, TraceWindow, accounts_by_user, window_and_past
from tools.stage import LiveCluster, LiveSlurmError
from tools.stage.daemon import Table, daemon, end_daemon, revert_all, write_config
from tools.stage.program import add_release, print_faults
from tools.stage.submit_scripts import install_scripts

_END_S: Final = 60.0
_CHANGE_S: Final = 20.0
_BOOTED: Final = re.compile(r"^BOOT_TIME\s*=\s*(\d+)$", re.MULTILINE)
# The time from the start of slurmctld until it first works out priorities, and half a second for the cut of the former.
_PRIORITIES_AFTER_S: Final = 1.3


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the clusters and keep what came of it; return the exit code."""
    args = _parser().parse_args(arguments)
    args.policy = args.policy or [PlannedArm.of("none"), PlannedArm.of("default")]
    try:
        _check(args)
        site, cut = _site(args), _cut(args)
        window = _window(args, site, cut)
        _print_settings(args, site, window.trace)
        return _run(args, site, cut, window)
    except (AdvisorError, LiveSlurmError) as err:
        print(f"live twins: {err}", file=sys.stderr)
        return 1


def _check(args: argparse.Namespace) -> None:
    """Raise `SimulationError` for a number that makes no sense."""
    for name in ("load", "span", "longest", "speedup", "nodes", "leaves", "nic", "within"):
        if not getattr(args, name) > 0:
            raise SimulationError(f"--{name} {getattr(args, name)}: give more than 0")
    if min(args.jobs, args.past) < 0 or not args.oversubscription >= 1:
        raise SimulationError("--jobs and --past must be 0 or more, --oversubscription 1 or more")


def _run(args: argparse.Namespace, site: CompressedSite, cut: Cut, window: TraceWindow) -> int:
    trace = window.trace
    try:
        args.out.mkdir(parents=True)
    except OSError as err:
        raise SimulationError(f"--out {args.out}: cannot be made: {err.strerror}: choose a new folder") from err
    planned: Sequence[PlannedArm] = args.policy
    names = _names([plan.label or plan.policy for plan in planned])
    models = fit_past(window.past, args.out, zero_time=SystemClock().now()) if cut.past_jobs else None
    with ExitStack() as stack:
        clusters = {name: site.cluster(plan) for name, plan in zip(names, planned, strict=True)}
        with ThreadPoolExecutor(len(names)) as pool:
            list(pool.map(stack.enter_context, clusters.values()))
            for live, plan in zip(clusters.values(), planned, strict=True):
                if plan.pins:
                    install_scripts(live, PINS)
            list(pool.map(lambda live: _add_accounts(live, trace), clusters.values()))
            # All at once, for each works priorities out on a grid that begins with it.
            list(pool.map(LiveCluster.reset, clusters.values()))
        priorities_time = _priorities_time(clusters.values())
        shown = {name: model_of(live) for name, live in clusters.items()}
        for note in dict.fromkeys(note for model in shown.values() for note in model.notes):
            print(f"not modelled: {note}")
        arms = [LiveArm(name, live, site.as_model(shown[name].cluster), trace) for name, live in clusters.items()]
        with ExitStack() as daemons:
            for arm, plan in zip(arms, planned, strict=True):
                daemons.enter_context(_advised(arm, plan.policy, site.daemon_tables(plan, models), args.out))
            with progress_bar(len(arms) * len(trace), "jobs have ended") as tell:
                wall_s = play(arms, trace, within_s=args.within * MINUTE_S, tell=tell)
            for arm in arms:
                arm.cycles = arm.live.cycles()
        for arm, plan in zip(arms, planned, strict=True):
            keep(
                args.out,
                arm,
                plan.text,
                site=site,
                cut=cut,
                seed=args.seed,
                wall_s=wall_s,
                priorities_time=priorities_time,
            )
    faults = [fault for arm in arms for fault in arm.faults]
    print_faults(faults)
    return 1 if faults else 0


@contextmanager
def _advised(arm: LiveArm, policy: Policy, tables: Mapping[str, Table], out: Path) -> Iterator[None]:
    """Run the daemon on a cluster for a block, then revert what it has left."""
    if policy == "none":
        yield
        return
    folder = (out / arm.name).absolute()
    folder.mkdir()
    config = write_config(folder, 1.0, tables)
    with daemon(arm.live, config, folder / "log") as process:
        yield
        backlog = Backlog(arm.live)
        if not backlog.wait_until_changed(_CHANGE_S):
            arm.faults.append(f"{arm.name}: no waiting job was changed, so that revert --all shows nothing")
        arm.faults += [f"{arm.name}: {fault}" for fault in end_daemon(process, _END_S)]
    reverted = revert_all(arm.live, config)
    if reverted.fault:
        arm.faults.append(f"{arm.name}: {reverted.fault}")
    arm.faults += [f"{arm.name}: after revert --all, {difference}" for difference in backlog.changed()]


def _names(policies: Sequence[str]) -> list[str]:
    """Return a name for each policy; one that is there twice is numbered."""
    return [f"{policy}-{policies[:place].count(policy) + 1}" for place, policy in enumerate(policies)]


def _add_accounts(live: LiveCluster, trace: Trace) -> None:
    """Add the users to slurmdbd; slurmctld knows them from its next start on."""
    pairs = accounts_by_user(trace)
    for account in dict.fromkeys(account for account, _ in pairs):
        live.add_account(account, *(user for of, user in pairs if of == account))


def _priorities_time(clusters: Iterable[LiveCluster]) -> float:
    """Return when the clusters first worked out priorities, in POSIX seconds."""
    booted = [
        float(_BOOTED.findall(live.run("env", "SLURM_TIME_FORMAT=%s", "scontrol", "show", "config"))[0])
        for live in clusters
    ]
    return statistics.median(booted) + _PRIORITIES_AFTER_S


def _policy(text: str) -> PlannedArm:
    """Read a policy and its options."""
    try:
        return PlannedArm.of(text)
    except SimulationError as err:
        raise argparse.ArgumentTypeError(str(err)) from err


def _site(args: argparse.Namespace) -> CompressedSite:
    return CompressedSite(
        release=args.release,
        nodes=args.nodes,
        leaf_nodes=max(1, args.nodes // args.leaves),
        speedup=args.speedup,
        nic_gbps=args.nic,
        oversubscription=args.oversubscription,
    )


def _cut(args: argparse.Namespace) -> Cut:
    return Cut(
        seed=args.seed,
        load=args.load,
        span_s=args.span * HOUR_S,
        longest_s=args.longest * HOUR_S,
        speedup=args.speedup,
        jobs=args.jobs,
        requests=args.requests,
        past_jobs=args.past,
    )


def _window(args: argparse.Namespace, site: CompressedSite, cut: Cut) -> TraceWindow:
    file = Path(args.trace)
    trace = read_trace(file) if file.is_file() else read_workload(data_folder(args.data), args.trace).trace
    return window_and_past(trace, parse_cluster(f"nodes={site.nodes},gpus={GPUS_PER_NODE}"), cut)


def _print_settings(args: argparse.Namespace, site: CompressedSite, trace: Trace) -> None:
    """Print what the clusters are and how far their times are compressed."""
    jobs, gpus = trace.jobs, site.nodes * GPUS_PER_NODE
    work_s = float((jobs["run_time_s"] * jobs["gpus"]).sum())
    span_s = float(jobs["submit_time"][-1])
    print(
        f"{args.trace}, seed {args.seed}: {len(trace)} jobs in {span_s:.0f} s"
        f" ({span_s * site.speedup / HOUR_S:.1f} h of the trace), {gpus} GPUs,"
        f" {work_s / gpus:.0f} s of work for all of them"
    )
    print(f"Slurm {site.release}, SchedulerParameters={site.scheduler_parameters()}")
    print("\n".join(site.lines()))
    print("\n".join(site.exceptions()))


def _parser() -> argparse.ArgumentParser:
    description = (__doc__ or "").partition("\n")[0]
    parser = argparse.ArgumentParser(prog="python -m tools.live.twins", description=description)
    add = parser.add_argument
    add("--trace", default="itp 02", help="name of a published trace, or a trace file, default: %(default)s")
    add("--seed", type=int, default=1, help="of the part of the trace and of what it lacks, default: %(default)s")
    add(
        "--policy",
        action="append",
        type=_policy,
        metavar="[LABEL=]NAME[:OPTIONS]",
        help=f"once for each cluster, the first is compared with; one of {', '.join(POLICIES)}",
    )
    add("--load", type=float, default=1.2, help="GPU-time submitted over what there is, default: %(default)s")
    add("--span", type=float, default=8.0, help="hours in which jobs are submitted, default: %(default)s")
    add("--jobs", type=int, default=0, help="number of jobs, in place of as many as --span and --load call for")
    add("--longest", type=float, default=12.0, help="hours that time limits are at most, default: %(default)s")
    add("--past", type=int, default=0, help="most jobs to fit a run-time model to, default: none is fitted")
    add("--requests", choices=sorted(REQUESTS), default="usual", help="how requests that the trace lacks are drawn")
    add("--speedup", type=float, default=60.0, help="seconds of the trace in one second, default: %(default)s")
    add_release(parser)
    add("--nodes", type=int, default=32, help="nodes of 8 GPUs, default: %(default)s")
    add("--leaves", type=int, default=4, help="leaf switches, default: %(default)s")
    add("--nic", type=float, default=100.0, help="Gb/s that a node can send, default: %(default)s")
    add("--oversubscription", type=float, default=1.0, help="of the uplinks of a leaf, default: %(default)s")
    add("--within", type=float, default=40.0, help="minutes after which a run is given up, default: %(default)s")
    add("--out", type=Path, required=True, help="new folder for what came of the run")
    add_data_option(parser)
    return parser


# What changes of any lever show in.
_FIELDS: Final = (
    "Nice",
    "TimeLimit",
    "TimeMin",
    "NumNodes",
    "Switches",
    "Features",
    "Partition",
    "TRES",
    "TresPerNode",
)
_HELD: Final = ("--hold", "--account=root", "--nodes=1")
_SIZES: Final = (8, 8, 8, 4, 4, 2, 2, 1, 1, 1)
_POLL_S: Final = 0.5


class Backlog:
    """Jobs of root that wait behind one that holds all nodes, long and large ones first, by their nice values."""

    def __init__(self, live: LiveCluster) -> None:
        """Submit the jobs to an idle cluster."""
        self._live = live
        blocker = live.submit("--account=root", f"--nodes={live.shape.node_count}", "--exclusive", "--time=60")
        live.wait_for(lambda: live.state_of(blocker) == "RUNNING", 60.0, what="the job that holds all nodes runs")
        held = [
            live.submit(*_HELD, f"--gres=gpu:{gpus}", f"--time={5 * gpus}", f"--nice={10 * place}")
            for place, gpus in enumerate(_SIZES)
        ]
        self._submitted = {job_id: self._fields(job_id) for job_id in held}
        live.run("scontrol", "release", ",".join(map(str, held)))

    def wait_until_changed(self, within_s: float) -> bool:
        """Wait until a job differs from its submission; return False if none does within that time."""
        until = time.monotonic() + within_s
        while not list(self.changed()):
            if time.monotonic() > until:
                return False
            time.sleep(_POLL_S)
        return True

    def changed(self) -> Iterator[str]:
        """Yield a sentence for each field in which a job differs from its submission."""
        for job_id, before in self._submitted.items():
            yield from differences(job_id, before, self._fields(job_id))

    def _fields(self, job_id: int) -> Mapping[str, str]:
        return fields_of(self._live.run("scontrol", "--oneliner", "show", "job", str(job_id)))


def fields_of(shown: str, names: Sequence[str] = _FIELDS) -> Mapping[str, str]:
    """Return fields of a job that scontrol shows in one line; those that it does not show are left out."""
    values = dict(re.findall(r"(?:^|\s)(\w+)=(\S*)", shown))
    return {name: values[name] for name in names if name in values}


def differences(job_id: int, before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence for each field that differs."""
    for name in sorted(before.keys() | after.keys()):
        if before.get(name) != after.get(name):
            yield f"job {job_id} has {name}={after.get(name)}, submitted was {before.get(name)}"


if __name__ == "__main__":
    sys.exit(main())
