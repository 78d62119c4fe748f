"""Keeps the trust: looks at what is stored and what is trusted, and takes the steps that are due."""

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

# Seconds between two looks, three small reads each. As long may a caBundle be wrong that somebody overwrote.
LOOK_INTERVAL: Final = 10.0
# Seconds, as long as there is nothing to serve by: somebody waits for it.
START_INTERVAL: Final = 1.0
# Steps and conflicts of one look. From nothing to rest it is four steps; each conflict is a step of somebody
# else's, and those end as well.
_MOST_STEPS: Final = 50
_ENDING: Final = "%s: the CA of your own expires %s; put another there, or gpugate makes one on %s"


def utc_now() -> datetime:
    """Return the time, aware, in UTC."""
    return datetime.now(UTC)


class CertRotator:
    """Keeps one bundle of certificates valid and trusted; any number of replicas may, of the same one.

    api: where the webhook configurations are; None where the caBundle is somebody else's work. clock: that of
    the api, which verifies what is made here; without one, ours. observe: told the bundle whenever it is
    read, for metrics. `pair` is for a server that asks again and again.
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
        self._ending: KeyPair | None = None  # the CA of which was told that it expires
        self._looks = PeriodicTask(
            "certificates",
            self.look,
            lambda: LOOK_INTERVAL if self._pair else START_INTERVAL,
            lambda fault: _log.warning("certificates are not kept up: %s", fault),
            (KubernetesError, CertificateError, OSError),
        )

    def pair(self) -> KeyPair | None:
        """Return the serving certificate as last seen, without waiting for anything; None before."""
        return self._pair

    def start(self) -> None:
        """Look again and again, in a thread of its own that does not keep the process alive.

        Whatever is wrong is logged, once, and tried again: also an API server that is away from the start.
        """
        self._looks.start()

    def stop(self) -> None:
        """End the thread, after a step that is under way; returns at once."""
        self._looks.stop()

    def look(self) -> Bundle:
        """Take all steps that are due now, and return the bundle at rest.

        Raises KubernetesError, CertificateError where what is stored is no bundle, OSError.
        """
        for _ in range(_MOST_STEPS):
            try:
                if (bundle := self._step()) is not None:
                    return bundle
            except Conflict as conflict:
                _log.debug("another was faster: %s", conflict)
        raise KubernetesError(f"{self._store} does not come to rest: others keep changing it")

    def force(self, step: Step) -> Bundle:
        """Take a step that is not due, then all that follow from it; return the bundle at rest.

        MAKE_AUTHORITY begins a rotation of the CA, ISSUE_LEAF renews the leaf; its CA has to have taken over,
        which the caller sees in what `look` returned. Raises as `look`.
        """
        for _ in range(_MOST_STEPS):
            stored = self._load()
            try:
                self._save(step, stored)
            except Conflict as conflict:
                _log.debug("another was faster: %s", conflict)
            else:
                return self.look()
        raise KubernetesError(f"{self._store} does not come to rest: others keep changing it")

    def _step(self) -> Bundle | None:
        """Take the next step; return the bundle where there is none. Raises Conflict too."""
        # In this order: see Plan.next_step.
        configurations = self._configurations()
        stored = self._load()
        ca_bundles = [held for each in configurations for held in each.ca_bundles.values()]
        bundle = stored.bundle
        now = self.clock()
        if bundle is not None:
            self._warn_of(bundle.authority, now)
        step = self._plan.next_step(bundle, ca_bundles, now)
        if bundle is None or step not in {Step.REST, Step.TRUST}:
            self._save(step, stored)
            return None
        if step is Step.REST:
            return bundle
        self._inject(bundle, configurations)
        return None

    def _configurations(self) -> list[Configuration]:
        if self._api is None:
            return []
        try:
            return read_configurations(self._api)
        except KubernetesError:
            self._load()  # what is stored can be served all the same
            raise

    def _load(self) -> Stored:
        stored = self._store.load()
        if stored.bundle is not None:
            self._pair = stored.bundle.leaf or self._pair
            self._observe(stored.bundle)
        return stored

    def _warn_of(self, authority: KeyPair, now: datetime) -> None:
        """Say once of a CA that was made elsewhere that it has to be replaced."""
        gives_up = self._plan.gives_up_at(authority, now)
        if gives_up and authority != self._ending:
            self._ending = authority
            expires = validity_of(authority.certificate_pem).not_after
            _log.warning(_ENDING, self._store, f"{expires:%Y-%m-%d}", f"{gives_up:%Y-%m-%d}")

    def _save(self, step: Step, stored: Stored) -> None:
        self._store.save(self._plan.take(step, stored.bundle, self.clock()), stored)
        if step is Step.MAKE_AUTHORITY and stored.bundle and not is_ours(stored.bundle.authority):
            _log.warning("%s: %s, in place of one of your own", self._store, step.value)
        else:
            _log.info("%s: %s", self._store, step.value)

    def _inject(self, bundle: Bundle, configurations: Iterable[Configuration]) -> None:
        now = self.clock()
        for configuration in configurations:
            if self._api is not None:
                write_ca_bundles(self._api, configuration, partial(self._plan.trust, bundle, now=now))
        _log.info("%s: %s", self._store, Step.TRUST.value)
