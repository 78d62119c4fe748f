"""The server of the page, on the loopback interface."""

from __future__ import annotations

from secrets import token_urlsafe
from typing import Any, Final

from werkzeug.serving import BaseWSGIServer, WSGIRequestHandler, make_server

from webhook.cli.ui.app import create_app
from webhook.cli.ui.page import Page

HOST: Final = "127.0.0.1"
# Seconds for one request to arrive: a connection that sends nothing does not keep its thread.
_TIMEOUT_S: Final = 30
_TOKEN_BYTES: Final = 32


class _Handler(WSGIRequestHandler):
    timeout = _TIMEOUT_S

    def log(self, type: str, message: str, *args: Any) -> None:  # noqa: A002 - as werkzeug names it
        """Log nothing: a line for each pause in typing helps nobody, and the first has the token."""


class _Placeholder:
    """Answers nothing; replaced before the server runs, because the application depends on the port."""

    def __call__(self, *_: Any) -> Any:
        raise RuntimeError("the server is not started")


def page_server(page: Page, port: int) -> tuple[BaseWSGIServer, str]:
    """Return a server of the page that listens, and the page's address with its token.

    port: 0 for any. Exits with werkzeug's message if the port is in use.
    """
    token = token_urlsafe(_TOKEN_BYTES)
    server = make_server(HOST, port, _Placeholder(), threaded=True, request_handler=_Handler)
    server.app = create_app(page, token, server.port)
    return server, f"http://{HOST}:{server.port}/?token={token}"
