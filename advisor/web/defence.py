"""Defends the web view: who it answers, which headers its answers have, and which forms it believes."""

import grp
import hmac
import pwd
import re
import secrets
from collections.abc import Mapping
from typing import Final, NoReturn
from urllib.parse import urlsplit

import structlog
from flask import Flask, Response, abort, g, request, session

from advisor.settings import WebSettings
from advisor.text import named
from advisor.web.content import AUDIENCE, Audience

HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
LOOPBACK: Final = ("localhost", "127.0.0.1", "[::1]")
LARGEST_FORM_BYTES: Final = 8192
MOST_FIELDS: Final = 16
_FORM: Final = "application/x-www-form-urlencoded"
_PORT: Final = re.compile(r":[0-9]{1,5}$")
_TOKEN: Final = "csrf_token"  # noqa: S105  (the name of a field)
_LONGEST_USER: Final = 64
_LONGEST_PATH: Final = 200
_LOG = structlog.get_logger()


def defend(app: Flask, settings: WebSettings) -> None:
    """Let an application answer only what the settings allow; forms are valid until it ends."""
    app.config.update(
        SECRET_KEY=secrets.token_bytes(32),
        MAX_CONTENT_LENGTH=LARGEST_FORM_BYTES,
        MAX_FORM_MEMORY_SIZE=LARGEST_FORM_BYTES,
        MAX_FORM_PARTS=MOST_FIELDS,
        SESSION_COOKIE_NAME="sadvise",
        SESSION_COOKIE_HTTPONLY=True,
        SESSION_COOKIE_SAMESITE="Strict",
        # Browsers take localhost for secure. Behind a proxy, actions are for HTTPS.
        SESSION_COOKIE_SECURE=True,
    )

    hosts = frozenset(name.casefold() for name in (*LOOPBACK, *settings.host_names))

    @app.before_request
    def check() -> None:
        AUDIENCE.set(Audience(hides_names=settings.hide_names))
        # A name that an attacker's server gives to this address would make its pages of the same origin as ours.
        if _PORT.sub("", request.headers.get("Host", "")).casefold() not in hosts:
            abort(421)
        g.user = _user(settings)
        is_administrator = settings.trusts_header and is_member(g.user, settings.admin_group)
        g.is_admin = settings.actions and is_administrator
        user = g.user if settings.trusts_header else ""
        AUDIENCE.set(Audience(user=user, sees_all=is_administrator, hides_names=settings.hide_names))
        if request.method == "POST":
            _check_form()

    @app.after_request
    def answer(response: Response) -> Response:
        response.headers.update(HEADERS)
        response.headers.setdefault("Cache-Control", "no-store")
        return response


def form_token() -> str:
    """Return the token that a form of this user's session must carry."""
    if session.get("user") != g.user or _TOKEN not in session:
        session["user"] = g.user
        session[_TOKEN] = secrets.token_urlsafe(32)
    return str(session[_TOKEN])


def is_member(user: str, group: str) -> bool:
    """Return whether a user belongs to a Unix group, as a supplementary or as the primary one."""
    if not user or not group:
        return False
    try:
        entry = grp.getgrnam(group)
        return user in entry.gr_mem or pwd.getpwnam(user).pw_gid == entry.gr_gid
    except KeyError:
        return False


def _user(settings: WebSettings) -> str:
    """Return the user that the proxy names; "" without a header in the settings, or for a name that cannot be one."""
    if not settings.user_header:
        return ""
    names = request.headers.getlist(settings.user_header)
    # A client can send a header of its own beside that of a careless proxy.
    if len(names) != 1 or "," in names[0]:
        return ""
    name = names[0].strip()
    return name if name.isprintable() and len(name) <= _LONGEST_USER else ""


def refuse(why: str) -> NoReturn:
    """Refuse an action with 403, and log who tried it and why it was refused."""
    path = named(request.path, longest=_LONGEST_PATH)
    _LOG.warning("operation refused", user=g.user, method=request.method, path=path, why=why)
    abort(403)


def _check_form() -> None:
    """Refuse a form that was not made by a page of this web view, for this user's session."""
    if not g.is_admin:
        refuse("no administrator")
    if not _is_of_this_host(request.headers.get("Origin", "")):
        refuse("another origin")
    if request.headers.get("Sec-Fetch-Site", "same-origin") != "same-origin":
        refuse("another site")
    if request.mimetype not in ("", _FORM):
        abort(415)
    # Fields are counted before anything takes them apart; the answer cannot be larger than a form.
    if request.get_data(cache=True, parse_form_data=False).count(b"&") >= MOST_FIELDS:
        abort(413)
    known, sent = str(session.get(_TOKEN, "")), request.form.get(_TOKEN, "")
    # As bytes: texts are compared only if they are ASCII.
    if session.get("user") != g.user or not known or not hmac.compare_digest(known.encode(), sent.encode()):
        refuse("no form of this session")


def _is_of_this_host(origin: str) -> bool:
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and parts.netloc == request.headers.get("Host")
