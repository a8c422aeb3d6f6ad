import os
from pathlib import Path

import pytest

from advisor.backends.json_source import JsonSource
from advisor.backends.pyslurm_source import PyslurmSource
from advisor.backends.sources import chosen_cluster, open_source
from advisor.backends.text_source import TextSource
from advisor.clock import ManualClock
from advisor.errors import ConfigError
from advisor.ports import ClusterSource

FAKE_PYSLURM = Path(__file__).with_name("fake_pyslurm")


@pytest.fixture(autouse=True)
def _no_clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_CLUSTERS", raising=False)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host of Slurm 25.11 with pyslurm; returns its slurm.conf."""
    conf = tmp_path / "slurm.conf"
    conf.write_text("ClusterName=t25\nAccountingStorageTRES=gres/gpu\n")
    sinfo = tmp_path / "sinfo"
    sinfo.write_text("#!/bin/sh\necho slurm 25.11.7\n")
    sinfo.chmod(0o755)
    monkeypatch.setenv("SLURM_CONF", str(conf))
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("PYTHONPATH", str(FAKE_PYSLURM), prepend=os.pathsep)
    return conf


def opened(name: str, cluster: str | None = None) -> ClusterSource:
    return open_source(name, cluster=cluster, timeout_s=20.0, clock=ManualClock())


@pytest.mark.parametrize(("name", "kind"), [("text", TextSource), ("json", JsonSource), ("pyslurm", PyslurmSource)])
def test_reader_is_opened_by_name(name: str, kind: type[ClusterSource]) -> None:
    source = opened(name)

    assert isinstance(source, kind)
    assert source.name == name


@pytest.mark.usefixtures("site")
def test_auto_takes_pyslurm_where_it_sees_everything() -> None:
    assert opened("auto").name == "pyslurm"


def test_auto_takes_text_where_gpus_are_not_counted(site: Path) -> None:
    site.write_text("ClusterName=t25\n")

    assert opened("auto").name == "text"


@pytest.mark.usefixtures("site")
@pytest.mark.parametrize("trick", ["old", "missing", "fatal"])
def test_auto_takes_text_where_pyslurm_does_not_fit(monkeypatch: pytest.MonkeyPatch, trick: str) -> None:
    monkeypatch.setenv("FAKE_PYSLURM", trick)

    assert opened("auto").name == "text"


@pytest.mark.usefixtures("site")
def test_auto_takes_text_for_another_cluster() -> None:
    assert opened("auto", "green").name == "text"


def test_pyslurm_reads_no_other_cluster() -> None:
    with pytest.raises(ConfigError, match="pyslurm reads only the cluster of this host"):
        opened("pyslurm", "green")


def test_unknown_reader_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="there is no reader 'rest': choose one of auto, text, json, pyslurm"):
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
