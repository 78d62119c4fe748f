"""WSGI applications get requests as PEP 3333 requires."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from wsgiref.validate import validator

import pytest

from webhook.server.http import Request, Response
from webhook.server.wsgi import wsgi_application

if TYPE_CHECKING:
    from collections.abc import Iterable
    from wsgiref.types import StartResponse, WSGIEnvironment


def application(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """Return the environment as JSON, and the body."""
    body = environ["wsgi.input"].read(-1)
    strings = {key: value for key, value in environ.items() if isinstance(value, str)}
    start_response("405 Method Not Allowed", [("Content-Type", "application/json"), ("Allow", "GET")])
    return [json.dumps(strings | {"body": body.decode("latin-1")}).encode()]


def environ_of(request: Request) -> dict[str, str]:
    """Return the WSGI environment of a request, and its body; every call is checked against PEP 3333."""
    return dict(json.loads(wsgi_application(validator(application))(request).body))


def test_the_environment_has_method_path_query_headers_and_body() -> None:
    """Names of headers as PEP 3333 writes them."""
    headers = [(b"content-type", b"application/json"), (b"x-a", b"b"), (b"host", b"gate")]
    request = Request("POST", "/mutate", "timeout=5s", "1.1", headers, b'{"a": 1}', "192.0.2.1")

    assert {
        "REQUEST_METHOD": "POST",
        "PATH_INFO": "/mutate",
        "QUERY_STRING": "timeout=5s",
        "CONTENT_TYPE": "application/json",
        "CONTENT_LENGTH": "8",
        "HTTP_X_A": "b",
        "HTTP_HOST": "gate",
        "REMOTE_ADDR": "192.0.2.1",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "SSL_CLIENT_VERIFY": "NONE",
        "body": '{"a": 1}',
    }.items() <= environ_of(request).items()


def test_a_header_with_an_underscore_cannot_replace_one_with_a_hyphen() -> None:
    """Both would be HTTP_X_USER; the one with an underscore is dropped. Repeated headers are joined."""
    headers = [(b"x_user", b"evil"), (b"x-user", b"a"), (b"x-user", b"b")]

    assert environ_of(Request("GET", "/", headers=headers))["HTTP_X_USER"] == "a,b"


def test_headers_of_the_transfer_do_not_reach_the_application() -> None:
    """The body is whole and decoded."""
    headers = [(b"transfer-encoding", b"chunked"), (b"content-length", b"9")]
    environ = environ_of(Request("POST", "/", headers=headers, body=b"abc"))

    assert "3" == environ["CONTENT_LENGTH"]
    assert not {"HTTP_TRANSFER_ENCODING", "HTTP_CONTENT_LENGTH"} & environ.keys()


def test_a_head_request_is_asked_as_get() -> None:
    """Its response has the length of the body that is not sent."""
    assert environ_of(Request("HEAD", "/"))["REQUEST_METHOD"] == "GET"


@pytest.mark.parametrize(("verified", "expected"), [(True, "SUCCESS"), (False, "NONE")])
def test_the_application_learns_whether_there_is_a_client_certificate(verified: bool, expected: str) -> None:
    """In the words of mod_ssl."""
    assert environ_of(Request("GET", "/", verified=verified))["SSL_CLIENT_VERIFY"] == expected


def test_a_response_has_status_type_and_headers_of_the_application() -> None:
    """Its length comes from the server."""
    response = wsgi_application(application)(Request("GET", "/"))

    assert Response(405, response.body, "application/json", (("Allow", "GET"),)) == response
