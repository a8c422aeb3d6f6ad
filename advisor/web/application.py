"""Builds the WSGI application: pages, the JSON API, and what both have in common."""

import logging
import time
from typing import Any, Final

from flask import Flask, Response, g, make_response, render_template, request
from werkzeug.exceptions import HTTPException

from advisor import __version__
from advisor.daemon.status_words import idle_reason
from advisor.errors import AdvisorError
from advisor.view.terminal import source_in_words, stopped_sentence
from advisor.web import operations, pages, rest
from advisor.web.content import Content, NotReadYetError
from advisor.web.defence import defend, form_token
from advisor.web.spellings import FILTERS, shown

API: Final = "/api/v1"
# A page whose cluster is being read for the first time asks again after this time.
_SOON_S: Final = 2
# Addresses of files carry the version, so that a browser can keep them.
_KEPT_S: Final = 86_400
_LOG = logging.getLogger(__name__)


def application(content: Content) -> Flask:
    """Return the application that shows a content."""
    app = Flask("advisor.web", static_folder="static", template_folder="templates")
    settings = content.config.web
    app.json.ensure_ascii = True  # type: ignore[attr-defined]
    app.url_map.strict_slashes = False
    app.jinja_env.filters.update(FILTERS)
    # Templates make no markup of a text; this takes away what controls a terminal or reorders what is read.
    app.jinja_env.finalize = shown
    app.jinja_env.trim_blocks = app.jinja_env.lstrip_blocks = True
    app.extensions["content"] = content
    app.config["SEND_FILE_MAX_AGE_DEFAULT"] = _KEPT_S
    defend(app, settings)
    app.register_blueprint(pages.PAGES)
    app.register_blueprint(rest.API, url_prefix=API)
    if settings.actions:
        app.register_blueprint(operations.OPERATIONS)

    @app.context_processor
    def shared() -> dict[str, Any]:
        return _shared(content)

    @app.errorhandler(HTTPException)
    def refused(err: HTTPException) -> Response:
        return _fault(err.code or 500, err.name)

    @app.errorhandler(NotReadYetError)
    def not_yet(err: NotReadYetError) -> Response:
        answer = _fault(503, str(err))
        answer.headers["Retry-After"] = str(_SOON_S)
        if not _wants_json():
            answer.headers["Refresh"] = str(_SOON_S)
        return answer

    @app.errorhandler(AdvisorError)
    def unread(err: AdvisorError) -> Response:
        return _fault(503, str(err))

    @app.errorhandler(Exception)
    def broken(_err: Exception) -> Response:
        _LOG.exception("a page failed")
        return _fault(500, "this page failed; the log of sadvise web says why")

    return app


def _shared(content: Content) -> dict[str, Any]:
    """Return what every page shows: the state of the daemon, when the cluster was read, and who looks."""
    daemon, fault, seen = content.daemon(), content.viewer.fault, content.viewer.last
    return {
        "daemon": daemon,
        "idle": "" if daemon is None else idle_reason(daemon),
        "fault": fault,
        "seen": seen,
        "source_words": "" if seen is None else source_in_words(seen.source),
        "is_live": content.reading.is_live,
        "now": time.time() if content.reading.is_live or seen is None else seen.taken_at,
        "refresh_s": round(content.config.web.max_age_s),
        "version": __version__,
        "user": g.get("user", ""),
        "is_admin": g.get("is_admin", False),
        "form_token": form_token,
        "stopped_sentence": stopped_sentence,
    }


def _wants_json() -> bool:
    return request.path.startswith(f"{API}/")


def _fault(status: int, text: str) -> Response:
    """Answer with an error: a page, or for the API a document."""
    if _wants_json():
        return make_response({"error": text}, status)
    return make_response(render_template("fault.html", text=text, status=status), status)
