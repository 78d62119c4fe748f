"""HTTP request and response as values, and the types of a server's application and schedule.

Source: RFC 9110 (HTTP semantics).
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from http import HTTPStatus
from typing import Final, NamedTuple

from msgspec import Struct, field

# Bytes. etcd accepts 1.5 MiB in a request by default and kube-apiserver 3 MiB in a resource; an
# AdmissionReview contains object and oldObject, so 2 x 3 MiB, and 1 MiB for its envelope (user, options,
# escapes).
BODY_LIMIT: Final = 7 * 2**20
# Seconds after which the API server sends a refused review again, up to ten times within the webhook's
# time-out. Without a Retry-After header it does not. Source: k8s.io/client-go/rest/with_retry.go.
RETRY_AFTER: Final = "1"


class Request(Struct, eq=False):
    """One whole request."""

    method: str
    path: str  # decoded, without the query
    query: str = ""  # as sent
    version: str = "1.1"  # or "1.0"
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)  # names in lower case, values as sent
    body: bytes | bytearray = b""
    client: str = ""  # the peer's address
    verified: bool = False  # whether the peer has a client certificate of the trusted CA
    is_last: bool = False  # whether no other request follows on its connection


class Response(NamedTuple):
    """A whole response; the server adds Content-Length and Date."""

    status: int
    body: bytes
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()


def failure(status: HTTPStatus, detail: str = "") -> Response:
    """Return the server's own response to a request that failed."""
    retry = status in (HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TOO_MANY_REQUESTS)
    headers = (("Retry-After", RETRY_AFTER),) if retry else ()
    text = f"{status.phrase}: {detail}\n" if detail else f"{status.phrase}\n"
    return Response(status, text.encode(), "text/plain; charset=utf-8", headers)


class Lane(Enum):
    """Where a request is answered, by what it may delay."""

    QUICK = auto()  # takes milliseconds; in the event loop's thread
    LONG = auto()  # may take long
    RULES = auto()  # may take long, and waits only for others of this lane
    OTHER = auto()  # is quick, but may wait for a lock


class Work(NamedTuple):
    """How a request is scheduled.

    Attributes:
        accounts: returns the accounts that its time is charged to; called only if the request leaves the
        event
            loop's thread.
        memory: bytes that its work takes at most in addition to its body; 0 if they are negligible.
    """

    lane: Lane
    accounts: Callable[[], tuple[str, ...]] = tuple
    memory: int = 0


Application = Callable[[Request], Response]
Schedule = Callable[[Request], Work]
