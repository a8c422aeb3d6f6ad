import os
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from advisor.backends.commands import chosen_cluster
from advisor.backends.process import Answer, SlurmCommands
from advisor.backends.pyslurm_source import CHILD, PyslurmSource
from advisor.backends.sources import RETRY_S, AutoSource, ChosenPyslurm, open_source
from advisor.backends.text_source import TextSource
from advisor.clock import ManualClock
from advisor.cycle import ClusterSource
from advisor.domain.snapshot import Snapshot
from advisor.errors import (
    BudgetSpentError,
    ConfigError,
    DecodeError,
    SlurmError,
    SlurmUnavailableError,
    SlurmUnreachableError,
    TooLargeError,
)
from tests.backends import source_contract
from tests.backends.fake_slurm import FakeSlurm, Streaming, root_site
from tests.builders import make_job, make_snapshot


@pytest.fixture(autouse=True)
def _no_clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_CLUSTERS", raising=False)


READER_KINDS = [("text", TextSource), ("pyslurm", ChosenPyslurm), ("auto", AutoSource)]


def opened(name: str, cluster: str | None = None) -> ClusterSource:
    return open_source(name, cluster=cluster, timeout_s=20.0, clock=ManualClock())


@pytest.mark.parametrize(("name", "kind"), READER_KINDS)
def test_reader_is_opened_by_name(name: str, kind: type[ClusterSource]) -> None:
    source = opened(name)

    assert isinstance(source, kind)
    assert source.name == name


def test_pyslurm_reads_no_other_cluster() -> None:
    with pytest.raises(ConfigError, match="pyslurm reads only the cluster of this host"):
        opened("pyslurm", "green")


def test_unknown_reader_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="there is no reader 'rest': choose one of auto, text, pyslurm"):
        opened("rest")


@pytest.mark.parametrize(
    ("option", "variable", "chosen"),
    [
        (None, None, None),
        (None, "", None),
        ("green", None, "green"),
        (None, "blue", "blue"),
        ("green", "blue", "green"),
    ],
)
def test_option_names_the_cluster_before_the_environment(
    option: str | None, variable: str | None, chosen: str | None
) -> None:
    variables = {} if variable is None else {"SLURM_CLUSTERS": variable}

    assert chosen_cluster(option, variables) == chosen


@pytest.mark.parametrize("named", ["a,b", "all", "--help", ""])
def test_several_clusters_are_refused(named: str) -> None:
    with pytest.raises(ConfigError, match="is not one cluster"):
        chosen_cluster(named, {})


FAKE_PYSLURM = Path(__file__).with_name("fake_pyslurm")
ALL_COUNTED = "ClusterName=t25\nAccountingStorageTRES=gres/gpu,gres/gpu:a100\n"


