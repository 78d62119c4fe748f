"""Certificate rotation: takes the steps of the plan that are due for the stored bundle and caBundles."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Final

from certs.authority import CertificateError, KeyPair, validity_of
from certs.ca_bundle import Configuration, read_configurations, write_ca_bundles
from certs.kubernetes_api import Conflict, Kubernetes, KubernetesError
from certs.periodic_task import PeriodicTask
from certs.rotation_plan import Plan, Step, is_ours

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from certs.bundle import Bundle
    from certs.store import Store, Stored

_log = logging.getLogger(__name__)

# Seconds between two runs. A caBundle that somebody overwrote is wrong for so long.
RECONCILE_INTERVAL: Final = 10.0
# Seconds between two runs while there is no serving certificate: readiness waits for it.
START_INTERVAL: Final = 1.0
# Steps and conflicts of one run. From an empty store it takes four steps; each conflict is a step of another
# replica, and those end as well.
_MAX_STEPS: Final = 50
_EXPIRING: Final = "%s: the external CA expires %s; replace it, or gpugate creates one on %s"


def utc_now() -> datetime:
    """Return the current time, aware, in UTC."""
    return datetime.now(UTC)


class CertRotator:
    """Keeps the CA and serving certificate of one bundle valid and trusted; replicas may share a bundle.

    Args:
        store: of the bundle.
        plan: computes the steps.
        api: for the webhook configurations; None if gpugate does not manage the caBundle.
        clock: by default the clock of the API server, which verifies the certificates; without an api, the
        local
            clock.
        observe: called with the bundle whenever it is read, for metrics.
    """

    def __init__(
        self,
        store: Store,
        plan: Plan,
        api: Kubernetes | None,
        clock: Callable[[], datetime] | None = None,
        observe: Callable[[Bundle], None] = lambda _: None,
    ) -> None:
        self._store = store
        self._plan = plan
        self._api = api
        self.clock = clock or (api.now if api else utc_now)
        self._observe = observe
        self._pair: KeyPair | None = None
        self._warned: KeyPair | None = None  # the external CA whose expiry was logged
        self._task = PeriodicTask(
            "certificates",
            self.reconcile,
            lambda: RECONCILE_INTERVAL if self._pair else START_INTERVAL,
            lambda fault: _log.warning("cannot update certificates: %s", fault),
            (KubernetesError, CertificateError, OSError),
        )

    def pair(self) -> KeyPair | None:
        """Return the serving certificate as last read, without blocking; None before the first."""
        return self._pair

    def start(self) -> None:
        """Reconcile periodically in a daemon thread.

        Each fault is logged once and retried, also an API server that is not reachable at start.
        """
        self._task.start()

    def stop(self) -> None:
        """End the thread after the current step; returns at once."""
        self._task.stop()

    def reconcile(self) -> Bundle:
        """Take all steps that are due now, and return the final bundle.

        Raises KubernetesError, CertificateError if the store has other content, OSError.
        """
        for _ in range(_MAX_STEPS):
            try:
                if (bundle := self._step()) is not None:
                    return bundle
            except Conflict as conflict:
                _log.debug("another replica was faster: %s", conflict)
        raise KubernetesError(f"{self._store} does not settle: another client keeps changing it")

    def force(self, step: Step) -> Bundle:
        """Take a step that is not due, then all steps that follow from it; return the final bundle.

        MAKE_AUTHORITY starts a CA rotation. ISSUE_LEAF renews the leaf; the caller checks first, in the
        result of `reconcile`, that no CA rotation is in progress. Raises as `reconcile`.
        """
        for _ in range(_MAX_STEPS):
            stored = self._load()
            try:
                self._save(step, stored)
            except Conflict as conflict:
                _log.debug("another replica was faster: %s", conflict)
            else:
                return self.reconcile()
        raise KubernetesError(f"{self._store} does not settle: another client keeps changing it")

    def _step(self) -> Bundle | None:
        """Take the next step; return the bundle if there is none. Raises Conflict too."""
        # Read in this order: see Plan.next_step.
        configurations = self._configurations()
        stored = self._load()
        ca_bundles = [
            ca_bundle for configuration in configurations for ca_bundle in configuration.ca_bundles.values()
        ]
        bundle = stored.bundle
        now = self.clock()
        if bundle is not None:
            self._warn_of_expiry(bundle.authority, now)
        step = self._plan.next_step(bundle, ca_bundles, now)
        if bundle is None or step not in {Step.DONE, Step.TRUST}:
            self._save(step, stored)
            return None
        if step is Step.DONE:
            return bundle
        self._inject(bundle, configurations)
        return None

    def _configurations(self) -> list[Configuration]:
        if self._api is None:
            return []
        try:
            return read_configurations(self._api)
        except KubernetesError:
            self._load()  # the stored certificate can be served anyway
            raise

    def _load(self) -> Stored:
        stored = self._store.load()
        if stored.bundle is not None:
            self._pair = stored.bundle.leaf or self._pair
            self._observe(stored.bundle)
        return stored

    def _warn_of_expiry(self, authority: KeyPair, now: datetime) -> None:
        """Log once that an external CA must be replaced."""
        replaced_at = self._plan.external_ca_replaced_at(authority, now)
        if replaced_at and authority != self._warned:
            self._warned = authority
            expires = validity_of(authority.certificate_pem).not_after
            _log.warning(_EXPIRING, self._store, f"{expires:%Y-%m-%d}", f"{replaced_at:%Y-%m-%d}")

    def _save(self, step: Step, stored: Stored) -> None:
        self._store.save(self._plan.take(step, stored.bundle, self.clock()), stored)
        if step is Step.MAKE_AUTHORITY and stored.bundle and not is_ours(stored.bundle.authority):
            _log.warning("%s: %s, replacing the external CA", self._store, step.value)
        else:
            _log.info("%s: %s", self._store, step.value)

    def _inject(self, bundle: Bundle, configurations: Iterable[Configuration]) -> None:
        now = self.clock()
        for configuration in configurations:
            if self._api is not None:
                write_ca_bundles(self._api, configuration, partial(self._plan.trust, bundle, now=now))
        _log.info("%s: %s", self._store, Step.TRUST.value)
