"""The view of a cluster, when it is read again, how users gained; of several, a fault of one hides no other."""

import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from advisor.config import Config, chosen_clusters, load_config
from advisor.cycle import Cycle, CycleRecord
from advisor.domain.forecast import NO_FORECASTS, Forecasts, Interval, JobForecast
from advisor.domain.memory import Memory
from advisor.domain.snapshot import Snapshot
from advisor.domain.units import DAY_S, HOUR_S
from advisor.errors import AdvisorError, ConfigError
from advisor.journal import opened
from advisor.watch.cluster_view import cluster_view, waiting_gpu_jobs
from advisor.watch.clusters import looks, readings_of, watched_clusters
from advisor.watch.daemon_state import read_gains
from advisor.watch.planned import Planned, Remembered, plan_now, plan_with, remembered_by
from advisor.watch.reading import Reading, demo_path, open_queue, site_config
from advisor.watch.viewer import Viewer
from tests.builders import TAKEN_AT, make_cluster, make_gang, make_job, make_stretch
from tests.made_rounds import change, lease, step
from tests.programs import write_slurm

WAITS_LONG = make_job(1, priority=10, gang=make_gang(16), user="ann")
SMALL = make_job(2, priority=20, gang=make_gang(2), user="bob")


def test_line_is_slurms_order_with_starts_advice_and_changes() -> None:
    held = lease(job_id=2)
    record = step(jobs=[WAITS_LONG, SMALL], judged=[change(job_id=1)]).record
    planned = Planned(record=record, memory=Memory(leases=(held,)))
    starts = Forecasts(by_job={1: JobForecast(start_s=Interval(low=60.0, median=120.0, high=600.0))})

    view = cluster_view(planned, starts, source="file", cluster=None, daemon=None)

    first, second = view.line
    assert [first.job_id, second.job_id] == [2, 1]
    assert (first.place, first.in_effect, first.start) == (1, (str(held.lever),), None)
    assert second.start == Interval(low=TAKEN_AT + 60.0, median=TAKEN_AT + 120.0, high=TAKEN_AT + 600.0)
    assert [str(kind) for kind in second.advice] == [row.kind for row in view.advice]
    assert (second.gpus, second.gpu_type, second.user) == (16, "", "ann")
    assert [(row.job_id, row.lever) for row in view.in_effect] == [(2, str(held.lever))]


def test_nodes_show_their_leaf_and_what_is_in_use() -> None:
    cluster = make_cluster([make_job(3, gpus=8, running_on=["n1"])], leaves={"leaf1": ("n1", "n2")})
    record = CycleRecord(snapshot=cluster, forecasts=NO_FORECASTS, judged=(), left_alone={})

    view = cluster_view(
        Planned(record=record, memory=record.memory), NO_FORECASTS, source="file", cluster=None, daemon=None
    )

    assert [(use.name, use.leaf, use.gpus, use.in_use) for use in view.nodes] == [
        ("n1", "leaf1", 8, 8),
        ("n2", "leaf1", 8, 0),
    ]


def test_demo_has_a_view_with_the_advice_of_recommend_by_gain() -> None:
    reading = Reading(demo=True)
    config = reading.load_config()
    snapshot = open_queue(reading, config).snapshot()
    planned = plan_now(reading, config, None, snapshot)

    view = cluster_view(planned, planned.record.forecasts, source="demo", cluster=None, daemon=None)

    gains = [row.expected.jct_saved_expected_s for row in view.advice]
    assert gains == sorted(gains, reverse=True)
    assert {row.job_id for row in view.advice} == {change.job_id for change in planned.record.recommendations}
    assert {job.job_id for job in view.line} == set(waiting_gpu_jobs(snapshot))


DEMO = Reading(demo=True)


@pytest.fixture(scope="module")
def seen() -> Snapshot:
    """The demo."""
    return open_queue(DEMO, Config()).snapshot()


def test_of_a_file_nothing_is_remembered_and_nothing_is_missing(seen: Snapshot) -> None:
    remembered = remembered_by(DEMO, Config(), None, seen, Cycle())

    assert (remembered.note, remembered.is_broken) == ("", False)
    assert remembered.journal.leases() == ()


@pytest.mark.parametrize(
    ("content", "is_broken", "note"), [(None, False, "no such journal"), (b"no journal at all" * 99, True, "")]
)
def test_journal_that_cannot_be_read_is_a_note(
    content: bytes | None, is_broken: bool, note: str, seen: Snapshot, tmp_path: Path
) -> None:
    path = tmp_path / "journal.sqlite"
    if content is not None:
        path.write_bytes(content)

    remembered = remembered_by(DEMO, Config(), path, seen, Cycle())

    assert remembered.is_broken is is_broken
    assert str(path) in remembered.note and note in remembered.note
    assert remembered.note.endswith("so outstanding changes and observed waits are unknown")


