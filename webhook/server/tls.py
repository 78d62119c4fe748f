"""The serving certificate, replaced at runtime without a failed connection."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Self

from certs.authority import CertificateError, KeyPair, make_authority, make_leaf, validity_of
from certs.bundle import certificates_in
from webhook.telemetry import metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def self_signed_pair(names: Iterable[str]) -> KeyPair:
    """Return a new certificate for these DNS names and addresses, with its own new CA."""
    now = datetime.now(UTC)
    authority = make_authority("gpugate self-signed", now)
    leaf = make_leaf(authority, names, now)
    return KeyPair(leaf.certificate_pem + authority.certificate_pem, leaf.key_pem)


class TlsCertificate:
    """The serving certificate of new connections; replaced atomically.

    context: for the next handshake. A context in use is never changed, because concurrent handshakes would
    fail: a new one is built and the reference is swapped.
    """

    def __init__(
        self,
        source: Callable[[], KeyPair],
        client_ca_pem: bytes | None = None,
        observe: Callable[[KeyPair], None] = lambda _: None,
    ) -> None:
        """Serve the pair that `source` returns. observe: called with each new pair.

        client_ca_pem: CAs of client certificates, which are then requested; `Request.verified` is whether
        there is one. Raises CertificateError.
        """
        self._source = source
        self._client_ca_pem = client_ca_pem
        self._last_read = self.pair = source()
        self.context = _make_context(self.pair, client_ca_pem)
        self._observe = observe
        self._notify()

    @classmethod
    def from_files(cls, certificate: Path, key: Path, client_ca_pem: bytes | None = None) -> Self:
        """Serve a certificate chain and its key from PEM files; raises CertificateError, OSError.

        The CA in metrics is `ca.crt` in the same directory, as cert-manager writes it, or the end of the
        chain.
        """

        def observe(pair: KeyPair) -> None:
            ca_file = certificate.with_name("ca.crt")
            authority = ca_file.read_bytes() if ca_file.is_file() else b""
            for issuer in (certificates_in(authority)[:1] or certificates_in(pair.certificate_pem)[1:])[-1:]:
                metrics.certificate_seen("ca", validity_of(issuer).not_after)

        return cls(lambda: KeyPair(certificate.read_bytes(), key.read_bytes()), client_ca_pem, observe)

    @classmethod
    def self_signed(cls, names: Iterable[str], client_ca_pem: bytes | None = None) -> Self:
        """Serve a certificate of `self_signed_pair`."""
        pair = self_signed_pair(names)
        return cls(lambda: pair, client_ca_pem)

    def reload(self) -> bool:
        """Read the source again and serve a new pair from the next handshake; return whether it is new.

        Raises CertificateError, once per invalid pair, and OSError, each time; the old pair stays.
        """
        pair = self._source()
        if pair == self._last_read:
            return False
        try:
            self.context = _make_context(pair, self._client_ca_pem)
        except CertificateError:
            self._last_read = pair
            raise
        self._last_read = self.pair = pair
        self._notify()
        return True

    def _notify(self) -> None:
        for leaf in certificates_in(self.pair.certificate_pem)[:1]:
            metrics.certificate_seen("serving", validity_of(leaf).not_after)
        self._observe(self.pair)


def _make_context(pair: KeyPair, client_ca_pem: bytes | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    # A handshake costs 200 µs of CPU, a request for another one in the same connection a packet.
    context.options |= ssl.OP_NO_RENEGOTIATION
    # The ssl module reads files only. Shared memory is writable even if the root file system is read-only,
    # and a key must not be on a disk.
    memory = Path("/dev/shm")  # noqa: S108 - the file name is random, the mode 0600
    with NamedTemporaryFile(dir=memory if memory.is_dir() else None) as file:
        file.write(pair.certificate_pem + b"\n" + pair.key_pem)
        file.flush()
        try:
            # With a password, OpenSSL does not ask for one on the terminal.
            context.load_cert_chain(file.name, password="")
            if client_ca_pem is not None:
                # Requested, not required: the kubelet probes /healthz without one.
                context.verify_mode = ssl.CERT_OPTIONAL
                context.load_verify_locations(cadata=client_ca_pem.decode("ascii"))
        except (ssl.SSLError, ValueError) as error:
            raise CertificateError(f"cannot serve this certificate with this key: {error}") from error
    return context
