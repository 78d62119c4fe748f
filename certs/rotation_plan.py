"""The state machine of certificate rotation: from the stored bundle and the caBundles to the next step.

Pure: no clock, no store, no cluster. Any replica may take any step at any time, because each step is computed
from what is stored. A CA rotation has these steps; if one replica stops, another continues:

    MAKE_AUTHORITY   store the new CA; the old one becomes `previous`, and its leaf continues to serve
    TRUST            write both CAs to every caBundle
    CONFIRM          store the time at which every caBundle contained both
    ISSUE_LEAF       after `settling`: the new CA signs the leaf that serves from now on
    DROP_PREVIOUS    after `overlap`: remove the old CA from the bundle
    TRUST            write the new CA alone to every caBundle

An external CA belongs to its owner, who should replace it: a generated CA replaces it as late as possible.
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

# Common name of every generated CA, and of no other. Verifiers distinguish two by key and key identifier.
AUTHORITY_NAME = "gpugate CA"


def service_names(namespace: str) -> tuple[str, ...]:
    """Return the DNS names of gpugate's Service in a cluster; the one that the API server uses is first."""
    service = f"gpugate.{namespace}"
    return (f"{service}.svc", service, "gpugate", f"{service}.svc.cluster.local")


class Step(Enum):
    """One step of the rotation; the value is its text in logs."""

    DONE = "nothing to do now"
    MAKE_AUTHORITY = "create a CA"
    TRUST = "write the CAs to every caBundle"
    CONFIRM = "record that every caBundle contains the CA"
    ISSUE_LEAF = "issue a serving certificate"
    DROP_PREVIOUS = "remove the previous CAs"


