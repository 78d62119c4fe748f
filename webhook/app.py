"""The HTTP endpoints, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flask import Flask, Response, request
from werkzeug.exceptions import HTTPException

from webhook import metrics
from webhook.review import ReviewError, encode

if TYPE_CHECKING:
    from webhook.gate import Gate

_JSON: Final = "application/json"
_PROMETHEUS: Final = "text/plain; version=0.0.4; charset=utf-8"


def create_app(gate: Gate) -> Flask:
    """Return the WSGI application that answers for a gate."""
    app = Flask("gpugate", static_folder=None)

    @app.post("/mutate")
    def mutate() -> Response:
        return Response(gate.answer("mutate", request.get_data(cache=False)), mimetype=_JSON)

    @app.post("/validate")
    def validate() -> Response:
        return Response(gate.answer("validate", request.get_data(cache=False)), mimetype=_JSON)

    @app.get("/healthz")
    def healthz() -> Response:
        return Response("ok\n", mimetype="text/plain")

    @app.get("/readyz")
    def readyz() -> Response:
        if gate.ready:
            return Response("ok\n", mimetype="text/plain")
        return Response("draining\n", status=503, mimetype="text/plain")

    @app.get("/metrics")
    def exposition() -> Response:
        return Response(metrics.exposition(), content_type=_PROMETHEUS)

    @app.errorhandler(ReviewError)
    def bad_review(error: ReviewError) -> Response:
        return _problem(400, str(error))

    @app.errorhandler(HTTPException)
    def http_problem(error: HTTPException) -> Response:
        response = _problem(error.code or 500, error.description or error.name)
        response.headers.extend(
            (name, value) for name, value in error.get_headers() if name.lower() == "allow"
        )
        return response

    return app


def _problem(code: int, message: str) -> Response:
    return Response(encode({"code": code, "message": message}), status=code, mimetype=_JSON)
