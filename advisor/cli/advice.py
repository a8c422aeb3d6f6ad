"""What `recommend` prints: the changes of a plan, those that save most first, what it left out, and its simulation."""

from collections.abc import Mapping, Sequence
from functools import cached_property

from rich.text import Text

from advisor.cli.filters import JobFilter
from advisor.config import Config
from advisor.cycle import CycleRecord
from advisor.diagnose.survey import overview
from advisor.diagnose.unused import why_unused
from advisor.domain.dataclass import dataclass
from advisor.domain.plan import Recommendation
from advisor.domain.probation import NOTHING_PROVEN
from advisor.domain.units import duration, plural
from advisor.planning.case import Case
from advisor.planning.levers import missing_by_lever
from advisor.planning.plan_trial import TRIED, PlanTrial
from advisor.planning.rollout import PlanEffect
from advisor.text import escaped
from advisor.view.breaker_words import probation_values, stop_document, stop_line
from advisor.view.documents import (
    SCHEMA,
    ChangeDocument,
    SkippedDocument,
    by_gain,
    change_document,
    cluster_values,
    in_words,
    meta,
    rules_in_words,
    saving_in_words,
    shell,
    short_fields,
    skipped,
    skipped_by_rule,
)
from advisor.view.overall import COLUMNS, FORM, mean_change_in_words, total, total_sentence, trial_lines
from advisor.view.rule_words import rule_line
from advisor.view.terminal import LABEL, console, print_labelled, print_overview, print_table
from advisor.watch.planned import Planned


def trial_of(record: CycleRecord, config: Config) -> PlanTrial:
    """Return the trial of a plan; one that was not tried, as lifts alone are not, is tried now, without a deadline."""
    from advisor.sim.live.rollout_trial import RolloutTrial

    if record.trial.effect is not None:
        return record.trial
    case = Case(snapshot=record.snapshot, forecasts=record.forecasts.counted, settings=config.planning)
    return RolloutTrial().tried(case, record.judged)


def print_trial(trial: PlanTrial) -> None:
    """Print what a plan changes for all jobs together, each change alone, and what the simulation leaves out."""
    if trial.effect is not None:
        _print_effect(trial.effect)
    if trial.fault:
        print_labelled("rollout", trial.fault, width=9)
    for line in trial_lines(trial):
        print_labelled("tried", line, width=9)
    for sentence in trial.effect.left_out if trial.effect is not None else ():
        print_labelled("not in it", sentence, width=11)


def _print_effect(effect: PlanEffect) -> None:
    verdict = "" if effect.gains else "; not a clear gain"
    print_labelled(
        "rollout",
        f"all that goes out together, simulated for {duration(effect.horizon_s)} under {effect.draws} draws: mean "
        f"completion of {effect.jobs} jobs {mean_change_in_words(effect.completion_s)}, mean wait of {effect.waiting} "
        f"waiting ones {mean_change_in_words(effect.wait_s)}; {effect.sooner} start sooner, {effect.later} "
        f"later{verdict}",
        width=9,
    )


@dataclass(frozen=True, kw_only=True)
class Advice:
    """The plan of a cycle as far as the filters and `--top` show it; `source` is where the snapshot was read from.

    `named` is the cluster that the commands name. `trial` is the plan's own rollout, if it was asked for.
    """

    planned: Planned
    settings: Config
    source: str
    wanted: JobFilter
    top: int | None
    named: str | None
    policy: str | None
    trial: PlanTrial | None

    @property
    def record(self) -> CycleRecord:
        """Return the cycle."""
        return self.planned.record

    @cached_property
    def kept(self) -> tuple[Recommendation, ...]:
        """Return the changes that the filters keep, those that save most first."""
        seen = self.record.snapshot
        return tuple(
            by_gain(
                change
                for change in self.record.recommendations
                if self.wanted.keeps(seen.jobs_by_id[change.job_id], seen)
            )
        )

    @cached_property
    def shown(self) -> tuple[Recommendation, ...]:
        """Return the changes that are printed."""
        return self.kept[: self.top]

    @cached_property
    def rows(self) -> list[ChangeDocument]:
        """Return the changes as published."""
        seen = self.record.snapshot
        return [change_document(change, seen, self.named) for change in self.shown]

    @cached_property
    def left_alone(self) -> list[SkippedDocument]:
        """Return the jobs that a rule leaves alone, as published."""
        seen = self.record.snapshot
        return [job for job in skipped(self.record) if self.wanted.keeps(seen.jobs_by_id[job.job_id], seen)]

    @cached_property
    def case(self) -> Case:
        """Return what the plan was made from."""
        return self.record.case_with(self.settings.planning, self.settings.guard)

    @cached_property
    def unused(self) -> Mapping[str, str]:
        """Map the kinds of change of which the plan holds none to why."""
        return {str(kind): text for kind, text in why_unused(self.case, self.record.judged).items()}


