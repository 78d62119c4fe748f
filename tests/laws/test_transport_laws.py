"""Responses do not depend on how a client cuts its requests into TLS records, nor on when they arrive."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.connection_machine import Machine
from tests.support.laws import EXAMPLES
from tests.support.serving import answers, config, connect, serving
from webhook.server.http import Request, Response

if TYPE_CHECKING:
    from collections.abc import Iterator

    from webhook.server.server import Server

REQUESTS = (
    b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n",
    b"POST /1 HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
    b"POST /2 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3;a=b\r\nabc\r\n0\r\nX: y\r\n\r\n",
    b"HEAD /3?a=b HTTP/1.1\r\nHost: a\r\n\r\n",
    b"POST /4 HTTP/1.1\r\nHost: a\r\nContent-Length: 300\r\n\r\n" + b"x" * 300,
    b"GET https://b/5 HTTP/1.1\r\nHost: a\r\n\r\n",
)
LAST = b"GET /last HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
_DATE = re.compile(rb"date: [^\r]+")


def echo(request: Request) -> Response:
    """Return what the application sees of a request."""
    return Response(200, f"{request.method} {request.path} {request.query} ".encode() + request.body)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """Serve the echo; a small limit of the body, so that one request is refused."""
    with serving(echo, config(body_limit=2**10)) as running:
        yield running


def pieces(stream: bytes, cuts: list[int]) -> list[bytes]:
    """Cut a stream at these places."""
    places = sorted({cut % (len(stream) + 1) for cut in cuts} | {0, len(stream)})
    return [stream[start:end] for start, end in pairwise(places)]


@given(
    order=st.lists(st.sampled_from(REQUESTS), max_size=6), cuts=st.lists(st.integers(0, 2**16), max_size=40)
)
def test_requests_in_advance_get_the_same_responses_however_they_are_cut_into_records(
    server: Server, order: list[bytes], cuts: list[int]
) -> None:
    """Each piece is a TLS record of its own; the requests in one record are the reference."""
    stream = b"".join([*order, LAST])
    with connect(server.port) as connection:
        for piece in pieces(stream, cuts):
            connection.sendall(piece)
        cut = answers(connection, b"")

    assert _DATE.sub(b"", answers(connect(server.port), stream)) == _DATE.sub(b"", cut)
    assert cut.count(b"HTTP/1.1 200 OK") == len(order) + 1


@settings(max_examples=10 * EXAMPLES)
@given(
    order=st.lists(st.sampled_from([*REQUESTS, b"nonsense\r\n\r\n"]), max_size=8),
    cuts=st.lists(st.integers(0, 2**16), max_size=40),
    waiting=st.lists(st.booleans(), max_size=40),
)
def test_responses_do_not_depend_on_when_requests_are_answered(
    order: list[bytes], cuts: list[int], waiting: list[bool]
) -> None:
    """Some are answered at once, others after the next pieces have come."""
    stream = b"".join([*order, LAST])
    reference, machine = Machine(), Machine()
    reference.receive(stream)
    parts = pieces(stream, cuts)
    for number, piece in enumerate(parts):
        machine.at_once = not (waiting and waiting[number % len(waiting)])
        while machine.wire.is_paused:
            machine.answer()
        machine.receive(piece)
    while machine.waiting:
        machine.answer()

    assert _DATE.sub(b"", bytes(reference.wire.sent)) == _DATE.sub(b"", bytes(machine.wire.sent))
    assert [request.path for request in reference.requests] == [request.path for request in machine.requests]
