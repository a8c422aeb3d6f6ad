"""The trace that ships with the package, and the page that describes traces."""

from pathlib import Path

import numpy as np
import pytest

import advisor
from advisor.sim.profiles import load_profiles
from advisor.sim.traces.importing.formats import FORMATS
from advisor.sim.traces.importing.sacct import COMMAND, FILLED_IN
from advisor.sim.traces.sampling import LIMIT_RATIOS, MODEL_WEIGHTS
from advisor.sim.traces.trace import Trace
from advisor.sim.traces.trace_columns import COLUMNS
from advisor.sim.traces.trace_file import read_trace, write_trace
from tools.demo_trace import demo_trace

SHIPPED = Path(advisor.__file__).parent / "demo" / "trace.csv"
PAGE = Path(__file__).parents[3] / "docs" / "traces.md"


@pytest.fixture(scope="module")
def shipped() -> Trace:
    """The shipped trace."""
    return read_trace(SHIPPED)


def test_the_shipped_trace_is_what_the_tool_makes(tmp_path: Path) -> None:
    write_trace(demo_trace(), tmp_path / "trace.csv")

    assert (tmp_path / "trace.csv").read_bytes() == SHIPPED.read_bytes()


def test_the_shipped_trace_fills_16_nodes_of_8_gpus_for_less_than_two_days_but_more_than_submissions_last(
    shipped: Trace,
) -> None:
    jobs = shipped.jobs

    work_s = float(jobs["gpus"] @ jobs["run_time_s"]) / (16 * 8)
    assert 200 <= len(shipped) <= 300
    assert jobs["gpus"].max() <= 16 * 8
    assert jobs["submit_time"].max() < work_s < 2 * 86400


def test_the_shipped_trace_has_something_for_every_lever(shipped: Trace) -> None:
    jobs = shipped.jobs

    assert np.all(jobs["model"] >= 0)
    assert set(shipped.models) <= set(load_profiles().names)
    assert len(shipped.users) > 10
    assert np.any((jobs["gpus"] > 8) & (jobs["nodes_max"] == 0))
    assert np.any(jobs["nodes_max"] > 0)
    assert np.any(jobs["switches"] > 0)
    assert np.any(jobs["gpus_min"] < jobs["gpus_max"])
    assert np.any(jobs["checkpoint_interval_s"] > 0)
    assert np.all(jobs["time_limit_s"] >= jobs["run_time_s"])


def test_the_page_has_every_column_format_model_and_ratio() -> None:
    page = PAGE.read_text(encoding="utf-8")

    words = [
        *(f"| `{name}` |" for name in COLUMNS),
        *(f"`{name}`" for name in FORMATS),
        *MODEL_WEIGHTS,
        *(f"{ratio:.2f}" for row in LIMIT_RATIOS for ratio in row),
        COMMAND.replace("START", "2026-01-01"),
        ",".join(FILLED_IN),
    ]
    assert [word for word in words if word not in page] == []
