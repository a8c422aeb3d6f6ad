"""Acts on the twins while jobs arrive: attacks on each change, lifts in place of the daemon, and snapshots."""

import lzma
import subprocess
import sys
from collections.abc import Iterable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Final

from advisor.domain.lease import Lease
from tools.live_twins.both_clusters import RUSH_PRIORITY, Pair, Twin, Twins
from tools.live_twins.twin_jobs import GPUS, attack
from tools.stage.actors import Every
from tools.stage.daemon import PROGRAM
from tools.stage.watch import can_delay, leases_of

# Attacks hold no more than half of the GPUs at once.
MOST_GPUS: Final = GPUS // 2
# One that has not started by then found the change taken back, and makes room for the next.
PATIENCE_S: Final = 20.0
LIFT_EVERY_S: Final = 5.0
LIFTED_AT_ONCE: Final = 20
# Above all other jobs; of two lifted jobs the smaller stands first.
NICE: Final = -50_000
SNAPSHOT_EVERY_S: Final = 5.0


class AttackPlace(StrEnum):
    """Names where an attack stands in line."""

    LAST = "last"  # behind all jobs, as any job that arrives
    BETWEEN = "between"  # right behind the changed job as submitted


def options_for(place: AttackPlace, lease: Lease) -> tuple[str, ...]:
    """Return the options of sbatch, open to every user, that put an attack at its place."""
    if place is AttackPlace.LAST or lease.priority is None:
        return ()
    return ("--partition=rush", f"--nice={RUSH_PRIORITY - lease.priority + 1}")


class Adversary:
    """Attacks each change once, and cancels an attack on both clusters once the changed job has started.

    An attack that does not start soon is cancelled too.
    """

    def __init__(self, twins: Twins, journal: Path, place: AttackPlace, sizes: Sequence[int]) -> None:
        """Take the place of the attacks, and the GPUs that they ask for in turn."""
        self._twins, self._journal, self._place, self._sizes = twins, journal, place, sizes
        self._attacked: set[tuple[int, str, float]] = set()
        self._attackers: dict[Pair, int] = {}
        self.attacks = 0
        self.left_out = 0

    def act(self, passed_s: float, now: float) -> None:
        """Cancel the attacks whose victims have started, and attack what has been changed since the last call."""
        self._withdraw(now)
        ours = {pair.job_id[Twin.ADVISED] for pair in self._attackers}
        for lease in self._fresh(leases_of(self._journal)):
            if lease.job_id in ours:
                continue
            gpus = self._sizes[self.attacks % len(self._sizes)]
            if self._held() + gpus > MOST_GPUS:
                self.left_out += 1
                continue
            request = attack(self.attacks, gpus, passed_s, options_for(self._place, lease))
            pair = self._twins.submit(request, now)
            self._attackers[pair] = lease.job_id
            self.attacks += 1

    def _fresh(self, leases: Iterable[Lease]) -> Sequence[Lease]:
        fresh = []
        for lease in leases:
            key = (lease.job_id, str(lease.lever), lease.applied_time)
            if can_delay(lease) and lease.ending is None and key not in self._attacked:
                self._attacked.add(key)
                fresh.append(lease)
        return fresh

    def _held(self) -> int:
        return sum(pair.request.gpus for pair in self._attackers)

    def _withdraw(self, now: float) -> None:
        waiting = {
            pair.job_id[Twin.ADVISED] for pair in self._twins.pairs if pair.stay[Twin.ADVISED].start_time is None
        }
        for pair, victim in list(self._attackers.items()):
            came_too_late = pair.job_id[Twin.ADVISED] in waiting and now - pair.submit_time > PATIENCE_S
            if victim not in waiting or came_too_late:
                self._twins.cancel(pair)
                del self._attackers[pair]


class LimitLifter:
    """Gives the pending jobs of least time limit x GPUs a nice above all others, each job once."""

    def __init__(self, twins: Twins) -> None:
        self._twins = twins
        self._lifted: set[str] = set()
        self._lifts = Every(LIFT_EVERY_S)

    @property
    def changes(self) -> int:
        """The number of changes made."""
        return len(self._lifted)

    def act(self, passed_s: float) -> None:
        """Lift the jobs that are due, at most every few seconds."""
        if not self._lifts.is_due(passed_s):
            return
        waiting = [pair for pair in self._twins.pairs if pair.stay[Twin.ADVISED].state == "PENDING"]
        for pair in sorted(waiting, key=_size_s)[:LIFTED_AT_ONCE]:
            if pair.name not in self._lifted:
                self._lifted.add(pair.name)
                self._lift(pair)

    def _lift(self, pair: Pair) -> None:
        nice = NICE + round(_size_s(pair))
        change = ("update", f"JobId={pair.job_id[Twin.ADVISED]}", f"Nice={nice}")
        # A job that has started meanwhile is refused, which changes nothing.
        self._twins.clusters[Twin.ADVISED].ask("scontrol", *change)


class KeptSnapshots:
    """Takes a snapshot of the advised cluster every few seconds, as `sadvise snapshot` reads it."""

    def __init__(self, twins: Twins, folder: Path) -> None:
        self._twins = twins
        self._folder = folder / "snapshots"
        self._folder.mkdir()
        self._reading: subprocess.Popen[bytes] | None = None
        self._snapshots = Every(SNAPSHOT_EVERY_S)
        self._taken = 0

    def act(self, passed_s: float) -> None:
        """Begin the next snapshot if it is due and the last one is done."""
        is_reading = self._reading is not None and self._reading.poll() is None
        if is_reading or not self._snapshots.is_due(passed_s):
            return
        self._taken += 1
        path = self._folder / f"{self._taken:04d}.json"
        program = [sys.executable, *PROGRAM, "snapshot", "--output", str(path)]
        self._reading = subprocess.Popen(program, env=self._twins.clusters[Twin.ADVISED].env, stderr=subprocess.DEVNULL)

    def pack(self, jobs: Path, path: Path) -> None:
        """Write the snapshots in order, then the jobs, one JSON object a line, as one xz file."""
        if self._reading is not None:
            self._reading.wait()
        lines = [file.read_bytes().strip() for file in sorted(self._folder.glob("*.json"))]
        path.write_bytes(lzma.compress(b"\n".join([*lines, jobs.read_bytes()]), preset=6))


def _size_s(pair: Pair) -> float:
    return pair.request.limit_s * pair.request.gpus
