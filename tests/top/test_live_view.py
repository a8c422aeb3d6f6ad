"""The live view answers to its keys at 80x24 and at 120x40, keeps what it saw, and asks before it changes anything."""

import asyncio
import os
import re
import sys
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from textual.pilot import Pilot

from advisor.backends.snapshot_file import write_snapshot
from advisor.clock import ManualClock
from advisor.domain.idle_gpus import IdleJob, IdleLook
from advisor.domain.mode import Mode
from advisor.journal import opened
from advisor.site.status_file import status_after
from advisor.site.status_words import Overlook
from advisor.text import escaped
from advisor.top.cells import head, health
from advisor.top.live_view import LEAST_REFRESH_S, LiveView
from advisor.top.row_list import RowList, cell_text
from advisor.watch.cluster_view import WaitingJob
from advisor.watch.clusters import ClusterLook, watched_clusters
from advisor.watch.reading import Reading
from tests.builders import make_gang, make_job, make_snapshot
from tests.cli.conftest import Sadvise, sadvise
from tests.made_rounds import lease, make_round, receipt, step
from tests.programs import write_slurm
from tests.strategies import hostile_texts
from tests.terminals import on_terminal
from tests.web.stage import set_up
from tools.bench.synthetic import TAKEN_AT
from tools.terminal_page import DOCS, SIZES, demo_view, view_picture

__all__ = ["sadvise"]

# A busy machine takes its time; a test has 300 s.
LONGEST_S = 100.0
MARKUP = ("[red]a[/red]", "[/]", "[@click=app.quit]q[/]", "[bold", "\\[b]", "[link=file:///]x")


def screen(view: LiveView) -> str:
    """Return what is on the screen as text."""
    strips = view.screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in strip) for strip in strips)


async def settled(pilot: Pilot[Exception]) -> str:
    """Wait until the clusters are read and what was asked for is done; return the screen."""
    view = pilot.app
    assert isinstance(view, LiveView)
    while view.is_reading or view.is_ordering:
        await pilot.pause(0.02)
    await pilot.pause()
    return screen(view)


async def until(pilot: Pilot[Exception], words: str) -> str:
    """Wait until the screen shows words; return it."""
    view = pilot.app
    assert isinstance(view, LiveView)
    until_time = time.monotonic() + LONGEST_S
    while words not in screen(view):
        assert time.monotonic() < until_time, f"no {words!r} on the screen:\n{screen(view)}"
        await pilot.pause(0.02)
    return screen(view)


