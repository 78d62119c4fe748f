"""Streams of a connection: plain text to and from the bytes of a socket, with TLS or without.

TLS works on memory here (`ssl.MemoryBIO`), so a connection is counted and limited from its first packet on,
has no read buffer of its own, and a response leaves in one write. Source: docs/adr/0010-transport.md.
"""

from __future__ import annotations

import ssl
from contextlib import suppress
from typing import Final, Protocol

# Bytes: the longest plain text of a TLS record (RFC 8446, 5.1), so a read takes a whole record.
RECORD: Final = 2**14


class StreamError(Exception):
    """The peer does not speak TLS, or not as required. Its fault."""


class Stream(Protocol):
    """Plain text of one connection. Bytes of the socket go in by `receive` and come out by `to_send`."""

    @property
    def is_unread(self) -> bool:
        """Whether bytes were received that `read` has not seen."""

    def receive(self, data: memoryview) -> None:
        """Take bytes of the socket; they are copied."""

    def handshake(self) -> bool:
        """Return whether the handshake is finished. Raises StreamError."""

    def is_verified(self) -> bool:
        """Return whether the peer has a client certificate of the trusted CA."""

    def read(self) -> bytes | None:
        """Return the next plain text, at most RECORD bytes; None if there is none yet, empty at the end.

        Raises StreamError.
        """

    def write(self, data: bytes) -> None:
        """Take plain text to send."""

    def close(self) -> None:
        """Add the end of the stream to the bytes to send."""

    def to_send(self) -> bytes:
        """Return and forget the bytes for the socket."""


class TlsStream:
    """The server side of TLS."""

    __slots__ = ("_incoming", "_outgoing", "_tls")

    def __init__(self, context: ssl.SSLContext) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)

    @property
    def is_unread(self) -> bool:
        """Whether bytes were received that `read` has not seen."""
        return self._incoming.pending > 0

    def receive(self, data: memoryview) -> None:
        """Take bytes of the socket; they are copied."""
        self._incoming.write(data)

    def handshake(self) -> bool:
        """Return whether the handshake is finished. Raises StreamError."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError as error:
            raise StreamError(error.reason) from None
        return True

    def is_verified(self) -> bool:
        """Return whether the peer has a client certificate of the trusted CA."""
        return bool(self._tls.getpeercert())

    def read(self) -> bytes | None:
        """Return the plain text of the next record; None if it is incomplete, empty at the end."""
        if not self._incoming.pending:  # cheaper than the exception
            return None
        try:
            return self._tls.read(RECORD)
        except ssl.SSLWantReadError:
            return None
        except ssl.SSLError as error:
            raise StreamError(error.reason) from None

    def write(self, data: bytes) -> None:
        """Take plain text to send."""
        self._tls.write(data)

    def close(self) -> None:
        """Add the end of the stream (close_notify) to the bytes to send."""
        with suppress(ssl.SSLError):  # usually because the peer has not ended its stream
            self._tls.unwrap()

    def to_send(self) -> bytes:
        """Return and forget the bytes for the socket."""
        return self._outgoing.read() if self._outgoing.pending else b""


class PlainStream:
    """No TLS: the bytes of the socket are the plain text."""

    __slots__ = ("_incoming", "_outgoing")

    def __init__(self) -> None:
        self._incoming = bytearray()
        self._outgoing = b""

    @property
    def is_unread(self) -> bool:
        """Whether bytes were received that `read` has not seen."""
        return bool(self._incoming)

    def receive(self, data: memoryview) -> None:
        """Take bytes of the socket; they are copied."""
        self._incoming += data

    def handshake(self) -> bool:
        """Return True: there is none."""
        return True

    def is_verified(self) -> bool:
        """Return False: there are no certificates."""
        return False

    def read(self) -> bytes | None:
        """Return the next bytes, at most RECORD; None if there are none yet."""
        if not self._incoming:
            return None
        data = bytes(self._incoming[:RECORD])
        del self._incoming[:RECORD]
        return data

    def write(self, data: bytes) -> None:
        """Take bytes to send."""
        self._outgoing += data

    def close(self) -> None:
        """Do nothing: the socket's own end is the end."""

    def to_send(self) -> bytes:
        """Return and forget the bytes for the socket."""
        data, self._outgoing = self._outgoing, b""
        return data