def test_a_plan_leaves_what_is_remembered_as_it_was(seen: Snapshot) -> None:
    remembered = Remembered()

    first, second = (plan_with(Cycle(), seen, remembered) for _ in range(2))

    assert first.record == second.record
    assert first.memory == second.memory


def test_a_plan_about_one_job_agrees_with_the_whole_on_whether_it_is_changed(seen: Snapshot) -> None:
    whole = plan_with(Cycle(), seen, Remembered()).record

    for job in seen.pending_gpu_jobs:
        about = plan_with(Cycle(), seen, Remembered(), about=job).record
        mine = [[change for change in record.judged if change.job_id == job.job_id] for record in (about, whole)]
        assert mine[0] == mine[1]


class Ticks:
    """A monotonic clock that a test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def ticks() -> Ticks:
    return Ticks()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return Path(shutil.copy(demo_path(), tmp_path / "snapshot.json"))


@pytest.fixture
def viewer(file: Path, ticks: Ticks) -> Viewer:
    return Viewer(Reading(snapshot=file), Config(), max_age_s=30.0, monotonic=ticks)


def test_view_is_read_again_once_it_is_old(viewer: Viewer, ticks: Ticks) -> None:
    first = viewer.view()
    ticks.now = 30.0
    assert viewer.view() is first
    ticks.now = 31.0
    assert viewer.view() is not first
    assert viewer.fault == ""


def test_cluster_that_cannot_be_read_keeps_its_view_and_is_asked_no_more_often(
    viewer: Viewer, ticks: Ticks, file: Path
) -> None:
    first = viewer.view()
    text = file.read_text()
    file.unlink()
    ticks.now = 31.0
    assert viewer.view() is first
    assert str(file) in viewer.fault
    file.write_text(text)
    assert viewer.view() is first
    ticks.now = 62.0
    assert viewer.view() is not first
    assert viewer.fault == ""


def test_without_any_view_the_fault_is_raised(viewer: Viewer, file: Path) -> None:
    file.unlink()
    with pytest.raises(AdvisorError, match=r"snapshot\.json"):
        viewer.view()


def test_others_get_the_view_of_before_while_one_reads(viewer: Viewer, ticks: Ticks, file: Path) -> None:
    first = viewer.view()
    ticks.now = 31.0
    seen: list[object] = []
    with viewer._lock:
        reader = threading.Thread(target=lambda: seen.append(viewer.view()))
        reader.start()
        reader.join(10.0)
    assert seen == [first]


def test_days_follow_each_other_and_older_ones_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    with opened(path) as held:
        held.claim("live")
        for anchor_time, waited_s in ((0.0, 60.0), (2.0, 30.0), (2.0 + 1 / 24, 50.0), (4.0, 90.0)):
            held.keep_stretch(make_stretch(anchor_time=TAKEN_AT + anchor_time * DAY_S, waited_s=waited_s))

    gains = read_gains(path, TAKEN_AT + 4.0 * DAY_S + 2.0 * HOUR_S, days=3)

    assert [(gain.standing.jobs, gain.standing.waited_s) for gain in gains.days] == [(2, 80.0), (1, 90.0)]
    assert sorted(gain.day for gain in gains.days) == [gain.day for gain in gains.days]
    assert gains.whole.total is not None and gains.whole.total.waited_s == 170.0


def test_without_runs_of_plain_slurm_the_history_is_empty(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    with opened(path) as held:
        held.claim("live")

    gains = read_gains(path, TAKEN_AT)

    assert gains.days == ()
    assert gains.whole.total is None


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A configuration file of a site beside the folder with those of its clusters, of which `broken` is not valid."""
    (tmp_path / "clusters").mkdir()
    for name in ("alpha", "beta"):
        text = f'[journal]\nfile = "{tmp_path}/{name}.sqlite"\n[source]\nreader = "text"\n'
        (tmp_path / "clusters" / f"{name}.toml").write_text(text)
    (tmp_path / "clusters" / "broken.toml").write_text("[journal]\npath = 1\n")
    (tmp_path / "sadvise.toml").write_text(f'[journal]\nfile = "{tmp_path}/site.sqlite"\n')
    return tmp_path / "sadvise.toml"