def document(advice: Advice) -> dict[str, object]:
    """Return advice as published."""
    planned, record = advice.planned, advice.record
    trust = record.memory.trust or NOTHING_PROVEN
    return {
        "meta": meta(record.snapshot, SCHEMA, advice.source),
        "cluster": cluster_values(overview(record.snapshot)),
        "forecasts": {
            "models": list(record.forecasts.models),
            "notes": list(record.forecasts.notes),
            "on_probation": probation_values(record.forecasts.on_probation, planned.proofs, trust),
        },
        "paused": planned.pause,
        "stops": [stop_document(breaker) for breaker in planned.remembered.stops],
        **({} if advice.policy is None else {"policy": {"name": advice.policy, "fault": record.policy_fault or None}}),
        **({} if advice.trial is None else {"rollout": advice.trial}),
        "recommendations": advice.rows,
        "total": total(advice.shown),
        "skipped": advice.left_alone,
        "unused": advice.unused,
    }


def print_advice(advice: Advice, *, long: bool, noheader: bool) -> None:
    """Print advice for people: the state of the cluster, the changes, their total, and notes on what was left out."""
    if not noheader:
        print_overview(advice.record.snapshot, overview(advice.record.snapshot), advice.source, long=long)
    print_stops(advice.planned)
    if advice.rows:
        console().print()
    if long:
        for number, row in enumerate(advice.rows, start=1):
            print_story(number, row, advice.record)
    elif advice.rows:
        print_table(COLUMNS, [short_fields(row) for row in advice.rows], right=(0,), form=FORM, noheader=noheader)
    _print_total(advice, long=long)
    _print_notes(advice, long=long)
    _print_probation(advice)
    _print_rest(advice)


def print_story(number: int, row: ChangeDocument, record: CycleRecord) -> None:
    """Print one change with its reason, its gain, and the commands that make and revert it."""
    out = console()
    job = record.snapshot.jobs_by_id[row.job_id]
    after_s = row.expected.revert_after_s
    when = "" if after_s is None else f"   # due {duration(after_s)} after the change, if it has not started"
    heading = f"{number}. {row.kind} job {row.job_id}"
    values = f"{in_words(row.lever, row.before)} -> {in_words(row.lever, row.after)}"
    change = f"  {escaped(job.name)}, user {escaped(job.user)}: {values}"
    out.print(Text.assemble((heading, "bold"), change), soft_wrap=True)
    print_labelled("why", f"{row.text} ({row.reason})", indent=3)
    print_labelled("gain", saving_in_words(row.expected), indent=3)
    print_labelled("assumes", row.expected.assumes, indent=3)
    # Not wrapped or cut: these lines are meant to be copied.
    out.print(Text(f"   apply   {shell(row.command)}"), soft_wrap=True)
    out.print(Text(f"   revert  {shell(row.revert)}{when}"), soft_wrap=True)
    out.print()


def print_stops(planned: Planned) -> None:
    """Print what keeps the daemon from applying changes."""
    if planned.pause is not None:
        from advisor.site.status_words import pause_line

        print_labelled("stopped", pause_line(planned.pause))
    for breaker in planned.remembered.stops:
        print_labelled("stopped", f"{breaker.name}: {stop_line(breaker)}")


