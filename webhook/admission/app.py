"""The HTTP endpoints, and nothing else.

Flask serves everything except reviews. Reviews are answered in front of it, which halves the cost of a
request on top of the server: docs/adr/0002-reviews-before-flask.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from flask import Flask, Response
from werkzeug.exceptions import HTTPException

from webhook.admission.handler import NotSyncedError
from webhook.admission.review import ReviewError, encode
from webhook.server.wsgi_adapter import RETRY_AFTER
from webhook.telemetry import metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

    from webhook.admission.handler import AdmissionHandler, Endpoint

_JSON: Final = "application/json"
_PROMETHEUS: Final = "text/plain; version=0.0.4; charset=utf-8"
_REVIEWS: Final[dict[str, Endpoint]] = {"/mutate": "mutate", "/validate": "validate"}


def create_app(
    handler: AdmissionHandler,
    awaited: Callable[[], Collection[str]] = tuple,
    *,
    require_client_certificate: bool = False,
) -> Flask:
    """Return the WSGI application of a handler.

    awaited: returns what readiness waits for, such as `nodes`. require_client_certificate: whether to accept
    reviews only from clients with a verified certificate; probes and metrics need none.
    """
    app = Flask("gpugate", static_folder=None)

    @app.get("/healthz")
    def healthz() -> Response:
        return Response("ok\n", mimetype="text/plain")

    @app.get("/readyz")
    def readyz() -> Response:
        missing = ", ".join(awaited())
        if handler.ready and not missing:
            return Response("ok\n", mimetype="text/plain")
        reason = f"waiting for {missing}" if missing else "draining"
        return Response(f"not ready: {reason}\n", HTTPStatus.SERVICE_UNAVAILABLE, mimetype="text/plain")

    @app.get("/metrics")
    def exposition() -> Response:
        handler.decision_log.flush()
        return Response(metrics.exposition(), content_type=_PROMETHEUS)

    @app.get("/mutate")
    @app.get("/validate")
    def usage() -> Response:
        content = _problem("POST an AdmissionReview admission.k8s.io/v1")
        return Response(content, HTTPStatus.METHOD_NOT_ALLOWED, {"Allow": "POST"}, _JSON)

    @app.errorhandler(HTTPException)
    def http_problem(error: HTTPException) -> Response:
        headers = [header for header in error.get_headers() if header[0] == "Allow"]
        return Response(_problem(error.description or error.name), error.code, headers, _JSON)

    app.wsgi_app = _reviews_first(handler, app.wsgi_app, require_client_certificate)  # type: ignore[assignment]
    return app


def _reviews_first(
    handler: AdmissionHandler, others: WSGIApplication, require_client_certificate: bool
) -> WSGIApplication:
    """Return the application that answers reviews and passes other requests on."""

    def application(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        endpoint = _REVIEWS.get(environ["PATH_INFO"])
        if endpoint is None or environ["REQUEST_METHOD"] != "POST":
            return others(environ, start_response)
        status, headers = "200 OK", [("Content-Type", _JSON)]
        if require_client_certificate and environ.get("SSL_CLIENT_VERIFY") != "SUCCESS":
            status = "401 Unauthorized"
            answer = _problem("a review requires a client certificate issued by the CA of --client-ca")
        else:
            try:
                answer = handler.answer(endpoint, environ["wsgi.input"].read())
            except NotSyncedError as error:
                status = "503 Service Unavailable"
                headers.append(("Retry-After", RETRY_AFTER))
                answer = _problem(str(error))
            except ReviewError as error:
                status = "400 Bad Request"
                answer = _problem(str(error))
        headers.append(("Content-Length", str(len(answer))))
        start_response(status, headers)
        return [answer]

    return application


def _problem(message: str) -> bytes:
    return encode({"message": message})
