"""Shared by `apply` and `revert`: opens the applier, and publishes what was done."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from advisor.apply.applier import Applier, Wanted
from advisor.apply.gate import OpenGate
from advisor.apply.step import Reconciled
from advisor.backends.actuator import CHANGED_MEANWHILE, NOT_PENDING, NOT_RUNNING, ScontrolActuator
from advisor.backends.commands import apply_argv
from advisor.backends.named_jobs import NamedJobs
from advisor.backends.process import SlurmCommands
from advisor.backends.site_reader import SiteReader
from advisor.backends.sources import chosen_cluster
from advisor.clock import SystemClock
from advisor.daemon.plan_trials import trials_by
from advisor.daemon.rights import rights
from advisor.daemon.site_gate import RoundDeadline, SiteGate
from advisor.domain.actions import Action
from advisor.domain.lease import Lease
from advisor.domain.mode import EVERYTHING
from advisor.domain.plan import Outcome, Receipt, Recommendation
from advisor.domain.units import plural
from advisor.errors import SlurmRefusedError
from advisor.journal import opened, opened_full
from advisor.planning.observing import observed
from advisor.view.documents import shell
from advisor.watch.reading import Reading, journal_file

# How long to wait for a round of the daemon, or another command, to release the journal.
LOCK_WAIT_S: Final = 15.0
COLUMNS = ("job_id", "lever", "done", "outcome", "text", "command")


@contextmanager
def live_applier(
    reading: Reading, journal: Path | None, wanted: Wanted | None = None, *, gated: bool = True, full: bool = False
) -> Iterator[Applier]:
    """Open an applier on the cluster that the options name, with the journal under its lock.

    What a person reverts is not `gated`: it is sent in a pause, too. A `full` journal can only revert.
    """
    settings = reading.load_config()
    timeout_s = reading.timeout_of(settings)
    commands = SlurmCommands(timeout_s=timeout_s, cluster=chosen_cluster(reading.cluster, os.environ))
    gate = SiteGate(
        runtime_folder=Path(settings.daemon.runtime_folder),
        modes=EVERYTHING,
        patience=RoundDeadline(),
        checks=rights(commands),
    )
    file = journal_file(settings, journal)
    with opened_full(file, wait_s=LOCK_WAIT_S) if full else opened(file, wait_s=LOCK_WAIT_S) as held:
        yield Applier(
            source=reading.open(settings),
            actuator=ScontrolActuator(commands),
            cycle=replace(reading.cycle(settings), trial=trials_by(settings.planning)),
            named=NamedJobs(commands, SystemClock(), SiteReader(commands, SystemClock())),
            journal=held,
            observe=observed,
            wanted=wanted,
            gate=gate if gated else OpenGate(),
        )


def receipt_row(done: str, receipt: Receipt, cluster: str | None) -> dict[str, Any]:
    """Return the receipt of a change that was sent, as published."""
    return {**_row(done, receipt.action, cluster), "outcome": str(receipt.outcome), "text": receipt.text}


def refused_row(change: Recommendation, cluster: str | None) -> dict[str, Any]:
    """Return a change that a rule of ours refused, as published."""
    return {**_row("refused", change.action, cluster), "text": change.refused_by}


def put_off_row(done: str, put_off: Receipt, cluster: str | None) -> dict[str, Any]:
    """Return a change that must not be sent now, as published."""
    return {**_row(done, put_off.action, cluster), "text": put_off.text}


def lease_row(done: str, lease: Lease, text: str, cluster: str | None) -> dict[str, Any]:
    """Return a change that was left as it is, as published, with the command that would revert it, if any."""
    row = {**_row(done, lease.undo, cluster), "text": text}
    return row if lease.action.can_be_undone else {**row, "command": None}


def reconciled_rows(reconciled: Reconciled, cluster: str | None) -> list[dict[str, Any]]:
    """Return the changes that were reverted, overruled or postponed, as published."""
    return [
        *(receipt_row("taken_back", receipt, cluster) for receipt in reconciled.taken_back),
        *(lease_row("hands_off", lease, CHANGED_MEANWHILE, cluster) for lease in reconciled.overruled),
        *(put_off_row("put_off", change, cluster) for change in reconciled.put_off),
    ]


def fields_of(row: dict[str, Any]) -> list[str]:
    """Return a published change as the fields of a line."""
    return [shell(row[name] or []) if name == "command" else str(row[name] or "") for name in COLUMNS]


def raise_if_refused(receipts: Iterable[Receipt]) -> None:
    """Raise `SlurmRefusedError` if Slurm refused a change, unless the job started or was changed meanwhile."""
    sent = list(receipts)
    refused = [
        receipt
        for receipt in sent
        if receipt.outcome is Outcome.FAILED and receipt.text not in (NOT_PENDING, NOT_RUNNING, CHANGED_MEANWHILE)
    ]
    if refused:
        raise SlurmRefusedError(
            f"{len(refused)} of {plural(len(sent), 'change')} failed, the first on job "
            f"{refused[0].action.job_id}: {refused[0].text}"
        )


def _row(done: str, action: Action, cluster: str | None) -> dict[str, Any]:
    values = asdict(action)
    return {
        "job_id": action.job_id,
        "lever": str(action.lever),
        "done": done,
        "outcome": None,
        "text": "",
        "before": values["before"],
        "after": values["after"],
        "command": apply_argv(action, cluster),
    }
