"""The short form of the proof on a live Slurm: two plain clusters and an advised one run the same 60 jobs.

`python -m tools.live.twins` and `python -m tools.live.arms_report` are the whole of it. One release stands for all.
"""

from pathlib import Path

import pytest

import advisor
from tests.live.shortcomings import shortcomings
from tools.live import twins
from tools.live.kept import Runs, read_kept

# One release stands for all.
pytestmark = [pytest.mark.live, pytest.mark.releases("22.05")]

TRACE = Path(advisor.__file__).parent / "demo" / "trace.csv"
# Twice as much work as there are GPUs, and a fast network, so that the order of the jobs decides.
RUN = (
    *(f"--trace={TRACE}", "--seed=2", "--jobs=60", "--load=2", "--longest=6", "--speedup=480", "--within=4"),
    *("--nodes=4", "--leaves=2", "--nic=3200", "--policy=none", "--policy=none", "--policy=default"),
)


def test_advice_loses_no_job_and_does_not_raise_the_mean_jct(release: str, tmp_path: Path) -> None:
    twins.main([*RUN, f"--out={tmp_path / 'run'}"])

    runs = Runs(read_kept(tmp_path / "run"))
    assert list(shortcomings(runs)) == []
    assert any(arm.run.changes for arm in runs.arms)
