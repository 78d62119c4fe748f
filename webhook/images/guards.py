"""What a client of registries may reach: registries, schemes, addresses, and limits of a request.

A name is resolved once for each connection, and the connection goes to an address of that answer which was
checked: an answer that changes afterwards has no effect (DNS rebinding).
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Any, Final

from aiohttp.abc import AbstractResolver, ResolveResult
from msgspec import Struct
from yarl import URL

from rules.text.glob import glob
from rules.text.i18n import Message
from webhook.images.errors import ImageError, Reason, quoted
from webhook.images.manifest import MAX_BYTES

Address = IPv4Address | IPv6Address

# Seconds of one request, from the resolution of the name to the last byte, with its redirects.
REQUEST_S: Final = 5.0
MAX_REDIRECTS: Final = 3


class Limits(Struct, frozen=True):
    """Limits of one request.

    request_s: seconds, with redirects. max_bytes: of the body. other_hosts: whether a redirect may lead to
    another host.
    """

    request_s: float = REQUEST_S
    max_bytes: int = MAX_BYTES
    other_hosts: bool = True


# Never allowed: metadata services outside of the link-local range, by the documentation of AWS EC2 (IPv6),
# Google Compute Engine (IPv6), Alibaba Cloud ECS, Oracle Cloud, and Azure (WireServer).
_METADATA: Final = frozenset(
    map(
        ip_address,
        ("fd00:ec2::254", "fd20:ce::254", "100.100.100.200", "192.0.0.192", "168.63.129.16"),
    )
)
# https://www.rfc-editor.org/rfc/rfc6052 and rfc8215: IPv6 addresses whose last 32 bits are an IPv4 address.
_NAT64: Final = tuple(map(IPv6Network, ("64:ff9b::/96", "64:ff9b:1::/48")))
# https://www.rfc-editor.org/rfc/rfc6598: shared by customers of a provider, and used inside clusters.
_SHARED: Final = IPv4Network("100.64.0.0/10")


class Guards(Struct, frozen=True):
    """What a client may reach. Each field has globs of `host` or `host:port`, as in image references.

    Attributes:
        registries: registries that images may come from. The hosts that these refer to (for tokens, and by
            redirects) need not be listed, but must pass the other guards.
        private: hosts that may have loopback and private addresses.
        insecure: hosts that are called by http instead of https.
    """

    registries: Sequence[str] = ("*",)
    private: Sequence[str] = ()
    insecure: Sequence[str] = ()

    def check_registry(self, registry: str) -> None:
        """Raise ImageError unless images may come from a registry."""
        if not _listed(registry, self.registries):
            raise _blocked(
                Message("registry {registry} is not on the list of allowed registries", registry=registry),
            )

    def scheme(self, authority: str) -> str:
        """Return the scheme for a host with an optional port."""
        return "http" if _listed(authority, self.insecure) else "https"

    def check_url(self, url: URL) -> None:
        """Raise ImageError for a scheme, user name or literal address that is not allowed."""
        host, shown = url.host or "", quoted(f"{url.scheme}://{url.host or ''}{url.path}")
        if not host or url.scheme != self.scheme(_authority(url)):
            raise _blocked(Message("{shown}: only https is allowed", shown=shown))
        if url.user is not None or url.password is not None:
            raise _blocked(Message("{shown}: a URL with a user name is not allowed", shown=shown))
        try:
            literal = ip_address(host)
        except ValueError:
            return
        self.check_address(literal, host, url.port)

    def check_address(self, address: Address, host: str, port: int | None) -> None:
        """Raise ImageError for an address that a host may not have."""
        names = (host, f"[{host}]", _bracketed(host, port))
        if allowed_address(address, private=any(_listed(name, self.private) for name in names)):
            return
        where = host if host == str(address) else f"{host} ({address})"
        if allowed_address(address, private=True):
            raise _blocked(
                Message(
                    "{where}: the address is not public; list the host as private if it is yours", where=where
                ),
            )
        raise _blocked(
            Message("{where}: link-local, multicast and metadata addresses are never allowed", where=where),
        )


def allowed_address(address: Address, *, private: bool) -> bool:
    """Return whether an address may be connected to: a public one, or with `private` any that hosts can have.

    Link-local, multicast, reserved, unspecified and metadata addresses are never allowed.
    """
    if isinstance(address, IPv6Address) and (inner := _embedded(address)):
        return allowed_address(inner, private=private)
    if address in _METADATA or address.is_link_local or address.is_multicast or address.is_unspecified:
        return False
    local = address.is_site_local if isinstance(address, IPv6Address) else address in _SHARED
    if address.is_loopback or address.is_private or local:
        return private
    return address.is_global and not address.is_reserved


def _embedded(address: IPv6Address) -> IPv4Address | None:
    """Return the IPv4 address to which a translator or tunnel forwards an IPv6 address."""
    if any(address in network for network in _NAT64):
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)


def _listed(authority: str, globs: Sequence[str]) -> bool:
    return any(glob(pattern.lower()).fullmatch(authority.lower()) for pattern in globs)


def _bracketed(host: str, port: int | None) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _authority(url: URL) -> str:
    """Return host and port as in an image reference, which leaves out the default port."""
    host = url.host or ""
    if not url.is_default_port() and url.port is not None:
        return _bracketed(host, url.port)
    return f"[{host}]" if ":" in host else host


def _blocked(text: Message) -> ImageError:
    return ImageError(Reason.BLOCKED, text)


Lookup = Callable[[str, int], Awaitable[list[tuple[Any, ...]]]]


async def _lookup(host: str, port: int) -> list[tuple[Any, ...]]:
    loop = asyncio.get_running_loop()
    return list(await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM))


@dataclass(slots=True)
class GuardedResolver(AbstractResolver):
    """Resolver of the connector: returns only addresses that the guards allow, which are then connected to.

    lookup: as `socket.getaddrinfo`.
    """

    guards: Guards
    lookup: Lookup = field(default=_lookup)

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Return the allowed addresses of a host. Raises ImageError if there is none, OSError."""
        del family
        results: list[ResolveResult] = []
        refused: ImageError | None = None
        try:
            answers = await self.lookup(host, port)
        except UnicodeError as error:  # a label of more than 63 characters
            raise OSError(f"not a host name: {error}") from None
        for address_family, _, proto, _, sockaddr in answers:
            try:
                self.guards.check_address(ip_address(sockaddr[0]), host, port)
            except ImageError as error:
                refused = error
                continue
            flags = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
            results.append(
                ResolveResult(
                    hostname=host,
                    host=sockaddr[0],
                    port=port,
                    family=address_family,
                    proto=proto,
                    flags=flags,
                )
            )
        if refused and not results:
            raise refused
        return results

    async def close(self) -> None:
        """Do nothing: there is nothing to release."""
