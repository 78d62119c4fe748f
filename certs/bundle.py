"""The stored certificates, as a value and as the files of a Secret or a directory."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

from certs.authority import CertificateError, KeyPair

if TYPE_CHECKING:
    from collections.abc import Mapping

# The names of a kubernetes.io/tls Secret,
# https://kubernetes.io/docs/concepts/configuration/secret/#tls-secrets, and three of gpugate.
TLS_CERTIFICATE: Final = "tls.crt"
TLS_KEY: Final = "tls.key"
_AUTHORITY: Final = "ca.crt"
_AUTHORITY_KEY: Final = "ca.key"
_PREVIOUS: Final = "previous-ca.crt"
_TRUSTED_SINCE: Final = "ca-trusted-since"
FILES: Final = (_AUTHORITY, _AUTHORITY_KEY, _PREVIOUS, _TRUSTED_SINCE, TLS_CERTIFICATE, TLS_KEY)
# The files that hold a private key.
KEYS: Final = frozenset({TLS_KEY, _AUTHORITY_KEY})


@dataclass(frozen=True, slots=True)
class Bundle:
    """A CA, the serving certificate, and the state of a CA rotation.

    Attributes:
        authority: the CA that signs every new leaf.
        previous: certificates of the previous CAs, PEM, which are still trusted.
        trusted_since: time at which all caBundles first contained the authority; aware.
        leaf: signed by the authority or, until the CA rotation reaches ISSUE_LEAF, by a previous CA; None
        before
            the first is issued.
    """

    authority: KeyPair
    previous: tuple[bytes, ...] = ()
    trusted_since: datetime | None = None
    leaf: KeyPair | None = None

    @property
    def trusted(self) -> tuple[bytes, ...]:
        """The CA certificates, PEM, that a caBundle must hold; newest first."""
        return (self.authority.certificate_pem, *self.previous)

    def issuer(self) -> bytes | None:
        """Return the trusted CA that signed the leaf, None if there is no leaf."""
        if self.leaf is None:
            return None
        leaf = self.leaf.certificate_pem
        return next(authority for authority in self.trusted if is_issued_by(leaf, authority))


def encode(bundle: Bundle) -> dict[str, bytes]:
    """Return the content of each file; a missing part is an empty file."""
    since = bundle.trusted_since
    leaf = bundle.leaf or KeyPair(b"", b"")
    return {
        _AUTHORITY: bundle.authority.certificate_pem,
        _AUTHORITY_KEY: bundle.authority.key_pem,
        _PREVIOUS: b"".join(bundle.previous),
        _TRUSTED_SINCE: since.isoformat().encode() if since else b"",
        TLS_CERTIFICATE: leaf.certificate_pem,
        TLS_KEY: leaf.key_pem,
    }


def decode(files: Mapping[str, bytes]) -> Bundle | None:
    """Return the bundle that `encode` wrote, None if all files are empty or missing.

    Raises CertificateError, with the file's name, for any other content: gpugate must not overwrite it.
    """
    if not any(files.values()):
        return None
    leaf = None
    if files.get(TLS_CERTIFICATE) or files.get(TLS_KEY):
        leaf = pair_of(files, TLS_CERTIFICATE, TLS_KEY)
    authority = pair_of(files, _AUTHORITY, _AUTHORITY_KEY)
    previous = files.get(_PREVIOUS, b"")
    bundle = Bundle(
        KeyPair(certificates_named(_AUTHORITY, authority.certificate_pem)[0], authority.key_pem),
        certificates_named(_PREVIOUS, previous) if previous else (),
        _moment(files.get(_TRUSTED_SINCE, b"")),
        leaf,
    )
    if leaf and not any(is_issued_by(leaf.certificate_pem, ca) for ca in bundle.trusted):
        raise CertificateError(f"{TLS_CERTIFICATE} is not signed by {_AUTHORITY}")
    return bundle


def certificates_in(pem: bytes) -> tuple[bytes, ...]:
    """Return each certificate of a PEM, re-encoded; empty if it is not PEM, such as a placeholder."""
    try:
        certificates = x509.load_pem_x509_certificates(pem)
    except ValueError:
        return ()
    return tuple(certificate.public_bytes(Encoding.PEM) for certificate in certificates)


def is_issued_by(certificate_pem: bytes, authority_pem: bytes) -> bool:
    """Return whether a CA signed the first certificate of a PEM."""
    certificate, authority = map(x509.load_pem_x509_certificate, (certificate_pem, authority_pem))
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):  # another name, key type or key
        return False
    return True


def names_in(certificate_pem: bytes) -> tuple[str, ...]:
    """Return the DNS names and IP addresses of the first certificate of a PEM."""
    certificate = x509.load_pem_x509_certificate(certificate_pem)
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    return (*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress)))


def pair_of(files: Mapping[str, bytes], certificate: str, key: str) -> KeyPair:
    """Return the certificate and the key of two PEM files; raises CertificateError, which names the file."""
    for name in (certificate, key):
        if not files.get(name):
            raise CertificateError(f"{name} is missing or empty")
    first = x509.load_pem_x509_certificate(certificates_named(certificate, files[certificate])[0])
    try:
        private = load_pem_private_key(files[key], password=None)
    except (ValueError, TypeError) as error:  # TypeError: the key is encrypted
        raise CertificateError(f"{key} is not an unencrypted PEM private key") from error
    if private.public_key() != first.public_key():
        raise CertificateError(f"{key} is not the key of {certificate}")
    return KeyPair(files[certificate], files[key])


def certificates_named(name: str, pem: bytes) -> tuple[bytes, ...]:
    """Return each certificate of a file, re-encoded; raises CertificateError if there is none."""
    certificates = certificates_in(pem)
    if not certificates:
        raise CertificateError(f"{name} is not a PEM certificate")
    return certificates


def _moment(text: bytes) -> datetime | None:
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text.decode("ascii"))
    except ValueError as error:
        raise CertificateError(f"{_TRUSTED_SINCE} is not a timestamp in RFC 3339 format") from error
    if moment.tzinfo is None:
        raise CertificateError(f"{_TRUSTED_SINCE} has no time zone")
    return moment