def run(
    view: LiveView, steps: Callable[[Pilot[Exception]], Coroutine[None, None, None]], size: tuple[int, int] = (80, 24)
) -> None:
    """Run the view on a terminal of a size, and the steps in it once the clusters were read."""

    async def session() -> None:
        async with view.run_test(size=size) as pilot:
            await settled(pilot)
            await steps(pilot)

    asyncio.run(session())


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The configuration of a cluster with three waiting jobs, of which one holds a change."""
    variables = write_slurm(tmp_path, jobs=3, changes={"Name": "[red]train%d[/red]"})
    for name in ("PATH", "SLURM_CONF"):
        monkeypatch.setenv(name, variables[name])
    for name in ("SADVISE_CONFIG", "SLURM_CLUSTERS"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "run").mkdir()
    config = tmp_path / "sadvise.toml"
    config.write_text(
        f'[source]\nreader = "text"\n[journal]\nfile = "{tmp_path}/journal.sqlite"\n'
        f'[daemon]\nruntime_folder = "{tmp_path}/run"\n'
    )
    with opened(tmp_path / "journal.sqlite") as held:
        held.claim("written")
        held.keep(lease(job_id=2))
    return config


def site_view(config: Path, ticks: ManualClock | None = None, **fields: object) -> LiveView:
    """Return the live view of the cluster of a configuration."""
    reading = Reading(config=config, **fields)  # type: ignore[arg-type]  # the test's own
    clusters = watched_clusters(reading, journal=None, max_age_s=30.0)
    return LiveView(clusters, interval_s=30.0, monotonic=(ticks or ManualClock()).now)


def texts(svg: str) -> list[str]:
    """Return the texts of a picture, whose styles depend on the version of the library."""
    return [unescape(text) for text in re.findall(r"<text [^>]*>([^<]*)</text>", svg)]


@pytest.mark.parametrize("name", SIZES)
def test_picture_in_the_documents_shows_what_is_drawn_now(name: str) -> None:
    drawn = asyncio.run(view_picture(SIZES[name]))

    assert texts((DOCS / name).read_text()) == texts(drawn), "run `python -m tools.terminal_page`"
    assert "http" not in re.sub(r"http://www\.w3\.org\S*|https://www\.textualize\.io", "", drawn)


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
def test_every_key_does_what_the_footer_says(size: tuple[int, int]) -> None:
    view = demo_view(ManualClock().now)

    async def steps(pilot: Pilot[Exception]) -> None:
        assert "Waiting 14" in (first := screen(view))
        assert "Advice 6" in first and "In effect 0" in first and "q Quit" in first
        for key in ("e", "enter"):
            await pilot.press(key)
            assert "to do" in await until(pilot, "Why job 9 waits")
            await pilot.press("escape")
        for key in ("a", "v", "p"):
            await pilot.press(key)
            await until(pilot, "--demo is no cluster: nothing can be changed")
        await pilot.press("r")
        await until(pilot, "wait 5 s more")
        await pilot.press("tab", "down", "e")
        await until(pilot, "Why job 13 waits")
        await pilot.press("q")
        await pilot.press("question_mark")
        await until(pilot, "pause the daemon")
        await pilot.press("escape", "slash", *"eval-", "enter")
        await until(pilot, "Waiting 4 of 14")
        await pilot.press("escape")
        await until(pilot, "Waiting 14")
        await pilot.press("end")
        assert view.query_one("#queue", RowList).selected.place == 14
        assert "held" in screen(view)
        await pilot.press("home", "pagedown", "up")
        assert 1 < view.query_one("#queue", RowList).selected.place < 14
        await pilot.press("q")

    run(view, steps, size)
    assert view.return_code == 0


@pytest.mark.parametrize("size", [(30, 8), (60, 16), (200, 60)])
def test_terminal_of_any_size_is_used(size: tuple[int, int]) -> None:
    view = demo_view()

    async def steps(pilot: Pilot[Exception]) -> None:
        assert "bert-r" in screen(view)
        await pilot.resize_terminal(100, 30)
        await until(pilot, "In effect 0")
        assert "a100" in screen(view) and "partition" in screen(view)

    run(view, steps, size)


def test_pause_asks_first_and_shows_the_command(site: Path) -> None:
    view, file = site_view(site), site.parent / "run" / "pause"

    async def steps(pilot: Pilot[Exception]) -> None:
        for command, exists in (("pause", True), ("resume", False)):
            await pilot.press("p")
            await until(pilot, f"sadvise {command} --config")
            await pilot.press("n")
            assert file.exists() is not exists
            await pilot.press("p")
            await until(pilot, f"sadvise {command} --config")
            await pilot.press("y")
            await until(pilot, "Done")
            assert file.exists() is exists
            await pilot.press("escape")
            await settled(pilot)

    run(view, steps)


def test_change_in_effect_is_reverted_as_by_the_command(site: Path) -> None:
    view = site_view(site, timeout_s=7.0)

    async def steps(pilot: Pilot[Exception]) -> None:
        assert "nice 0 -> nice 100" in screen(view) and "In effect 1" in screen(view)
        await pilot.press("v")
        await until(pilot, "no change to this job is in effect")
        await pilot.press("down", "v")
        shown = await until(pilot, "sadvise revert 2 --config")
        # The folder of the test is long, so that the command goes on in the next lines of the dialog.
        assert "--timeout 7" in " ".join(re.sub(r"[^\S ]|│", " ", shown).split())
        await pilot.press("y")
        await settled(pilot)
        await until(pilot, "Done")

    run(view, steps, (120, 40))
    with opened(site.parent / "journal.sqlite") as held:
        assert not [kept for kept in held.leases() if kept.is_in_effect]


def test_order_that_fails_is_a_line_and_nothing_is_applied_without_advice(site: Path) -> None:
    view = site_view(site)

    async def steps(pilot: Pilot[Exception]) -> None:
        await pilot.press("a")
        await until(pilot, "nothing is recommended for this job")
        with opened(site.parent / "journal.sqlite"):
            await pilot.press("down", "v", "y")
            await until(pilot, "running sadvise revert 2")
            await pilot.press("v")
            await until(pilot, "the last change is still being made")
        await settled(pilot)

    run(view, steps)


def test_cluster_that_cannot_be_read_shows_the_fault_and_the_last_view(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = ManualClock()
    view = site_view(site, ticks)

    async def steps(pilot: Pilot[Exception]) -> None:
        monkeypatch.setenv("PATH", str(site.parent / "run"))
        ticks.advance(LEAST_REFRESH_S + 1.0)
        await pilot.press("r")
        shown = await until(pilot, "not read:")
        assert "this is the state of" in shown and "Waiting 3" in shown
        # It is read again once its interval is over, and not before.
        ticks.advance(29.0)
        view._tick()
        before = view.is_reading
        ticks.advance(2.0)
        view._tick()
        assert (before, view.is_reading) == (False, True)
        await settled(pilot)

    run(view, steps)


def test_partition_that_is_down_does_not_hide_the_state_of_the_daemon(tmp_path: Path) -> None:
    round_now = replace(make_round(step(applied=[receipt()])), started_time=TAKEN_AT, mode=Mode.APPLY)
    daemon = Overlook(now=TAKEN_AT, configured=Mode.OBSERVE, last=status_after(round_now), runs=True)
    seen = replace(set_up(tmp_path).content().view(), daemon=daemon)

    _, text = health(ClusterLook(name="", view=seen, fault=""))

    assert text == "partition debug is not up; well: daemon running, mode apply"


def test_idle_gpus_of_running_jobs_and_settings_taken_up_stand_in_the_head(tmp_path: Path) -> None:
    found = IdleJob(job_id=1, gpus=8, idle_gpus=4, since_time=TAKEN_AT - 9000.0)
    look = IdleLook(looked_time=TAKEN_AT, jobs=(found,))
    done = replace(make_round(step()), started_time=TAKEN_AT, idle=look, settings="preset gentle since noon")
    daemon = Overlook(now=TAKEN_AT, configured=Mode.OBSERVE, last=status_after(done), runs=True)
    seen = replace(set_up(tmp_path).content().view(), daemon=daemon)

    shown = head(ClusterLook(name="", view=seen, fault=""), TAKEN_AT, width=120, is_reading=False)

    assert "4 GPUs of 1 running job idle, 0 s ago; `sadvise idle` lists them" in shown.plain
    assert "\npreset gentle since noon" in shown.plain


def test_several_clusters_stand_in_one_view(site: Path) -> None:
    (site.parent / "clusters").mkdir()
    (site.parent / "clusters" / "alpha.toml").write_text(site.read_text())
    (site.parent / "clusters" / "broken.toml").write_text("nonsense")
    view = site_view(site, cluster="all")

    async def steps(pilot: Pilot[Exception]) -> None:
        shown = screen(view)
        assert "alpha" in shown and "not read:" in shown and "Waiting 3" in shown
        await pilot.press("c")
        await until(pilot, "not valid TOML")
        assert "train1" not in screen(view)
        await pilot.press("c")
        await until(pilot, "Waiting 3")
        await pilot.press("p")
        assert "-M alpha" in await until(pilot, "sadvise pause")

    run(view, steps, (120, 40))


@settings(max_examples=4)
@given(names=st.lists(st.sampled_from(MARKUP) | hostile_texts(), min_size=3, max_size=3))
def test_hostile_names_stay_text(names: list[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    jobs = [make_job(7, gang=make_gang(2), name=names[0], user=names[1], account=names[2])]
    path = tmp_path_factory.mktemp("hostile") / "snapshot.json"
    write_snapshot(make_snapshot(jobs), path)
    view = LiveView(watched_clusters(Reading(snapshot=path), journal=None, max_age_s=30.0), interval_s=30.0)

    async def steps(pilot: Pilot[Exception]) -> None:
        shown = screen(view)
        assert all(line.isprintable() for line in shown.splitlines())
        assert cell_text(names[1], 8).rstrip() in shown
        await pilot.press("e")
        explained = await until(pilot, "Why job 7 waits")
        assert escaped(names[0])[:20] in explained and all(line.isprintable() for line in explained.splitlines())

    run(view, steps, (160, 40))


def test_only_the_rows_on_the_screen_are_made() -> None:
    view = demo_view()

    async def steps(pilot: Pilot[Exception]) -> None:
        queue = view.query_one("#queue", RowList)
        (first, *_) = queue.rows
        assert isinstance(first, WaitingJob)
        made: list[str] = []

        def name(job: WaitingJob) -> str:
            made.append(job.name)
            return job.name

        object.__setattr__(queue._columns[2], "cell", name)
        queue.show([first] * 10_000)
        await pilot.press("end")
        await pilot.pause()
        assert 0 < len(made) < 200

    run(view, steps)


def test_real_terminal_shows_the_queue_without_colours_and_is_left_clean() -> None:
    argv = [sys.executable, "-m", "advisor.cli.main", "top", "--demo"]

    with on_terminal(argv, {**os.environ, "NO_COLOR": "1"}, columns=80, lines=24) as shown:
        shown.until("In effect 0")
        shown.press("q")
        status = shown.ended()

    assert status == 0
    assert re.findall(r"\x1b\[[\d;]*?(?:3[0-7]|4[0-7]|[34]8;[25];[\d;]+)m", shown.raw) == []
    # The alternate screen is left, and the cursor is back.
    assert shown.raw.rindex("\x1b[?1049l") > shown.raw.rindex("In effect")
    assert shown.raw.rindex("\x1b[?25h") > shown.raw.rindex("\x1b[?25l")


def test_unexpected_error_shows_no_values_and_says_where_to_report_it() -> None:
    broken = (
        "import sys; from advisor.cli.main import main; from advisor.top.live_view import LiveView\n"
        "def on_looked(view, message):\n"
        "    secret = 'name of a ' + 'user'\n"
        "    raise RuntimeError('it broke')\n"
        "LiveView.on_looked = on_looked; sys.argv = ['sadvise', 'top', '--demo']; main()"
    )

    # From 3.13 on, Python colours what it prints of an error.
    with on_terminal([sys.executable, "-c", broken], {**os.environ, "PYTHON_COLORS": "0"}) as shown:
        status = shown.ended()

    lines = shown.raw.rpartition("\x1b[?1049l")[2].splitlines()
    assert status == 1
    assert lines[-2] == "RuntimeError: it broke"
    assert lines[-1].startswith("sadvise: unexpected error") and "docs/debug.md" in lines[-1]
    assert "name of a user" not in shown.raw and "locals" not in shown.raw


@pytest.mark.parametrize(
    "arguments", [("--demo",), ("--interval", "1"), ("--interval", "often"), ("--demo", "-M", "a b")]
)
def test_without_a_terminal_or_with_wrong_options_it_is_a_usage_error(
    arguments: tuple[str, ...], sadvise: Sadvise
) -> None:
    outcome = sadvise("top", *arguments)

    assert (outcome.exit_code, outcome.out) == (2, "")
    assert "top needs a terminal: use `sadvise recommend`" in outcome.err or "--interval" in outcome.err
