"""The documents about advice, from which JSON, columns, pages and the API are made."""

import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, fields, replace
from typing import TYPE_CHECKING, TypeVar

from advisor import __version__
from advisor.backends.commands import apply_argv, revert_argv
from advisor.cycle import CycleRecord
from advisor.domain.actions import ACTIONS, Action, Lever, Published, exchanged_with
from advisor.domain.dataclass import dataclass
from advisor.domain.overview import Overview
from advisor.domain.plan import Recommendation
from advisor.domain.snapshot import Snapshot
from advisor.domain.units import gain, plural
from advisor.planning.timers import TimerOut
from advisor.view.overall import COLUMNS, OthersDocument, change_in_short, cost_in_words, cost_to_others, total
from advisor.view.sentences import assumption, sentence, timer_out_sentence

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

SCHEMA = "sadvise.recommend/1"
_Document = TypeVar("_Document", bound="DataclassInstance")


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaDocument:
    """What answered, and which state of which cluster the answer is about."""

    tool: str
    version: str
    schema: str
    slurm: str | None
    cluster: str | None
    source: str
    taken_at: float
    unread: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectDocument:
    """What a change is expected to save and to cost; `jct_saved_s` holds the low and the high end."""

    jct_saved_s: tuple[float, float]
    jct_saved_expected_s: float
    jobs_helped: int
    added_delay_max_s: float
    others: OthersDocument
    revert_after_s: float | None
    assumes: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeDocument:
    """A recommendation as published; `job_ids` are the jobs whose fields are set together."""

    job_id: int
    kind: str
    lever: str
    before: Published
    after: Published
    reason: str
    text: str
    expected: EffectDocument
    evidence: Mapping[str, object]
    command: list[str]
    revert: list[str]
    job_ids: list[int]
    name: str
    user: str
    account: str
    partition: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerDocument:
    """A timer that is out: how close to each other it waits for the GPUs of a job to be, since when and until when."""

    tier: str
    began_time: float
    ends_time: float
    text: str
    evidence: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedDocument:
    """A job that is left alone, and the rule that decides it."""

    job_id: int
    rule: str


def document_of(kind: type[_Document], value: object, **facts: object) -> _Document:
    """Return a document whose fields are those of a value of the same names, beside the facts that are given."""
    own = {field.name: getattr(value, field.name) for field in fields(kind) if field.name not in facts}
    return kind(**own, **facts)


def meta(snapshot: Snapshot, schema: str, source: str) -> MetaDocument:
    """Return the `meta` table that every JSON output opens with; `source` is where the snapshot was read from."""
    return MetaDocument(
        tool="sadvise",
        version=__version__,
        schema=schema,
        slurm=snapshot.config.slurm_version or None,
        cluster=snapshot.config.cluster or None,
        source=source,
        taken_at=snapshot.taken_at,
        unread=tuple(snapshot.unread),
    )


def job_ids(action: Action) -> list[int]:
    """Return the jobs whose fields a change sets together."""
    other = exchanged_with(action)
    return [action.job_id] if other is None else [action.job_id, other]


def change_document(change: Recommendation, snapshot: Snapshot, cluster: str | None) -> ChangeDocument:
    """Return one recommendation as published; `cluster` is the one that its commands name with -M."""
    before, after = change.action.published()
    expected, others = change.expected, cost_to_others(change)
    job = snapshot.jobs_by_id[change.job_id]
    return ChangeDocument(
        job_id=change.job_id,
        kind=str(change.kind),
        lever=str(change.action.lever),
        before=before,
        after=after,
        reason=str(change.reason),
        text=sentence(change),
        expected=EffectDocument(
            jct_saved_s=(round(expected.saved_s_low, 1), round(expected.saved_s_high, 1)),
            jct_saved_expected_s=round(expected.saved_s, 1),
            jobs_helped=expected.jobs_helped,
            added_delay_max_s=round(expected.added_delay_max_s, 1),
            others=replace(others, delay_s_max=None if others.delay_s_max is None else round(others.delay_s_max, 1)),
            revert_after_s=None if change.revert_after_s is None else round(change.revert_after_s, 1),
            assumes=assumption(change),
        ),
        evidence=change.evidence,
        command=apply_argv(change.action, cluster),
        revert=revert_argv(change.action, cluster),
        job_ids=job_ids(change.action),
        name=job.name,
        user=job.user,
        account=job.account,
        partition=",".join(job.partitions),
    )


