"""WSGI: an application of Flask or prometheus_client as an application of this server.

Source: PEP 3333 (WSGI 1.0.1).
"""

from __future__ import annotations

import sys
from io import BytesIO
from typing import TYPE_CHECKING, Final

from webhook.server.http import Application, Request, Response

if TYPE_CHECKING:
    from collections.abc import Callable
    from wsgiref.types import WSGIApplication, WSGIEnvironment

# The body is whole and decoded, so its length is known: these headers would contradict it.
_FRAMING: Final = (b"content-length", b"transfer-encoding")
_CONTENT_TYPE: Final = "Content-Type"


def wsgi_application(app: WSGIApplication, *, scheme: str = "https") -> Application:
    """Return a WSGI application as an Application; it is called once for each request, in any thread."""

    def answer(request: Request) -> Response:
        started: list[tuple[str, list[tuple[str, str]]]] = []
        written: list[bytes] = []

        def start_response(
            status: str, headers: list[tuple[str, str]], _error: object = None
        ) -> Callable[[bytes], None]:
            started.append((status, headers))
            return written.append

        result = app(_environ(request, scheme), start_response)
        try:
            written.extend(result)
        finally:
            if hasattr(result, "close"):
                result.close()
        status, headers = started[-1]  # an application may start again, to report an error
        content_type = next((value for name, value in headers if name == _CONTENT_TYPE), "text/plain")
        others = tuple(pair for pair in headers if pair[0] not in (_CONTENT_TYPE, "Content-Length"))
        return Response(int(status[:3]), b"".join(written), content_type, others)

    return answer


def _environ(request: Request, scheme: str) -> WSGIEnvironment:
    """Return the WSGI environment of a request; strings are bytes as Latin-1, as PEP 3333 requires."""
    environ: WSGIEnvironment = {
        # Its body is not sent, but its length is.
        "REQUEST_METHOD": "GET" if request.method == "HEAD" else request.method,
        "SCRIPT_NAME": "",
        "PATH_INFO": request.path,
        "QUERY_STRING": request.query,
        "SERVER_PROTOCOL": f"HTTP/{request.version}",
        "SERVER_NAME": "localhost",  # applications use the Host header
        "SERVER_PORT": "443" if scheme == "https" else "80",
        "REMOTE_ADDR": request.client,
        "CONTENT_LENGTH": str(len(request.body)),
        "SSL_CLIENT_VERIFY": "SUCCESS" if request.verified else "NONE",  # the values of mod_ssl
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": scheme,
        "wsgi.input": BytesIO(request.body),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
    }
    for name, value in request.headers:
        text = value.decode("latin-1")
        if name == b"content-type":
            environ["CONTENT_TYPE"] = text
        elif b"_" not in name and name not in _FRAMING:  # an underscore could be confused with a hyphen
            key = f"HTTP_{name.decode('latin-1').upper().replace('-', '_')}"
            environ[key] = f"{environ[key]},{text}" if key in environ else text
    return environ
