"""Logs a round for administrators: what was changed, what was not and why, and what is new."""

from collections.abc import Collection, Hashable, Iterable, Mapping
from typing import Any, Final

from advisor.apply.step import Reconciled, Step
from advisor.domain.actions import Action
from advisor.domain.mode import Mode
from advisor.domain.plan import Outcome, Receipt, Recommendation
from advisor.metrics.round import Round
from advisor.view.overall import trial_fields
from advisor.view.sentences import sentence

# The number of rounds after which a persistent fault is logged again.
REMINDED_AFTER: Final = 60
_STRAYS_NAMED: Final = 20


class RoundLog:
    """Logs rounds; keeps only the state that it needs to find what is new."""

    def __init__(self, log: Any) -> None:
        """Take the log to write to."""
        self._log = log
        self._mode: Mode | None = None
        self._held_to: frozenset[str] = frozenset()
        self._put_off: frozenset[Hashable] = frozenset()
        self._counts: Hashable = None
        self._unfilled: frozenset[str] = frozenset()
        self._failed_rounds = 0
        self._fault = ""
        self._reader_fault = ""
        self._strays: frozenset[int] = frozenset()
        self._trial_fault = ""
        self._on_probation: frozenset[str] = frozenset()
        self._settings = ""

    def tell(self, done: Round, unfilled: Collection[str] = ()) -> None:
        """Log a round: one line for the round, and one for each action and each difference from the last round.

        `unfilled` names the metrics that could not be filled.
        """
        self._tell_mode(done)
        for fault in sorted(set(unfilled) - self._unfilled):
            self._log.warning("metrics not filled", fault=fault)
        self._unfilled = frozenset(unfilled)
        if done.step is None:
            self._tell_fault(done)
            self._tell_returned(done.returned)
            return
        if self._failed_rounds:
            self._log.info("rounds are done again", failed_rounds=self._failed_rounds)
            self._failed_rounds, self._fault = 0, ""
        self._tell_reader(done.step)
        self._tell_strays(done.strays)
        self._tell_trial(done.step)
        self._tell_probation(done.on_probation)
        self._tell_sent(done.step)
        self._tell_put_off(done.step)
        self._tell_counts(done, done.step)

    def _tell_mode(self, done: Round) -> None:
        if self._mode is not None and done.mode is not self._mode:
            self._log.info("mode changed", before=str(self._mode), after=str(done.mode))
        for name in sorted(done.held_to.keys() - self._held_to):
            self._log.warning("nothing is applied", by=name, why=done.held_to[name])
        for name in sorted(self._held_to - done.held_to.keys()):
            self._log.info("no longer kept from applying", by=name)
        self._mode, self._held_to = done.mode, frozenset(done.held_to)
        if done.settings != self._settings:
            self._log.warning("other settings in force", settings=done.settings or "those configured")
        self._settings = done.settings

    def _tell_fault(self, done: Round) -> None:
        again = done.fault == self._fault and self._failed_rounds % REMINDED_AFTER
        tell = self._log.debug if again else self._log.warning
        self._failed_rounds += 1
        self._fault = done.fault
        tell("round not done", fault=done.fault, failed_rounds=self._failed_rounds, next_in_s=done.interval_s)

    def _tell_strays(self, strays: tuple[int, ...]) -> None:
        """Log the jobs that carry our mark without a lease, when there are others than before."""
        if set(strays) - self._strays:
            self._log.warning(
                "pending jobs carry the mark of sadvise, and the journal knows no change of them: see `sadvise check`",
                jobs=len(strays),
                job_ids=",".join(map(str, strays[:_STRAYS_NAMED])),
            )
        self._strays = frozenset(strays)

    def _tell_trial(self, step: Step) -> None:
        """Log what rollouts found about a plan; a fault again only if another one came between."""
        trial = step.record.trial
        if trial.fault and trial.fault != self._trial_fault:
            self._log.warning("changes other than lifts are not sent", **trial_fields(trial))
        elif trial.effect is not None:
            self._log.info("plan tried", **trial_fields(trial))
        if trial.fault or trial.effect is not None:
            self._trial_fault = trial.fault

    def _tell_probation(self, on_probation: Mapping[str, str]) -> None:
        """Log once that the run times of a model are set aside, and once that plans count with others again."""
        for model in sorted(on_probation.keys() - self._on_probation):
            self._log.info("run times are set aside", model=model, why=on_probation[model])
        for model in sorted(self._on_probation - on_probation.keys()):
            self._log.info("run times are no longer set aside", model=model)
        self._on_probation = frozenset(on_probation)

    def _tell_reader(self, step: Step) -> None:
        """Log once that the preferred reader failed, and once that it reads again."""
        seen = step.record.snapshot
        if seen.reader_fault and seen.reader_fault != self._reader_fault:
            self._log.warning("the preferred reader failed", reader=seen.source, fault=seen.reader_fault)
        if self._reader_fault and not seen.reader_fault:
            self._log.info("the preferred reader is used again", reader=seen.source)
        self._reader_fault = seen.reader_fault

    def _tell_sent(self, step: Step) -> None:
        changes = {(change.job_id, change.action.lever): change for change in step.record.recommendations}
        users = step.record.snapshot.jobs_by_id
        for receipt in step.applied:
            change = changes.get((receipt.action.job_id, receipt.action.lever))
            job = users.get(receipt.action.job_id)
            about = {} if change is None else _why(change)
            self._tell_receipt("change", receipt, {**({} if job is None else {"user": job.user}), **about})
        self._tell_returned(step.reconciled)

    def _tell_returned(self, reconciled: Reconciled) -> None:
        for receipt in reconciled.taken_back:
            self._tell_receipt("take-back", receipt, {})
        for lease in reconciled.overruled:
            self._log.warning("somebody else changed the field: the job is left alone", **_action(lease.action))

    def _tell_receipt(self, what: str, receipt: Receipt, about: Mapping[str, object]) -> None:
        fields = {**_action(receipt.action), **about}
        match receipt.outcome:
            case Outcome.APPLIED:
                self._log.info(f"{what} applied", **fields)
            case Outcome.ALREADY_SO:
                self._log.info(f"{what} not needed", **fields)
            case Outcome.FAILED | Outcome.HELD_BACK:
                self._log.warning(f"{what} failed", **fields, fault=receipt.text)

    def _tell_put_off(self, step: Step) -> None:
        """Log what was held back; at info only what was not held back in the previous round."""
        keys: set[Hashable] = set()
        for what, put_off in (("change held back", step.held_back), ("take-back put off", step.reconciled.put_off)):
            for change in put_off:
                key = _key(what, change)
                keys.add(key)
                (self._log.debug if key in self._put_off else self._log.info)(
                    what, **_action(change.action), why=change.text
                )
        self._put_off = frozenset(keys)

    def _tell_counts(self, done: Round, step: Step) -> None:
        """Log the round in one line; at info only if something was done, or differs from the previous round."""
        proposed, judged = len(step.record.recommendations), len(step.record.judged)
        open_leases = sum(done.open_leases.values())
        did = bool(step.applied or step.reconciled.taken_back or step.reconciled.overruled)
        counts = (proposed, judged, len(step.held_back), open_leases)
        (self._log.info if did or counts != self._counts else self._log.debug)(
            "round",
            mode=str(done.mode),
            recommended=proposed,
            refused=judged - proposed,
            sent=len(step.applied),
            failed=_failed(step.applied),
            held_back=len(step.held_back),
            taken_back=len(step.reconciled.taken_back),
            open_leases=open_leases,
            duration_s=round(done.duration_s, 2),
            cpu_s=round(done.cpu_s, 2),
            next_in_s=done.interval_s,
        )
        self._counts = counts


def _failed(receipts: Iterable[Receipt]) -> int:
    return sum(1 for receipt in receipts if receipt.outcome is Outcome.FAILED)


def _key(what: str, put_off: Receipt) -> Hashable:
    """Return a key of a postponed change, without the figures in its reason, which differ between rounds."""
    return what, put_off.action.job_id, put_off.action.lever, put_off.text.partition(":")[0]


def _action(action: Action) -> dict[str, object]:
    return {
        "job_id": action.job_id,
        "lever": str(action.lever),
        "before": _shown(action.before),
        "after": _shown(action.after),
    }


def _why(change: Recommendation) -> dict[str, object]:
    expected = change.expected
    return {
        "kind": str(change.kind),
        "reason": str(change.reason),
        "saved_s": f"{expected.saved_s_low:.0f}..{expected.saved_s_high:.0f}",
        "added_delay_max_s": round(expected.added_delay_max_s),
        "text": sentence(change),
    }


def _shown(value: object) -> object:
    """Return a value of a field in as few characters as identify it."""
    match value:
        case None:
            return "none"
        case int() | float():
            return value
        case tuple():
            return ",".join(map(str, value))
        case _:
            return str(value)