def timer_document(out: TimerOut) -> TimerDocument:
    """Return a timer that is out as published."""
    return TimerDocument(
        tier="leaf" if out.nodes is None else "node",
        began_time=out.began_time,
        ends_time=out.ends_time,
        text=timer_out_sentence(out),
        evidence={"timer_s": out.length_s} if out.timer is None else out.timer.evidence,
    )


def in_words(lever: str, value: Published) -> str:
    """Return the published `before` or `after` of a lever for people: `nice 0`, `1-4 nodes`."""
    return ACTIONS[Lever(lever)].in_words(value)


def saving_in_words(expected: EffectDocument) -> str:
    """Return the expected saving for people."""
    helped = expected.jobs_helped
    over = plural(helped, "job") if helped else "jobs that other changes help too"
    return f"{saves_in_words(expected)} of job completion time over {over}"


def saves_in_words(expected: EffectDocument) -> str:
    """Return the expected saving in short, with its range: `9.0 h (-0.4 to 41.4)`."""
    return gain(expected.jct_saved_expected_s, *expected.jct_saved_s)


def cluster_values(overview: Overview) -> dict[str, object]:
    """Return the state of the cluster as published."""
    document = asdict(overview)
    for gpus, values in zip(overview.gpu_types, document["gpu_types"], strict=True):
        if gpus.idle is not None:
            values["idle"]["total"] = gpus.idle.total
    return document


def skipped(record: CycleRecord) -> list[SkippedDocument]:
    """Return the jobs left alone with the rule that decides it, by job id."""
    rules = dict(record.left_alone)
    for change in record.judged:
        if change.refused_by is not None:
            rules.setdefault(change.job_id, change.refused_by)
    return [SkippedDocument(job_id=job_id, rule=rule) for job_id, rule in sorted(rules.items())]


def skipped_by_rule(jobs: Iterable[SkippedDocument]) -> Mapping[str, int]:
    """Count the jobs left alone by rule, most first."""
    return dict(sorted(Counter(job.rule for job in jobs).items(), key=lambda item: (-item[1], item[0])))


def rules_in_words(jobs: Iterable[SkippedDocument]) -> str:
    """Return how many jobs each rule leaves alone, and where the rules are explained."""
    counts = ", ".join(f"{count} {rule}" for rule, count in skipped_by_rule(jobs).items())
    return f"{counts} (rules: docs/reasons.md)"


def shell(argv: list[str]) -> str:
    """Return a command line that a shell runs as the argv stands."""
    return shlex.join(argv)


FIELDS: Mapping[str, Callable[[ChangeDocument], str]] = {
    "job_id": lambda row: str(row.job_id),
    "kind": lambda row: row.kind,
    "lever": lambda row: row.lever,
    "before": lambda row: in_words(row.lever, row.before),
    "after": lambda row: in_words(row.lever, row.after),
    "reason": lambda row: row.reason,
    "saved_s_low": lambda row: f"{row.expected.jct_saved_s[0]:.0f}",
    "saved_s_high": lambda row: f"{row.expected.jct_saved_s[1]:.0f}",
    "added_delay_max_s": lambda row: f"{row.expected.added_delay_max_s:.0f}",
    "revert_after_s": lambda row: _known(row.expected.revert_after_s),
    "command": lambda row: shell(row.command),
    "revert": lambda row: shell(row.revert),
    "text": lambda row: row.text,
    "name": lambda row: row.name,
    "user": lambda row: row.user,
    "account": lambda row: row.account,
    "partition": lambda row: row.partition,
    "job_ids": lambda row: ",".join(map(str, row.job_ids)),
    "others_delayed": lambda row: _known(row.expected.others.jobs),
    "others_delay_max_s": lambda row: _known(row.expected.others.delay_s_max),
    "saved_s": lambda row: f"{row.expected.jct_saved_expected_s:.0f}",
}


def _known(number: float | None) -> str:
    return "" if number is None else f"{number:.0f}"


def by_gain(changes: Iterable[Recommendation]) -> list[Recommendation]:
    """Return recommendations, those that should save most first; ties by job id."""
    return sorted(changes, key=lambda change: (-total([change]).saved_s, change.job_id))


def short_fields(row: ChangeDocument) -> list[str]:
    """Return a published recommendation as the fields of one line, in the order of `COLUMNS`."""
    others = row.expected.others
    own = {
        "job": str(row.job_id),
        "change": change_in_short(in_words(row.lever, row.before), in_words(row.lever, row.after)),
        "saves": saves_in_words(row.expected),
        "others wait": cost_in_words(others.jobs, others.delay_s_max),
    }
    return [own[name] if name in own else FIELDS[name](row) for name in COLUMNS]
