"""The policy that places gangs on a live cluster: first in shadow beside the rules, then in force.

Its version in use is opened by name, so that the tests run with a hand-made stand-in, and with the policy that ships
where one does.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from advisor.domain.actions import Lever, SetNodeList
from advisor.domain.lease import Ending
from advisor.journal import SqliteJournal
from advisor.journal.audit import AuditRow
from advisor.journal.views import Done, PastChange, RowQuery
from advisor.predict.library import Library
from advisor.replay.deviations import SHADOW
from tests.live.conftest import started
from tests.stand_in_policy import KIND, NAME, VERSION, publish_stand_in
from tools.stage import LiveCluster
from tools.stage.daemon import daemon, write_config

# One release is enough: what named nodes do on each is in test_gang_nodes.
pytestmark = [pytest.mark.live, pytest.mark.releases("22.05")]

# Slurm fills the first leaf first, which has the slower GPUs.
TYPES: Final = ("v100", "v100", "a100", "a100")
SLOW, FAST = "n[01-02]", "n[03-04]"
GANG: Final = ("--time=01:00:00", "-N2", "--gpus-per-node=4", "--ntasks-per-node=1", "--comment=sadvise: model=bert")
GANGS: Final = 2
# On a busy machine rounds are late, and gangs start before one.
MOST_ARRIVALS: Final = 8
# A pass is at least 15 s after the one before, so that a gang that fits waits for some rounds of the daemon.
WAITS: Final = "defer,batch_sched_delay=15,sched_interval=600,bf_interval=600"


def shipped() -> list[str]:
    """Return the version of the policy that ships, if one does."""
    held = Library(Path("/nonexistent")).held()
    return [one.entry.version for one in held if one.entry.kind == KIND and one.in_use]


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A live cluster, the models of its site, the version in use of the policy, and the files of the daemon."""

    live: LiveCluster
    models: Path
    version: str
    folder: Path

    @property
    def is_stand_in(self) -> bool:
        """Whether it is known which nodes the policy prefers."""
        return self.version == VERSION

    def configured(self, **daemon_keys: str) -> Path:
        """Write the configuration, with keys of the daemon beside those of every run."""
        return write_config(
            self.folder,
            1.0,
            {
                "daemon": {"interval_max_s": 2.0, "twin_interval_s": 0.0, **daemon_keys},
                "forecasts": {"models": str(self.models)},
                "planning": {"name_nodes": True, "rollout_deadline_s": 0.0},
                "guard": {"min_job_age_s": 0.0, "nice_min": 0},
                "budget": {"time_ratio": 0.5},
            },
        )

    def started_job(self, *options: str, script: str = "sleep 3600") -> int:
        """Submit a job, and wait until it has started, which is right after a pass."""
        job_id = self.live.submit(*options, script=script)
        self.live.wait_for(lambda: self.shown(job_id, "JobState") != "PENDING", 60.0, what=f"job {job_id} starts")
        return job_id

    def shown(self, job_id: int, name: str) -> str:
        """Return one field of `scontrol show job`."""
        words = self.live.run("scontrol", "-o", "show", "job", str(job_id)).split()
        return next((word.partition("=")[2] for word in words if word.startswith(f"{name}=")), "")

    def run(self, config: Path, *, is_late: Callable[[int], bool] = lambda _: False) -> list[int]:
        """Run the daemon beside gangs that arrive one after the other, and return those that it saw to start.

        A gang that started before a round of the daemon could do anything, `is_late`, ends, and another one arrives.
        """
        log = self.folder / "log"
        with daemon(self.live, config, log) as process:
            self.live.wait_for(lambda: "event=started" in log.read_text(), 60.0, what="the daemon has started")
            self.started_job("-N1", "--gpus=1", script="true")
            gangs: list[int] = []
            for _ in range(MOST_ARRIVALS):
                gang = self.started_job(*GANG)
                if is_late(gang):
                    self.live.run("scancel", str(gang))
                else:
                    gangs.append(gang)
                if len(gangs) == GANGS:
                    break
            cycles = len(self.cycles())
            self.live.wait_for(lambda: len(self.cycles()) >= cycles + 2, 60.0, what="the daemon has seen the starts")
            process.terminate()
            assert process.wait(20.0) == 0, log.read_text()[-2000:]
        return gangs

    def cycles(self) -> list[int]:
        """Return the numbers of the cycles in the journal."""
        with self.journal() as journal:
            return [cycle.cycle_id for cycle in journal.cycles(RowQuery(most=1000))]

    def journal(self) -> SqliteJournal:
        """Open the journal to read it."""
        return SqliteJournal.read_only(self.folder / "journal.sqlite")

    def audit(self, event: str) -> list[AuditRow]:
        """Return the rows of the audit about an event, oldest first."""
        with self.journal() as journal:
            return [row for row in journal.audit_after(0) if row.event == event]

    def named_in_shadow(self) -> set[int]:
        """Return the gangs for which the shadow would have named nodes."""
        return {int(words.split()[1]) for row in self.audit(SHADOW) for words in _only_shadow(row)}

    def changes(self, job_id: int) -> list[PastChange]:
        """Return what the journal says about the nodes of a gang, oldest first."""
        with self.journal() as journal:
            changes = journal.changes(RowQuery(job_ids=[job_id]))
        return [change for change in changes[::-1] if change.lever == Lever.NODE_LIST]

    def compared(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Compare the version in use with the rules on the cycles of the journal."""
        argv = [sys.executable, "-m", "advisor.cli.main", "models", "compare", KIND, self.version, "rules"]
        config = ("--config", str(self.folder / "sadvise.toml"))
        return subprocess.run([*argv, *arguments, *config], capture_output=True, text=True, timeout=120.0, check=False)


@pytest.fixture(scope="module")
def two_types(release: str) -> Iterator[LiveCluster]:
    with started(
        LiveCluster(
            release,
            node_count=len(TYPES),
            leaf_nodes=2,
            gpu_types=TYPES,
            shards={},
            scheduler_parameters=WAITS,
        )
    ) as live:
        yield live


@pytest.fixture(params=[VERSION, *shipped()])
def site(request: pytest.FixtureRequest, two_types: LiveCluster, tmp_path: Path) -> Iterator[Site]:
    models = tmp_path / "models"
    if request.param == VERSION:
        publish_stand_in(models)
    yield Site(live=two_types, models=models, version=request.param, folder=tmp_path)
    two_types.run("scancel", "--user=root", check=False)
    two_types.wait_for(lambda: not two_types.run("squeue", "-h").strip(), 30.0, what="the queue is empty")


def test_policy_in_shadow_sends_nothing_and_is_compared_with_what_slurm_did(site: Site) -> None:
    def is_late(gang: int) -> bool:
        return gang not in site.named_in_shadow()

    gangs = site.run(site.configured(shadow=NAME), is_late=is_late)
    document: Any = json.loads(site.compared("--rollout", "--json").stdout)
    words = site.compared("--rollout").stdout

    assert [row.detail["fault"] for row in site.audit(SHADOW) if "fault" in row.detail] == []
    named = site.named_in_shadow()
    assert gangs and set(gangs) <= named
    assert all(site.shown(gang, "ReqNodeList") == "(null)" and not site.changes(gang) for gang in gangs)
    policy, rules = document["sides"]
    assert (rules["changes"], rules["places"]) == (0, None)
    assert policy["only_here"] >= len(named) and policy["in_shadow"]["only_shadow"] >= len(named)
    assert policy["decisions"] > 0 and policy["faults"] == 0
    places = policy["places"]
    assert (places["gangs"], places["by_name"]) == (len(named), 0)
    assert document["rollout"]["named"] > 0
    assert "named nodes are not simulated" in words and "no clear difference" not in words
    assert f"places   {site.version}: run time " in words and "by the performance model, not observed" in words
    if site.is_stand_in:
        assert named == set(gangs)
        assert {site.shown(gang, "NodeList") for gang in gangs} == {SLOW}
        # On a type half as fast, and for the second gang beside the first.
        assert places["same"] == 0 and -0.7 < places["change"] < -0.5
        assert "on n03, n04" in "".join("".join(_only_shadow(row)) for row in site.audit(SHADOW))


def test_policy_in_force_starts_gangs_on_the_nodes_that_it_names(site: Site) -> None:
    def is_late(gang: int) -> bool:
        return not any(one.done is Done.APPLIED for one in site.changes(gang))

    gangs = site.run(site.configured(policy=NAME), is_late=is_late if site.is_stand_in else lambda _: False)

    assert site.audit("policy fault") == []
    sent = {gang: [one for one in site.changes(gang) if one.done is Done.APPLIED] for gang in gangs}
    assert any(sent.values())
    for gang, changes in sent.items():
        for change in changes[-1:]:
            assert isinstance(change.action, SetNodeList)
            names = ",".join(change.action.after)
            assert site.shown(gang, "ReqNodeList") == names
            assert site.live.run("scontrol", "show", "hostnames", site.shown(gang, "NodeList")).split() == [
                *change.action.after
            ]
    with site.journal() as journal:
        assert journal.leases() == ()
        endings = {lease.ending for lease in journal.closed(gangs) if lease.lever is Lever.NODE_LIST}
    assert Ending.NO_LONGER_PENDING in endings
    if site.is_stand_in:
        assert {site.shown(gang, "NodeList") for gang in gangs} == {FAST}
        assert endings == {Ending.NO_LONGER_PENDING}
        proposed = [one for gang in gangs for one in site.changes(gang) if one.done is Done.RECOMMENDED]
        assert len(proposed) >= GANGS and all(f"The policy {NAME} chose them" in one.said for one in proposed)


def _only_shadow(row: AuditRow) -> list[str]:
    return [words for words in str(row.detail.get("only_shadow", "")).split("; ") if words]
