"""Several clusters: which are looked at, a fault of one hides no other, and how a process that reads them ends."""

import subprocess
import sys
from pathlib import Path

import pytest

from advisor.config import chosen_clusters, load_config
from advisor.errors import ConfigError
from advisor.watch.clusters import looks, readings_of, watched_clusters
from advisor.watch.reading import Reading, site_config
from tests.programs import write_slurm


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
