"""The HTTP endpoints: one Flask application, whose reviews `gpugate serve` answers without Flask.

Flask's dispatch costs more than a decision.
"""

from __future__ import annotations

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

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from webhook.admission.handler import AdmissionHandler, Endpoint
    from webhook.server.http import Application

_JSON: Final = "application/json"
_TEXT: Final = "text/plain"
_PROMETHEUS: Final = "text/plain; version=0.0.4; charset=utf-8"
_ENDPOINTS: Final[dict[str, Endpoint]] = {MUTATE: "mutate", VALIDATE: "validate"}
_RETRY: Final = (("Retry-After", RETRY_AFTER),)


def create_server_application(
    handler: AdmissionHandler,
    awaited: Callable[[], Collection[str]] = tuple,
    *,
    require_client_certificate: bool = False,
) -> Application:
    """Return the endpoints of `create_app` for the own server, which answers reviews without Flask."""
    others = wsgi_application(
        create_app(handler, awaited, require_client_certificate=require_client_certificate)
    )

    def application(request: Request) -> Response:
        endpoint = _ENDPOINTS.get(request.path)
        if endpoint is None or request.method != "POST":
            return others(request)
        is_permitted = request.verified or not require_client_certificate
        return _answer(handler, endpoint, request.body, is_permitted=is_permitted)

    return application


def create_app(
    handler: AdmissionHandler,
    awaited: Callable[[], Collection[str]] = tuple,
    *,
    require_client_certificate: bool = False,
) -> flask.Flask:
    """Return the WSGI application of a handler: reviews, probes and metrics.

    awaited: returns what readiness waits for, such as `nodes`. require_client_certificate: whether to accept
    reviews only from clients with a verified certificate, which the server reports by
    SSL_CLIENT_VERIFY=SUCCESS as mod_ssl does; probes and metrics do not require one.
    """
    app = flask.Flask("gpugate", static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = BODY_LIMIT

    @app.post(MUTATE)
    @app.post(VALIDATE)
    def review() -> flask.Response:
        request = flask.request
        is_verified = request.environ.get("SSL_CLIENT_VERIFY") == "SUCCESS"
        response = _answer(
            handler,
            _ENDPOINTS[request.path],
            request.get_data(cache=False),
            is_permitted=is_verified or not require_client_certificate,
        )
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
        return flask.Response(metrics.exposition(), content_type=_PROMETHEUS)

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


def _answer(
    handler: AdmissionHandler, endpoint: Endpoint, body: bytes | bytearray, *, is_permitted: bool
) -> Response:
    """Return the response to a review. is_permitted: whether the client has the certificate it needs."""
    if not is_permitted:
        message = "a review requires a client certificate issued by the CA of --client-ca"
        return Response(HTTPStatus.UNAUTHORIZED, _problem(message))
    try:
        return Response(HTTPStatus.OK, handler.answer(endpoint, body))
    except NotSyncedError as error:
        return Response(HTTPStatus.SERVICE_UNAVAILABLE, _problem(str(error)), headers=_RETRY)
    except ReviewError as error:
        return Response(HTTPStatus.BAD_REQUEST, _problem(str(error)))


def _problem(message: str) -> bytes:
    return encode({"message": message})
