"""The HTTP endpoints: one Flask application, whose reviews `gpugate serve` answers without Flask.

Flask's dispatch costs more than a decision.
"""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import flask
from werkzeug.exceptions import HTTPException

from webhook.admission.handler import NotSyncedError
from webhook.admission.review import ReviewError, encode
from webhook.admission.work import MUTATE, VALIDATE
from webhook.server.http import BODY_LIMIT, RETRY_AFTER, Request, Response
from webhook.server.wsgi import wsgi_application
from webhook.telemetry import metrics
from webhook.telemetry.logs import RateLimitFilter

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from webhook.admission.handler import AdmissionHandler, Endpoint
    from webhook.admission.tokens import TokenVerifier
    from webhook.server.http import Application

# Clients that nobody knows must not fill a disk; metrics count all of them.
_log = logging.getLogger("gpugate.authentication")
_log.addFilter(RateLimitFilter())

_JSON: Final = "application/json"
_TEXT: Final = "text/plain"
_PROMETHEUS: Final = "text/plain; version=0.0.4; charset=utf-8"
_ENDPOINTS: Final[dict[str, Endpoint]] = {MUTATE: "mutate", VALIDATE: "validate"}
_RETRY: Final = (("Retry-After", RETRY_AFTER),)
_NO_CERTIFICATE: Final = "a review requires a client certificate issued by the CA of --client-ca"
_BEARER: Final = (("WWW-Authenticate", "Bearer"),)


def create_server_application(
    handler: AdmissionHandler,
    awaited: Callable[[], Collection[str]] = tuple,
    *,
    require_client_certificate: bool = False,
    tokens: TokenVerifier | None = None,
) -> Application:
    """Return the endpoints of `create_app` for the own server, which answers reviews without Flask."""
    others = wsgi_application(
        create_app(handler, awaited, require_client_certificate=require_client_certificate, tokens=tokens)
    )

    def application(request: Request) -> Response:
        endpoint = _ENDPOINTS.get(request.path)
        if endpoint is None or request.method != "POST":
            return others(request)
        if require_client_certificate and not request.verified:
            return _rejected("certificate", _NO_CERTIFICATE)
        if tokens is not None:
            headers = [value.decode("latin-1") for name, value in request.headers if name == b"authorization"]
            if rejection := tokens.rejection(request.path, headers, request.body):
                return _rejected(*rejection)
        return _answer(handler, endpoint, request.body)

    return application


def create_app(
    handler: AdmissionHandler,
    awaited: Callable[[], Collection[str]] = tuple,
    *,
    require_client_certificate: bool = False,
    tokens: TokenVerifier | None = None,
) -> flask.Flask:
    """Return the WSGI application of a handler: reviews, probes and metrics.

    awaited: returns what readiness waits for, such as `nodes`. require_client_certificate: whether to accept
    reviews only from clients with a verified certificate, which the server reports by
    SSL_CLIENT_VERIFY=SUCCESS as mod_ssl does. tokens: verifies a token that each review must have. Probes and
    metrics require neither.
    """
    app = flask.Flask("gpugate", static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = BODY_LIMIT

    @app.post(MUTATE)
    @app.post(VALIDATE)
    def review() -> flask.Response:
        request = flask.request
        body = request.get_data(cache=False)
        if require_client_certificate and request.environ.get("SSL_CLIENT_VERIFY") != "SUCCESS":
            response = _rejected("certificate", _NO_CERTIFICATE)
        elif tokens and (
            rejection := tokens.rejection(request.path, request.headers.getlist("Authorization"), body)
        ):
            response = _rejected(*rejection)
        else:
            response = _answer(handler, _ENDPOINTS[request.path], body)
        return flask.Response(
            response.body, response.status, response.headers, content_type=response.content_type
        )

    @app.get("/healthz")
    def healthz() -> flask.Response:
        return flask.Response("ok\n", mimetype=_TEXT)

    @app.get("/readyz")
    def readyz() -> flask.Response:
        missing = ", ".join(awaited())
        if handler.ready and not missing:
            return flask.Response("ok\n", mimetype=_TEXT)
        reason = f"waiting for {missing}" if missing else "draining"
        return flask.Response(f"not ready: {reason}\n", HTTPStatus.SERVICE_UNAVAILABLE, mimetype=_TEXT)

    @app.get("/metrics")
    def exposition() -> flask.Response:
        handler.decision_log.flush()
        families = handler.loaded.rules.label_names
        text = metrics.exposition(handler.snapshot.inventory, families)
        return flask.Response(text, content_type=_PROMETHEUS)

    @app.get(MUTATE)
    @app.get(VALIDATE)
    def usage() -> flask.Response:
        content = _problem("POST an AdmissionReview admission.k8s.io/v1")
        return flask.Response(content, HTTPStatus.METHOD_NOT_ALLOWED, {"Allow": "POST"}, _JSON)

    @app.errorhandler(HTTPException)
    def http_problem(error: HTTPException) -> flask.Response:
        headers = [header for header in error.get_headers() if header[0] == "Allow"]
        return flask.Response(_problem(error.description or error.name), error.code, headers, _JSON)

    return app


def _answer(handler: AdmissionHandler, endpoint: Endpoint, body: bytes | bytearray) -> Response:
    """Return the response to a review of a permitted client."""
    try:
        return Response(HTTPStatus.OK, handler.answer(endpoint, body))
    except NotSyncedError as error:
        return Response(HTTPStatus.SERVICE_UNAVAILABLE, _problem(str(error)), headers=_RETRY)
    except ReviewError as error:
        return Response(HTTPStatus.BAD_REQUEST, _problem(str(error)))


def _rejected(reason: str, message: str) -> Response:
    """Return the response to a review that is not from an API server, and log and count it."""
    metrics.UNAUTHENTICATED.labels(reason).inc()
    _log.warning("review rejected: %s", message)
    headers = () if reason == "certificate" else _BEARER
    return Response(HTTPStatus.UNAUTHORIZED, _problem(message), headers=headers)


def _problem(message: str) -> bytes:
    return encode({"message": message})
