"""HTTP requests under the guards: pinned address, total time, size, redirects without credentials."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final
from weakref import WeakSet

import aiohttp
from msgspec import Struct
from multidict import CIMultiDictProxy
from yarl import URL

from rules.text.i18n import Message
from webhook.images.errors import ImageError, Reason, quoted
from webhook.images.guards import MAX_REDIRECTS, GuardedResolver, Guards, Limits, Lookup
from webhook.images.manifest import too_large

# Connections that are kept for the next request, of all hosts together.
_CONNECTIONS: Final = 16
# Steps of the event loop until sockets that were shut down are released.
_CLOSING_STEPS: Final = 8
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_CREDENTIALS: Final = "Authorization"


class Answer(Struct, frozen=True):
    """The final answer to a request."""

    url: URL  # of the host that gave it
    status: int
    headers: CIMultiDictProxy[str]
    body: bytes


class Transport:
    """Requests over one pool of connections; used in one event loop.

    proxy_of: the proxy of a URL, or None for a direct connection. A proxy resolves names itself, so the
    guards check the address of the proxy, and only the name of the host that it is used for.
    """

    def __init__(
        self,
        guards: Guards,
        tls: ssl.SSLContext | None = None,
        proxy_of: Callable[[URL], str | None] = lambda _: None,
        lookup: Lookup | None = None,
        limits: Limits | None = None,
    ) -> None:
        self._guards, self._proxy_of, self._limits = guards, proxy_of, limits or Limits()
        self._sockets: WeakSet[socket.socket] = WeakSet()
        resolver = GuardedResolver(guards, lookup) if lookup else GuardedResolver(guards)
        connector = aiohttp.TCPConnector(
            resolver=resolver,
            use_dns_cache=False,  # each connection goes to an address that was checked for it
            ssl=tls or ssl.create_default_context(),
            socket_factory=self._socket,
            limit=_CONNECTIONS,
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": "gpugate", "Accept-Encoding": "identity"},
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),  # `_limits` is for all of it
            auto_decompress=False,
        )

    async def close(self) -> None:
        """Close all connections, without waiting for a peer that does not answer, as TLS would."""
        await self._session.close()
        for open_socket in self._sockets:
            with suppress(OSError):  # closed already
                open_socket.shutdown(socket.SHUT_RDWR)
        for _ in range(_CLOSING_STEPS):
            await asyncio.sleep(0)

    def _socket(self, address: tuple[Any, ...]) -> socket.socket:
        """Return a socket for an address of `getaddrinfo`."""
        created = socket.socket(*address[:3])
        self._sockets.add(created)
        return created

    async def send(
        self,
        method: str,
        url: URL,
        headers: Mapping[str, str],
        form: Mapping[str, str] | None = None,
    ) -> Answer:
        """Return the answer to a request, after at most 3 redirects; a form is never redirected.

        Raises ImageError: blocked, timeout, too-large, unavailable, invalid.
        """
        host = quoted(url.host or "")
        try:
            async with asyncio.timeout(self._limits.request_s):
                return await self._send(method, url, dict(headers), form)
        except TimeoutError:
            raise ImageError(
                Reason.TIMEOUT,
                Message(
                    "{host}: no complete answer within {seconds:g} seconds",
                    host=host,
                    seconds=self._limits.request_s,
                ),
            ) from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise ImageError(Reason.UNAVAILABLE, _why(host, error)) from None

    async def _send(
        self, method: str, url: URL, headers: dict[str, str], form: Mapping[str, str] | None
    ) -> Answer:
        origin: URL | None = None
        for _ in range(MAX_REDIRECTS + 1):
            self._guards.check_url(url)
            if url.origin() != (origin or url.origin()):  # and never again, if it leads back
                headers.pop(_CREDENTIALS, None)
            origin = url.origin()
            async with self._session.request(
                method, url, headers=headers, data=form, allow_redirects=False, proxy=self._proxy_of(url)
            ) as response:
                location = response.headers.get("Location")
                if form is not None or response.status not in _REDIRECTS or not location:
                    return Answer(
                        url, response.status, response.headers, await _body(response, self._limits.max_bytes)
                    )
            target = url.join(URL(location, encoded=True))
            if not self._limits.other_hosts and target.origin() != url.origin():
                text = Message(
                    "{host}: a redirect to another host is not followed", host=quoted(url.host or "")
                )
                raise ImageError(Reason.BLOCKED, text)
            url = target
        raise ImageError(
            Reason.BLOCKED,
            Message("{host}: more than {most} redirects", host=quoted(url.host or ""), most=MAX_REDIRECTS),
        )


async def _body(response: aiohttp.ClientResponse, max_bytes: int) -> bytes:
    """Return the body. Raises ImageError if it is too large or compressed."""
    if response.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise ImageError(
            Reason.INVALID,
            Message(
                "{host}: the answer is compressed, which was not asked for",
                host=quoted(response.url.host or ""),
            ),
        )
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > max_bytes:
            raise too_large(quoted(response.url.host or ""), max_bytes)
    return bytes(body)


def _why(host: str, error: Exception) -> Message:
    """Return the message about a request without an answer."""
    match error:
        case aiohttp.ClientConnectorCertificateError():
            why = quoted(str(error.certificate_error))
            return Message(
                "{host}: the certificate is not trusted: {why}; give the CA of the registry",
                host=host,
                why=why,
            )
        case aiohttp.ClientConnectorSSLError():
            why = quoted(str(error.os_error))
            return Message(
                "{host}: TLS failed: {why}; if the registry has no TLS, list it as insecure",
                host=host,
                why=why,
            )
        case aiohttp.ClientConnectorDNSError():
            why = quoted(error.os_error.strerror or str(error.os_error))
            return Message("{host}: the name cannot be resolved: {why}", host=host, why=why)
        case aiohttp.ClientConnectorError():
            code = error.os_error.errno
            why = os.strerror(code) if code else quoted(str(error.os_error))
            return Message("{host}: no connection: {why}", host=host, why=why)
    why = quoted(str(error)) or type(error).__name__
    return Message("{host}: no answer: {why}", host=host, why=why)
