"""What `gpugate serve` runs: the server, and beside it what keeps gate and certificate up to date."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Protocol

from certs.authority import is_valid_at
from certs.rotation_plan import Plan
from certs.rotator import CertRotator
from certs.store import SecretStore
from webhook.admission.app import create_app
from webhook.admission.review import is_quick
from webhook.server.server import Server, ServerConfig
from webhook.server.tls import TlsCertificate, self_signed_pair
from webhook.telemetry import metrics

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from certs.bundle import Bundle
    from certs.kubernetes_api import Kubernetes
    from webhook.admission.handler import AdmissionHandler

_log = logging.getLogger("gpugate")


class Background(Protocol):
    """Work beside the answering of requests, in threads of its own that do not keep the process alive."""

    @property
    def awaited(self) -> Collection[str]:
        """What readiness waits for, in a word each; nothing for work that requests do not need."""

    def start(self) -> None:
        """Begin, whether the cluster can be reached yet or not; returns at once."""

    def stop(self) -> None:
        """End soon; returns at once."""


class SecretCertificate:
    """The serving certificate in a Secret: made, renewed, trusted by the webhook configurations, and served.

    Until it is there, connections are shown a self-signed one, which the API server refuses. The kubelet's
    probes do not look at it: so a gate that waits for the API server is alive, and not ready.
    """

    def __init__(
        self,
        api: Kubernetes,
        namespace: str,
        secret: str,
        names: tuple[str, ...],
        client_ca_pem: bytes | None = None,
    ) -> None:
        """Keep the Secret of this name; for the rest see Plan and TlsCertificate."""
        self._keeper = CertRotator(SecretStore(api, namespace, secret), Plan(names), api, observe=_observe)
        self._placeholder = self_signed_pair(names)
        self.tls = TlsCertificate(lambda: self._keeper.pair() or self._placeholder, client_ca_pem)

    @property
    def awaited(self) -> Collection[str]:
        """The certificate; one that expired while no server ran is as good as none."""
        pair = self.tls.pair
        good = pair is not self._placeholder and is_valid_at(pair.certificate_pem, self._keeper.clock())
        return () if good else ("certificate",)

    def start(self) -> None:
        """Look at the Secret and the webhook configurations again and again."""
        self._keeper.start()

    def stop(self) -> None:
        """Look no more."""
        self._keeper.stop()


def make_server(
    gate: AdmissionHandler,
    tls: TlsCertificate,
    background: Sequence[Background],
    config: ServerConfig,
    *,
    require_client_certificate: bool = False,
) -> Server:
    """Return a server that is ready once nothing is awaited, and whose drain ends the work in the background.

    Raises OSError where the address cannot be had.
    """

    def awaited() -> list[str]:
        return [what for each in background for what in each.awaited]

    def drain() -> None:
        for each in background:
            each.stop()  # first, so that none opens the gate after
        gate.ready = False
        _log.info("draining for %s s", config.drain_seconds)

    metrics.READY.set_function(lambda: gate.ready and not awaited())
    app = create_app(gate, awaited, require_client_certificate=require_client_certificate)
    return Server(app, config, tls, drain, is_quick=is_quick)


def report_thread(thrown: threading.ExceptHookArgs) -> None:
    """Log and count what a thread died of: a bug. For `threading.excepthook`."""
    metrics.ERRORS.labels("internal").inc()
    name = thrown.thread.name if thrown.thread else "?"
    _log.error("thread %s failed", name, exc_info=(thrown.exc_type, thrown.exc_value, thrown.exc_traceback))  # type: ignore[arg-type]


def _observe(bundle: Bundle) -> None:
    metrics.certificate_seen("ca", bundle.authority.certificate_pem)
