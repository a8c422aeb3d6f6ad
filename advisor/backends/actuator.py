"""Changes jobs with scontrol, one field a call, and trusts squeue rather than scontrol for the outcome."""

import re
from collections.abc import Callable
from typing import Final

from advisor.backends.commands import apply_argv
from advisor.backends.process import Commands, printable, text_of
from advisor.backends.records import jobs_of
from advisor.backends.text_source import job_records, new_delimiter
from advisor.domain.actions import Action, Requeue, SetNodeRange
from advisor.domain.job import Job
from advisor.domain.plan import Outcome, Receipt
from advisor.errors import SlurmRefusedError

# These outcomes are not errors.
NOT_PENDING: Final = "the job is not pending"
NOT_RUNNING: Final = "the run to be stopped has ended"
CHANGED_MEANWHILE: Final = "somebody else has changed the field meanwhile"
ANOTHER_VALUE: Final = "read back another value than the one written"

_NO_SUCH_JOB: Final = re.compile(r"invalid job id", re.IGNORECASE)
# With both ends it is a range, such as 1-1.
_ONE_END: Final = re.compile(r" NumNodes=\d+ ")
_DENIED: Final = re.compile(r"permission denied|user not permitted|invalid user id", re.IGNORECASE)
_MAY_CHANGE: Final = "Slurm denies it: it takes the owner of the job, a coordinator of its account or an Operator"


class ScontrolActuator:
    """An `Actuator` over `scontrol`; each change costs slurmctld three requests for one job.

    Raises `SlurmUnavailableError` where slurmctld gives no answer: whether the change took effect is unknown then.
    """

    def __init__(self, commands: Commands, *, delimiter: Callable[[], str] = new_delimiter) -> None:
        self._commands = commands
        self._delimiter = delimiter

    def apply(self, action: Action) -> Receipt:
        """Change one field of a pending job that still holds what the action found, or stop a run, and read it back."""
        if isinstance(action, Requeue):
            return self._requeue(action)
        job = self._read(action.job_id)
        if job is None or not job.is_pending:
            return Receipt(action=action, outcome=Outcome.FAILED, text=NOT_PENDING)
        held = action.held_by(job)
        if held == action.after:
            return Receipt(action=action, outcome=Outcome.ALREADY_SO)
        if held != action.before and not (action.can_hold(job, action.before) and self.hides_range_end(job.job_id)):
            return Receipt(action=action, outcome=Outcome.FAILED, text=CHANGED_MEANWHILE, is_overruled=True)
        objection = self._send(action)
        job = self._read(action.job_id)
        if job is None or not job.is_pending:
            # It could have taken effect just before the job started, which keeps the value when it is requeued.
            return Receipt(action=action, outcome=Outcome.FAILED, text=NOT_PENDING, is_settled=bool(objection))
        if action.held_by(job) == action.after or (not objection and _upper_end_hidden(job, action)):
            return Receipt(action=action, outcome=Outcome.APPLIED)
        return Receipt(
            action=action, outcome=Outcome.FAILED, text=objection or ANOTHER_VALUE, is_settled=bool(objection)
        )

    def hides_range_end(self, job_id: int) -> bool:
        """Whether Slurm shows but one end of a job's node range, as `scontrol show job` tells and squeue does not."""
        shown = text_of(self._commands.ask("scontrol", "-o", "show", "job", str(job_id)).output)
        return _ONE_END.search(shown) is not None

    def _requeue(self, action: Requeue) -> Receipt:
        """Stop a job that is still in the run which the action found, and see that this run is over."""
        job = self._read(action.job_id)
        if job is None or action.held_by(job) != action.before:
            return Receipt(action=action, outcome=Outcome.FAILED, text=NOT_RUNNING)
        objection = self._send(action)
        job = self._read(action.job_id)
        if job is None:
            return Receipt(action=action, outcome=Outcome.FAILED, text=NOT_RUNNING)
        # While its processes end it counts as completing, and it can soon be in a later run.
        if action.held_by(job) == action.before:
            return Receipt(action=action, outcome=Outcome.FAILED, text=objection or "it still runs")
        return Receipt(action=action, outcome=Outcome.APPLIED)

    def _send(self, action: Action) -> str:
        """Run the command, and return Slurm's objection."""
        program, *arguments = apply_argv(action)
        try:
            return printable(text_of(self._commands.ask(program, *arguments).complaints))
        except SlurmRefusedError as err:
            complaint = str(err)
            return _MAY_CHANGE if _DENIED.search(complaint) else printable(complaint)

    def _read(self, job_id: int) -> Job | None:
        """Read one job; None where Slurm no longer knows it."""
        try:
            records = job_records(self._commands, self._delimiter(), "-j", str(job_id))
        except SlurmRefusedError as err:
            if _NO_SUCH_JOB.search(str(err)):
                return None
            raise
        jobs = jobs_of(records, ())
        return next((job for job in jobs if job.job_id == job_id), None)


def _upper_end_hidden(job: Job, action: Action) -> bool:
    """Whether the most nodes that a job accepts cannot be read, so that scontrol's word has to do.

    From 24.11 on a restarted slurmctld keeps to the upper end of a range, but shows the lower one in its place.
    """
    return isinstance(action, SetNodeRange) and job.gang.nodes_min == action.after.low == job.gang.nodes_max
