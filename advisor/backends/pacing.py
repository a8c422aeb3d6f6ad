"""Lengthen the interval between rounds while slurmctld is under strain or does not answer."""

from typing import Final

from advisor.domain.load import ControllerLoad
from advisor.settings import DaemonSettings

_WIDER: Final = 2.0
# After strain ends it takes three rounds to come back from one doubling.
_NARROWER: Final = 0.8


def strained(load: ControllerLoad, settings: DaemonSettings) -> str:
    """Return in plain words what shows that slurmctld is under strain; "" if nothing does.

    The time of a backfill pass does not count: it is mostly spent asleep between locks.
    """
    signs: list[str] = []
    if load.server_threads is not None and load.server_threads >= settings.strain_threads:
        signs.append(f"{load.server_threads} server threads (strained from {settings.strain_threads})")
    if load.agent_queue is not None and load.agent_queue >= settings.strain_queue:
        signs.append(f"{load.agent_queue} messages in the agent queue (strained from {settings.strain_queue})")
    if load.cycle_s is not None and load.cycle_s >= settings.strain_cycle_s:
        signs.append(f"a scheduling pass of {load.cycle_s:.1f} s (strained from {settings.strain_cycle_s:g} s)")
    return " and ".join(signs)


def next_interval_s(current_s: float, settings: DaemonSettings, *, trouble: bool) -> float:
    """Return the interval until the next round: twice as long after trouble, else a fifth shorter, within its bounds.

    Trouble is strain, or a slurmctld that did not answer.
    """
    wanted_s = current_s * (_WIDER if trouble else _NARROWER)
    return min(max(wanted_s, settings.interval_s), settings.interval_max_s)
