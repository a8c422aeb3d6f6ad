"""Functions of the engine that tests call one by one, and that the simulator does not call from Python."""

from advisor.sim.engine.native import native
from advisor.sim.engine.tables import GangPatience, Victims
from advisor.sim.slurm.slurm_state import Slurm
from advisor.sim.state import State


@native
def start(s: State, row: int, now: float) -> None:
    """Start a pending job on the first `picked` of `pick_nodes`, with `pick_gpus` on each."""


@native
def start_as_guest(s: State, row: int, host: int, now: float) -> None:
    """Start a pending job on the GPUs of a running one."""


@native
def end(s: State, row: int, now: float, how: int) -> None:
    """End a running job."""


@native
def preempt(s: State, row: int, now: float) -> None:
    """Return a running job to the queue."""


@native
def book(s: State, row: int, now: float) -> None:
    """Book the progress and the cost of a running job up to now."""


@native
def set_timer(s: State, row: int) -> None:
    """Set the timer of a job."""


@native
def expired(s: State, row: int) -> int:
    """Return how a job whose timer is due ends."""


@native
def best_gbps(s: State, nodes: int) -> float:
    """Return the bandwidth of a gang alone on its best placement."""


@native
def usable_gpus(s: State, row: int, node_row: int) -> int:
    """Return the number of GPUs of a node that a part of a gang could use."""


@native
def pick_leaf(s: State, row: int, gpus: int) -> bool:
    """Pick free GPUs under one leaf."""


@native
def pick_anywhere(s: State, row: int, gpus: int) -> bool:
    """Pick free GPUs under any leaves."""


@native
def make_room(s: State, v: Victims, row: int, key: float) -> int:
    """List running jobs to preempt so that a job fits."""


@native
def make_room_anywhere(s: State, v: Victims, row: int, key: float) -> int:
    """List running jobs to preempt for a gang that takes GPUs on any nodes."""


@native
def picked_inflation(s: State, row: int, crosses: bool) -> float:
    """Return the inflation of a gang on the picked nodes."""


@native
def timer_s(s: State, p: GangPatience, row: int, tier: int) -> float:
    """Return how long a gang declines the picked nodes."""


@native
def tuned_timer_s(
    p: GangPatience, gang_class: int, tier: int, run_s: float, here: float, there: float, bound_s: float
) -> float:
    """Return how long a gang waits for a closer place."""


@native
def priority_of(s: State, m: Slurm, row: int, now: float) -> float:
    """Return the priority of a pending job in its first partition; whole points, at least 1, as Slurm has them."""


@native
def insert(s: State, m: Slurm, row: int) -> None:
    """Insert a job into the line, once for each partition; equal priorities are ordered by submit time and id."""


@native
def strike(s: State, m: Slurm, place: int) -> None:
    """Remove the entry at a place from the line; the caller updates the count of pending jobs."""


@native
def reprioritise(s: State, m: Slurm, now: float) -> bool:
    """Recalculate the priority of every pending job and sort the line; return whether that changed the order."""


@native
def charge(s: State, m: Slurm, row: int, now: float) -> None:
    """Charge the use of a running job since its last charge to its user and account, in whole seconds as in Slurm."""


@native
def leaves_picked(s: State) -> int:
    """Count the leaves of the picked nodes; the nodes of a leaf are adjacent."""
