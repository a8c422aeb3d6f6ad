"""The daemon and its parts: one of a cluster, which stands by where another applies, and counts answers."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from advisor.backends.process import Answer, Stream
from advisor.clock import ManualClock
from advisor.config import Config, load_config
from advisor.daemon.launch import only_daemon
from advisor.daemon.live_parts import CountedCommands, LiveParts, Tally
from advisor.daemon.service import Outfit, Service
from advisor.domain.lease import LeaseState
from advisor.domain.mode import Mode
from advisor.errors import BudgetSpentError, ConfigError, SlurmError, SlurmRefusedError, SlurmUnavailableError
from advisor.metrics.observer import Metrics
from advisor.site.site_gate import RoundDeadline
from tests.backends.fake_slurm import Streaming
from tests.builders import TAKEN_AT
from tests.daemon.rounds import Site
from tests.fake_cluster import fragmented


@pytest.mark.parametrize("shared", ["folder", "journal"])
def test_second_daemon_is_refused_on_the_same_folder_or_journal(tmp_path: Path, shared: str) -> None:
    (tmp_path / "other").mkdir()
    folder = tmp_path if shared == "folder" else tmp_path / "other"
    journal = tmp_path / ("a.sqlite" if shared == "journal" else "b.sqlite")

    with (
        only_daemon(tmp_path, tmp_path / "a.sqlite"),
        pytest.raises(ConfigError, match="another sadvised runs here: stop that one first"),
        only_daemon(folder, journal),
    ):
        pass
    with only_daemon(folder, journal):
        pass


def test_lock_of_a_killed_daemon_is_free(tmp_path: Path) -> None:
    program = (
        "import os, signal, sys\nfrom pathlib import Path\nfrom advisor.daemon.launch import only_daemon\n"
        "with only_daemon(Path(sys.argv[1]), Path(sys.argv[1]) / 'a'):\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False)

    with only_daemon(tmp_path, tmp_path / "a"):
        assert (tmp_path / "sadvised.lock").stat().st_mode & 0o777 == 0o600


def test_missing_folder_names_the_key(tmp_path: Path) -> None:
    why = r"make its folder for this user, or set daemon\.runtime_folder"
    with pytest.raises(ConfigError, match=why), only_daemon(tmp_path / "gone", tmp_path / "journal"):
        pass
    beside = tmp_path / "gone" / "journal"
    with pytest.raises(ConfigError, match=r"or set journal\.file"), only_daemon(tmp_path, beside):
        pass


@dataclass
class Saying(Streaming):
    """Commands that answer, or fail as told."""

    fault: SlurmError | None = None
    cluster: str | None = "here"

    def ask(self, program: str, *arguments: str) -> Answer:  # noqa: ARG002  (the protocol's)
        """Answer, or fail."""
        if self.fault is not None:
            raise self.fault
        return Answer(output=b"yes")

    def feed(self, program: str, lines: Sequence[str]) -> str:
        """Answer, or fail."""
        return self.ask(program, *lines).output.decode()


@pytest.mark.parametrize(
    ("fault", "failed"),
    [
        (None, 0),
        (SlurmRefusedError("denied"), 0),
        (SlurmUnavailableError("no answer"), 1),
        (BudgetSpentError("spent"), 0),
    ],
)
def test_only_what_was_not_answered_counts_as_failed(fault: SlurmError | None, failed: int) -> None:
    tally = Tally()
    commands = CountedCommands(commands=Saying(fault), tally=tally)

    if fault is None:
        assert commands.ask("squeue", "-h").output == b"yes"
    else:
        with pytest.raises(type(fault)):
            commands.feed("scontrol", ["update JobId=7 Nice=1", "update JobId=8 Nice=1"])

    assert commands.cluster == "here"
    assert tally.counts()[1] == failed


@pytest.mark.parametrize(
    ("fault", "failed"),
    [(None, (1, 0)), (SlurmRefusedError("denied"), (0, 0)), (SlurmUnavailableError("late"), (1, 1))],
)
def test_stream_counts_when_it_ends(fault: SlurmError | None, failed: tuple[int, int]) -> None:
    @dataclass
    class Broken:
        complaints: bytes = b"unknown field"

        def __iter__(self) -> Iterator[bytes]:
            yield b"yes"
            if fault is not None:
                raise fault

    class Streamed(Saying):
        def stream(self, program: str, *arguments: str, variables: Mapping[str, str]) -> Stream:  # noqa: ARG002
            return Broken()

    tally = Tally()
    stream = CountedCommands(commands=Streamed(), tally=tally).stream("squeue", variables={})
    chunks = iter(stream)

    assert (next(chunks), stream.complaints, tally.counts()) == (b"yes", b"unknown field", (0, 0))
    with contextlib.suppress(SlurmError):
        list(chunks)
    assert tally.counts() == failed


def test_a_hundred_commands_are_remembered() -> None:
    tally = Tally()
    for number in range(250):
        tally.add(failed=number < 200)

    assert tally.counts() == (100, 50)


SAID = "slurmctld acts on ctl1, this is ctl2: the daemon there applies"


class Pair:
    """A site of which a test says whether another daemon applies, and which counts how often that is asked."""

    def __init__(self, folder: Path) -> None:
        """Take the folder of the daemon, which nothing keeps from applying at first."""
        self.site = Site(folder=folder, cluster=fragmented())
        self.said: str | None = None
        self.asked = 0

    def service(self) -> Service:
        """Start a service."""
        self.site.service()
        return Service(self.outfit, self.site.config(), self.site.clock, self.site.told.append)

    def outfit(self, config: Config) -> Outfit:
        """Build the parts."""
        return replace(self.site.outfit(config), against_applying=self.against_applying)

    def against_applying(self) -> str | None:
        """Say what the test wants, and count."""
        self.asked += 1
        return self.said


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    """A daemon on one of two controllers."""
    return Pair(tmp_path)


def test_daemon_that_stands_by_recommends_and_applies_once_it_is_its_turn(pair: Pair) -> None:
    service = pair.service()
    pair.said = SAID

    held = service.round()
    pair.said = None
    freed = service.round()

    assert held.step is not None and len(held.step.record.recommendations) == 1 and held.step.applied == ()
    assert [each.text for each in held.step.held_back] == [f"standby: {SAID}"]
    assert held.held_to == {"standby": SAID} and held.mode is Mode.RECOMMEND
    assert "(held by standby)" in held.summary
    assert freed.step is not None and len(freed.step.applied) == 1 and freed.held_to == {}
    assert pair.asked == 2


def test_daemon_that_stands_by_takes_back_what_is_due(pair: Pair) -> None:
    service = pair.service()
    service.round()
    pair.said = SAID
    pair.site.cluster.now += 86_400.0

    held = service.round()

    assert held.step is not None and len(held.step.reconciled.taken_back) == 1
    assert held.open_leases.get(LeaseState.OUT, 0) == 0 and held.held_to == {"standby": SAID}


@pytest.mark.parametrize("mode", [Mode.OBSERVE, Mode.RECOMMEND])
def test_daemon_that_would_not_apply_asks_nothing(pair: Pair, mode: Mode) -> None:
    pair.site.mode = mode
    pair.said = SAID

    done = pair.service().round()

    assert done.held_to == {} and pair.asked == 0


def test_daemon_that_stands_by_is_seen_in_the_metrics(pair: Pair) -> None:
    pair.said = SAID
    metrics = Metrics(version="1", interval_s=60.0, journal=pair.site.folder / "journal.sqlite")

    metrics.observe(pair.service().round())

    assert b'sadvise_held{by="standby"} 1.0' in metrics.exposition()


@pytest.mark.parametrize(("host", "held"), [("ctl2", SAID), ("ctl1.hpc", None), ("login", None)])
def test_parts_of_the_daemon_know_their_host_and_ask_slurm_anew_when_built_again(
    host: str, held: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = tmp_path / "asked"
    scontrol = tmp_path / "scontrol"
    scontrol.write_text(
        f'#!/bin/sh\necho "$@" >>{asked}\n'
        "echo 'Slurmctld(primary) at ctl1 is UP'\necho 'Slurmctld(backup) at ctl2 is UP'\n"
    )
    scontrol.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.delenv("SLURM_CLUSTERS", raising=False)
    parts = LiveParts(ManualClock(TAKEN_AT), RoundDeadline(), host=lambda: host)
    config = load_config(None, {"SADVISE_SOURCE__READER": "text", "SADVISE_FORECASTS__ENABLED": "false"})

    said = [parts.build(config).against_applying() for _ in range(2)]

    assert said == [held, held]
    assert asked.read_text() == "ping\n" * 2
    assert parts.build(config).rpcs() == {"REQUEST_PING": 2}
