"""Changes jobs with scontrol, one field a line and many lines a process; squeue, not scontrol, tells the outcome.

Of an array it addresses the waiting tasks; `JobId=7` alone addresses those that run as well.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

from advisor.backends.commands import update_line
from advisor.backends.named_jobs import IDS_PER_COMMAND, UNREADABLE, hidden_ends, names_no_job, read_jobs
from advisor.backends.process import Commands, FedCommands, ask_text, printable, text_of
from advisor.backends.text_source import new_delimiter
from advisor.domain.actions import Action, SetNice, SetNodeRange
from advisor.domain.dataclass import dataclass
from advisor.domain.job import Job
from advisor.domain.mark import is_marked
from advisor.domain.plan import Outcome, Receipt
from advisor.errors import SlurmRefusedError

# These outcomes are not errors.
NOT_PENDING: Final = "the job is not pending"
CHANGED_MEANWHILE: Final = "somebody else has changed the field meanwhile"
ANOTHER_VALUE: Final = "read back another value than the one written"
NOT_A_WORD: Final = "its value is more than a word, which is not written to scontrol"
END_NOT_SHOWN: Final = "squeue shows one end of the node range, and its JSON does not tell the other: nothing was sent"
TOO_MANY_TASKS: Final = "it has too many waiting tasks to take the change back in one request: nothing was sent"

# A batch takes slurmctld less than a second, and scontrol less than its deadline where slurmctld is slow.
LINES_PER_COMMAND: Final = 500

# scontrol ends its message about a line with the job, and begins the one about the tasks of an array with them.
_OF_JOB: Final = re.compile(
    r"(?P<text>.*) for job (?P<job>\d{1,10})(?:_\S*)?|(?P<array>\d{1,10})(?:_\S*)?: (?P<reason>.*)"
)
# What 22.05 says of the tasks of an array that it did write to, where it objects to others.
_NO_ERROR: Final = ": No error"
_DENIED: Final = re.compile(r"permission denied|user not permitted|invalid user id", re.IGNORECASE)
_MAY_CHANGE: Final = "Slurm denies it: it takes the owner of the job, a coordinator of its account or an Operator"
# A scontrol without readline reads lines of up to 4,095 bytes.
LONGEST_LINE: Final = 4_000
# The kernel passes no argument of more than 128 KiB.
LONGEST_ADDRESS: Final = 100_000
# The id of the array and the brackets around its tasks.
_AROUND: Final = 16
# The id of the record, its task or tasks, and its nice; the last waiting task of an array has no brackets, or has.
_FORMAT: Final = "%A %i %y"
_ROW: Final = re.compile(
    r"(?P<job>\d{1,10}) (?P<array>\d{1,10})_\[?(?P<tasks>[\d,:-]+)(?:%\d{1,10})?\]? (?P<nice>-?\d{1,10})", re.ASCII
)
_SPAN: Final = re.compile(r"(\d{1,10})(?:-(\d{1,10}))?(?::(\d{1,10}))?", re.ASCII)
# Slurm's own limit of an array.
_MOST_TASKS: Final = 4_000_001


class ScontrolActuator:
    """An `Actuator` over `scontrol`; a batch of changes takes three processes, and one more if it has arrays.

    A nice is written to the waiting tasks of an array, not to those that run: they would keep it when requeued.

    Raises `SlurmUnavailableError` where slurmctld gives no answer: whether the changes took effect is unknown then.
    """

    def __init__(self, commands: FedCommands, *, delimiter: Callable[[], str] = new_delimiter) -> None:
        self._commands = commands
        self._delimiter = delimiter

    def apply(self, action: Action) -> Receipt:
        """Change one field of a pending job."""
        return self.apply_all((action,))[0]

    def apply_all(self, changes: Sequence[Action]) -> tuple[Receipt, ...]:
        """Change fields of pending jobs that still hold what the changes found, and read them back."""
        receipts: dict[int, Receipt] = {}
        for batch in _batches(changes):
            receipts |= self._apply_batch({number: changes[number] for number in batch})
        return tuple(receipts[number] for number in range(len(changes)))

    def hides_range_end(self, job_id: int) -> bool:
        """Return whether Slurm shows only one end of a job's node range; True also if that is not known."""
        return hidden_ends(self._commands, (job_id,)).get(job_id, True)

    def _apply_batch(self, changes: Mapping[int, Action]) -> dict[int, Receipt]:
        """Apply changes of different jobs, each by its number in the order asked for."""
        found = self._read(changes.values())
        receipts = self._not_to_be_sent(changes, found)
        named, unfit = self._addresses([change for number, change in changes.items() if number not in receipts], found)
        receipts |= {
            number: Receipt(action=change, outcome=Outcome.FAILED, text=unfit[change.job_id])
            for number, change in changes.items()
            if number not in receipts and change.job_id in unfit
        }
        sent = {number: change for number, change in changes.items() if number not in receipts}
        if not sent:
            return receipts
        objections = self._send(list(sent.values()), named)
        jobs = self._read(sent.values())
        unclear = [change for change in sent.values() if _end_could_be_hidden(jobs.get(change.job_id), change)]
        hidden = hidden_ends(self._commands, [change.job_id for change in unclear])
        return receipts | {
            number: _receipt(
                change, jobs.get(change.job_id), objections.get(change.job_id, ""), hidden.get(change.job_id, False)
            )
            for number, change in sent.items()
        }

    def _not_to_be_sent(self, changes: Mapping[int, Action], jobs: Mapping[int, Job]) -> dict[int, Receipt]:
        """Return the receipts of the changes that are not sent, by their number."""
        unclear = [
            change.job_id
            for change in changes.values()
            if (job := jobs.get(change.job_id)) is not None
            and change.held_by(job) not in (change.before, change.after)
            and change.can_hold(job, change.before)
        ]
        hidden = hidden_ends(self._commands, unclear)
        refused = ((number, _refusal(change, jobs.get(change.job_id), hidden)) for number, change in changes.items())
        return {number: receipt for number, receipt in refused if receipt is not None}

    def _addresses(
        self, changes: Sequence[Action], jobs: Mapping[int, Job]
    ) -> tuple[dict[int, tuple[str, ...]], dict[int, str]]:
        """Map the arrays whose nice changes to what scontrol calls their waiting tasks, or to why nothing is sent.

        A change of ours whose revert could ever take more than one request is not made; every revert is sent.
        """
        nices = [change for change in changes if isinstance(change, SetNice) and _is_array(jobs.get(change.job_id))]
        tasks = waiting_tasks(self._commands, [change.job_id for change in nices]) if nices else []
        named = {change.job_id: addresses(tasks, change.job_id, change.before) for change in nices}
        unfit = {job_id: NOT_PENDING for job_id, parts in named.items() if not parts}
        too_long = (
            change.job_id
            for change in nices
            if is_marked(change.after) > is_marked(change.before)
            and longest_address(tasks, change.job_id) > LONGEST_ADDRESS
        )
        return named, dict.fromkeys(too_long, TOO_MANY_TASKS) | unfit

    def _send(self, changes: Sequence[Action], named: Mapping[int, tuple[str, ...]]) -> dict[int, str]:
        """Send changes of different jobs, and map the jobs that Slurm objected to to its words.

        What is longer than a line goes as an argument, a process for each.
        """
        short: list[str] = []
        complaints: list[str] = []
        for change in changes:
            for address in named.get(change.job_id, (str(change.job_id),)):
                line = update_line(change, address)
                if line is not None and len(address) <= LONGEST_LINE:
                    short.append(line)
                elif line is not None:
                    complaints += self._sent_alone(change.job_id, line)
        if short:
            complaints += self._commands.feed("scontrol", short).split("\n")
        lines = [line for line in complaints if line.strip() and not line.endswith(_NO_ERROR)]
        if len(changes) == 1:
            return {changes[0].job_id: _in_words("; ".join(lines))} if lines else {}
        return dict(_objections(lines))

    def _sent_alone(self, job_id: int, line: str) -> list[str]:
        """Send a line as the arguments of a process, and return its messages, each about the job."""
        try:
            said = text_of(self._commands.ask("scontrol", *line.split(" ")).complaints)
        except SlurmRefusedError as err:
            said = str(err)
        return [f"{printable(text)} for job {job_id}" for text in said.split("\n") if text.strip()]

    def _read(self, actions: Iterable[Action]) -> dict[int, Job]:
        """Read the jobs of actions, as far as Slurm still knows them."""
        job_ids = {action.job_id for action in actions}
        return {job.job_id: job for job in read_jobs(self._commands, job_ids, self._delimiter)}


