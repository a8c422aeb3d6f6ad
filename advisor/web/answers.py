"""Defines the answers of the JSON API; their schemas are made from these types.

Times are in seconds since the epoch, lengths of time in seconds.
"""

from dataclasses import dataclass

from advisor.domain.overview import Overview
from advisor.site.status_words import StatusDocument
from advisor.view.documents import ChangeDocument, MetaDocument, SkippedDocument
from advisor.view.explanations import Explanation
from advisor.view.standing_report import StandingDocument
from advisor.watch.cluster_view import ChangeInEffect, NodeUse, WaitingJob
from advisor.web.content import ModelRow
from advisor.web.frontier_file import TunedFrontier
from advisor.web.served_clusters import ClusterSummary


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterAnswer:
    """GPUs by type, nodes with what is in use, and counts of jobs."""

    meta: MetaDocument
    cluster: Overview
    nodes: tuple[NodeUse, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClustersAnswer:
    """Every cluster that is served, in a line."""

    clusters: tuple[ClusterSummary, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LineAnswer:
    """A page of the pending GPU jobs; `matching` jobs are on all `pages`."""

    meta: MetaDocument
    page: int
    pages: int
    matching: int
    jobs: tuple[WaitingJob, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceAnswer:
    """What is recommended, the largest expected gain first, and the jobs that a rule leaves alone."""

    meta: MetaDocument
    recommendations: tuple[ChangeDocument, ...]
    skipped: tuple[SkippedDocument, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangesAnswer:
    """The changes in effect, newest first."""

    meta: MetaDocument
    changes: tuple[ChangeInEffect, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DayGain:
    """The waits of a day in local time (YYYY-MM-DD)."""

    day: str
    waits: StandingDocument


@dataclass(frozen=True, slots=True, kw_only=True)
class UserGain:
    """The waits of a user."""

    user: str
    waits: StandingDocument


@dataclass(frozen=True, slots=True, kw_only=True)
class GainsAnswer:
    """The waits with advice beside those on plain Slurm; `total` is null where nothing was compared."""

    since: float | None
    until: float | None
    total: StandingDocument | None
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

    daemon: StatusDocument | None
    fault: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledSentence:
    """A sentence about a job, with what it is about."""

    label: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobAnswer:
    """Why a job waits, and what was recommended and changed; `waiting` is null unless it is a pending GPU job."""

    meta: MetaDocument
    job_id: int
    state: str
    waiting: WaitingJob | None
    why: Explanation
    sentences: tuple[LabelledSentence, ...]
    recommendations: tuple[ChangeDocument, ...]
    changes: tuple[ChangeInEffect, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultAnswer:
    """Why there is no answer."""

    error: str
