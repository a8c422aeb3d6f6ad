import pytest

from advisor.backends.commands import chosen_cluster
from advisor.backends.sources import AutoSource, ChosenSource, open_source
from advisor.backends.text_source import TextSource
from advisor.clock import ManualClock
from advisor.cycle import ClusterSource
from advisor.errors import ConfigError


@pytest.fixture(autouse=True)
def _no_clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_CLUSTERS", raising=False)


READER_KINDS = [("text", TextSource), ("json", ChosenSource), ("pyslurm", ChosenSource), ("auto", AutoSource)]


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
