"""The compiled functions: how they are built, what they are called with, and that they keep to their arrays."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from advisor.errors import SimulationError
from advisor.sim.cluster import Cluster, Failures, NodeChange, NodeGroup, NodeReservation, StateChange, parse_cluster
from advisor.sim.engine import build
from advisor.sim.engine.layout import Block, header
from advisor.sim.engine.tables import LAYOUT_FILE, TABLES
from advisor.sim.run_outcome import End
from advisor.sim.simulated_policy import SimulationOptions
from advisor.sim.slurm.queue_tables import AssociationTable, PartitionTable, QosTable
from advisor.sim.state import State
from advisor.sim.traces.trace import Trace
from tests.sim.building import make_state, make_trace, run_of
from tests.sim.internals import usable_gpus

ROOT = Path(__file__).parents[2]
SHARED = "nodes=8,gpus=4,leaf=2,nic_gbps=50,spine_oversubscription=4,node_gbps=20,node_shared=true"
MODELS = ("bert", "gpt2", "lm", "vgg16")


def busy_trace() -> Trace:
    """Sixty jobs of one GPU to three nodes, more than a small cluster can run at once."""
    rng = np.random.default_rng(7)
    arrivals = np.sort(rng.uniform(0.0, 40_000.0, 60))
    return make_trace(
        [
            {
                "submit_time": float(at),
                "gpus": int(rng.choice([1, 2, 4, 8, 12])),
                "nodes_max": 3,
                "run_time_s": float(rng.uniform(60.0, 20_000.0)),
                "time_limit_s": float(rng.uniform(4_000.0, 60_000.0)),
                "checkpoint_interval_s": 600.0,
                "model": MODELS[int(rng.integers(len(MODELS)))],
                "user": ("ann", "bob", "cy")[int(rng.integers(3))],
            }
            for at in arrivals
        ]
    )


def test_header_declares_the_tables_of_today() -> None:
    assert LAYOUT_FILE.read_text() == header(TABLES), "run python -m advisor.sim.engine.tables"


def test_an_array_of_another_type_is_refused() -> None:
    state = make_state(make_trace([{}]), "nodes=1,gpus=1")
    wrong = state._replace(timers=state.timers.astype(np.int64))

    with pytest.raises(SimulationError, match=r"State\.timers must be contiguous, of int32 in 1 dimensions"):
        Block(wrong, TABLES[State])


def test_a_call_reads_the_arrays_that_it_is_given() -> None:
    state = make_state(make_trace([{}]), "nodes=1,gpus=4")
    other = state._replace(nodes=state.nodes.copy())
    other.nodes["gpus_free"] = 1

    assert [usable_gpus(table, 0, 0) for table in (state, other, state)] == [4, 1, 4]


def test_without_a_compiler_the_message_names_the_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    with pytest.raises(
        SimulationError, match=r"needs a C compiler .* install gcc, or type \S+ -m pip install ziglang;"
    ):
        build.library_file()


def test_ziglang_compiles_where_there_is_no_other_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "ziglang").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))

    assert build.compiler() == build.ZIG
    assert build.ZIG[:3] == (sys.executable, "-m", "ziglang")


def test_a_compiler_that_fails_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "false")

    with pytest.raises(SimulationError, match="the simulator does not compile: false failed with exit status 1"):
        build.compile_to(tmp_path / "engine.so")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_library_is_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    first = build.library_file()
    monkeypatch.setenv("CC", "no-such-compiler")

    assert build.library_file() == first
    assert first.is_relative_to(tmp_path)


@pytest.mark.slow
def test_compiled_without_warnings(tmp_path: Path) -> None:
    build.compile_to(tmp_path / "engine.so", (*build.FLAGS, "-Wall", "-Wextra", "-Werror"))


@pytest.mark.slow
@pytest.mark.needs("gcc")
@pytest.mark.timeout(900)
def test_no_access_out_of_bounds_and_no_undefined_behaviour(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = tmp_path / "sadvise" / build.library_name()
    kept.parent.mkdir()
    checks = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    monkeypatch.setenv("CC", "gcc")
    build.compile_to(kept, (*build.FLAGS, "-O1", "-g", *checks))
    # The runtime of the checks has to be loaded before anything else.
    runtime = subprocess.run(["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
    script = "import tests.sim.test_engine as t; t.run_checked()"
    env = {
        **os.environ,
        "XDG_CACHE_HOME": str(tmp_path),
        "LD_PRELOAD": runtime.stdout.strip(),
        "ASAN_OPTIONS": "detect_leaks=0",
    }

    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, env=env, capture_output=True, text=True, timeout=850, check=False
    )

    assert (done.returncode, done.stdout) == (0, "checked\n"), done.stderr[-2000:]


def mixed_requests() -> tuple[Trace, Cluster]:
    """Return jobs with all that they can ask of nodes, and a cluster whose nodes are drained, reserved and fail."""
    trace = busy_trace()
    jobs = trace.jobs.copy()
    for name in ("gpus", "gpus_min", "gpus_max", "nodes_min", "nodes_max"):
        jobs[name][::5] = 0
    jobs["cpus"][::5] = 5
    jobs["memory_mib"][::3] = 20_000
    jobs["nodes_max"][1::3] = 0
    jobs["exclusive"][::7] = 1
    jobs["features"][::4] = 1
    jobs["required_nodes"][1::11] = 1
    jobs["excluded_nodes"][2::6] = 1
    jobs["reservation"][3::8] = 1
    asked = replace(
        trace,
        jobs=jobs,
        features=("", "a|b"),
        required_nodes=("", "n2"),
        excluded_nodes=("", "n[3-4]"),
        reservations=("", "course"),
    )
    cluster = Cluster(
        nodes=(
            NodeGroup(count=4, gpus=4, cpus=16, memory_mib=64_000, leaf=2, names="n[1-4]", features=("a",), weight=2),
            NodeGroup(count=4, gpus=4, cpus=16, memory_mib=64_000, leaf=2, names="n[5-8]", features=("b",)),
        ),
        failures=Failures(node_mtbf_h=20.0),
        reservations=(NodeReservation(name="course", nodes="n[1-2]", start_s=3000, end_s=90_000),),
        events=(
            StateChange(nodes="n[2,7]", time_s=1000, state=NodeChange.DRAINED),
            StateChange(nodes="n[2,7]", time_s=40_000, state=NodeChange.RESUMED),
        ),
    )
    return asked, cluster


def run_checked() -> None:
    """Run jobs with failures, limits, switches, arrays, partitions and elastic sizes under every kind of policy."""
    trace = busy_trace()
    jobs = trace.jobs.copy()
    jobs["nodes_max"][::3] = 0
    jobs["switches"][::4] = 1
    jobs["switches_wait_s"][::4] = 3000.0
    jobs["gpus_min"] = 1
    jobs["gpus_max"][::5] *= 2
    held = jobs.copy()
    held["array_id"], held["array_limit"] = held["job_id"] // 5 + 1, 2
    held["begin_time"][::7] = held["submit_time"][::7] + 500.0
    held["name"][::3] = 1
    held["dependency"][::3], held["dependency"][1::6] = 1, 2
    waiting = replace(trace, jobs=held, dependencies=("", "singleton", "afterok:3:9?after:12+2"), job_names=("", "a"))
    run_of(waiting, parse_cluster(SHARED), "slurm", SimulationOptions())
    failing = replace(parse_cluster(SHARED), failures=Failures(node_mtbf_h=20.0))
    for cluster in (parse_cluster(SHARED), failing):
        for policy in ("slurm", "qssf", "srtf", "las", "gandiva", "optimus", "tetris", "dally", "dally+preempt"):
            run_of(replace(trace, jobs=jobs), cluster, policy, SimulationOptions())
    for policy in ("slurm", "rules"):
        run_of(*mixed_requests(), policy, SimulationOptions())
    limited = replace(
        failing,
        partitions=(
            PartitionTable(name="a", nodes=",".join(failing.node_names[:5]), priority_tier=2, default=True, qos="some"),
            PartitionTable(name="b", nodes=",".join(failing.node_names[3:]), max_time_s=100_000.0),
        ),
        qos=(QosTable(name="some", group_gpus=12, max_jobs_per_user=6, group_gpu_minutes=10**6, group_submit=6),),
        associations=(AssociationTable(account="lab", parent="top", max_jobs=9),),
        slurm=replace(failing.slurm, bf_max_job_user=20, partition_job_depth=30),
    )
    names = ("", "a", "b", "a,b", "b,a")
    jobs["partition"] = np.arange(len(jobs)) % len(names)
    divided = replace(trace, jobs=jobs, partitions=names, accounts=("lab",))
    for policy in ("slurm", "order-fair"):
        run = run_of(divided, limited, policy, SimulationOptions())
        assert {End.FINISHED, End.IMPOSSIBLE} <= set(run.outcomes["end"].tolist())
    sys.stdout.write("checked\n")
