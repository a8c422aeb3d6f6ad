from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module")
def filed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A host with a slurm.conf, and with a topology of one leaf."""
    path = tmp_path_factory.mktemp("slurm") / "slurm.conf"
    path.write_text("ClusterName=filed\nTopologyPlugin=topology/tree\n")
    path.with_name("topology.conf").write_text("SwitchName=leaf1 Nodes=n[01-02]\n")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("SLURM_CONF", str(path))
        yield
