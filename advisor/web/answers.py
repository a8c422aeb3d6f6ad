"""Defines the answers of the JSON API; their schemas are made from these types.

Times are in seconds since the epoch, lengths of time in seconds.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from typing_extensions import TypedDict

from advisor.domain.overview import Overview
from advisor.view.explanations import Explanation
from advisor.watch.cluster_view import NodeUse, WaitingJob
from advisor.web.content import ModelRow
from advisor.web.frontier_file import TunedFrontier
from advisor.web.served_clusters import ClusterSummary


class Meta(TypedDict):
    """What answered, and which state of which cluster the answer is about."""

    tool: str
    version: str
    schema: str
    slurm: str | None
    cluster: str | None
    source: str
    taken_at: float
    unread: list[str]


class CostToOthersDocument(TypedDict):
    """How many other jobs a change delays, and each by how much at worst; null where that is not known."""

    jobs: int | None
    delay_s_max: float | None


class ExpectedEffect(TypedDict):
    """What a change is expected to save and to cost."""

    jct_saved_s: list[float]
    jct_saved_expected_s: float
    jobs_helped: int
    added_delay_max_s: float
    others: CostToOthersDocument
    revert_after_s: float | None
    assumes: str


class AdvisedChange(TypedDict):
    """A recommendation as `sadvise recommend --json` prints it."""

    job_id: int
    job_ids: list[int]
    name: str
    user: str
    account: str
    partition: str
    kind: str
    lever: str
    before: Any
    after: Any
    reason: str
    text: str
    expected: ExpectedEffect
    evidence: Mapping[str, Any]
    command: list[str]
    revert: list[str] | None


class ChangeInEffect(TypedDict):
    """A change of sadvise that a pending job holds; it is not reverted where `due_time` is null."""

    job_id: int
    user: str
    account: str
    lever: str
    before: Any
    after: Any
    reason: str | None
    text: str | None
    applied_time: float
    due_time: float | None
    added_delay_max_s: float


class IntervalDocument(TypedDict):
    """An interval with its median."""

    low: float
    median: float
    high: float


class WaitsCompared(TypedDict):
    """Waits with advice and on plain Slurm, in all; `is_known` is whether the sign of the difference is certain."""

    jobs: int
    waited_s: float
    plain_s: IntervalDocument
    difference_s: IntervalDocument
    is_known: bool


class DaemonStatusDocument(TypedDict):
    """The state of the daemon as `sadvise status --json` prints it."""

    state: str
    is_well: bool
    mode: Mapping[str, str | None]
    paused: Mapping[str, Any] | None
    breakers: list[Mapping[str, Any]]
    stopped_by: list[str]
    last_round: Mapping[str, Any] | None
    out: int | None
    next_take_back_time: float | None
    last_24_h: WaitsCompared | None
    idle_reason: str | None
    notes: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterAnswer:
    """GPUs by type, nodes with what is in use, and counts of jobs."""

    meta: Meta
    cluster: Overview
    nodes: tuple[NodeUse, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClustersAnswer:
    """Every cluster that is served, in a line."""

    clusters: tuple[ClusterSummary, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LineAnswer:
    """A page of the pending GPU jobs; `matching` jobs are on all `pages`."""

    meta: Meta
    page: int
    pages: int
    matching: int
    jobs: tuple[WaitingJob, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceAnswer:
    """What is recommended, the largest expected gain first, and the jobs that a rule leaves alone."""

    meta: Meta
    recommendations: tuple[AdvisedChange, ...]
    skipped: list[dict[str, int | str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangesAnswer:
    """The changes in effect, newest first."""

    meta: Meta
    changes: tuple[ChangeInEffect, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DayGain:
    """The waits of a day in local time (YYYY-MM-DD)."""

    day: str
    waits: WaitsCompared


@dataclass(frozen=True, slots=True, kw_only=True)
class UserGain:
    """The waits of a user."""

    user: str
    waits: WaitsCompared


@dataclass(frozen=True, slots=True, kw_only=True)
class GainsAnswer:
    """The waits with advice beside those on plain Slurm; `total` is null where nothing was compared."""

    since: float | None
    until: float | None
    total: WaitsCompared | None
    days: tuple[DayGain, ...]
    users: tuple[UserGain, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelsAnswer:
    """The models, and how their intervals hold on jobs of this site."""

    models: tuple[ModelRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontierAnswer:
    """What `sadvise tune --json` wrote; null where no file is named."""

    frontier: TunedFrontier | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusAnswer:
    """The state of the daemon, null for a file or the demo; `fault` says why the cluster could not be read."""

    daemon: DaemonStatusDocument | None
    fault: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledSentence:
    """A sentence about a job, with what it is about."""

    label: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobAnswer:
    """Why a job waits, and what was recommended and changed; `waiting` is null unless it is a pending GPU job."""

    meta: Meta
    job_id: int
    state: str
    waiting: WaitingJob | None
    why: Explanation
    sentences: tuple[LabelledSentence, ...]
    recommendations: tuple[AdvisedChange, ...]
    changes: tuple[ChangeInEffect, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultAnswer:
    """Why there is no answer."""

    error: str