def _batches(changes: Sequence[Action]) -> Iterator[list[int]]:
    """Yield the numbers of changes that are sent together: never two of one job, which read and write in turn."""
    left = list(range(len(changes)))
    while left:
        first_of_job = {changes[number].job_id: number for number in reversed(left)}
        batch = sorted(first_of_job.values())[:LINES_PER_COMMAND]
        yield batch
        left = sorted(set(left) - set(batch))


def _refusal(change: Action, job: Job | None, hidden: Mapping[int, bool]) -> Receipt | None:
    """Return the receipt of a change that is not sent; None for one that is."""
    if job is None or not job.is_pending:
        return Receipt(action=change, outcome=Outcome.FAILED, text=NOT_PENDING)
    if job.unseen:
        return Receipt(action=change, outcome=Outcome.FAILED, text=UNREADABLE)
    if update_line(change) is None:
        return Receipt(action=change, outcome=Outcome.FAILED, text=NOT_A_WORD)
    held = change.held_by(job)
    if held == change.after:
        return Receipt(action=change, outcome=Outcome.ALREADY_SO)
    if held == change.before or hidden.get(job.job_id):
        return None
    if change.can_hold(job, change.before) and job.job_id not in hidden:
        return Receipt(action=change, outcome=Outcome.FAILED, text=END_NOT_SHOWN)
    return Receipt(action=change, outcome=Outcome.FAILED, text=CHANGED_MEANWHILE, is_overruled=True)


