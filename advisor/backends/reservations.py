"""Reads the reservations of a cluster with scontrol; one request to slurmctld."""

from collections.abc import Mapping

from advisor.backends.process import Commands, text_of
from advisor.backends.scontrol_text import blocks
from advisor.backends.spelling import count, instant, node_names
from advisor.backends.text_decode import Row
from advisor.domain.particulars import Reservation
from advisor.errors import DecodeError

_NONE = "No reservations in the system"
_MAINTENANCE = frozenset(("MAINT", "MAGNETIC_MAINT"))


def read_reservations(commands: Commands) -> tuple[Reservation, ...]:
    """Return all reservations, by start."""
    return decode_reservations(text_of(commands.ask("scontrol", "-o", "show", "reservation").output))


def decode_reservations(text: str) -> tuple[Reservation, ...]:
    """Decode what scontrol shows of reservations; raises `DecodeError` for what is not that."""
    if not text.strip() or _NONE in text.partition("ReservationName=")[0]:
        return ()
    found = (_reservation(block) for block in blocks(text, key="ReservationName"))
    return tuple(sorted(found, key=lambda reservation: (reservation.start_time, reservation.name)))


def _reservation(block: Row) -> Reservation:
    try:
        start_time, end_time = (instant(block[key], field=f"scontrol {key}") for key in ("StartTime", "EndTime"))
        name = block["ReservationName"]
    except KeyError as err:
        raise DecodeError(f"scontrol shows a reservation without {err.args[0]}: see scontrol show reservation") from err
    if start_time is None or end_time is None:
        raise DecodeError("scontrol shows a reservation without times: see scontrol show reservation")
    return Reservation(
        name=name,
        start_time=start_time,
        end_time=end_time,
        nodes=node_names(block.get("Nodes", ""), field="scontrol Nodes"),
        cpus=_cpus(block),
        is_maintenance=not _MAINTENANCE.isdisjoint(block.get("Flags", "").split(",")),
    )


def _cpus(block: Mapping[str, str]) -> int | None:
    tres = dict(item.partition("=")[::2] for item in block.get("TRES", "").split(","))
    return count(tres["cpu"], field="scontrol TRES") if "cpu" in tres else None
