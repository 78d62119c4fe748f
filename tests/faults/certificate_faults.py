"""Faults of certificates, in the Secret and in files."""

from __future__ import annotations

import ssl
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from certs.authority import CertificateError, KeyPair, make_authority, make_leaf
from certs.store import SecretStore
from tests.e2e.daemon import HOST
from tests.e2e.serve_process import QUICK_SERVE
from tests.faults.measure import AWAY, GONE, Breaks, Fault
from tests.faults.world import Serve, empty

if TYPE_CHECKING:
    from tests.faults.world import World

_SECRETS: Final = "/api/v1/namespaces/gpugate/secrets"
_SECRET: Final = f"{_SECRETS}/gpugate-certs"
_GARBAGE: Final = b"-----BEGIN CERTIFICATE-----\nbm8=\n-----END CERTIFICATE-----\n"
# Certificates are valid for seconds, and each call does a handshake, which verifies them.
_QUICK: Final = Serve(program=QUICK_SERVE)


def _other() -> KeyPair:
    """Return a pair of an unknown CA."""
    now = datetime.now(UTC)
    return make_leaf(make_authority("another", now), [HOST], now)


def serves_stored_certificate(world: World) -> bool:
    """Return whether new connections get the certificate in the Secret."""
    try:
        bundle = SecretStore(world.api, "gpugate", "gpugate-certs").load().bundle
        leaf = bundle.leaf if bundle else None
        return leaf is not None and all(gate.shown() == leaf.certificate_pem for gate in world.gates)
    except (CertificateError, OSError):
        return False


@contextmanager
def _secret_deleted(world: World) -> Iterator[None]:
    world.remove(_SECRET)
    try:
        yield
    finally:
        world.put(empty("Secret", "gpugate-certs"), _SECRETS)


def _secret(data: Callable[[], dict[str, bytes]], *, restart: bool = False) -> Breaks:
    """Return a fault that writes data into the Secret; then it is fixed as in docs/emergency.md."""

    @contextmanager
    def breaks(world: World) -> Iterator[None]:
        swapped = {name: b64encode(content).decode() for name, content in data().items()}
        world.api._request("PATCH", _SECRET, {"data": swapped}, "application/merge-patch+json")
        if restart:
            world.gate.kill()
            world.gate.start()
        try:
            yield
        finally:
            world.remove(_SECRET)
            world.put(empty("Secret", "gpugate-certs"), _SECRETS)

    return breaks


class _Files:
    """A certificate in files, with its own CA."""

    def __init__(self) -> None:
        self._authority = make_authority("files", datetime.now(UTC))
        self._pair = self._new()

    def _new(self) -> KeyPair:
        return make_leaf(self._authority, [HOST], datetime.now(UTC))

    def context(self, _: World) -> ssl.SSLContext:
        """Return the context of a client that verifies it."""
        return ssl.create_default_context(cadata=self._authority.certificate_pem.decode())

    @contextmanager
    def there(self, world: World) -> Iterator[None]:
        """Write the files."""
        world.write_certificate(self._pair.certificate_pem, self._pair.key_pem)
        yield

    @contextmanager
    def swapped(self, world: World) -> Iterator[None]:
        """Write an invalid certificate, then a key that does not match, then a new valid pair."""
        world.write_certificate(_GARBAGE, self._pair.key_pem)
        world.until(lambda: "cannot replace" in world.log())
        world.write_certificate(self._new().certificate_pem, _other().key_pem)
        yield
        self._pair = self._new()
        world.write_certificate(self._pair.certificate_pem, self._pair.key_pem)

    def shown(self, world: World) -> bool:
        """Return whether the last pair is served."""
        return world.gate.shown() == self._pair.certificate_pem


_FILES: Final = _Files()

FAULTS: Final = (
    Fault(
        "Secret deleted",
        "the Secret with CA and certificate is deleted, then applied again, empty; each call verifies the "
        "certificate; certificates are valid for seconds",
        "The old certificate is served and trusted until a new CA has replaced its CA.",
        _secret_deleted,
        serve=_QUICK,
        restored=serves_stored_certificate,
    ),
    Fault(
        "invalid certificate",
        "`tls.crt` in the Secret is not a certificate; then the Secret is deleted and applied again, empty, "
        "as [docs/emergency.md](emergency.md#certificates) says; each call verifies the certificate",
        "An invalid certificate is not served: the previous one is.",
        _secret(lambda: {"tls.crt": _GARBAGE}),
        serve=_QUICK,
        restored=serves_stored_certificate,
    ),
    Fault(
        "certificate of another CA",
        "`tls.crt` and `tls.key` in the Secret are a pair of another CA; otherwise as above",
        "A pair that is not signed by the CA in the Secret is not served: the previous one is.",
        _secret(lambda: {"tls.crt": (pair := _other()).certificate_pem, "tls.key": pair.key_pem}),
        serve=_QUICK,
        restored=serves_stored_certificate,
    ),
    Fault(
        "invalid certificate, and a restart",
        "`tls.crt` in the Secret is not a certificate, and the only replica is killed and restarted; "
        "otherwise as above",
        "It has no certificate and is not ready until somebody deletes the Secret. " + GONE,
        _secret(lambda: {"tls.crt": _GARBAGE}, restart=True),
        serve=_QUICK,
        loses=AWAY,
        remedy="delete the Secret and apply it again, empty, as "
        "[docs/emergency.md](emergency.md#certificates) says. "
        "Running replicas continue to serve; do not restart them before that.",
        restored=serves_stored_certificate,
    ),
    Fault(
        "invalid certificate files",
        "`--tls-cert` is invalid, then it does not match `--tls-key`; then both are a new "
        "pair; each request verifies the certificate",
        "An invalid pair is not served: the previous one is.",
        _FILES.swapped,
        serve=Serve(files=True),
        creates=False,
        prepare=_FILES.there,
        restored=_FILES.shown,
        context=_FILES.context,
    ),
)
