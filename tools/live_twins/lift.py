"""Lifts the shortest work on the advised cluster, in place of the daemon: what a script of a few lines can do."""

from typing import Final

from tools.live_twins.twins import Pair, Twin, Twins

LIFT_EVERY_S: Final = 5.0
LIFTED_AT_ONCE: Final = 20
# Above all other jobs; of two lifted jobs the smaller stands first.
NICE: Final = -50_000


class Lifter:
    """Gives the pending jobs of least time limit x GPUs a nice above all others, each job once."""

    def __init__(self, twins: Twins) -> None:
        self._twins = twins
        self._lifted: set[str] = set()
        self._next_s = 0.0

    @property
    def changes(self) -> int:
        """The number of changes made."""
        return len(self._lifted)

    def act(self, passed_s: float) -> None:
        """Lift the jobs that are due, at most every few seconds."""
        if passed_s < self._next_s:
            return
        self._next_s = passed_s + LIFT_EVERY_S
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


def _size_s(pair: Pair) -> float:
    return pair.request.limit_s * pair.request.gpus
