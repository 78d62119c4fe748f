"""The pages of the resolver: /healthz, /readyz and /metrics."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from prometheus_client import make_wsgi_app

from webhook.images.resolver.metrics import REGISTRY

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

    from webhook.images.resolver.resolver import Resolver

_OK: Final = "200 OK"
_UNAVAILABLE: Final = "503 Service Unavailable"


def pages(resolver: Resolver) -> WSGIApplication:
    """Return the application."""
    metrics: WSGIApplication = make_wsgi_app(REGISTRY)

    def answer(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        path = environ.get("PATH_INFO")
        if path == "/metrics":
            return metrics(environ, start)
        status, text = "404 Not Found", "not found"
        if path == "/healthz":
            status, text = (_UNAVAILABLE, "hung") if resolver.is_hung else (_OK, "ok")
        elif path == "/readyz":
            awaited = resolver.awaited
            status, text = (_UNAVAILABLE, f"waiting for {', '.join(awaited)}") if awaited else (_OK, "ok")
        start(status, [("Content-Type", "text/plain; charset=utf-8")])
        return [f"{text}\n".encode()]

    return answer