@dataclass(frozen=True, slots=True)
class Plan:
    """The rotation settings: the names of the leaf, and when the leaf and its CA are replaced.

    Raises ValueError if a new certificate would be due for replacement at once.

    Attributes:
        names: DNS names and IP addresses.
        lookahead: a certificate that is not valid at now + lookahead is replaced.
        settling: time from when every caBundle contains a CA until a leaf of it may serve, so that all API
        servers
            see the change.
        overlap: time from the issue of a leaf until the previous CAs are removed, so that all replicas load
        it.
    """

    names: tuple[str, ...]
    # A third of a leaf's lifetime: if renewal fails, there is a month to fix it.
    lookahead: timedelta = timedelta(days=30)
    leaf_lifetime: timedelta = LEAF_LIFETIME
    authority_lifetime: timedelta = CA_LIFETIME
    # API servers watch webhook configurations and see a change in well under a second.
    settling: timedelta = timedelta(minutes=1)
    # Replicas check every few seconds; a day is for one that cannot reach the API server.
    overlap: timedelta = timedelta(days=1)

    def __post_init__(self) -> None:
        if self.lookahead >= self.leaf_lifetime:
            raise ValueError("lookahead must be shorter than leaf_lifetime")
        if self.lookahead + self.leaf_lifetime >= self.authority_lifetime:
            raise ValueError("authority_lifetime must be longer than leaf_lifetime + lookahead")
        object.__setattr__(self, "names", tuple(map(_canonical, self.names)))

    def next_step(
        self, bundle: Bundle | None, ca_bundles: Iterable[tuple[bytes, ...]], now: datetime
    ) -> Step:
        """Return the next step.

        bundle: as stored. ca_bundles: the CAs in each caBundle of gpugate, PEM as in `certificates_in`. The
        caller reads them before the bundle and writes them only if unchanged since: so no replica removes a
        CA from a caBundle because it does not know that CA yet.
        """
        if bundle is None or self._authority_is_due(bundle, now):
            return Step.MAKE_AUTHORITY
        is_trusted = all(
            set(self.trust(bundle, ca_bundle, now)) == set(ca_bundle) for ca_bundle in ca_bundles
        )
        if bundle.issuer() != bundle.authority.certificate_pem:
            return self._next_of_takeover(bundle, now, is_trusted=is_trusted)
        # Before TRUST, in case gpugate may not write caBundles: a leaf of the same CA needs no change there.
        if self._leaf_is_due(bundle, now):
            return Step.ISSUE_LEAF
        if not is_trusted:
            return Step.TRUST
        return Step.DROP_PREVIOUS if bundle.previous and self._overlap_is_over(bundle, now) else Step.DONE

    def take(self, step: Step, bundle: Bundle | None, now: datetime) -> Bundle:
        """Return the bundle after a step that changes it; raises ValueError for any other step."""
        if step is Step.MAKE_AUTHORITY:
            authority = make_authority(AUTHORITY_NAME, now, self.authority_lifetime)
            return Bundle(authority, bundle.trusted if bundle else (), None, bundle.leaf if bundle else None)
        if bundle is None or step not in {Step.CONFIRM, Step.ISSUE_LEAF, Step.DROP_PREVIOUS}:
            raise ValueError(f"{step} does not change the bundle")
        if step is Step.CONFIRM:
            return replace(bundle, trusted_since=now)
        if step is Step.DROP_PREVIOUS:
            return replace(bundle, previous=())
        leaf = make_leaf(
            bundle.authority, self._names_for(bundle), now, self._lifetime_after(bundle.leaf, now)
        )
        return replace(bundle, leaf=leaf)

    def trust(self, bundle: Bundle, current: tuple[bytes, ...], now: datetime) -> tuple[bytes, ...]:
        """Return the CAs that a caBundle must hold. current: the CAs in it now.

        Unknown CAs are removed after the overlap: if somebody deleted the stored bundle, replicas may still
        serve a leaf of one of them.
        """
        if self._overlap_is_over(bundle, now):
            return bundle.trusted
        return (*bundle.trusted, *(ca for ca in current if ca not in bundle.trusted))

    def takes_over_at(self, bundle: Bundle) -> datetime | None:
        """Return when the CA may sign the serving leaf; None until every caBundle contains the CA."""
        return bundle.trusted_since and bundle.trusted_since + self.settling

    def external_ca_replaced_at(self, authority: KeyPair, now: datetime) -> datetime | None:
        """Return when a generated CA replaces an external CA that expires soon; None for any other CA."""
        certificate_pem = authority.certificate_pem
        if is_ours(authority) or self._is_valid_through(
            certificate_pem, now, self.lookahead + self.leaf_lifetime
        ):
            return None
        return validity_of(certificate_pem).not_after - self.lookahead

    def _authority_is_due(self, bundle: Bundle, now: datetime) -> bool:
        # No leaf expires after its CA. A generated CA is replaced one leaf lifetime earlier, so it never
        # shortens a leaf. An external CA may shorten leaves, until a new leaf would be due at once.
        margin = self.leaf_lifetime if is_ours(bundle.authority) else timedelta()
        return not self._is_valid_through(bundle.authority.certificate_pem, now, self.lookahead + margin)

    def _leaf_is_due(self, bundle: Bundle, now: datetime) -> bool:
        if bundle.leaf is None or not set(self.names) <= set(names_in(bundle.leaf.certificate_pem)):
            return True
        return not self._is_valid_through(bundle.leaf.certificate_pem, now, self.lookahead)

    def _next_of_takeover(self, bundle: Bundle, now: datetime, *, is_trusted: bool) -> Step:
        """Return the next step while the CA has not signed the leaf."""
        if not is_trusted:
            return Step.TRUST
        due = self.takes_over_at(bundle)
        if due is None:
            return Step.CONFIRM
        # Without a valid leaf nothing is served: there is no reason to wait.
        serves = bundle.leaf is not None and is_valid_at(bundle.leaf.certificate_pem, now)
        return Step.DONE if serves and now < due else Step.ISSUE_LEAF

    def _overlap_is_over(self, bundle: Bundle, now: datetime) -> bool:
        leaf = bundle.leaf
        if leaf is None or not is_issued_by(leaf.certificate_pem, bundle.authority.certificate_pem):
            return False
        issued = validity_of(leaf.certificate_pem).not_before + CLOCK_SKEW
        return now >= issued + self.overlap

    def _names_for(self, bundle: Bundle) -> tuple[str, ...]:
        """Return the names for a new leaf; during an update of gpugate, the names of both versions.

        Otherwise replicas with different names would replace each other's leaf without end.
        """
        current_names = names_in(bundle.leaf.certificate_pem) if bundle.leaf else ()
        return self.names if set(self.names) <= set(current_names) else (*self.names, *current_names)

    def _lifetime_after(self, leaf: KeyPair | None, now: datetime) -> timedelta:
        """Return the lifetime of a new leaf; it ends no earlier than an old leaf that is not valid yet.

        Another replica's clock is ahead. If the new leaf were due by that clock, both replicas would replace
        each other's leaf without end.
        """
        if leaf is None or (validity := validity_of(leaf.certificate_pem)).not_before <= now:
            return self.leaf_lifetime
        return max(self.leaf_lifetime, validity.not_after - now)

    @staticmethod
    def _is_valid_through(certificate_pem: bytes, now: datetime, lookahead: timedelta) -> bool:
        return is_valid_at(certificate_pem, now) and is_valid_at(certificate_pem, now + lookahead)


def is_ours(authority: KeyPair) -> bool:
    """Return whether a CA was generated by gpugate, by its name."""
    subject = x509.load_pem_x509_certificate(authority.certificate_pem).subject
    return subject.rfc4514_string() == f"CN={AUTHORITY_NAME}"


def _canonical(name: str) -> str:
    """Return an address as a certificate spells it: `::1`, not `0:0:0:0:0:0:0:1`."""
    try:
        return str(ip_address(name))
    except ValueError:
        return name
