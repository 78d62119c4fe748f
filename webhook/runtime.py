"""Composition of `gpugate serve`: the server, and background work for rules, nodes and certificate."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Protocol

from certs.authority import is_valid_at, validity_of
from certs.rotation_plan import Plan
from certs.rotator import CertRotator
from certs.store import SecretStore
from webhook.admission.app import create_server_application
from webhook.admission.work import schedule
from webhook.server.server import Server, ServerConfig
from webhook.server.tls import TlsCertificate, self_signed_pair
from webhook.telemetry import metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from certs.bundle import Bundle
    from certs.kubernetes_api import Kubernetes
    from webhook.admission.handler import AdmissionHandler
    from webhook.admission.tokens import TokenVerifier

_log = logging.getLogger("gpugate")


class Background(Protocol):
    """Work in daemon threads while requests are answered."""

    @property
    def awaited(self) -> Collection[str]:
        """Words for what readiness waits for; empty for work that requests do not need."""

    def start(self) -> None:
        """Start, whether the cluster can be reached or not; returns at once."""

    def stop(self) -> None:
        """Stop soon; returns at once."""


class Sync(Background, Protocol):
    """Background work that keeps a part of the handler up to date. on_synced: called after each update."""

    on_synced: Callable[[], None]


class ClusterSync:
    """Keeps a handler up to date with a cluster; the handler is not ready until all parts are synced once."""

    def __init__(self, handler: AdmissionHandler, parts: Sequence[Sync]) -> None:
        self._handler, self._parts = handler, parts
        self._lock = threading.Lock()  # the parts call from different threads
        self._is_over = False  # the handler was marked ready, or this was stopped
        handler.mark_not_ready()
        for part in parts:
            part.on_synced = self._on_synced

    @property
    def awaited(self) -> Collection[str]:
        """The parts that are not synced yet; empty after `stop`."""
        return () if self._is_over else sorted(name for part in self._parts for name in part.awaited)

    def start(self) -> None:
        """Start all parts."""
        for part in self._parts:
            part.start()

    def stop(self) -> None:
        """Stop all parts; the handler keeps its rules and nodes, and stays not ready if it is not ready."""
        with self._lock:
            self._is_over = True
        for part in self._parts:
            part.stop()

    def _on_synced(self) -> None:
        with self._lock:
            if self._is_over or self.awaited:
                return
            self._is_over = True
            snapshot = self._handler.snapshot
            rules, nodes = sum(1 for _ in snapshot.policy.rules), len(snapshot.inventory)
            _log.info("ready with %s rules and %s nodes", rules, nodes)
            self._handler.mark_ready()


class SecretCertificate:
    """The serving certificate in a Secret: created, renewed, and trusted by the webhook configurations.

    Until the Secret has one, the server shows a self-signed certificate, which the API server rejects. The
    kubelet's probes do not verify certificates: a server that waits for the API server is alive, not ready.
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
        self._rotator = CertRotator(SecretStore(api, namespace, secret), Plan(names), api, observe=_observe)
        self._placeholder = self_signed_pair(names)
        self.tls = TlsCertificate(lambda: self._rotator.pair() or self._placeholder, client_ca_pem)

    @property
    def awaited(self) -> Collection[str]:
        """`certificate` while it is missing or has expired."""
        pair = self.tls.pair
        is_good = pair is not self._placeholder and is_valid_at(pair.certificate_pem, self._rotator.clock())
        return () if is_good else ("certificate",)

    def start(self) -> None:
        """Start to check the Secret and the webhook configurations periodically."""
        self._rotator.start()

    def stop(self) -> None:
        """Stop the checks."""
        self._rotator.stop()


def make_server(  # noqa: PLR0913 - settings, by name
    handler: AdmissionHandler,
    tls: TlsCertificate,
    background: Sequence[Background],
    config: ServerConfig,
    *,
    require_client_certificate: bool = False,
    tokens: TokenVerifier | None = None,
) -> Server:
    """Return a server that is ready when nothing is awaited. Its drain stops the background work.

    Raises OSError if the address is not available.
    """

    def awaited() -> list[str]:
        return [name for task in background for name in task.awaited]

    def drain() -> None:
        for task in background:
            task.stop()  # first, so that none marks the handler ready afterwards
        handler.ready = False
        _log.info("draining for %s s", config.drain_seconds)

    metrics.READY.set_function(lambda: handler.ready and not awaited())
    application = create_server_application(
        handler, awaited, require_client_certificate=require_client_certificate, tokens=tokens
    )
    return Server(application, config, tls, drain, schedule=schedule)


def report_thread(failure: threading.ExceptHookArgs) -> None:
    """Log and count the exception that ended a thread: a bug. For `threading.excepthook`."""
    metrics.ERRORS.labels("internal").inc()
    name = failure.thread.name if failure.thread else "?"
    exception = (failure.exc_type, failure.exc_value, failure.exc_traceback)
    _log.error("thread %s failed", name, exc_info=exception)  # type: ignore[arg-type]


def _observe(bundle: Bundle) -> None:
    metrics.certificate_seen("ca", validity_of(bundle.authority.certificate_pem).not_after)
