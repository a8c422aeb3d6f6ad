"""Finds the reservation that a job waits for: the one that it asks for, or one that takes the nodes it needs."""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from advisor.diagnose.inquiry import Inquiry
from advisor.domain.diagnosis import Cause, Finding, Variant
from advisor.domain.particulars import Reservation
from advisor.domain.plan import Evidence
from advisor.features.nodes import Flags, NodeTable, rows_of
from advisor.features.offers import chooses_among_required


def own_reservation(inquiry: Inquiry) -> Finding | None:
    """Return the reservation that the job asks for; None where it asks for none, or reservations were not read."""
    name, reservations = inquiry.job.reservation, inquiry.particulars.reservations
    if not name or reservations is None:
        return None
    evidence: dict[str, Evidence] = {"reservation": name}
    reservation = next((each for each in reservations if each.name == name), None)
    if reservation is not None:
        evidence |= _evidence(reservation, inquiry)
    return Finding(cause=Cause.RESERVATION, variant=Variant.OWN, evidence=evidence)


def blocking_reservation(inquiry: Inquiry) -> Finding | None:
    """Return the first reservation without whose nodes the job does not fit for its whole limit, and would otherwise.

    Slurm starts no job that can still run when others have reserved its nodes. One that is reserved now can be in use,
    so the job fits if it would on empty nodes. A reservation of parts of nodes is not judged.
    """
    table = inquiry.table
    opened = table.usable | inquiry.reserved
    if inquiry.job.reservation:
        return None
    if inquiry.fits_now_with(replace(table, usable=opened)):
        return _first_in_the_way(inquiry, replace(table, usable=opened))
    emptied = inquiry.emptied
    if inquiry.fits_now_with(replace(emptied, usable=opened)) and not inquiry.fits_now_with(emptied):
        return _first_in_the_way(inquiry, replace(emptied, usable=opened))
    return None


def _first_in_the_way(inquiry: Inquiry, table: NodeTable) -> Finding | None:
    """Return the first reservation without whose nodes the job does not fit on a table, where it fits with them."""
    job, now = inquiry.job, inquiry.snapshot.taken_at
    limit_s = np.inf if job.time_limit_s is None else job.time_limit_s
    in_the_way = [
        reservation
        for reservation in inquiry.particulars.reservations or ()
        if reservation.end_time > now and reservation.start_time < now + limit_s and _takes_nodes(inquiry, reservation)
    ]
    for count in range(1, len(in_the_way) + 1):
        usable = table.usable & ~_nodes(inquiry, in_the_way[:count])
        if not inquiry.fits_now_with(replace(table, usable=usable)):
            reservation = in_the_way[count - 1]
            evidence = _evidence(reservation, inquiry)
            if job.time_limit_s is not None:
                evidence["time_limit_s"] = job.time_limit_s
            if reservation.start_time > now:
                evidence["time_limit_that_fits_s"] = reservation.start_time - now
            return Finding(cause=Cause.RESERVATION, variant=Variant.BLOCKING, evidence=evidence)
    of_job = nodes_of_job(inquiry)
    theirs = of_job & inquiry.reserved
    if not theirs.any() or inquiry.fits_now_with(replace(table, usable=table.usable & ~inquiry.reserved)):
        return None
    # Of reservations that were not read, the state of the nodes tells.
    evidence = {"nodes_reserved": int(theirs.sum()), "nodes_of_job": int(of_job.sum())}
    return Finding(cause=Cause.RESERVATION, variant=Variant.BLOCKING, evidence=evidence)


def _evidence(reservation: Reservation, inquiry: Inquiry) -> dict[str, Evidence]:
    of_job = nodes_of_job(inquiry)
    theirs = _nodes(inquiry, [reservation]) & of_job
    return {
        "reservation": reservation.name,
        "start_time": reservation.start_time,
        "end_time": reservation.end_time,
        "nodes_reserved": int(theirs.sum()),
        "nodes_of_job": int(of_job.sum()),
        "is_maintenance": int(reservation.is_maintenance),
    }


def nodes_of_job(inquiry: Inquiry) -> Flags:
    """Return the nodes that a job can use: those of its partitions, or those that it insists on."""
    gang, nodes = inquiry.gang, inquiry.nodes
    if gang.required_nodes and not chooses_among_required(gang):
        required = np.zeros_like(nodes)
        required[rows_of(inquiry.table, gang.required_nodes)] = True
        nodes = nodes & required
    return nodes


def _nodes(inquiry: Inquiry, reservations: Iterable[Reservation]) -> Flags:
    taken: Flags = np.zeros_like(inquiry.table.usable)
    for reservation in reservations:
        taken[rows_of(inquiry.table, reservation.nodes)] = True
    return taken


def _takes_nodes(inquiry: Inquiry, reservation: Reservation) -> bool:
    """Return whether a reservation takes whole nodes that the job could use."""
    nodes = _nodes(inquiry, [reservation])
    is_whole = reservation.cpus is None or reservation.cpus >= int(inquiry.table.cpus_total[nodes].sum())
    return is_whole and bool((nodes & inquiry.nodes).any())
