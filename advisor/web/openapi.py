"""Describes the JSON API as an OpenAPI 3.1 document, from the types of its answers."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pydantic import TypeAdapter

from advisor import __version__
from advisor.web import answers
from advisor.web.line_selection import LARGEST_PAGE, PAGE_SIZE, SORTS

_JSON: Final = "application/json"
# The only path that is about no single cluster.
_ALL: Final = "/clusters"
ANSWERS: Final[Mapping[str, type[object]]] = {
    _ALL: answers.ClustersAnswer,
    "/cluster": answers.ClusterAnswer,
    "/line": answers.LineAnswer,
    "/advice": answers.AdviceAnswer,
    "/changes": answers.ChangesAnswer,
    "/gains": answers.GainsAnswer,
    "/models": answers.ModelsAnswer,
    "/frontier": answers.FrontierAnswer,
    "/status": answers.StatusAnswer,
    "/jobs/{job_id}": answers.JobAnswer,
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
    kinds = {*ANSWERS.values(), answers.FaultAnswer}
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
    return {"description": text, "content": {_JSON: {"schema": _reference(answers.FaultAnswer)}}}


def _reference(kind: type[object]) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{kind.__name__}"}