def _is_array(job: Job | None) -> bool:
    """Return whether a job is the record of an array, of which its id stands for all tasks."""
    return job is not None and job.array is not None and not job.is_split_off


def _receipt(change: Action, job: Job | None, objection: str, end_is_hidden: bool) -> Receipt:
    """Return the receipt of a change that was sent, from the job as read back."""
    settled = bool(objection)
    if job is None or not job.is_pending:
        # It could have taken effect just before the job started, which keeps the value when it is requeued.
        return Receipt(action=change, outcome=Outcome.FAILED, text=NOT_PENDING, is_settled=settled)
    if not job.unseen and (change.held_by(job) == change.after or (end_is_hidden and not objection)):
        return Receipt(action=change, outcome=Outcome.APPLIED)
    text = objection or (UNREADABLE if job.unseen else ANOTHER_VALUE)
    return Receipt(action=change, outcome=Outcome.FAILED, text=text, is_settled=settled)


def _end_could_be_hidden(job: Job | None, change: Action) -> bool:
    """Return whether a job could hold the new value of a node range, of which Slurm possibly shows but one end."""
    return (
        isinstance(change, SetNodeRange) and job is not None and job.is_pending and change.held_by(job) != change.after
    )


def _objections(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Yield the jobs that messages of scontrol are about, each with the message."""
    for line in lines:
        match = _OF_JOB.fullmatch(line)
        if match is not None:
            yield int(match["job"] or match["array"]), _in_words(line)


def _in_words(complaint: str) -> str:
    return _MAY_CHANGE if _DENIED.search(complaint) else printable(complaint)


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingTask:
    """A waiting task of an array, in the record `job_id`: that of the array, or its own once it was split off."""

    job_id: int
    array_job_id: int
    task_id: int
    nice: int


def waiting_tasks(commands: Commands, array_job_ids: Collection[int]) -> list[WaitingTask]:
    """Read the waiting tasks of arrays, each for itself.

    squeue merges an array with the tasks that were split off, unless it shows each task in a row (`-r`); then it leaves
    out the last task of an array in steps such as `0-100:2` (22.05 to 26.05). So the tasks of the record of an array
    are the merged ones without those split off. They are read first: a task can be split off in between.
    """
    wanted = sorted(set(array_job_ids))
    tasks: list[WaitingTask] = []
    for start in range(0, len(wanted), IDS_PER_COMMAND):
        ids = wanted[start : start + IDS_PER_COMMAND]
        merged, each = (list(_tasks(_rows(commands, ids, *options))) for options in ((), ("-r",)))
        split = [task for task in each if task.job_id != task.array_job_id]
        nices = {task.array_job_id: task.nice for task in each if task.job_id == task.array_job_id}
        own = {(task.array_job_id, task.task_id) for task in merged if task.array_job_id in nices}
        own -= {(task.array_job_id, task.task_id) for task in split}
        tasks += [
            WaitingTask(job_id=array, array_job_id=array, task_id=task_id, nice=nices[array])
            for array, task_id in sorted(own)
        ]
        tasks += split
    return tasks


def _rows(commands: Commands, job_ids: Iterable[int], *options: str) -> str:
    ids = ",".join(map(str, job_ids))
    try:
        return ask_text(commands, "squeue", "-h", "-a", *options, "-t", "PENDING", "-j", ids, "-o", _FORMAT)
    except SlurmRefusedError as err:
        if names_no_job(err):
            return ""
        raise


def addresses(tasks: Iterable[WaitingTask], array_job_id: int, nice: int) -> tuple[str, ...]:
    """Return what scontrol calls the waiting tasks of an array that hold a nice, such as `7_[4-9]`; empty without any.

    slurmctld writes to the record of an array as a whole where all its waiting tasks are named, and otherwise splits
    off each task that is. Tasks start but never join the record, so the list still names all of them when it arrives.
    A list longer than one request takes goes as several, of which all but the last split tasks off.
    """
    own = [task for task in tasks if task.array_job_id == array_job_id]
    if not any(task.job_id == array_job_id for task in own):
        return ()
    named = {task.task_id for task in own if task.job_id == array_job_id or task.nice == nice}
    return tuple(f"{array_job_id}_[{','.join(spans)}]" for spans in _parts(_spans(sorted(named))))


def longest_address(tasks: Iterable[WaitingTask], array_job_id: int) -> int:
    """Return the most bytes that the address of an array can take while its tasks start, or are changed one by one."""
    named = (task.task_id for task in tasks if task.array_job_id == array_job_id)
    return len(f"{array_job_id}_[]") + sum(len(f"{task_id},") for task_id in named)


def _parts(spans: Iterable[str]) -> Iterator[list[str]]:
    """Yield runs of tasks in parts, each of which one request takes."""
    part: list[str] = []
    length = 0
    for span in spans:
        if length + len(span) + 1 > LONGEST_ADDRESS - _AROUND:
            yield part
            part, length = [], 0
        part.append(span)
        length += len(span) + 1
    yield part


def _tasks(text: str) -> Iterator[WaitingTask]:
    for line in text.splitlines():
        match = _ROW.fullmatch(line.strip())
        if match is not None:
            job_id, array_job_id, nice = (int(match[name]) for name in ("job", "array", "nice"))
            for task_id in _ids(match["tasks"]):
                yield WaitingTask(job_id=job_id, array_job_id=array_job_id, task_id=task_id, nice=nice)


def _ids(text: str) -> Iterator[int]:
    """Yield the tasks of a list such as `0,4-6,10-20:2`."""
    for part in text.split(","):
        match = _SPAN.fullmatch(part)
        if match is not None:
            low, high, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
            yield from range(low, min(high, _MOST_TASKS) + 1, max(1, step))


def _spans(numbers: Sequence[int]) -> Iterator[str]:
    """Yield runs of numbers as `4-9` or `4`: scontrol takes no steps as in `0-8:2`."""
    start = 0
    for place in range(1, len(numbers) + 1):
        if place == len(numbers) or numbers[place] != numbers[place - 1] + 1:
            low, high = numbers[start], numbers[place - 1]
            yield str(low) if low == high else f"{low}-{high}"
            start = place
