"""What trains policies is not there where they are served."""

import subprocess
import sys
from pathlib import Path

from tests.predict.graphs import publish_sizes

PROGRAM = """
import sys
from pathlib import Path

import advisor.daemon.run
import advisor.cli.main
from advisor.cycle import Cycle
from advisor.predict.library import Library
from advisor.predict.served_policy import open_policy
from tests.builders import DAY_S, make_hints, make_job, make_node, make_snapshot

jobs = [make_job(number, gpus=2, time_limit_s=DAY_S, hints=make_hints(gpus=(2, 6))) for number in (1, 2)]
queue = make_snapshot(jobs, [make_node("n01")])
record = Cycle(policy=open_policy(Library(Path(sys.argv[1])), "own")).judge(queue)
assert record.decisions and not record.policy_fault
print(*sorted(name for name in ("matplotlib", "onnx", "torch") if name in sys.modules))
"""


def test_daemon_that_plans_with_a_policy_loads_no_training_library(tmp_path: Path) -> None:
    publish_sizes(tmp_path)

    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
    )

    assert run.stdout.strip() == ""
