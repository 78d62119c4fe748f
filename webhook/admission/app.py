"""The HTTP endpoints, and nothing else.

Reviews are answered here; Flask serves everything else, because it costs more than a decision.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import flask
from werkzeug.exceptions import HTTPException

from webhook.admission.handler import NotSyncedError
from webhook.admission.review import ReviewError, encode
from webhook.admission.work import MUTATE, VALIDATE
from webhook.server.http import RETRY_AFTER, Request, Response
from webhook.server.wsgi import wsgi_application
from webhook.telemetry import metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from webhook.admission.handler import AdmissionHandler, Endpoint
    from webhook.server.http import Application

_JSON: Final = "application/json"
_TEXT: Final = "text/plain"
_PROMETHEUS: Final = "text/plain; version=0.0.4; charset=utf-8"
_REVIEWS: Final[dict[str, Endpoint]] = {MUTATE: "mutate", VALIDATE: "validate"}
_RETRY: Final = (("Retry-After", RETRY_AFTER),)


def create_application(
    handler: AdmissionHandler,
    awaited: Callable[[], Collection[str]] = tuple,
    *,
    require_client_certificate: bool = False,
) -> Application:
    """Return the application of a handler.

    awaited: returns what readiness waits for, such as `nodes`. require_client_certificate: whether to accept
    reviews only from clients with a verified certificate; probes and metrics need none.
    """
    pages = wsgi_application(create_pages(handler, awaited))

    def application(request: Request) -> Response:
        endpoint = _REVIEWS.get(request.path)
        if endpoint is None or request.method != "POST":
            return pages(request)
        if require_client_certificate and not request.verified:
            message = "a review requires a client certificate issued by the CA of --client-ca"
            return Response(HTTPStatus.UNAUTHORIZED, _problem(message))
        try:
            return Response(HTTPStatus.OK, handler.answer(endpoint, request.body))
        except NotSyncedError as error:
            return Response(HTTPStatus.SERVICE_UNAVAILABLE, _problem(str(error)), headers=_RETRY)
        except ReviewError as error:
            return Response(HTTPStatus.BAD_REQUEST, _problem(str(error)))

    return application


def create_pages(handler: AdmissionHandler, awaited: Callable[[], Collection[str]] = tuple) -> flask.Flask:
    """Return the WSGI application of probes, metrics, and what other requests are told."""
    app = flask.Flask("gpugate", static_folder=None)

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


def _problem(message: str) -> bytes:
    return encode({"message": message})