def found_slurm(folder: Path, jobs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a Slurm with like jobs on PATH."""
    folder.mkdir()
    variables = write_slurm(folder, jobs=jobs, changes={})
    for name in ("PATH", "SLURM_CONF"):
        monkeypatch.setenv(name, variables[name])


@pytest.mark.parametrize(
    ("option", "variables", "file"),
    [
        ("alpha", {}, "alpha"),
        (None, {"SLURM_CLUSTERS": "beta"}, "beta"),
        ("alpha", {"SLURM_CLUSTERS": "beta"}, "alpha"),
        ("gamma", {}, "site"),
        ("../clusters/alpha", {}, "site"),
        (None, {"SLURM_CLUSTERS": "all"}, "site"),
        (None, {}, "site"),
    ],
)
def test_cluster_with_a_file_of_its_own_is_read_by_that(
    option: str | None, variables: dict[str, str], file: str, site: Path
) -> None:
    assert load_config(site, variables, cluster=option).journal.file == f"{site.parent}/{file}.sqlite"
    assert load_config(None, variables, cluster=option, folder=site.parent).journal.file.endswith(f"{file}.sqlite")


def test_configuration_of_the_site_is_read_whichever_cluster_is_named(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CLUSTERS", "alpha")

    assert site_config(site).journal.file == f"{site.parent}/site.sqlite"


def test_file_of_a_cluster_can_be_named_itself(site: Path) -> None:
    named = site.parent / "clusters" / "alpha.toml"

    assert load_config(named, {}, cluster="alpha").journal.file.endswith("alpha.sqlite")
    assert chosen_clusters("all", named, {}) == ("alpha", "beta", "broken")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (None, (None,)),
        ("alpha", ("alpha",)),
        ("beta,alpha,beta", ("beta", "alpha")),
        ("all", ("alpha", "beta", "broken")),
    ],
)
def test_option_names_clusters_as_in_slurm(text: str | None, names: tuple[str | None, ...], site: Path) -> None:
    assert chosen_clusters(text, site, {}) == names


@pytest.mark.parametrize("text", ["", ",", "alpha,", "alpha,all", "-x", "../alpha", "a b", "a\x1b[31m", ".hidden"])
def test_what_is_no_name_of_a_cluster_is_one_line(text: str, site: Path) -> None:
    with pytest.raises(ConfigError, match="is not the name of a cluster") as caught:
        chosen_clusters(text, site, {})

    assert str(caught.value).isprintable()


def test_every_cluster_needs_a_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"clusters holds no NAME\.toml"):
        chosen_clusters("all", None, {}, folder=tmp_path)


def test_file_and_demo_are_one_cluster(site: Path) -> None:
    assert [reading.cluster for reading in readings_of(Reading(demo=True, cluster="all", config=site))] == [None]


def test_one_journal_for_several_clusters_is_refused(site: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="each cluster has a journal of its own"):
        watched_clusters(Reading(cluster="all", config=site), journal=tmp_path / "one.sqlite", max_age_s=30.0)


def test_fault_of_one_cluster_hides_no_other(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found_slurm(tmp_path / "slurm", 3, monkeypatch)
    clusters = watched_clusters(Reading(cluster="alpha,broken", config=site), journal=None, max_age_s=30.0)

    alpha, broken = looks(clusters)

    assert (alpha.name, alpha.fault) == ("alpha", "")
    assert alpha.view is not None and len(alpha.view.planned.record.snapshot.jobs) == 3
    assert (broken.name, broken.view) == ("broken", None)
    assert "journal.path is not known" in broken.fault
    # Repaired, it is read at the next look.
    (site.parent / "clusters" / "broken.toml").write_text('[source]\nreader = "text"\n')
    repaired = looks(clusters)[1]
    assert (repaired.fault, repaired.view is None) == ("", False)


def test_cluster_that_cannot_be_read_keeps_its_view(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found_slurm(tmp_path / "slurm", 1, monkeypatch)
    (cluster,) = watched_clusters(Reading(cluster="alpha", config=site), journal=None, max_age_s=30.0)
    first = cluster.look()
    monkeypatch.setenv("PATH", str(tmp_path))

    again = cluster.look(now=True)

    assert again.view is first.view
    assert "PATH" in again.fault


PROGRAM = """
import threading, time
from advisor.watch.clusters import leave

def write(word, after_s):
    time.sleep(after_s)
    print(word, flush=True)

threading.Thread(target=write, args=("reads", 60.0), daemon=True).start()
threading.Thread(target=write, args=("changes", 0.2)).start()
leave()
print("goes on")
"""


def test_threads_that_change_end_first_and_those_that_read_do_not_hold_the_end_up() -> None:
    answer = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=30.0, check=False)

    assert (answer.returncode, answer.stdout) == (0, "changes\n")


def test_without_such_threads_the_end_is_the_usual_one() -> None:
    program = PROGRAM.replace("daemon=True).start()", "daemon=True)")
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30.0, check=False)

    assert (answer.returncode, answer.stdout) == (0, "changes\ngoes on\n")
