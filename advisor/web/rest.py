"""Answers with the JSON API, read only."""

import json
from collections.abc import Callable
from typing import Final

from flask import Blueprint, Response, abort, current_app, request

from advisor.site.status_words import status_document
from advisor.view.documents import MetaDocument, meta, skipped
from advisor.view.standing_report import standing_document
from advisor.view.terminal import plain
from advisor.watch.cluster_view import ClusterView
from advisor.web.answers import (
    AdviceAnswer,
    ChangesAnswer,
    ClusterAnswer,
    ClustersAnswer,
    DayGain,
    FrontierAnswer,
    GainsAnswer,
    JobAnswer,
    LabelledSentence,
    LineAnswer,
    ModelsAnswer,
    StatusAnswer,
    UserGain,
    openapi,
)
from advisor.web.content import Content
from advisor.web.line_selection import line_page, line_query
from advisor.web.served_clusters import selected_content, served_clusters, summaries

API: Final = Blueprint("rest", __name__)
# What is about no cluster, or about all.
CATALOGUE: Final = Blueprint("catalogue", __name__)
SCHEMA: Final = "sadvise.web/1"


def cluster(content: Content) -> ClusterAnswer:
    """Return the GPUs, the nodes and the counts of jobs."""
    seen = content.view()
    return ClusterAnswer(meta=_meta(seen), cluster=seen.overview, nodes=seen.nodes)


def line(content: Content) -> LineAnswer:
    """Return a page of the line as the query asks."""
    seen = content.view()
    page = line_page(seen.line, line_query(request.args))
    return LineAnswer(meta=_meta(seen), page=page.page, pages=page.pages, matching=page.matching, jobs=tuple(page.jobs))


def advice(content: Content) -> AdviceAnswer:
    """Return what is recommended."""
    seen = content.view()
    return AdviceAnswer(meta=_meta(seen), recommendations=seen.advice, skipped=tuple(skipped(seen.planned.record)))


def changes(content: Content) -> ChangesAnswer:
    """Return the changes in effect."""
    seen = content.view()
    return ChangesAnswer(meta=_meta(seen), changes=seen.in_effect)


def gains(content: Content) -> GainsAnswer:
    """Return the waits with and without advice."""
    read = content.gains()
    whole = read.history.whole
    return GainsAnswer(
        since=whole.since,
        until=whole.until,
        total=None if whole.total is None else standing_document(whole.total),
        days=tuple(DayGain(day=gain.day, waits=standing_document(gain.standing)) for gain in read.history.days),
        users=tuple(
            UserGain(user=user, waits=standing_document(standing)) for user, standing in sorted(whole.by_user.items())
        ),
        notes=tuple(note for note in (read.note, *whole.notes) if note),
    )


def models(content: Content) -> ModelsAnswer:
    """Return the models."""
    return ModelsAnswer(models=content.models())


def frontier(content: Content) -> FrontierAnswer:
    """Return the frontier of `sadvise tune`."""
    return FrontierAnswer(frontier=content.frontier())


def status(content: Content) -> StatusAnswer:
    """Return the state of the daemon."""
    daemon = content.daemon()
    return StatusAnswer(
        daemon=None if daemon is None else status_document(daemon),
        fault=content.viewer.fault or None,
    )


@API.get("/jobs/<int:job_id>")
def job(job_id: int) -> Response:
    """Return why a job waits."""
    content = selected_content()
    seen = content.view()
    wanted = content.job(job_id)
    if wanted is None:
        abort(404)
    report = content.explained(job_id)
    return _json(
        JobAnswer(
            meta=_meta(seen),
            job_id=job_id,
            state=str(wanted.state),
            waiting=next((row for row in seen.line if row.job_id == job_id), None),
            why=report.explained,
            sentences=tuple(LabelledSentence(label=label, text=text) for label, text in report.background),
            recommendations=tuple(row for row in seen.advice if job_id in row.job_ids),
            changes=tuple(row for row in seen.in_effect if row.job_id == job_id),
        ),
    )


@CATALOGUE.get("/clusters")
def clusters() -> Response:
    """Return every cluster in a line."""
    return _json(ClustersAnswer(clusters=tuple(summaries(served_clusters()))))


@CATALOGUE.get("/openapi.json")
def document() -> Response:
    """Return the description of this API."""
    return _json(openapi())


def _routed(make: Callable[[Content], object]) -> Callable[[], Response]:
    return lambda: _json(make(selected_content()))


for _make in (cluster, line, advice, changes, gains, models, frontier, status):
    API.add_url_rule(f"/{_make.__name__}", _make.__name__, _routed(_make))


def _meta(seen: ClusterView) -> MetaDocument:
    return meta(seen.planned.record.snapshot, SCHEMA, seen.source)


def _json(value: object) -> Response:
    """Answer with a document as ASCII, null for numbers that JSON does not know."""
    text = json.dumps(plain(value), separators=(",", ":"), allow_nan=False)
    return current_app.response_class(text + "\n", mimetype="application/json")
