"""The loops as the compiler makes them against the same loops as plain Python."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from advisor.sim.compiled import IS_COMPILED
from advisor.sim.simulated_policy import SimulationOptions
from advisor.sim.trace import Trace
from tests.sim.building import bytes_of, make_trace, run_of

ROOT = Path(__file__).parents[2]
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


def fingerprints() -> dict[str, str]:
    """Return the SHA-256 of outcomes and segments by policy and cluster."""
    plain = "nodes=6,gpus=4,leaf=3,oversubscription=4"
    slow = "nodes=8,gpus=4,leaf=2,nic_gbps=50,spine_oversubscription=4,node_gbps=20,node_shared=true"
    found = {}
    plainly = ("slurm", "fifo", "las", "dally", "dally+preempt", "dally-nowait", "dally-consolidated", "dally-fixed")
    slowly = ("slurm", "fifo", "dally", "dally+preempt")
    for policy, cluster in (*((each, plain) for each in plainly), *((each, slow) for each in slowly)):
        run = run_of(busy_trace(), cluster, policy, SimulationOptions())
        found[f"{policy}, {cluster}"] = hashlib.sha256(bytes_of(run)).hexdigest()
    return found


# The compiler takes two minutes on an idle core; its process has a limit of its own.
@pytest.mark.timeout(900)
def test_compiled_loops_give_the_same_bytes_as_interpreted_ones() -> None:
    pytest.importorskip("numba", reason="numba is not installed: nothing is compiled")
    script = "import json, tests.sim.test_compiled as t; print(json.dumps([t.IS_COMPILED, t.fingerprints()]))"
    env = {name: value for name, value in os.environ.items() if name != "NUMBA_DISABLE_JIT"}

    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, env=env, capture_output=True, text=True, timeout=600, check=False
    )

    assert done.returncode == 0, done.stderr
    is_compiled, compiled = json.loads(done.stdout)
    assert (is_compiled, IS_COMPILED) == (True, False)
    assert compiled == fingerprints()
