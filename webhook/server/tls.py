"""The serving certificate: replaced while connections come in, without one of them noticing."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Self

from certs.authority import CertificateError, KeyPair, make_authority, make_leaf
from certs.bundle import certificates_in
from webhook.telemetry import metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def self_signed_pair(names: Iterable[str]) -> KeyPair:
    """Return a new certificate for these DNS names and addresses, from a new CA without another use."""
    now = datetime.now(UTC)
    authority = make_authority("gpugate self-signed", now)
    leaf = make_leaf(authority, names, now)
    return KeyPair(leaf.certificate_pem + authority.certificate_pem, leaf.key_pem)


class TlsCertificate:
    """The certificate that new connections are shown; replaced as a whole, or not at all.

    A context in use is never changed, because handshakes that run meanwhile would fail: a new one is built
    aside and the reference swapped. OpenSSL asks for the context in every handshake, also where the client
    names no server, as one that calls an IP address does.
    """

    def __init__(
        self,
        source: Callable[[], KeyPair],
        client_ca_pem: bytes | None = None,
        observe: Callable[[KeyPair], None] = lambda _: None,
    ) -> None:
        """Serve the pair that source gives; observe: told each that is served from now on.

        client_ca_pem: CAs of client certificates, which are then asked for; each request tells by
        `SSL_CLIENT_VERIFY`, SUCCESS or NONE, whether there was one. Raises CertificateError.
        """
        self._source = source
        self._client_ca_pem = client_ca_pem
        self._seen = self.pair = source()
        self._context = self.listener_context = _make_context(self.pair, client_ca_pem)
        self._observe = observe
        self._tell()
        self.listener_context.sni_callback = self._choose_context

    @classmethod
    def from_files(cls, certificate: Path, key: Path, client_ca_pem: bytes | None = None) -> Self:
        """Serve a certificate chain and its key from PEM files; raises CertificateError, OSError.

        Of the CA, metrics tell by what lies beside the chain, as cert-manager puts it, or ends it.
        """

        def observe(pair: KeyPair) -> None:
            beside = certificate.with_name("ca.crt")
            authority = beside.read_bytes() if beside.is_file() else b""
            for found in (certificates_in(authority)[:1] or certificates_in(pair.certificate_pem)[1:])[-1:]:
                metrics.certificate_seen("ca", found)

        return cls(lambda: KeyPair(certificate.read_bytes(), key.read_bytes()), client_ca_pem, observe)

    @classmethod
    def self_signed(cls, names: Iterable[str], client_ca_pem: bytes | None = None) -> Self:
        """Serve a certificate as `self_signed_pair` makes it."""
        pair = self_signed_pair(names)
        return cls(lambda: pair, client_ca_pem)

    def reload(self) -> bool:
        """Ask the source again and serve what is new from the next handshake on; tell whether it was.

        Raises CertificateError for what is no pair, once for each, and OSError, each time; then the old one
        stays.
        """
        pair = self._source()
        if pair == self._seen:
            return False
        try:
            self._context = _make_context(pair, self._client_ca_pem)
        except CertificateError:
            self._seen = pair
            raise
        self._seen = self.pair = pair
        self._tell()
        return True

    def _tell(self) -> None:
        for leaf in certificates_in(self.pair.certificate_pem)[:1]:
            metrics.certificate_seen("serving", leaf)
        self._observe(self.pair)

    def _choose_context(self, connection: ssl.SSLObject | ssl.SSLSocket, *_: object) -> None:
        connection.context = self._context


def _make_context(pair: KeyPair, client_ca_pem: bytes | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    # The ssl module reads files only. Memory is the one place to write where the root is read-only, and a key
    # has no place on a disk.
    memory = Path("/dev/shm")  # noqa: S108 - the name in it is random, the mode 0600
    with NamedTemporaryFile(dir=memory if memory.is_dir() else None) as file:
        file.write(pair.certificate_pem + b"\n" + pair.key_pem)
        file.flush()
        try:
            # The password keeps OpenSSL from asking for one on the terminal.
            context.load_cert_chain(file.name, password="")
            if client_ca_pem is not None:
                # Asked for, not required: the kubelet probes /healthz without one.
                context.verify_mode = ssl.CERT_OPTIONAL
                context.load_verify_locations(cadata=client_ca_pem.decode("ascii"))
        except (ssl.SSLError, ValueError) as error:
            raise CertificateError(f"cannot serve this certificate with this key: {error}") from error
    return context
