"""Gives a live cluster a past: jobs that really ran on it in compressed time, kept in accounting as if in full length.

slurmctld decides in compressed time where and when each job runs. Then every time in slurmdbd's database is moved away
from now by the speedup, and each time limit becomes that of the trace, so that accounting holds days of jobs of hours.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from advisor.domain.units import MINUTE_S, WEEK_S
from advisor.sim.traces.trace import Trace
from tools.live.arm import LiveArm, model_of, play
from tools.live.compressed_site import CompressedSite
from tools.live.window import Cut, accounts_by_user, window_and_past
from tools.stage import LiveCluster

_RECORDED_S: Final = 60.0
_STRETCH: Final = """
UPDATE live_job_table SET
    time_submit = @now - ROUND((@now - time_submit) * @speedup),
    time_eligible = @now - ROUND((@now - time_eligible) * @speedup),
    time_start = @now - ROUND((@now - time_start) * @speedup),
    time_end = @now - ROUND((@now - time_end) * @speedup);
"""
_LIMIT: Final = "UPDATE live_job_table SET timelimit = @limit WHERE id_job = @job;"
_COPY: Final = "CREATE TEMPORARY TABLE week SELECT * FROM live_job_table;"
_WEEK_EARLIER: Final = """
UPDATE week SET
    job_db_inx = 0, id_job = id_job + 100000, time_submit = time_submit - @week,
    time_eligible = time_eligible - @week, time_start = time_start - @week, time_end = time_end - @week;
INSERT INTO live_job_table SELECT * FROM week;
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LivePast:
    """Holds what a cluster has behind it: jobs of a trace in full length, and the faults of their run."""

    trace: Trace
    faults: tuple[str, ...]


def make_past(live: LiveCluster, site: CompressedSite, trace: Trace, cut: Cut, *, weeks: int) -> LivePast:
    """Run jobs of a trace on a cluster that is idle, and give accounting their full length, once for each week.

    Afterwards slurmctld has the settings that the site has without compression.
    """
    model = site.as_model(model_of(live).cluster)
    short = window_and_past(trace, model, cut).trace
    pairs = accounts_by_user(short)
    for account in dict.fromkeys(account for account, _ in pairs):
        live.add_account(account, *(user for of, user in pairs if of == account))
    live.reset()
    arm = LiveArm("past", live, model, short)
    play([arm], short, within_s=30 * MINUTE_S, tell=None)
    live.wait_for(lambda: _is_recorded(live, len(short)), _RECORDED_S, what="accounting has the end of every job")
    long = window_and_past(trace, model, replace(cut, speedup=1.0)).trace
    live.change_database("\n".join(_statements(arm, long, cut.speedup, weeks)))
    _use_full_times(live, site)
    return LivePast(trace=long, faults=tuple(arm.faults))


def _is_recorded(live: LiveCluster, jobs: int) -> bool:
    """Return whether accounting knows when each job ended; slurmdbd learns of it a little later than slurmctld."""
    ends = live.run("sacct", "-a", "-X", "-n", "-S", "now-1days", "-o", "End").split()
    return len(ends) >= jobs and "Unknown" not in ends


def _statements(arm: LiveArm, long: Trace, speedup: float, weeks: int) -> Iterator[str]:
    """Yield SQL that stretches the times of all jobs, sets the limits of the trace, and repeats the jobs each week."""
    yield f"SET @now = {time.time():.0f}, @speedup = {speedup}, @week = {WEEK_S:.0f};"
    yield _STRETCH
    for row, seen in arm.seen.items():
        yield f"SET @job = {seen.job_id}, @limit = {long.jobs['time_limit_s'][row] / MINUTE_S:.0f};"
        yield _LIMIT
    yield _COPY
    for _ in range(1, weeks):
        yield _WEEK_EARLIER


def _use_full_times(live: LiveCluster, site: CompressedSite) -> None:
    """Let slurmctld read the settings of the site without compression."""
    file, full = live.folder / "slurm.conf", replace(site, speedup=1.0)
    text = file.read_text().replace(_parameters(site), _parameters(full))
    for before, after in zip(site.lines(), full.lines(), strict=True):
        text = text.replace(f"{before}\n", f"{after}\n")
    file.write_text(text)
    live.run("scontrol", "reconfigure")


def _parameters(site: CompressedSite) -> str:
    return ",".join(f"{name}={value}" for name, value in site.scheduler_parameters().items())
