"""HTTP request and response as values, and what a server is given: an application and a schedule.

Source: RFC 9110 (HTTP semantics).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple


@dataclass(eq=False, slots=True)
class Request:
    """One whole request.

    path: decoded, without the query. query: as sent. version: "1.0" or "1.1". headers: names and values as
    sent. client: the peer's address. verified: whether the peer has a client certificate of the trusted CA.
    """

    method: str
    path: str
    query: str = ""
    version: str = "1.1"
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    body: bytes = b""
    client: str = ""
    verified: bool = False


class Response(NamedTuple):
    """A whole response; the server adds Content-Length and Date."""

    status: int
    body: bytes
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()


class Lane(Enum):
    """Where a request is answered, by what it may delay.

    QUICK: takes milliseconds; in the event loop's thread. LONG: may take long. RULES: may too, and waits
    for others of RULES only. OTHER: quick, but may wait for a lock.
    """

    QUICK = auto()
    LONG = auto()
    RULES = auto()
    OTHER = auto()


class Work(NamedTuple):
    """How a request is scheduled. accounts: to whom the time of a LONG or RULES request is charged."""

    lane: Lane
    accounts: tuple[str, ...] = ()


Application = Callable[[Request], Response]
Schedule = Callable[[Request], Work]
