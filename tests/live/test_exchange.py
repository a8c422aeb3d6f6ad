"""Jobs of one user change places on a live queue, and go back; in a lane the smallest passes all others."""

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest

from advisor.clock import SystemClock
from advisor.config import load_config
from advisor.daemon.live_parts import LiveParts
from advisor.daemon.service import Service
from advisor.domain.tune_verdict import Tuned, TuneVerdict
from advisor.domain.units import DAY_S
from advisor.journal import opened
from advisor.journal.base import CANDIDATE
from advisor.site.site_gate import RoundDeadline
from tests.live.conftest import started
from tests.live.test_advice import EAGER, sadvise
from tools.stage import LiveCluster
from tools.stage.watch import talking_to

pytestmark = pytest.mark.live

WITHIN_USERS = {**EAGER, "SADVISE_GUARD__FAIRNESS": "user"}
# Of the 16 GPUs in a day 23 GPU-minutes, of which one user has half.
LANE = {**EAGER, "SADVISE_GUARD__FAIRNESS": "lane", "SADVISE_GUARD__LANE_RATIO": "0.0002"}
TO_LANE = TuneVerdict(
    jobs=40, in_force="lift user", preset="gentle", setting="lift lane", fairness="lane", priority_decades=2.0,
    percent=-4.0, low=-6.0, high=-2.0, users=9, worse=1, beyond_chance=0, beyond_chance_now=0,
)  # fmt: skip
# Pending jobs are a thousand points apart by the nice of their users, far from the least priority.
PRIORITIES = ("PriorityWeightJobSize=0", "PriorityWeightPartition=1000000")
OTHER_USER = "games"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A full cluster with a long job, one of another user, and a short one, in this order."""

    live: LiveCluster
    journal: Path
    long: int
    other: int
    short: int

    def sadvise(self, *arguments: str, settings: Mapping[str, str] = WITHIN_USERS) -> list[dict[str, Any]]:
        """Run `apply` or `revert`, and return the changes made."""
        text = sadvise(self.live, *arguments, "--json", "--journal", str(self.journal), settings=settings)
        changes: list[dict[str, Any]] = json.loads(text)["changes"]
        return [change for change in changes if change["done"] != "refused"]

    def order(self) -> list[int]:
        """Return the pending jobs in the order of their priorities."""
        rows = self.live.run("squeue", "-h", "-t", "PENDING", "-S", "-p", "-o", "%A %Q").splitlines()
        priority_by_job = {int(job_id): int(priority) for job_id, priority in map(str.split, rows)}
        return sorted(priority_by_job, key=lambda job_id: -priority_by_job[job_id])

    def nices(self) -> list[str]:
        """Return the nice values of the three jobs."""
        shown = (self.live.run("scontrol", "show", "job", str(job)) for job in (self.long, self.other, self.short))
        return [next(word for word in text.split() if word.startswith("Nice=")) for text in shown]


@pytest.fixture(scope="module")
def live(release: str) -> Iterator[LiveCluster]:
    with started(LiveCluster(release, node_count=2, shards={}, extra_lines=PRIORITIES)) as cluster:
        yield cluster


@pytest.fixture
def line(live: LiveCluster, tmp_path: Path) -> Line:
    live.reset()
    running = [live.submit("--time=01:00:00", "--gres=gpu:8", "-n8", f"--nodelist=n0{node}") for node in (1, 2)]

    def all_run() -> bool:
        return len(live.run("squeue", "-h", "-t", "RUNNING", "-o", "%A").split()) == len(running)

    live.wait_for(all_run, 60.0, what="the first jobs run")
    long = live.submit("--time=2-00:00:00", "--gres=gpu:8", "-N1", "-n8")
    other = live.submit("--time=10:00:00", "--gres=gpu:4", "-N1", "-n4", "--nice=1000", user=OTHER_USER)
    short = live.submit("--time=00:10:00", "--gres=gpu:1", "-N1", "-n1", "--nice=2000")

    _wait_until_considered(live)
    return Line(live=live, journal=tmp_path / "journal.sqlite", long=long, other=other, short=short)


def _wait_until_considered(live: LiveCluster) -> None:
    def all_considered() -> bool:
        reasons = live.run("squeue", "-h", "-t", "PENDING", "-o", "%r").split("\n")
        return not {"None", "(null)"} & set(reasons)

    live.wait_for(all_considered, 90.0, what="Slurm has looked at every job")


def test_two_jobs_of_a_user_change_places_and_revert_restores_both(line: Line) -> None:
    before = line.order()

    applied = line.sadvise("apply")
    exchanged, nices = line.order(), line.nices()
    again = line.sadvise("apply")
    reverted = line.sadvise("revert", "--all")

    assert before == [line.long, line.other, line.short]
    assert [(change["job_id"], change["outcome"]) for change in applied] == [
        (line.short, "applied"),
        (line.long, "applied"),
    ]
    assert exchanged == [line.short, line.other, line.long]
    # By the 2,000 points between their places and the mark of nice values; priorities age at one pace.
    long, other, short = (int(nice.removeprefix("Nice=")) for nice in nices)
    assert (abs(long - 2000) < 20, other, abs(short) < 20) == (True, 1000, True)
    assert again == []
    assert {(change["job_id"], change["done"]) for change in reverted} == {
        (line.short, "taken_back"),
        (line.long, "taken_back"),
    }
    assert line.order() == before
    assert line.nices() == ["Nice=0", "Nice=1000", "Nice=2000"]


def test_held_job_gives_no_place(line: Line) -> None:
    before = line.order()
    line.live.run("scontrol", "hold", str(line.long))

    assert line.sadvise("apply") == []
    line.live.run("scontrol", "release", str(line.long))
    assert line.order() == before


def test_a_lane_lifts_the_smallest_above_all_and_counts_it_also_once_it_is_gone(line: Line) -> None:
    second = line.live.submit("--time=00:10:00", "--gres=gpu:1", "-N1", "-n1", "--nice=3000")
    _wait_until_considered(line.live)

    applied = line.sadvise("apply", settings=LANE)
    lifted = line.order()
    line.live.run("scancel", str(line.short))
    again = line.sadvise("apply", settings=LANE)
    more = line.sadvise("apply", settings={**LANE, "SADVISE_GUARD__LANE_RATIO": "0.0004"})

    assert [(change["job_id"], change["outcome"]) for change in applied] == [(line.short, "applied")]
    assert lifted == [line.short, line.long, line.other, second]
    assert again == []
    assert [(change["job_id"], change["outcome"]) for change in more] == [(second, "applied")]
    assert line.order() == [second, line.long, line.other]


def test_a_daemon_moves_to_the_lane_that_two_weekly_runs_chose_and_back_by_one_command(
    line: Line, tmp_path: Path
) -> None:
    live, settings = line.live, {**LANE, "SADVISE_GUARD__FAIRNESS": "user", "SADVISE_GUARD__MIN_JOB_AGE_S": "0"}
    live.run("scancel", str(line.long))
    path = tmp_path / "sadvise.toml"
    path.write_text(
        f'[mode]\ndefault = "apply"\n[journal]\nfile = "{line.journal}"\n'
        f'[daemon]\nruntime_folder = "{tmp_path}"\ntune_presets = "gentle"\n'
    )
    orders = []

    def round_of(service: Service) -> None:
        assert service.round().fault == ""
        if service.is_outdated:
            service.reconfigure(load_config(path, settings))
        orders.append(line.order())

    with opened(line.journal, wait_s=5.0) as journal:
        journal.note(time.time() - 7 * DAY_S, CANDIDATE, asdict(TO_LANE))
    with talking_to(live):
        service = Service(
            LiveParts(SystemClock(), RoundDeadline()).build, load_config(path, settings), SystemClock(), lambda _: None
        )
        service.note_tune(Tuned(TuneVerdict(jobs=40, in_force="lift user"), TO_LANE))
        round_of(service)
        round_of(service)
        moved = service.config.guard.fairness
        service.close()
    said = sadvise(live, "revert", "--settings", "--config", str(path))
    line.sadvise("revert", "--all")

    assert orders == [[line.other, line.short], [line.short, line.other]]
    assert moved == "lane"
    assert "those configured" in said and load_config(path, settings).guard.fairness == "user"
    assert line.order() == [line.other, line.short]
