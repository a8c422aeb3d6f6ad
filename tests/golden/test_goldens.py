"""What the program came to before its inside was rebuilt, it still comes to."""

import json

import pytest

from tests.golden.digests import FOLDER
from tests.golden.table import GOLDENS


# They run the same lines for thousands of jobs; coverage counts what the tests of each part reach.
@pytest.mark.no_cover
@pytest.mark.parametrize("name", GOLDENS)
def test_golden_is_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("SADVISE_CONFIG", "SADVISE_SNAPSHOT", "SLURM_CONF", "SLURM_CLUSTERS"):
        monkeypatch.delenv(variable, raising=False)

    assert GOLDENS[name]() == json.loads((FOLDER / f"{name}.json").read_text())
