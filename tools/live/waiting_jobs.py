"""Leaves jobs waiting on a live cluster until its daemon changes some, and compares them after `revert --all`."""

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from tools.stage import LiveCluster

# What changes of any lever show in.
_FIELDS: Final = (
    "Nice",
    "TimeLimit",
    "TimeMin",
    "NumNodes",
    "Switches",
    "Features",
    "Partition",
    "TRES",
    "TresPerNode",
)
_SIZES: Final = (8, 8, 8, 4, 4, 2, 2, 1, 1, 1)
_POLL_S: Final = 0.5


class Backlog:
    """Jobs of root that wait behind one that holds all nodes, long and large ones first."""

    def __init__(self, live: LiveCluster) -> None:
        """Submit the jobs to an idle cluster."""
        self._live = live
        blocker = live.submit("--account=root", f"--nodes={live.shape.node_count}", "--exclusive", "--time=60")
        live.wait_for(lambda: live.state_of(blocker) == "RUNNING", 60.0, what="the job that holds all nodes runs")
        held = [
            live.submit("--hold", "--account=root", "--nodes=1", f"--gres=gpu:{gpus}", f"--time={5 * gpus}")
            for gpus in _SIZES
        ]
        self._submitted = {job_id: self._fields(job_id) for job_id in held}
        live.run("scontrol", "release", ",".join(map(str, held)))

    def wait_until_changed(self, within_s: float) -> bool:
        """Wait until a job differs from its submission; return False if none does within that time."""
        until = time.monotonic() + within_s
        while not list(self.changed()):
            if time.monotonic() > until:
                return False
            time.sleep(_POLL_S)
        return True

    def changed(self) -> Iterator[str]:
        """Yield a sentence for each field in which a job differs from its submission."""
        for job_id, before in self._submitted.items():
            yield from differences(job_id, before, self._fields(job_id))

    def _fields(self, job_id: int) -> Mapping[str, str]:
        return fields_of(self._live.run("scontrol", "--oneliner", "show", "job", str(job_id)))


def fields_of(shown: str, names: Sequence[str] = _FIELDS) -> Mapping[str, str]:
    """Return fields of a job that scontrol shows in one line; those that it does not show are left out."""
    values = dict(re.findall(r"(?:^|\s)(\w+)=(\S*)", shown))
    return {name: values[name] for name in names if name in values}


def differences(job_id: int, before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence for each field that differs."""
    for name in sorted(before.keys() | after.keys()):
        if before.get(name) != after.get(name):
            yield f"job {job_id} has {name}={after.get(name)}, submitted was {before.get(name)}"
