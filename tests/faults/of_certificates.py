"""Faults of certificates: the Secret that keeps them, and files."""

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
from tests.e2e.gate import QUICK_SERVE
from tests.faults.measure import AWAY, GONE, Breaks, Fault
from tests.faults.world import Serve, empty

if TYPE_CHECKING:
    from tests.faults.world import World

_SECRETS: Final = "/api/v1/namespaces/gpugate/secrets"
_SECRET: Final = f"{_SECRETS}/gpugate-certs"
_GARBAGE: Final = b"-----BEGIN CERTIFICATE-----\nbm8=\n-----END CERTIFICATE-----\n"
# Terms of certificates in seconds, and a handshake, so a verification, for each call.
_QUICK: Final = Serve(program=QUICK_SERVE)


def _other() -> KeyPair:
    """Return a pair of nobody's CA."""
    now = datetime.now(UTC)
    return make_leaf(make_authority("another", now), [HOST], now)


def shows_what_is_stored(world: World) -> bool:
    """Tell whether new connections are shown the certificate in the Secret."""
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
    """Return what puts data into the Secret; then the page's way out: it is deleted, and applied empty."""

    @contextmanager
    def breaks(world: World) -> Iterator[None]:
        swapped = {name: b64encode(content).decode() for name, content in data().items()}
        world.api._ask("PATCH", _SECRET, {"data": swapped}, "application/merge-patch+json")
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
    """A certificate in files, of a CA of its own."""

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
        """Have garbage in one, then another's key in the other; then a new pair."""
        world.write_certificate(_GARBAGE, self._pair.key_pem)
        world.until(lambda: "cannot replace" in world.log())
        world.write_certificate(self._new().certificate_pem, _other().key_pem)
        yield
        self._pair = self._new()
        world.write_certificate(self._pair.certificate_pem, self._pair.key_pem)

    def shown(self, world: World) -> bool:
        """Tell whether the last pair is served."""
        return world.gate.shown() == self._pair.certificate_pem


_FILES: Final = _Files()

FAULTS: Final = (
    Fault(
        "Secret deleted",
        "the Secret with CA and certificate is deleted, then applied again, empty; each call verifies the "
        "certificate; terms of certificates in seconds",
        "What was in it is served on and trusted on, until a new CA has taken over.",
        _secret_deleted,
        serve=_QUICK,
        restored=shows_what_is_stored,
    ),
    Fault(
        "certificate swapped for garbage",
        "`tls.crt` in the Secret is no certificate; then the Secret is deleted and applied again, empty, as "
        "[docs/emergency.md](emergency.md#certificates) says; each call verifies the certificate",
        "What does not read is not served: the one before is.",
        _secret(lambda: {"tls.crt": _GARBAGE}),
        serve=_QUICK,
        restored=shows_what_is_stored,
    ),
    Fault(
        "certificate swapped for another's",
        "`tls.crt` and `tls.key` in the Secret are a pair of another CA; else as above",
        "A pair that the CA beside it did not sign is not served: the one before is.",
        _secret(lambda: {"tls.crt": (pair := _other()).certificate_pem, "tls.key": pair.key_pem}),
        serve=_QUICK,
        restored=shows_what_is_stored,
    ),
    Fault(
        "certificate swapped for garbage, and a restart",
        "`tls.crt` in the Secret is no certificate, and the only replica is killed and starts; else as above",
        "It has nothing to serve by until somebody deletes what is in the Secret, and is not ready. " + GONE,
        _secret(lambda: {"tls.crt": _GARBAGE}, restart=True),
        serve=_QUICK,
        loses=AWAY,
        remedy="delete the Secret and apply it again, empty, as "
        "[docs/emergency.md](emergency.md#certificates) says. "
        "Replicas that run serve on, so do not restart them before.",
        restored=shows_what_is_stored,
    ),
    Fault(
        "certificate files swapped for garbage",
        "`--tls-cert` names garbage, then a certificate whose key is not that of `--tls-key`; then a new "
        "pair; each request verifies the certificate",
        "What does not fit is not served: the one before is.",
        _FILES.swapped,
        serve=Serve(files=True),
        creates=False,
        prepare=_FILES.there,
        restored=_FILES.shown,
        context=_FILES.context,
    ),
)
