"""Runs a workload on a real slurmctld and on the model of it, and says how far apart their starts are.

python -m tools.fidelity [--seed 1] [--short] [-o FILE]     on a slurmctld that it starts
python -m tools.fidelity --recording FILE                   against one recorded before, without Slurm
"""

import argparse
import statistics
import sys
from collections.abc import Mapping
from pathlib import Path

from tools.fidelity.compare import LEAST_CORRELATION, Comparison, compare
from tools.fidelity.live import SCHEDULER_PARAMETERS, SHORT_OVERRIDES, record
from tools.fidelity.recording import Recording, RecordingError, read_recording, write_recording
from tools.fidelity.replay import replay
from tools.fidelity.workload import LONG, SHORT, draw_workload
from tools.live_slurm import LiveSlurmError


def main() -> int:
    """Run one command line and return the exit status, 1 if model and slurmctld do not agree."""
    options = _parser().parse_args()
    try:
        if options.recording:
            recording = read_recording(options.recording)
        else:
            workload = draw_workload(options.seed, SHORT if options.short else LONG)
            overrides = SHORT_OVERRIDES if options.short else {}
            recording = record(workload, overrides={**overrides, **dict(options.set)})
    except (LiveSlurmError, RecordingError) as err:
        print(f"fidelity: {err}", file=sys.stderr)
        return 1
    if options.output:
        write_recording(recording, options.output)
    model_starts = replay(recording)
    comparison = comparison_of(recording, model_starts)
    _print(recording, model_starts)
    _print_comparison(comparison)
    return 0 if comparison.passed else 1


def comparison_of(recording: Recording, model_starts: Mapping[int, float]) -> Comparison:
    """Compare the starts in the model with the recorded ones."""
    live = {job.job_id: job.start_time for job in recording.jobs}
    return compare(live, model_starts, submits={job.job_id: job.submit_time for job in recording.jobs})


def _print(recording: Recording, model_starts: Mapping[int, float]) -> None:
    """Print what each job did, in the order of starts."""
    print(f"{'job':>4} {'gpus':>4} {'nodes':<12} {'submit':>8} {'start':>8} {'model':>8} {'diff':>8} {'by':<8} state")
    for job in sorted(recording.jobs, key=lambda job: (job.start_time, job.job_id)):
        model = model_starts[job.job_id]
        print(
            f"{job.job_id:>4} {job.request.gpus:>4} {','.join(job.nodes):<12} {job.submit_time:>8.1f}"
            f" {job.start_time:>8.1f} {model:>8.1f} {model - job.start_time:>+8.1f} {job.started_by:<8} {job.state}"
        )
    delays_s = [job.queueing_delay_s for job in recording.jobs]
    by_backfill = sum(job.started_by == "backfill" for job in recording.jobs)
    print(
        f"{len(recording.jobs)} jobs, {by_backfill} started by backfill, mean queueing delay"
        f" {statistics.fmean(delays_s):.1f} s, last end after {max(job.end_time for job in recording.jobs):.0f} s"
    )


def _print_comparison(comparison: Comparison) -> None:
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
    parser.add_argument("--seed", type=int, default=1, help="what the workload is drawn from, default: %(default)s")
    parser.add_argument(
        "--set",
        type=_parameter,
        action="append",
        default=[],
        metavar="NAME=N",
        help=f"another value for one of SchedulerParameters: {', '.join(SCHEDULER_PARAMETERS)}",
    )
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write the recording")
    return parser


def _parameter(text: str) -> tuple[str, int]:
    name, _, value = text.partition("=")
    if name not in SCHEDULER_PARAMETERS or not value.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=N with a known name")
    return name, int(value)


if __name__ == "__main__":
    sys.exit(main())
