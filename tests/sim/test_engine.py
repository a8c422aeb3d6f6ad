"""The compiled functions: how they are built, what they are called with, and that they agree with the Python ones."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from advisor.errors import SimulationError
from advisor.sim import queueing
from advisor.sim.cluster import Failures, parse_cluster
from advisor.sim.engine import build
from advisor.sim.engine.layout import Block, header
from advisor.sim.engine.native import native
from advisor.sim.engine.tables import LAYOUT_FILE, TABLES
from advisor.sim.simulated_policy import SimulationOptions
from advisor.sim.state import State
from tests.sim.building import bytes_of, make_state, make_trace, run_of
from tests.sim.test_compiled import busy_trace

ROOT = Path(__file__).parents[2]
SHARED = "nodes=8,gpus=4,leaf=2,nic_gbps=50,spine_oversubscription=4,node_gbps=20,node_shared=true"


@native
def start(s: State, row: int, now: float) -> None: ...


@native
def end(s: State, row: int, now: float, how: int) -> None: ...


@native
def preempt(s: State, row: int, now: float) -> None: ...


@native
def book(s: State, row: int, now: float) -> None: ...


@native
def set_timer(s: State, row: int) -> None: ...


@native
def expired(s: State, row: int) -> int: ...


@native
def next_instant(s: State) -> float: ...


@native
def next_victim(s: State, now: float) -> int: ...


@pytest.mark.parametrize("policy", ["fifo", "las", "srtf"])
@pytest.mark.parametrize("cluster", ["nodes=6,gpus=4,leaf=3,oversubscription=4", SHARED])
def test_execution_in_c_gives_the_bytes_of_execution_in_python(
    policy: str, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_python = run_of(busy_trace(), cluster, policy, SimulationOptions())
    for function in (start, end, preempt, book, set_timer, expired, next_instant, next_victim):
        monkeypatch.setattr(queueing, function.__name__, function)

    in_c = run_of(busy_trace(), cluster, policy, SimulationOptions())

    assert bytes_of(in_c) == bytes_of(in_python)


def test_header_declares_the_tables_of_today() -> None:
    assert LAYOUT_FILE.read_text() == header(TABLES), "run python -m advisor.sim.engine.tables"


def test_an_array_of_another_type_is_refused() -> None:
    state = make_state(make_trace([{}]), "nodes=1,gpus=1")
    wrong = state._replace(timers=state.timers.astype(np.int64))

    with pytest.raises(SimulationError, match=r"State\.timers must be contiguous, of int32 in 1 dimensions"):
        Block(wrong, TABLES[State])


def test_without_a_compiler_the_message_names_the_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    with pytest.raises(SimulationError, match=r"needs a C compiler .* install gcc"):
        build.library_file()


def test_a_compiler_that_fails_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "false")

    with pytest.raises(SimulationError, match="the simulator does not compile: false failed with exit status 1"):
        build.compile_to(tmp_path / "engine.so")
    assert not list(tmp_path.iterdir())


def test_library_is_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    first = build.library_file()
    monkeypatch.setenv("CC", "no-such-compiler")

    assert build.library_file() == first
    assert first.is_relative_to(tmp_path)


def test_compiled_without_warnings(tmp_path: Path) -> None:
    build.compile_to(tmp_path / "engine.so", (*build.FLAGS, "-Wall", "-Wextra", "-Werror"))


def test_no_access_out_of_bounds_and_no_undefined_behaviour(tmp_path: Path) -> None:
    kept = tmp_path / "sadvise" / build.library_name()
    kept.parent.mkdir()
    checks = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    build.compile_to(kept, (*build.FLAGS, "-g", *checks))
    # The runtime of the checks has to be loaded before anything else.
    runtime = subprocess.run(["cc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
    script = "import tests.sim.test_engine as t; t.run_checked()"
    env = {
        **os.environ,
        "XDG_CACHE_HOME": str(tmp_path),
        "LD_PRELOAD": runtime.stdout.strip(),
        "ASAN_OPTIONS": "detect_leaks=0",
    }

    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, env=env, capture_output=True, text=True, timeout=200, check=False
    )

    assert (done.returncode, done.stdout) == (0, "checked\n"), done.stderr[-2000:]


def run_checked() -> None:
    """Run jobs with failures, limits, switches and open node counts under the model of slurmctld."""
    trace = busy_trace()
    jobs = trace.jobs.copy()
    jobs["nodes_max"][::3] = 0
    jobs["switches"][::4] = 1
    jobs["switches_wait_s"][::4] = 3000.0
    failing = replace(parse_cluster(SHARED), failures=Failures(node_mtbf_h=20.0))
    for cluster in (parse_cluster(SHARED), failing):
        run_of(replace(trace, jobs=jobs), cluster, "slurm", SimulationOptions())
    sys.stdout.write("checked\n")
