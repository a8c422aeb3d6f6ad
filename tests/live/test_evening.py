"""A site's first evening: its commands, typed from the checkout on a small cluster. One release stands for all."""

import subprocess
import sys
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

import pytest

from advisor.domain.units import HOUR_S
from advisor.sim.traces.trace_file import read_trace
from tests.live.conftest import started
from tests.live.controller import Typed, typed
from tests.live.past import make_past
from tests.live.present import Present
from tests.live.walk import DAEMON, HISTORY, LOOK, QUEUE, WITHOUT_SLURMDBD, WRONG, faults, walk
from tools.live.compressed_site import CompressedSite, PlannedArm
from tools.live.window import Cut
from tools.stage import LiveCluster
from tools.stage.daemon import daemon, write_config

# One release stands for all; accounting is installed beside it alone.
pytestmark = [pytest.mark.live, pytest.mark.releases("22.05"), pytest.mark.needs("slurmdbd")]

ROOT = Path(__file__).parent.parent.parent
SPEEDUP = 7200.0
SITE = CompressedSite(release="22.05", nodes=2, leaf_nodes=1, speedup=SPEEDUP, nic_gbps=3200.0, oversubscription=1.0)
# Thirty jobs, in accounting once for each of eight weeks: `fit` takes no fewer than 200.
CUT = Cut(seed=1, load=2.0, span_s=0.0, longest_s=48 * HOUR_S, speedup=SPEEDUP, jobs=30)
WEEKS = 8


class Shell:
    """A shell in which `sadvise` is that of the checkout."""

    def __init__(self, live: LiveCluster, folder: Path, config: Path) -> None:
        programs = folder / "programs"
        programs.mkdir()
        for name, text in {"sadvise": f'{sys.executable} -m advisor.cli.main "$@"', "sudo": '"${@:3}"'}.items():
            (programs / name).write_text(f"#!/bin/bash\nexec {text}\n")
            (programs / name).chmod(0o755)
        self._folder = folder
        self.env: Mapping[str, str] = {
            **live.env,
            "PATH": f"{programs}:{live.env['PATH']}",
            "PYTHONPATH": str(ROOT),
            "SADVISE_CONFIG": str(config),
            "SADVISE_MODELS": f"{folder}/models",
        }

    def type(self, line: str) -> Typed:
        """Run a line of bash."""
        argv = ["bash", "-c", f"exec 2>&1; {line}"]
        answer = subprocess.run(argv, env=self.env, cwd=self._folder, capture_output=True, text=True, check=False)
        return typed(line, answer)


def test_every_command_of_the_evening_prints_what_it_has_to(release: str, tmp_path: Path) -> None:
    trace = read_trace(Path(str(files("advisor") / "demo" / "trace.csv")))
    tables = {"forecasts": {"models": f"{tmp_path}/models"}}
    config = write_config(tmp_path, 2.0, tables)
    with started(SITE.cluster(PlannedArm.of("none"))) as live:
        past = make_past(live, SITE, trace, CUT, weeks=WEEKS)
        shell = Shell(live, tmp_path, config)
        arriving = Present(live, past.trace, at_once=16, every_s=3.0, shortest_s=4.0, longest_s=12.0)
        answers = list(walk(shell, [*LOOK, *HISTORY]))
        with arriving:
            answers += walk(shell, QUEUE)
            with daemon(live, config, tmp_path / "log", env=shell.env):
                answers += walk(shell, DAEMON)
        answers += walk(shell, WRONG)
        live.stop_accounting()
        answers += walk(shell, WITHOUT_SLURMDBD)

    assert past.faults == ()
    assert arriving.faults == []
    assert [fault for step, answer in answers for fault in faults(step, answer)] == []
