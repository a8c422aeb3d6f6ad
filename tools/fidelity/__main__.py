"""Runs a workload on a real slurmctld and on the model of it, and says how far apart their starts are.

python -m tools.fidelity [--seed 1] [--short] [-o FILE]     on a slurmctld that it starts
python -m tools.fidelity --kind qos --no-replay -o FILE     records what slurmctld does, without the model
python -m tools.fidelity --recording FILE                   against one recorded before, without Slurm
"""

import argparse
import math
import statistics
import sys
from pathlib import Path

from tools.fidelity.compare import LEAST_CORRELATION, StartComparison, Starts, compare
from tools.fidelity.live import DEFAULT_RELEASE, SCHEDULER_PARAMETERS, SHORT_OVERRIDES, record
from tools.fidelity.recording import Recording, RecordingError, WorkloadKind, read_recording, write_recording
from tools.fidelity.replay import replay
from tools.fidelity.workloads import LONG, SHORT, draw_site_workload, draw_workload
from tools.stage import LiveSlurmError
from tools.stage.roots import RELEASES


def main() -> int:
    """Run one command line and return the exit status, 1 if model and slurmctld do not agree."""
    options = _parser().parse_args()
    try:
        recording = _recording(options)
        if options.output:
            write_recording(recording, options.output)
        if options.no_replay:
            _print_jobs(recording)
            _print_summary(recording)
            return 0
        model_starts = replay(recording)
    except (LiveSlurmError, RecordingError) as err:
        print(f"fidelity: {err}", file=sys.stderr)
        return 1
    comparison = comparison_of(recording, model_starts)
    _print_starts(recording, model_starts)
    _print_summary(recording)
    _print_comparison(comparison)
    return 0 if comparison.passed else 1


def _recording(options: argparse.Namespace) -> Recording:
    """Read the recording that is asked for, or make it."""
    if options.recording:
        return read_recording(options.recording)
    overrides = {**(SHORT_OVERRIDES if options.short else {}), **dict(options.set)}
    if options.kind is WorkloadKind.PLAIN:
        workload = draw_workload(options.seed, SHORT if options.short else LONG)
    else:
        workload = draw_site_workload(options.seed, options.kind)
    return record(workload, release=options.release, overrides=overrides, log_file=options.log)


def comparison_of(recording: Recording, model_starts: Starts) -> StartComparison:
    """Compare the starts in the model with the recorded ones."""
    begins = {run: pair for job in recording.jobs for run, pair in job.begins.items()}
    live = {run: began for run, (_, began) in begins.items()}
    return compare(live, model_starts, due={run: could for run, (could, _) in begins.items()})


def _print_starts(recording: Recording, model_starts: Starts) -> None:
    """Print what each job did in its last run, in the order of starts; the model may not have come to that run."""
    print(f"{'job':>4} {'gpus':>4} {'nodes':<12} {'submit':>8} {'start':>8} {'model':>8} {'diff':>8} {'by':<8} state")
    for job in sorted(recording.jobs, key=lambda job: (job.start_time, job.job_id)):
        model = model_starts.get((job.job_id, len(job.stopped)), math.nan)
        print(
            f"{job.job_id:>4} {job.request.gpus:>4} {','.join(job.nodes):<12} {job.submit_time:>8.1f}"
            f" {job.start_time:>8.1f} {model:>8.1f} {model - job.start_time:>+8.1f} {job.started_by:<8} {job.state}"
        )


def _print_jobs(recording: Recording) -> None:
    """Print what each job did, in the order of starts, without a model."""
    print(f"{'job':>4} {'name':<8} {'gpus':>4} {'nodes':<12} {'submit':>8} {'start':>8} {'end':>8} {'by':<8} state")
    for job in sorted(recording.jobs, key=lambda job: (job.start_time, job.job_id)):
        print(
            f"{job.job_id:>4} {job.request.name:<8} {job.request.gpus:>4} {','.join(job.nodes):<12}"
            f" {job.submit_time:>8.1f} {job.start_time:>8.1f} {job.end_time:>8.1f} {job.started_by:<8} {job.state}"
        )


def _print_summary(recording: Recording) -> None:
    delays_s = [job.queueing_delay_s for job in recording.jobs]
    by_backfill = sum(job.started_by == "backfill" for job in recording.jobs)
    print(
        f"{len(recording.jobs)} jobs, {by_backfill} started by backfill, mean queueing delay"
        f" {statistics.fmean(delays_s):.1f} s, last end after {max(job.end_time for job in recording.jobs):.0f} s"
    )


def _print_comparison(comparison: StartComparison) -> None:
    if comparison.run_count > comparison.job_count:
        runs = comparison.run_count - comparison.job_count
        print(f"{runs} runs after a preemption, of which {comparison.unmatched_count} took place on one side alone")
    print(
        f"rank correlation of starts {comparison.correlation:.3f} (at least {LEAST_CORRELATION}),"
        f" mean difference {comparison.mean_difference_s:.1f} s (at most {comparison.allowed_difference_s:.1f}),"
        f" largest {comparison.largest_difference_s:.0f} s: {'agrees' if comparison.passed else 'DOES NOT AGREE'}"
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.fidelity", description=__doc__.splitlines()[0])
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--recording", type=Path, metavar="FILE", help="take this recording; run no Slurm")
    source.add_argument("--short", action="store_true", help="the short workload, about 90 s instead of 5 min")
    source.add_argument(
        "--kind",
        type=WorkloadKind,
        choices=list(WorkloadKind),
        default=WorkloadKind.PLAIN,
        help="what the workload is about, default: plain",
    )
    parser.add_argument(
        "--release", choices=list(RELEASES), default=DEFAULT_RELEASE, help="the Slurm release, default: %(default)s"
    )
    parser.add_argument("--no-replay", action="store_true", help="record and print; do not run the model")
    parser.add_argument("--seed", type=int, default=1, help="what the workload is drawn from, default: %(default)s")
    parser.add_argument(
        "--set",
        type=_parameter,
        action="append",
        default=[],
        metavar="NAME=N",
        help=f"another value for one of SchedulerParameters: {', '.join(SCHEDULER_PARAMETERS)}",
    )
    parser.add_argument("--log", type=Path, metavar="FILE", help="keep the log of slurmctld, to explain a difference")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write the recording")
    return parser


def _parameter(text: str) -> tuple[str, int]:
    name, _, value = text.partition("=")
    if name not in SCHEDULER_PARAMETERS or not value.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=N with a known name")
    return name, int(value)


if __name__ == "__main__":
    sys.exit(main())
