"""Records a workload on a real slurmctld.

python -m tools.fidelity [--seed 1] [--short] -o FILE
"""

import argparse
import statistics
import sys
from pathlib import Path

from tools.fidelity.live import SCHEDULER_PARAMETERS, SHORT_OVERRIDES, record
from tools.fidelity.recording import Recording, RecordingError, read_recording, write_recording
from tools.fidelity.workload import LONG, SHORT, draw_workload
from tools.live_slurm import LiveSlurmError


def main() -> int:
    """Run one command line and return the exit status."""
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
    _print(recording)
    return 0


def _print(recording: Recording) -> None:
    """Print what each job did, in the order of starts."""
    print(f"{'job':>4} {'gpus':>4} {'nodes':<12} {'submit':>8} {'start':>8} {'end':>8} {'by':<8} state")
    for job in sorted(recording.jobs, key=lambda job: (job.start_time, job.job_id)):
        print(
            f"{job.job_id:>4} {job.request.gpus:>4} {','.join(job.nodes):<12} {job.submit_time:>8.1f}"
            f" {job.start_time:>8.1f} {job.end_time:>8.1f} {job.started_by:<8} {job.state}"
        )
    delays_s = [job.queueing_delay_s for job in recording.jobs]
    by_backfill = sum(job.started_by == "backfill" for job in recording.jobs)
    print(
        f"{len(recording.jobs)} jobs, {by_backfill} started by backfill, mean queueing delay"
        f" {statistics.fmean(delays_s):.1f} s, last end after {max(job.end_time for job in recording.jobs):.0f} s"
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
