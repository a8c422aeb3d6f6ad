"""The compiled functions: how they are built, what they are called with, and that they keep to their arrays."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import SimulationError
from advisor.sim.cluster import Cluster, Failures, NodeChange, NodeGroup, NodeReservation, StateChange, parse_cluster
from advisor.sim.engine import build
from advisor.sim.engine.layout import Block, header
from advisor.sim.engine.tables import CONSTANTS, LAYOUT_FILE, TABLES
from advisor.sim.profiles import gpu_share_inflation
from advisor.sim.run_outcome import End
from advisor.sim.simulated_policy import SimulationOptions
from advisor.sim.slurm.queue_tables import AssociationTable, PartitionTable, QosTable
from advisor.sim.state import NONE, PENDING, RUNNING, State
from advisor.sim.traces.trace import Trace
from tests.sim.building import ends, make_state, make_trace, place, profile, run_of, run_out, submit
from tests.sim.internals import preempt, set_timer, start_as_guest, usable_gpus

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
    assert LAYOUT_FILE.read_text() == header(TABLES, CONSTANTS), "run python -m advisor.sim.engine.tables"


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


LIFTS = ("lift", "lift:fairness=lane,interactive=10", "lift:fairness=user", "lift-forecast")


def run_checked() -> None:
    """Run jobs with failures, limits, switches, arrays, partitions, preemption and elastic sizes under all policies."""
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
        for policy in (
            "slurm",
            "qssf",
            "srtf",
            "las",
            "gandiva",
            "optimus",
            "tetris",
            "dally",
            "dally+preempt",
            *LIFTS,
        ):
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
    for policy in ("slurm", "order-fair", *LIFTS):
        run = run_of(divided, limited, policy, SimulationOptions())
        assert {End.FINISHED, End.IMPOSSIBLE} <= set(run.outcomes["end"].tolist())
    tiers = replace(limited.slurm, preempt_type="partition_prio", preempt_mode="requeue", preempt_exempt_s=600.0)
    by_qos = replace(tiers, preempt_type="qos", preempt_mode="cancel")
    qos = (QosTable(name="some", grace_s=120.0), QosTable(name="other", preempts=("some",)))
    jobs["qos"] = np.arange(len(jobs)) % 2
    for slurm in (tiers, by_qos):
        preempting = replace(limited, slurm=slurm, partitions=limited.partitions, qos=qos)
        run = run_of(replace(divided, qos=("some", "other")), preempting, "slurm", SimulationOptions())
        assert run.outcomes["preemptions"].any() or End.PREEMPTED in run.outcomes["end"]
    sys.stdout.write("checked\n")


JOBS = 12
# A row and its next timer; NaN stands for none.
STEPS = st.lists(st.tuples(st.integers(0, JOBS - 1), st.sampled_from([0.0, 1.0, 2.0, 3.0, np.inf])))


@given(steps=STEPS)
def test_the_first_of_the_timers_is_always_the_earliest(steps: list[tuple[int, float]]) -> None:
    state = make_state(make_trace([{}] * JOBS), "nodes=1,gpus=1")
    jobs = state.jobs

    for row, due in steps:
        jobs["watch_time"][row] = due
        set_timer(state, row)
        held = np.flatnonzero(jobs["timer"] < np.inf)

        assert np.flatnonzero(jobs["heap_slot"] != NONE).tolist() == held.tolist()
        assert state.tally["timers"][0] == len(held)
        assert state.timers[jobs["heap_slot"][held]].tolist() == held.tolist()
        if len(held):
            # Equal timers by the row.
            assert state.timers[0] == min(held, key=lambda each: (jobs["timer"][each], each))


def test_taking_the_first_again_and_again_sorts() -> None:
    state = make_state(make_trace([{}] * 5), "nodes=1,gpus=1")
    state.jobs["watch_time"] = [3.0, 1.0, 2.0, 1.0, 0.0]
    for row in range(5):
        set_timer(state, row)

    taken = []
    while state.tally["timers"][0]:
        taken.append(int(state.timers[0]))
        state.jobs["watch_time"][taken[-1]] = np.inf
        set_timer(state, taken[-1])

    assert taken == [4, 1, 3, 2, 0]


def pair() -> State:
    """A host of two GPUs and a guest, running since 0 and 100, with 1000 s of work each."""
    trace = make_trace(
        [
            {"gpus": 2, "run_time_s": 1000, "model": "lm"},
            {"gpus": 2, "run_time_s": 1000, "model": "recommendation"},
        ]
    )
    state = make_state(trace, "nodes=1,gpus=4,restart_s=30")
    place(state, 0, {0: 2}, 0.0)
    submit(state, 1, 100.0)
    start_as_guest(state, 1, 0, 100.0)
    return state


def pair_inflations() -> tuple[float, float]:
    host, guest = profile("lm"), profile("recommendation")
    return gpu_share_inflation(host, guest), gpu_share_inflation(guest, host)


def test_host_and_guest_slow_each_other_until_the_first_ends() -> None:
    state = pair()

    run_out(state)

    of_host, of_guest = pair_inflations()
    host_ends = 100.0 + 900.0 * of_host
    guest_ends = host_ends + 1000.0 - (host_ends - 100.0) / of_guest
    assert ends(state) == pytest.approx([host_ends, guest_ends])
    assert state.jobs["held_gpu_s"] == pytest.approx([2 * host_ends, 2 * (guest_ends - 100.0)])


def test_a_guest_takes_no_gpus() -> None:
    state = pair()

    assert state.nodes["gpus_free"].tolist() == [2]
    assert state.tally["gpus_free"].tolist() == [2]
    assert state.node_jobs[0, :2].tolist() == [0, 1]
    assert state.jobs["is_guest"].tolist() == [0, 1]


def test_a_guest_inherits_the_gpus_of_a_host_that_is_stopped() -> None:
    state = pair()

    preempt(state, 0, 200.0)

    assert state.nodes["gpus_free"].tolist() == [2]
    assert state.jobs["is_guest"].tolist() == [0, 0]
    assert state.jobs["partner"].tolist() == [NONE, NONE]
    run_out(state)
    assert ends(state)[1] == pytest.approx(200.0 + 1000.0 - 100.0 / pair_inflations()[1])
    assert state.nodes["gpus_free"].tolist() == [4]


def test_a_host_runs_on_alone_when_its_guest_is_stopped() -> None:
    state = pair()

    preempt(state, 1, 200.0)

    assert state.nodes["gpus_free"].tolist() == [2]
    assert state.jobs["phase"].tolist() == [RUNNING, PENDING]
    run_out(state)
    assert ends(state)[0] == pytest.approx(200.0 + 900.0 - 100.0 / pair_inflations()[0])
    assert state.nodes["gpus_free"].tolist() == [4]