def _print_total(advice: Advice, *, long: bool) -> None:
    """Print what the changes come to, and what to type next."""
    out = console()
    if not long:
        out.print()
    if not advice.shown:
        out.print("Nothing to recommend.")
        return
    left_out = len(advice.kept) - len(advice.shown)
    print_labelled("total", total_sentence(total(advice.shown), left_out=left_out), width=LABEL)
    if long:
        reminder = "These commands change pending jobs. Once a job has started there is nothing to revert."
        print_labelled("note", reminder, width=LABEL)
    else:
        on = "" if advice.named is None else f" -M {advice.named}"
        steps = f"`sadvise recommend --long{on}` shows why, and each command. `sadvise apply{on}` makes the changes."
        print_labelled("next", steps, width=LABEL)


def _print_notes(advice: Advice, *, long: bool) -> None:
    """Print what the plan could not use, which models it rests on, and which jobs it left alone or did not reach."""
    record, settings = advice.record, advice.settings
    missing = sorted(missing_by_lever(record.snapshot).items())
    for note in record.forecasts.notes:
        print_labelled("refused", f"{note}; rules serve instead", width=LABEL)
    # Where there is no change, the reasons are what a reader came for.
    if advice.shown and not long:
        _print_counts(advice, len(missing))
    else:
        for lever, text in missing:
            print_labelled("no lever", f"{lever}: {text}", width=LABEL)
        if record.forecasts.counted.models:
            print_labelled("forecasts", f"by {', '.join(record.forecasts.counted.models)}", width=LABEL)
        if advice.left_alone and not long:
            print_labelled("left alone", rules_in_words(advice.left_alone), width=LABEL)
        for rule, count in skipped_by_rule(advice.left_alone).items() if long else ():
            print_labelled("left alone", rule_line(rule, count, settings.guard, settings.planning), width=LABEL)
    for text in _not_planned(advice.case, record):
        print_labelled("not planned", text, width=LABEL)
    for kind, text in advice.unused.items():
        print_labelled("unused", f"{kind}: {text}", width=LABEL)


def _print_counts(advice: Advice, missing: int) -> None:
    """Print how much `--long` tells beyond the changes: what was not read, what the site lacks, jobs left alone."""
    unread, alone = len(advice.record.snapshot.unread), len(advice.left_alone)
    counts = [
        *([f"{plural(alone, 'job')} left alone"] if alone else []),
        *([f"{plural(missing, 'lever')} this site lacks"] if missing else []),
        *([f"{plural(unread, 'gap')} in what was read"] if unread else []),
    ]
    if counts:
        print_labelled("with --long", ", ".join(counts), width=LABEL)


def _not_planned(case: Case, record: CycleRecord) -> Sequence[str]:
    """Return how much was not planned: jobs beyond the depth, and changes that were not simulated in time."""
    found = []
    beyond = len(case.whole_queue.jobs) - len(case.queue.jobs)
    if beyond:
        depth = f"the first {case.settings.depth} of their line (planning.depth)"
        found.append(f"{plural(beyond, 'GPU job')} behind {depth}: these can only be moved ahead")
    late = sum(change.refused_by == TRIED for change in record.judged)
    if late:
        bound = f"{duration(case.settings.rollout_deadline_s)} (planning.rollout_deadline_s)"
        found.append(f"{plural(late, 'change')}: {record.trial.fault or f'not simulated within {bound}'}")
    return found


def _print_probation(advice: Advice) -> None:
    """Print which models are on probation, and how far their proof is."""
    planned = advice.planned
    if not planned.record.forecasts.on_probation:
        return
    from advisor.site.round_state import why_on_probation

    for model in planned.record.forecasts.on_probation:
        line = why_on_probation(model, planned.proofs, planned.record.memory.trust, advice.settings)
        print_labelled("probation", line, width=LABEL)


def _print_rest(advice: Advice) -> None:
    """Print what a simulation of the plan, a learned policy and the journal add."""
    planned = advice.planned
    if advice.trial is not None:
        print_trial(advice.trial)
    if advice.policy is not None:
        print_labelled("policy", advice.policy, width=LABEL)
    if planned.record.policy_fault:
        print_labelled("refused", f"{planned.record.policy_fault}; rules serve instead", width=LABEL)
    if planned.remembered.is_broken:
        print_labelled("journal", planned.remembered.note, width=LABEL)
