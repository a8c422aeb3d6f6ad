"""Builds the WSGI application: pages, the JSON API, and what both have in common."""

import logging
import time
from collections.abc import Sequence
from typing import Final

from flask import Flask, Response, g, make_response, render_template, request
from werkzeug.exceptions import HTTPException

from advisor import __version__
from advisor.errors import AdvisorError
from advisor.settings import WebSettings
from advisor.site.status_words import idle_reason
from advisor.view.markup import shown
from advisor.view.terminal import source_in_words, stopped_sentence
from advisor.web import operations, pages, rest
from advisor.web.content import Content, NotReadYetError
from advisor.web.defence import defend, form_token
from advisor.web.served_clusters import PREFIX, ServedCluster, select_by_address, selected
from advisor.web.spellings import FILTERS

API: Final = "/api/v1"
# Addresses of files carry the version, so that a browser can keep them.
_KEPT_S: Final = 86_400
_LOG = logging.getLogger(__name__)


def application(content: Content) -> Flask:
    """Return the application that shows one cluster."""
    return application_of([ServedCluster("", lambda: content)], content.config.web)


def application_of(clusters: Sequence[ServedCluster], settings: WebSettings) -> Flask:
    """Return the application that shows a cluster, or the page of several and each below its name."""
    app = Flask("advisor.web", static_folder="static", template_folder="templates")
    app.json.ensure_ascii = True  # type: ignore[attr-defined]
    app.url_map.strict_slashes = False
    app.jinja_env.filters.update(FILTERS)
    # Templates make no markup of a text; this takes away what controls a terminal or reorders what is read.
    app.jinja_env.finalize = shown
    app.jinja_env.trim_blocks = app.jinja_env.lstrip_blocks = True
    app.config["SEND_FILE_MAX_AGE_DEFAULT"] = _KEPT_S
    defend(app, settings)
    select_by_address(app, clusters)
    prefix = PREFIX if len(clusters) > 1 else ""
    if prefix:
        app.register_blueprint(pages.FRONT)
    app.register_blueprint(pages.PAGES, url_prefix=prefix or None)
    app.register_blueprint(rest.CATALOGUE, url_prefix=API)
    app.register_blueprint(rest.API, url_prefix=f"{API}{prefix}")
    if settings.actions:
        app.register_blueprint(operations.OPERATIONS, url_prefix=f"{prefix}/do")

    @app.context_processor
    def shared() -> dict[str, object]:
        cluster = selected()
        return {
            "names": [one.name for one in clusters] if prefix else [],
            "name": cluster.name if cluster is not None and prefix else "",
            "is_selected": cluster is not None,
            "kept_page": request.endpoint if request.endpoint in pages.OF_ANY_CLUSTER else "pages.cluster",
            "refresh_s": round(settings.max_age_s),
            "version": __version__,
            "user": g.get("user", ""),
            "is_admin": g.get("is_admin", False),
            "form_token": form_token,
            "stopped_sentence": stopped_sentence,
            **_state_of(None if cluster is None else cluster.opened),
        }

    @app.errorhandler(HTTPException)
    def refused(err: HTTPException) -> Response:
        return _fault(err.code or 500, err.name)

    @app.errorhandler(NotReadYetError)
    def not_yet(err: NotReadYetError) -> Response:
        answer = _fault(503, str(err))
        answer.headers["Retry-After"] = str(pages.SOON_S)
        if not _wants_json():
            answer.headers["Refresh"] = str(pages.SOON_S)
        return answer

    @app.errorhandler(AdvisorError)
    def unread(err: AdvisorError) -> Response:
        return _fault(503, str(err))

    @app.errorhandler(Exception)
    def broken(_err: Exception) -> Response:
        _LOG.exception("a page failed")
        return _fault(500, "this page failed; the log of sadvise web says why")

    return app


def _state_of(content: Content | None) -> dict[str, object]:
    """Return what every page shows of its cluster: when it was read, and the state of the daemon."""
    if content is None:
        return {"is_live": True, "now": time.time()}
    fault, seen = content.viewer.fault, content.viewer.last
    try:
        daemon, daemon_fault = content.daemon(), ""
    except AdvisorError as err:
        daemon, daemon_fault = None, str(err)
    return {
        "daemon": daemon,
        "daemon_fault": daemon_fault,
        "idle": "" if daemon is None else idle_reason(daemon),
        "fault": fault,
        "seen": seen,
        "source_words": "" if seen is None else source_in_words(seen.source),
        "is_live": content.reading.is_live,
        "now": time.time() if content.reading.is_live or seen is None else seen.taken_at,
        "refresh_s": round(content.config.web.max_age_s),
    }


def _wants_json() -> bool:
    return request.path.startswith(f"{API}/")


def _fault(status: int, text: str) -> Response:
    """Answer with an error: a page, or for the API a document."""
    if _wants_json():
        return make_response({"error": text}, status)
    return make_response(render_template("fault.html", text=text, status=status), status)
