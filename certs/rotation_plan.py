"""The state machine of the trust: from what is kept and what is trusted to the one step that is next.

Pure: no clock, no store, no cluster. Any replica may take any step at any time, because each is decided anew
from what is stored. A CA takes over in this order, and whoever stops in the middle is continued by another:

    MAKE_AUTHORITY   the new CA is stored; the old one is `previous`, and its leaf goes on serving
    TRUST            every caBundle holds both
    CONFIRM          it is stored since when
    ISSUE_LEAF       after `settling`: the new CA signs the leaf that serves from now on
    DROP_PREVIOUS    after `overlap`: the old CA is forgotten
    TRUST            every caBundle holds the new CA alone

A CA that was made elsewhere is its owner's to replace: one of ours takes over as late as can be.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum
from ipaddress import ip_address
from typing import TYPE_CHECKING

from cryptography import x509

from certs.authority import (
    CA_LIFETIME,
    CLOCK_SKEW,
    LEAF_LIFETIME,
    is_valid_at,
    make_authority,
    make_leaf,
    validity_of,
)
from certs.bundle import Bundle, is_issued_by, names_in

if TYPE_CHECKING:
    from collections.abc import Iterable

    from certs.authority import KeyPair

# Of every CA made here, and of those alone. Verifiers tell two apart by key and key identifier.
AUTHORITY_NAME = "gpugate CA"


def service_names(namespace: str) -> tuple[str, ...]:
    """Return the names of gpugate's Service, as its cluster spells them; the API server's comes first."""
    service = f"gpugate.{namespace}"
    return (f"{service}.svc", service, "gpugate", f"{service}.svc.cluster.local")


class Step(Enum):
    """What is next."""

    REST = "nothing to do now"
    MAKE_AUTHORITY = "make a CA"
    TRUST = "put the CAs into every caBundle"
    CONFIRM = "note since when every caBundle trusts the CA"
    ISSUE_LEAF = "issue a serving certificate"
    DROP_PREVIOUS = "forget the CAs before"


@dataclass(frozen=True, slots=True)
class Plan:
    """What is wanted: a leaf for these names, and when it and its CA are replaced.

    names: DNS names and IP addresses. lookahead: a certificate that does not hold at now + lookahead is
    replaced. settling: from the moment at which every caBundle holds a CA until a leaf of it may serve, while
    API servers hear of it. overlap: from a leaf's issue until CAs before its own are trusted no more, while
    replicas hear of it. Raises ValueError where certificates would be made that are due at once.
    """

    names: tuple[str, ...]
    # A third of a leaf's life: a month in which somebody can repair what keeps it from being renewed.
    lookahead: timedelta = timedelta(days=30)
    leaf_lifetime: timedelta = LEAF_LIFETIME
    authority_lifetime: timedelta = CA_LIFETIME
    # API servers watch webhook configurations and hear of a change in well under a second.
    settling: timedelta = timedelta(minutes=1)
    # Replicas look every few seconds; a day is for one that cannot reach the API server.
    overlap: timedelta = timedelta(days=1)

    def __post_init__(self) -> None:
        if self.lookahead >= self.leaf_lifetime:
            raise ValueError("the lookahead has to be shorter than a serving certificate's life")
        if self.lookahead + self.leaf_lifetime >= self.authority_lifetime:
            raise ValueError("a CA has to live longer than a serving certificate and the lookahead")
        object.__setattr__(self, "names", tuple(map(_canonical, self.names)))

    def next_step(
        self, bundle: Bundle | None, ca_bundles: Iterable[tuple[bytes, ...]], now: datetime
    ) -> Step:
        """Return the step that comes next.

        bundle: what is stored. ca_bundles: the CAs in each caBundle of ours, PEM as in `certificates_in`;
        read before the bundle, and written only if unchanged since, so that nobody takes out of a caBundle
        what it has not heard of yet.
        """
        if bundle is None or self._authority_is_due(bundle, now):
            return Step.MAKE_AUTHORITY
        is_trusted = all(set(self.trust(bundle, held, now)) == set(held) for held in ca_bundles)
        if bundle.issuer() != bundle.authority.certificate_pem:
            return self._next_of_takeover(bundle, now, is_trusted=is_trusted)
        # Before TRUST, for where no caBundle may be written: a leaf of the same CA asks for no other trust.
        if self._leaf_is_due(bundle, now):
            return Step.ISSUE_LEAF
        if not is_trusted:
            return Step.TRUST
        return Step.DROP_PREVIOUS if bundle.previous and self._overlap_is_over(bundle, now) else Step.REST

    def take(self, step: Step, bundle: Bundle | None, now: datetime) -> Bundle:
        """Return the bundle after a step that changes it; raises ValueError for another."""
        if step is Step.MAKE_AUTHORITY:
            made = make_authority(AUTHORITY_NAME, now, self.authority_lifetime)
            return Bundle(made, bundle.trusted if bundle else (), None, bundle.leaf if bundle else None)
        if bundle is None or step not in {Step.CONFIRM, Step.ISSUE_LEAF, Step.DROP_PREVIOUS}:
            raise ValueError(f"{step} changes no bundle")
        if step is Step.CONFIRM:
            return replace(bundle, trusted_since=now)
        if step is Step.DROP_PREVIOUS:
            return replace(bundle, previous=())
        leaf = make_leaf(
            bundle.authority, self._names_for(bundle), now, self._lifetime_after(bundle.leaf, now)
        )
        return replace(bundle, leaf=leaf)

    def trust(self, bundle: Bundle, held: tuple[bytes, ...], now: datetime) -> tuple[bytes, ...]:
        """Return what a caBundle has to hold that now holds these CAs.

        Others than ours go when the overlap is over: where somebody deleted the stored bundle, they are what
        replicas still serve by.
        """
        if self._overlap_is_over(bundle, now):
            return bundle.trusted
        return (*bundle.trusted, *(each for each in held if each not in bundle.trusted))

    def takes_over_at(self, bundle: Bundle) -> datetime | None:
        """Return when the CA may sign the leaf that serves; None while some caBundle does not trust it."""
        return bundle.trusted_since and bundle.trusted_since + self.settling

    def gives_up_at(self, authority: KeyPair, now: datetime) -> datetime | None:
        """Return from when on one of ours replaces a CA that was made elsewhere and soon expires.

        None for any other.
        """
        held = authority.certificate_pem
        if is_ours(authority) or self._holds(held, now, self.lookahead + self.leaf_lifetime):
            return None
        return validity_of(held).not_after - self.lookahead

    def _authority_is_due(self, bundle: Bundle, now: datetime) -> bool:
        # No leaf outlives its CA. Replaced a leaf's life earlier, a CA never has to cut one short; one made
        # elsewhere may, until what it signs would be due at once.
        margin = self.leaf_lifetime if is_ours(bundle.authority) else timedelta()
        return not self._holds(bundle.authority.certificate_pem, now, self.lookahead + margin)

    def _leaf_is_due(self, bundle: Bundle, now: datetime) -> bool:
        if bundle.leaf is None or not set(self.names) <= set(names_in(bundle.leaf.certificate_pem)):
            return True
        return not self._holds(bundle.leaf.certificate_pem, now, self.lookahead)

    def _next_of_takeover(self, bundle: Bundle, now: datetime, *, is_trusted: bool) -> Step:
        """Return what is next while the CA has not signed the leaf."""
        if not is_trusted:
            return Step.TRUST
        due = self.takes_over_at(bundle)
        if due is None:
            return Step.CONFIRM
        # Nobody is served by what has expired or never was: there is nothing to wait for.
        serves = bundle.leaf is not None and is_valid_at(bundle.leaf.certificate_pem, now)
        return Step.REST if serves and now < due else Step.ISSUE_LEAF

    def _overlap_is_over(self, bundle: Bundle, now: datetime) -> bool:
        leaf = bundle.leaf
        if leaf is None or not is_issued_by(leaf.certificate_pem, bundle.authority.certificate_pem):
            return False
        issued = validity_of(leaf.certificate_pem).not_before + CLOCK_SKEW
        return now >= issued + self.overlap

    def _names_for(self, bundle: Bundle) -> tuple[str, ...]:
        """Return the names for a new leaf: during an update of gpugate, those of both versions.

        Otherwise replicas that want different names would take turns.
        """
        held = names_in(bundle.leaf.certificate_pem) if bundle.leaf else ()
        return self.names if set(self.names) <= set(held) else (*self.names, *held)

    def _lifetime_after(self, leaf: KeyPair | None, now: datetime) -> timedelta:
        """Return how long a new leaf holds: after one of the future, as long as that one.

        Somebody's clock is ahead. A leaf that is due by it would be replaced by another of the future
        and so on, by turns.
        """
        if leaf is None or (held := validity_of(leaf.certificate_pem)).not_before <= now:
            return self.leaf_lifetime
        return max(self.leaf_lifetime, held.not_after - now)

    @staticmethod
    def _holds(certificate_pem: bytes, now: datetime, lookahead: timedelta) -> bool:
        return is_valid_at(certificate_pem, now) and is_valid_at(certificate_pem, now + lookahead)


def is_ours(authority: KeyPair) -> bool:
    """Tell whether a CA was made here: its name says so."""
    subject = x509.load_pem_x509_certificate(authority.certificate_pem).subject
    return subject.rfc4514_string() == f"CN={AUTHORITY_NAME}"


def _canonical(name: str) -> str:
    """Return an address as a certificate tells it, `::1` and not `0:0:0:0:0:0:0:1`."""
    try:
        return str(ip_address(name))
    except ValueError:
        return name
