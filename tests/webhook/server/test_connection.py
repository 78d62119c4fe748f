"""A connection: its phases, clocks and limits, without sockets; and which one makes room."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.support.connection_machine import LIMITS, Machine
from webhook.server.connections import Connections, Phase
from webhook.server.request_parser import MAX_HEADERS, MAX_WAITING, OVERHEAD_LIMIT
from webhook.server.streams import PlainStream

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 90\r\n\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n"


def statuses(machine: Machine) -> list[int]:
    """Return the status of each response that was sent."""
    return [int(line[9:12]) for line in bytes(machine.wire.sent).split(b"\r\n") if line.startswith(b"HTTP/")]


def test_a_connection_passes_its_phases_in_order() -> None:
    """From the accept to the end of a request with a body that comes in parts."""
    machine = Machine(at_once=False)
    phases = [machine.phase]
    for step in (b"P", POST[1:], b"x" * 90):
        machine.receive(step)
        phases.append(machine.phase)
    machine.answer()

    assert [Phase.HANDSHAKE, Phase.HEAD, Phase.BODY, Phase.WORKING, Phase.IDLE] == [*phases, machine.phase]


@pytest.mark.parametrize("end", [b"\r\n", b"Content-Length: 3\r\n\r\nabc"], ids=["head", "body"])
def test_a_head_of_the_longest_length_is_accepted_and_one_byte_more_is_not(end: bytes) -> None:
    """Exactly, although it is read in parts."""
    start, head = b"GET / HTTP/1.1\r\nHost: a\r\nX: ", end.removesuffix(b"abc")
    room = OVERHEAD_LIMIT - len(start) - len(b"\r\n") - len(head)
    answers = []
    for more in (0, 1, 70_000 - OVERHEAD_LIMIT):
        machine = Machine()
        machine.receive(start + b"x" * (room + more) + b"\r\n" + end)
        answers.append(statuses(machine))

    assert [[200], [431], [431]] == answers


@pytest.mark.parametrize(
    ("received", "seconds", "expected"),
    [
        (b"", LIMITS.client_timeout, []),
        (b"GET / HT", LIMITS.client_timeout, [408]),
        (POST + b"x", LIMITS.client_timeout, [408]),
        (GET, LIMITS.keep_alive, [200]),
        (b"nonsense\r\n\r\n", 2.0, [400]),
    ],
    ids=["silent", "head", "body", "idle", "closing"],
)
def test_each_phase_has_its_time(received: bytes, seconds: float, expected: list[int]) -> None:
    """After it the connection ends, not before."""
    machine = Machine()
    machine.receive(received)
    machine.wait(seconds - 0.1)
    is_closing = machine.phase is Phase.CLOSING
    before = machine.wire.is_closed or (machine.wire.has_ended and not is_closing)
    machine.wait(0.2)
    after = machine.wire.is_closed or (machine.wire.has_ended and not is_closing)

    assert (before, after) == (False, True)
    assert expected == statuses(machine)


def test_bytes_that_trickle_do_not_extend_the_time_of_a_head() -> None:
    """Its clock starts with its first byte."""
    machine = Machine()
    for byte in POST[:20]:
        machine.receive(bytes([byte]))
        machine.wait(1)

    assert machine.wire.has_ended


def test_a_request_in_progress_has_no_time_limit_here() -> None:
    """The work queue has one."""
    machine = Machine(at_once=False)
    machine.receive(GET)
    machine.wait(1000)
    machine.answer()

    assert ([200], Phase.IDLE) == (statuses(machine), machine.phase)


def test_a_response_that_is_not_read_has_a_time_limit() -> None:
    """And the next requests are not worked on before it is read."""
    machine = Machine()
    machine.connection.pause_writing()
    machine.receive(GET * 3)
    phase, count = machine.phase, len(machine.requests)
    machine.wait(LIMITS.client_timeout)

    assert (Phase.READING, 1, True) == (phase, count, machine.wire.is_closed)


def test_requests_in_advance_are_worked_on_when_the_response_is_read() -> None:
    """In their order."""
    machine = Machine()
    machine.connection.pause_writing()
    machine.receive(GET * 3)
    machine.connection.resume_writing()
    machine.run()

    assert [200] * 3 == statuses(machine)


def test_too_many_requests_in_advance_are_refused() -> None:
    """Each would take memory while the first is worked on."""
    machine = Machine(at_once=False)
    machine.receive(GET * (MAX_WAITING + 2))
    while machine.waiting:
        machine.answer()

    assert [200] * MAX_WAITING + [429] == statuses(machine)


def test_too_many_headers_of_requests_in_advance_are_refused() -> None:
    """Each takes thirty times the memory of its bytes."""
    machine = Machine(at_once=False)
    machine.receive(GET + (GET[:-2] + b"a:b\r\n" * (MAX_HEADERS - 10) + b"\r\n") * 3)
    while machine.waiting:
        machine.answer()

    assert [200, 200, 429] == statuses(machine)


def test_a_refused_request_holds_no_headers() -> None:
    """While its connection closes."""
    machine = Machine()
    machine.receive(GET[:-2] + b"a:b\r\n" * (MAX_HEADERS + 1))

    assert machine.connection._parser is not None
    assert [] == machine.connection._parser._headers


def test_a_client_that_sends_while_its_request_is_worked_on_is_not_read() -> None:
    """What it sends stays with it."""
    machine = Machine(at_once=False)
    machine.receive(GET)
    machine.receive(GET)
    paused = machine.wire.is_paused
    machine.answer()

    assert (True, False) == (paused, machine.wire.is_paused)


def test_a_request_of_a_client_that_is_gone_is_not_worked_on() -> None:
    """And its body is not counted any more."""
    machine = Machine(at_once=False)
    machine.receive(POST + b"x" * 90)
    counted = machine.connections.bodies
    machine.lose()

    assert (90, 0, []) == (counted, machine.connections.bodies, machine.waiting)


def test_a_body_is_counted_until_its_request_is_answered_even_if_the_client_is_gone() -> None:
    """A thread still has it."""
    machine = Machine(at_once=False)
    machine.receive(POST + b"x" * 90)
    ((_, respond),) = machine.waiting
    machine.waiting = []  # it is being worked on
    machine.lose()
    counted = machine.connections.bodies
    respond(None)  # type: ignore[arg-type]  # nobody reads it

    assert (90, 0) == (counted, machine.connections.bodies)


def test_a_last_response_to_a_client_that_has_reset_the_connection_ends_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The system says so only when the end is written."""

    def write_eof() -> None:
        raise OSError(107, "Transport endpoint is not connected")

    machine = Machine()
    monkeypatch.setattr(machine.wire, "write_eof", write_eof)
    machine.receive(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")

    assert ([200], Phase.CLOSING) == (statuses(machine), machine.phase)


def test_a_connection_that_closes_discards_what_it_receives_up_to_twice_a_body() -> None:
    """A client that is still sending would not read the response."""
    machine = Machine()
    machine.receive(b"nonsense\r\n\r\n")
    machine.receive(b"x" * 200)
    before = machine.wire.is_closed
    machine.receive(b"x")

    assert ([400], False, True) == (statuses(machine), before, machine.wire.is_closed)


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * OVERHEAD_LIMIT, 431),
        (b"GET / HTTP/1.1\r\nHost: a\r\n" + b"a:b\r\n" * (MAX_HEADERS + 1), 431),
        (CHUNKED + b"\r\n0\r\n" + b"a:b\r\n" * (MAX_HEADERS + 2), 431),
        (CHUNKED + b"\r\n0\r\n" + b"a:b\r\n" * (MAX_HEADERS + 1) + b"\r\n", 431),
        (b"GET / HTTP/1.1\r\nHost: a\r\n" + b"a:b\r\n" * MAX_HEADERS + b"\r\n", 431),
        (CHUNKED + b"\r\n1;" + b"x" * OVERHEAD_LIMIT, 431),
        (CHUNKED + b"\r\n0\r\nX: " + b"x" * OVERHEAD_LIMIT, 431),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 101\r\n\r\n", 413),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: " + b"0" * 5000 + b"\r\n\r\n", 413),
        (CHUNKED + b"\r\n65\r\n" + b"x" * 101, 413),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (CHUNKED + b"Content-Length: 2\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 400),
        (b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (b"POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (
            b"POST / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: x\r\nContent-Length: 2\r\n\r\n{}",
            400,
        ),
        (b"\x16\x03\x01 nonsense\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (b"GET / HTTP/9.9\r\nHost: a\r\n\r\n", 400),
        (b"GET / HTTP/1.1\nHost: a\n\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost : a\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: \0\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n", 400),
    ],
)
def test_a_request_with_two_readings_or_beyond_a_limit_is_refused(sent: bytes, expected: int) -> None:
    """Then the connection ends: what follows is not a request."""
    machine = Machine()
    machine.receive(sent)
    machine.receive(GET)

    assert ([expected], [], True) == (statuses(machine), machine.requests, machine.wire.has_ended)


@pytest.mark.parametrize("chunk", [4 * 2**10, 200 * 2**10])
def test_a_long_body_does_not_count_as_overhead(chunk: int) -> None:
    """Declared, or in chunks as Go sends them; only their frames do."""
    body = b"x" * (200 * 2**10)
    large = replace(LIMITS, body_limit=2**20, bodies_limit=2**20)
    parts = [body[start : start + chunk] for start in range(0, len(body), chunk)]
    machine = Machine(limits=large)
    machine.receive(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    machine.receive(CHUNKED + b"\r\n" + b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts))
    machine.receive(b"0\r\n\r\n")

    assert [body, body] == [request.body for request in machine.requests]


def test_a_request_for_another_protocol_is_answered_in_this_one_and_ends_the_connection() -> None:
    """As curl sends it with --http2."""
    machine = Machine()
    machine.receive(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n" + GET)

    assert ([200], True) == (statuses(machine), machine.wire.has_ended)


class Stalled:
    """A connection among many."""

    def __init__(self) -> None:
        self.is_aborted = False

    def abort(self) -> None:
        """Note it."""
        self.is_aborted = True


def room(limit: int, *phases: Phase) -> tuple[list[Any], Any]:
    """Return connections in these phases, the first the oldest, and a new one, after it was added."""
    everyone = Connections(replace(LIMITS, connections=limit), PlainStream, lambda: 0.0)
    those: list[Any] = []
    for phase in phases:
        those.append(Stalled())
        everyone.add(those[-1])
        everyone.move(those[-1], Phase.HANDSHAKE, phase)
    new: Any = Stalled()
    everyone.add(new)
    assert len(everyone) <= limit
    return those, new


def aborted(those: list[Any]) -> list[int]:
    """Return the places of the connections that were closed."""
    return [place for place, transport in enumerate(those) if transport.is_aborted]


def test_below_the_limit_no_connection_is_closed() -> None:
    """The new one included."""
    those, new = room(3, Phase.NEW, Phase.IDLE)

    assert [] == aborted([*those, new])


def test_the_oldest_of_the_largest_crowd_makes_room() -> None:
    """Of those that stall in some way; used ones and those that work stay."""
    those, new = room(
        8, Phase.IDLE, Phase.IDLE, Phase.IDLE, Phase.WORKING, Phase.HEAD, Phase.BODY, Phase.BODY, Phase.NEW
    )

    assert [5] == aborted([*those, new])


def test_if_none_stalls_the_longest_idle_one_makes_room() -> None:
    """An API server opens another one when it needs it."""
    those, new = room(3, Phase.WORKING, Phase.IDLE, Phase.IDLE)

    assert [1] == aborted([*those, new])


def test_if_all_work_the_new_connection_is_closed() -> None:
    """Reviews in progress are finished."""
    those, new = room(2, Phase.WORKING, Phase.WORKING)

    assert [2] == aborted([*those, new])
