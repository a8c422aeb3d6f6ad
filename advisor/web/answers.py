"""Defines the answers of the JSON API, and from their types its description as an OpenAPI 3.1 document."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pydantic import TypeAdapter

from advisor import __version__
from advisor.domain.dataclass import dataclass
from advisor.domain.overview import Overview
from advisor.site.frontier_file import TunedFrontier
from advisor.site.status_words import StatusDocument
from advisor.view.documents import ChangeDocument, MetaDocument, SkippedDocument
from advisor.view.explanations import Explanation
from advisor.view.standing_report import StandingDocument
from advisor.watch.cluster_view import ChangeInEffect, NodeUse, WaitingJob
from advisor.web.content import ModelRow
from advisor.web.line_selection import LARGEST_PAGE, PAGE_SIZE, SORTS
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


_JSON: Final = "application/json"
# The only path that is about no single cluster.
_ALL: Final = "/clusters"
ANSWERS: Final[Mapping[str, type[object]]] = {
    _ALL: ClustersAnswer,
    "/cluster": ClusterAnswer,
    "/line": LineAnswer,
    "/advice": AdviceAnswer,
    "/changes": ChangesAnswer,
    "/gains": GainsAnswer,
    "/models": ModelsAnswer,
    "/frontier": FrontierAnswer,
    "/status": StatusAnswer,
    "/jobs/{job_id}": JobAnswer,
}
# Where one cluster is served, and where several are.
_ALONE: Final[Mapping[str, object]] = {"url": "/api/v1", "description": "one cluster"}
_OF_SEVERAL: Final[Mapping[str, object]] = {
    "url": "/api/v1/clusters/{cluster}",
    "description": "one of several clusters",
    "variables": {"cluster": {"default": "NAME", "description": "a name that /api/v1/clusters lists"}},
}
_FILTERS: Final[Mapping[str, str]] = {
    "q": "text within the job id, the name, the user or the account",
    "user": "jobs of this user",
    "account": "jobs of this account",
    "partition": "jobs that name this partition",
    "type": 'jobs that ask for this type of GPU, "any" for those that name none',
    "reason": "jobs with this reason of Slurm",
    "advised": "1 for jobs with advice or with changes in effect",
    "order": "desc for the other way round",
}


def openapi() -> dict[str, Any]:
    """Return the document."""
    kinds = {*ANSWERS.values(), FaultAnswer}
    inputs: list[tuple[str, Any, TypeAdapter[object]]] = [
        (kind.__name__, "serialization", TypeAdapter(kind)) for kind in sorted(kinds, key=lambda k: k.__name__)
    ]
    _, schemas = TypeAdapter.json_schemas(inputs, ref_template="#/components/schemas/{model}")
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "sadvise web",
            "version": "1",
            "summary": "The state of clusters and the advice for them, read only.",
            "description": (
                f"Made by sadvise {__version__}. Times are in seconds since the epoch. New fields can be added; what "
                "is here keeps its meaning within /api/v1."
            ),
        },
        "servers": [_ALONE, _OF_SEVERAL],
        "paths": {path: _path(path, kind) for path, kind in ANSWERS.items()},
        "components": {"schemas": schemas["$defs"]},
    }


def _path(path: str, kind: type[object]) -> dict[str, object]:
    servers = {"servers": [_ALONE]} if path == _ALL else {}
    return {**servers, "get": _operation(path, kind)}


def _operation(path: str, kind: type[object]) -> dict[str, object]:
    name = path.strip("/").partition("/")[0]
    summary = (kind.__doc__ or "").strip().partition("\n")[0]
    return {
        "operationId": name,
        "summary": summary,
        "parameters": list(_parameters(path)),
        "responses": {
            "200": {"description": summary, "content": {_JSON: {"schema": _reference(kind)}}},
            **({} if path == _ALL else _faults(path)),
        },
    }


def _faults(path: str) -> dict[str, object]:
    missing = "no such cluster, or no such job in its queue" if path.startswith("/jobs") else "no such cluster"
    return {
        "404": _fault(missing),
        "503": _fault("the cluster could not be read, or is being read for the first time"),
    }


def _parameters(path: str) -> Iterator[dict[str, object]]:
    if path.startswith("/jobs"):
        yield {"name": "job_id", "in": "path", "required": True, "schema": {"type": "integer", "minimum": 0}}
    if path == "/line":
        for name, text in _FILTERS.items():
            yield {"name": name, "in": "query", "description": text, "schema": {"type": "string"}}
        yield {"name": "sort", "in": "query", "schema": {"type": "string", "enum": sorted(SORTS), "default": "place"}}
        for name, default, most in (("page", 1, None), ("size", PAGE_SIZE, LARGEST_PAGE)):
            bounds = {} if most is None else {"maximum": most}
            yield {
                "name": name,
                "in": "query",
                "schema": {"type": "integer", "minimum": 1, "default": default, **bounds},
            }


def _fault(text: str) -> dict[str, object]:
    return {"description": text, "content": {_JSON: {"schema": _reference(FaultAnswer)}}}


def _reference(kind: type[object]) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{kind.__name__}"}
