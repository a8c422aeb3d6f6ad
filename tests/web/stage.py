"""Clusters that pages are shown for, a snapshot file with a journal and a frontier, and the web view on a real port."""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import pytest
from waitress import wasyncore

from advisor.backends.snapshot_file import write_snapshot
from advisor.config import Config
from advisor.domain.mode import Mode
from advisor.domain.snapshot import Snapshot
from advisor.errors import ConfigError
from advisor.journal import opened
from advisor.settings import WebSettings
from advisor.site.pause_file import Pause
from advisor.site.status_file import status_after
from advisor.site.status_words import Overlook
from advisor.watch.reading import Reading
from advisor.web.application import application, application_of
from advisor.web.content import Content
from advisor.web.listener import bound, server_of
from advisor.web.served_clusters import ServedCluster
from tests.builders import DAY_S, HOUR_S, make_stretch
from tests.made_rounds import lease, make_round, nice_action, receipt, step
from tools.bench.synthetic import TAKEN_AT, synthetic

FRONTIER: Final = Path(__file__).parent / "frontier.json"
USERS: Final = ("amara", "bjorn", "chen", "dolores", "emeka", "fatima", "goran", "hana", "inga", "jonas")
NAMES: Final = ("llama-sft", "resnet50", "diffusion-xl", "eval-mmlu", "whisper-ft", "gnn-sweep", "vit-large", "nerf")
DAYS: Final = 14


def staged_snapshot() -> Snapshot:
    """Return a busy cluster of 32 nodes, one of which is drained; one partition of it is down."""
    made = synthetic(260, 32, 3)
    return replace(
        made,
        config=replace(made.config, cluster="aurora"),
        jobs=tuple(
            replace(
                job,
                user=USERS[job.job_id * 7 % len(USERS)],
                account=("vision", "speech", "bio")[job.job_id % 3],
                name=f"{NAMES[job.job_id * 3 % len(NAMES)]}-{job.job_id % 17}" if job.is_pending else job.name,
            )
            for job in made.jobs
        ),
        partitions=tuple(
            replace(partition, is_up=False) if partition.name == "debug" else partition for partition in made.partitions
        ),
    )


@dataclass(frozen=True, kw_only=True)
class Stage:
    """The files of a staged cluster."""

    snapshot: Path
    journal: Path
    settings: WebSettings = field(default_factory=lambda: WebSettings(frontier_file=str(FRONTIER)))

    def content(self) -> Content:
        """Return what pages show, read completely."""
        config = Config(web=self.settings)
        content = Content(Reading(snapshot=self.snapshot), config, journal=self.journal)
        content.viewer.refresh()
        return content


def set_up(folder: Path, snapshot: Snapshot | None = None) -> Stage:
    """Write a staged cluster into a folder."""
    seen = staged_snapshot() if snapshot is None else snapshot
    stage = Stage(snapshot=folder / "snapshot.json", journal=folder / "journal.sqlite")
    write_snapshot(seen, stage.snapshot)
    with opened(stage.journal) as held:
        held.claim(seen.config.cluster)
        for job in [job for job in seen.jobs if job.is_pending and job.gang.wants_gpus and not job.held][3:9:2]:
            action = nice_action(job.job_id, after=-20_000)
            held.keep(
                lease(
                    action=action,
                    undo=action.swapped(),
                    user=job.user,
                    account=job.account,
                    applied_time=TAKEN_AT - job.job_id * 60.0,
                    due_time=TAKEN_AT + DAY_S - job.job_id * 60.0,
                )
            )
        for number in range(DAYS):
            for place, user in enumerate(USERS):
                at = TAKEN_AT - (DAYS - number) * DAY_S + place * HOUR_S
                waited_s = 1800.0 + 700.0 * ((number * 5 + place * 3) % 11)
                plain_s = tuple(waited_s * (share + 0.05 * place) for share in (0.85, 0.95, 1.1))
                held.keep_stretch(
                    make_stretch(anchor_time=at, waited_s=waited_s, plain_s=plain_s, user=user, account="vision")
                )
    return stage


class Overseen(Content):
    """What pages show of a staged cluster that has a daemon, whose state is given."""

    overlook: Overlook

    def daemon(self) -> Overlook:
        """Return the state of the daemon."""
        return self.overlook


def overseen(stage: Stage, overlook: Overlook) -> Overseen:
    """Return what pages show of a stage beside a daemon, read completely."""
    content = Overseen(Reading(snapshot=stage.snapshot), Config(web=stage.settings), journal=stage.journal)
    content.overlook = overlook
    content.viewer.refresh()
    return content


def staged_site(folder: Path, aurora: Stage) -> list[ServedCluster]:
    """Return four clusters: a busy one, a small one whose daemon is paused, one without a daemon, and a broken one."""
    (folder / "small").mkdir()
    made = synthetic(40, 8, 5)
    small = set_up(folder / "small", replace(made, config=replace(made.config, cluster="borealis")))
    done = replace(make_round(step(applied=[receipt()])), started_time=TAKEN_AT - 20.0)
    well = Overlook(now=TAKEN_AT, configured=Mode.APPLY, last=status_after(done), runs=True, out=3)
    pause = Pause(by="ann", reason="maintenance", since_time=TAKEN_AT - HOUR_S)
    states = {
        "aurora": overseen(aurora, well),
        "borealis": overseen(small, replace(well, pause=pause, out=0)),
        "corona": overseen(small, Overlook(now=TAKEN_AT, configured=Mode.RECOMMEND, last=None, runs=False)),
    }

    def broken() -> Content:
        raise ConfigError("/etc/sadvise/clusters/dione.toml: journal.path is not known: did you mean journal.file?")

    return [*(holding(name, content) for name, content in states.items()), ServedCluster("dione", broken)]


def holding(name: str, content: Content) -> ServedCluster:
    """Return a cluster that is open already."""
    return ServedCluster(name, lambda: content)


@contextmanager
def in_utc() -> Iterator[None]:
    """Show times as the stage means them, wherever the tests run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


@contextmanager
def serving(content: Content | Sequence[ServedCluster], settings: WebSettings) -> Iterator[tuple[str, int] | str]:
    """Serve one cluster or several with the limits of `sadvise web` in a thread; yields the address."""
    app = application(content) if isinstance(content, Content) else application_of(content, settings)
    with bound(settings) as (listening, _):
        server = server_of(app, listening, settings)
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        try:
            yield listening.getsockname()
        finally:
            # In the server's own thread: one that selects on a file closed elsewhere fails.
            server.trigger.pull_trigger(lambda: wasyncore.close_all(server._map, ignore_all=True))
            thread.join(10.0)
            server.task_dispatcher.shutdown()
