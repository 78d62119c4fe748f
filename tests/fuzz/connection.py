"""What may happen to a connection, in any order.

Zero bytes separate the steps: `A` answers a request, `L` lets the next ones wait for it, `T` lets time pass,
`W` and `R` stop and start the client's reading, `E` ends the connection; all others are received.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tests.support.connection_machine import Machine

if TYPE_CHECKING:
    from collections.abc import Iterator

_RESPONSE = re.compile(rb"HTTP/1\.1 (\d{3}) [A-Z][A-Za-z ]+\r\n(?:[a-z-]+: [^\r\n]+\r\n)+\r\n")


def seeds() -> Iterator[bytes]:
    """Yield requests of all kinds, alone and in advance."""
    yield b"POST /mutate HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}"
    yield b"L\0POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2;x\r\n{}\r\n0\r\n\r\n\0A"
    yield b"L\0GET / HTTP/1.1\r\nHost: a\r\n\r\nGET /b HTTP/1.1\r\nHost: a\r\n\r\n\0W\0A\0GET\0R\0A\0E"
    yield b"GET https://a/b?c HTTP/1.1\r\nHost: b\r\nConnection: close\r\n\r\n\0T\0T"
    yield b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n\x001\0T\0T\x0056"
    yield b"HEAD / HTTP/1.0\r\n\r\n"
    yield b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"


def words() -> Iterator[str]:
    """Yield the steps, and words of HTTP."""
    yield from ("\0A\0", "\0L\0", "\0T\0", "\0W\0", "\0R\0", "\0E\0", "\r\n", "\r\n\r\n", "\n", " ", ":")
    yield from (
        "GET / HTTP/1.1\r\nHost: a\r\n",
        "HTTP/1.0",
        "HTTP/9.9",
        "Content-Length: ",
        "Connection: close",
    )
    yield from (
        "Transfer-Encoding: chunked",
        "Expect: 100-continue",
        "Upgrade: x",
        "0\r\n\r\n",
        "ffff\r\n",
        "99",
    )


def check(data: bytes) -> None:
    """Check that each request gets one response, nothing is lost or counted twice, and no step raises."""
    machine = Machine()
    for step in data.split(b"\0"):
        if machine.is_lost:
            break
        match step:
            case b"A":
                machine.answer()
            case b"L":
                machine.at_once = not machine.at_once
            case b"T":
                machine.wait(6)
            case b"W":
                machine.connection.pause_writing()
            case b"R":
                machine.connection.resume_writing()
                machine.run()
            case b"E":
                machine.lose()
            case _:
                machine.receive(step)
    if not machine.is_lost:
        machine.lose()
    while machine.waiting:
        machine.answer()
    assert machine.connections.bodies == 0
    assert len(machine.connections) == 0
    statuses = [int(status) for status in _RESPONSE.findall(bytes(machine.wire.sent))]
    failures = [status for status in statuses if status >= 400]
    assert statuses.count(200) <= len(machine.requests)
    assert len(failures) <= 1