@pytest.fixture(autouse=True)
def conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host that counts every type of GPU, with a pyslurm that shows forms of requests; returns its slurm.conf."""
    file = tmp_path / "slurm.conf"
    file.write_text(ALL_COUNTED)
    monkeypatch.setenv("SLURM_CONF", str(file))
    monkeypatch.setenv("PYTHONPATH", str(FAKE_PYSLURM), prepend=os.pathsep)
    monkeypatch.setenv("FAKE_PYSLURM", "forms")
    return file


@dataclass
class Child(Streaming):
    """Runs the child process, and counts how often it reads the cluster and says its version."""

    cluster: str | None = None
    against: SlurmError | None = None
    asked: list[str] = field(default_factory=list)

    def ask(self, program: str, *arguments: str) -> Answer:
        """Run it, unless something is against that."""
        self.asked.append("version" if "--version" in arguments else "cluster")
        assert str(CHILD) in arguments
        if self.against is not None:
            raise self.against
        return SlurmCommands(timeout_s=5.0).ask(program, *arguments)


@dataclass
class Auto:
    """The source under test with what stands around it."""

    slurm: FakeSlurm = field(default_factory=FakeSlurm)
    child: Child = field(default_factory=Child)
    clock: ManualClock = field(default_factory=lambda: ManualClock(5000.0))

    def __post_init__(self) -> None:
        """Open it."""
        site = root_site(self.slurm, self.clock)
        text = TextSource(self.slurm, self.clock, site)
        self.source = AutoSource(text, PyslurmSource(self.clock, site, self.child), site, self.child, self.clock)


def test_pyslurm_is_read_where_it_fits_and_every_type_is_counted() -> None:
    auto = Auto()

    snapshot = source_contract.check(auto.source)

    assert (snapshot.source, auto.source.name, snapshot.reader_fault) == ("pyslurm", "pyslurm", "")
    assert auto.source.why == "pyslurm fits Slurm 25.11.7, and AccountingStorageTRES counts every type of GPU"
    assert auto.child.asked == ["version", "cluster", "cluster"]


@pytest.mark.parametrize(
    ("counted", "why"),
    [
        ("", "does not count gres/gpu, without which"),
        ("AccountingStorageTRES=gres/gpu", "set AccountingStorageTRES=gres/gpu,gres/gpu:a100$"),
    ],
    ids=["none", "no types"],
)
def test_text_is_read_where_not_every_type_is_counted(conf: Path, counted: str, why: str) -> None:
    conf.write_text(f"ClusterName=t25\n{counted}\n")
    auto = Auto()

    snapshots = [auto.source.snapshot() for _ in range(3)]

    assert [each.source for each in snapshots] == ["text"] * 3
    assert not any(each.reader_fault for each in snapshots)
    assert auto.child.asked.count("cluster") <= 1
    with pytest.raises(AssertionError, match=why):
        raise AssertionError(auto.source.why)


@pytest.mark.parametrize(
    ("trick", "why"),
    [
        ("old", "pyslurm 24.5.0 does not fit Slurm 25.11.7"),
        ("missing", "pyslurm cannot be imported here"),
        ("fatal", "finds no Slurm configuration"),
        ("lacks", "pyslurm 25.11.2 lacks Job.gres_per_node"),
        ("", "pyslurm does not show --gpus of a job"),
    ],
)
def test_text_is_read_where_pyslurm_does_not_fit(monkeypatch: pytest.MonkeyPatch, trick: str, why: str) -> None:
    monkeypatch.setenv("FAKE_PYSLURM", trick)
    auto = Auto()

    snapshots = [auto.source.snapshot() for _ in range(2)]

    assert [(each.source, each.reader_fault) for each in snapshots] == [("text", "")] * 2
    assert auto.child.asked == ["version"]
    assert why in auto.source.why


@pytest.mark.slow
@pytest.mark.parametrize("trick", ["denied", "versions", "broken", "dies", "hang"])
def test_read_that_fails_is_made_as_text_and_says_so(monkeypatch: pytest.MonkeyPatch, trick: str) -> None:
    auto = Auto()
    first = auto.source.snapshot()
    monkeypatch.setenv("FAKE_PYSLURM", trick)

    failed, after = auto.source.snapshot(), auto.source.snapshot()

    assert (first.source, failed.source, after.source) == ("pyslurm", "text", "text")
    assert failed.reader_fault and failed.reader_fault == after.reader_fault
    assert failed.unread[-1] == f"read as text since pyslurm failed: {failed.reader_fault}"
    assert auto.child.asked == ["version", "cluster", "cluster"]


def test_pyslurm_is_tried_again_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    auto = Auto()
    monkeypatch.setenv("FAKE_PYSLURM", "forms,denied")
    failed = auto.source.snapshot()
    monkeypatch.setenv("FAKE_PYSLURM", "forms")
    auto.clock.advance(RETRY_S - 1.0)
    soon = auto.source.snapshot()
    auto.clock.advance(1.0)

    again = auto.source.snapshot()

    assert (failed.source, soon.source, again.source) == ("text", "text", "pyslurm")
    assert again.reader_fault == ""


def test_no_text_is_read_after_pyslurm_did_not_reach_slurmctld(monkeypatch: pytest.MonkeyPatch) -> None:
    auto = Auto()
    auto.source.snapshot()
    monkeypatch.setenv("FAKE_PYSLURM", "unreachable")

    with pytest.raises(SlurmUnreachableError, match=r"^pyslurm cannot reach slurmctld"):
        auto.source.snapshot()

    assert "squeue" not in {asked[0] for asked in auto.slurm.asked}
    assert (auto.source.snapshot().source, auto.child.asked.count("cluster")) == ("text", 2)


def test_clock_that_is_set_back_does_not_keep_pyslurm_out(monkeypatch: pytest.MonkeyPatch) -> None:
    auto = Auto()
    monkeypatch.setenv("FAKE_PYSLURM", "forms,denied")
    auto.source.snapshot()
    monkeypatch.setenv("FAKE_PYSLURM", "forms")
    auto.clock.advance(-4000.0)

    assert auto.source.snapshot().source == "pyslurm"


def test_spent_budget_is_no_fault_of_the_reader() -> None:
    auto = Auto()
    auto.source.snapshot()
    auto.child.against = BudgetSpentError("it has had its share of requests")

    with pytest.raises(BudgetSpentError):
        auto.source.snapshot()

    auto.child.against = None
    assert auto.source.snapshot().source == "pyslurm"


def test_site_is_read_before_pyslurm_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_CONF", "/nowhere/slurm.conf")
    auto = Auto()

    with pytest.raises(SlurmError, match="which is not there"):
        auto.source.snapshot()

    assert auto.child.asked == []


def test_controller_that_is_down_is_the_fault_of_neither_reader() -> None:
    auto = Auto()
    auto.slurm.against = SlurmUnavailableError("slurmctld is down")
    auto.child.against = SlurmUnavailableError("slurmctld is down")

    with pytest.raises(SlurmUnavailableError, match="slurmctld is down"):
        auto.source.snapshot()


def test_release_whose_exclusive_jobs_pyslurm_does_not_show_is_read_as_text() -> None:
    auto = Auto(slurm=FakeSlurm())
    auto.slurm.texts["sinfo --version"] = "slurm 26.05.5\n"

    assert auto.source.snapshot().source == "text"
    assert "whole nodes" in auto.source.why


@dataclass
class Growing:
    """A pyslurm that refuses a queue which has grown too large, and counts how often it is asked."""

    error: DecodeError | None = None
    asked: int = 0
    name: str = "pyslurm"

    def snapshot(self) -> Snapshot:
        """Read the cluster."""
        self.asked += 1
        if self.error is not None:
            raise self.error
        return make_snapshot([make_job(7)], source="pyslurm")


def chosen(reader: Growing) -> tuple[ChosenPyslurm, ManualClock]:
    slurm, clock = FakeSlurm(), ManualClock(5000.0)
    site = root_site(slurm, clock)
    return ChosenPyslurm(reader, TextSource(slurm, clock, site), clock), clock


def test_queue_that_is_too_large_for_pyslurm_is_read_as_text() -> None:
    reader = Growing()
    source, clock = chosen(reader)

    before = source.snapshot()
    reader.error = TooLargeError("python3 answered with more than 9 bytes")
    grown, soon = source.snapshot(), source.snapshot()
    reader.error = None
    clock.advance(RETRY_S)
    again = source.snapshot()

    assert [each.source for each in (before, grown, soon, again)] == ["pyslurm", "text", "text", "pyslurm"]
    assert grown.reader_fault == soon.reader_fault == "python3 answered with more than 9 bytes"
    assert grown.unread[-1] == "read as text since pyslurm failed: python3 answered with more than 9 bytes"
    assert [job.job_id for job in grown.jobs] == [7]
    assert (again.reader_fault, source.name, reader.asked) == ("", "pyslurm", 3)


def test_chosen_pyslurm_that_fails_otherwise_is_not_replaced() -> None:
    source, _ = chosen(Growing(error=DecodeError("pyslurm gave no whole answer")))

    with pytest.raises(DecodeError, match="no whole answer"):
        source.snapshot()
