"""X.509 certificates as values: a certificate authority (CA), leaf certificates and their validity.

Pure: no files, no sockets, no clock; `now` is an argument, aware and in any zone. Every new certificate is
X.509 v3 with an ECDSA P-256 key, the curve that every TLS library verifies by default. An external CA may
have another curve, or RSA.
Source: RFC 5280; https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from ipaddress import ip_address
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

if TYPE_CHECKING:
    from collections.abc import Iterable

# The clock of a verifier may be behind: NotBefore is this far in the past.
CLOCK_SKEW = timedelta(hours=1)
# Ten years and ninety days: the CA outlives any cluster upgrade, a leaf is renewed four times a year.
CA_LIFETIME = timedelta(days=3650)
LEAF_LIFETIME = timedelta(days=90)
# RFC 5280 appendix A, ub-common-name; longer names are in the SAN only, which is what verifiers read.
_COMMON_NAME_LIMIT = 64


class CertificateError(ValueError):
    """The PEM is not a certificate or key, or the two do not match. The fault of the caller."""


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate chain, leaf or CA first, and the private key of its first certificate; both as PEM."""

    certificate_pem: bytes
    key_pem: bytes = field(repr=False)  # a private key must not be logged


@dataclass(frozen=True, slots=True)
class Validity:
    """The validity period of a certificate, both ends included (RFC 5280, 4.1.2.5); aware, in UTC."""

    not_before: datetime
    not_after: datetime


def make_authority(common_name: str, now: datetime, lifetime: timedelta = CA_LIFETIME) -> KeyPair:
    """Return a new self-signed CA that may sign leaf certificates but no other CA.

    common_name: 1 to 64 characters. Two CAs with the same name differ in key and key identifier, so one
    caBundle can hold both during a CA rotation.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    certificate = (
        _builder(name, key, name, _identifier(key.public_key()), Validity(now - CLOCK_SKEW, now + lifetime))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .sign(key, SHA256())
    )
    return _pair(certificate, key)


def make_leaf(
    authority: KeyPair, names: Iterable[str], now: datetime, lifetime: timedelta = LEAF_LIFETIME
) -> KeyPair:
    """Return a new serving certificate for DNS names and IP addresses, signed by the CA.

    names: at least one, such as `gpugate.gpugate-system.svc`, `127.0.0.1` or `::1`; an address becomes an IP
    SAN, because verifiers do not search DNS names for addresses. The leaf never expires after its CA.
    Raises CertificateError if the authority cannot sign, ValueError if a name is empty or not ASCII.
    """
    issuer, issuer_key = _load(authority)
    distinct = list(dict.fromkeys(names))
    if not all(distinct) or not distinct:
        raise ValueError("a serving certificate needs at least one DNS name or IP address, and no empty name")
    general_names = [_general_name(name) for name in distinct]
    common_names = [str(name.value) for name in general_names if len(str(name.value)) <= _COMMON_NAME_LIMIT]
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name) for name in common_names[:1]])
    key = ec.generate_private_key(ec.SECP256R1())
    validity = Validity(now - CLOCK_SKEW, min(now + lifetime, issuer.not_valid_after_utc))
    try:
        identifier = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    except x509.ExtensionNotFound:  # an external CA that does not follow RFC 5280
        identifier = _identifier(issuer_key.public_key())
    certificate = (
        _builder(subject, key, issuer.subject, identifier, validity)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        # Critical if the subject is empty: RFC 5280, 4.2.1.6.
        .add_extension(x509.SubjectAlternativeName(general_names), critical=not common_names)
        .sign(issuer_key, SHA256())
    )
    return _pair(certificate, key)


def validity_of(certificate_pem: bytes) -> Validity:
    """Return the validity of the first certificate in a PEM; raises CertificateError if there is none."""
    certificate = _certificate(certificate_pem)
    return Validity(certificate.not_valid_before_utc, certificate.not_valid_after_utc)


def is_valid_at(certificate_pem: bytes, now: datetime) -> bool:
    """Return whether the first certificate in a PEM is valid now; raises CertificateError as above."""
    validity = validity_of(certificate_pem)
    return validity.not_before <= now <= validity.not_after


def _builder(
    subject: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    issuer: x509.Name,
    issuer_identifier: x509.SubjectKeyIdentifier,
    validity: Validity,
) -> x509.CertificateBuilder:
    public_key = key.public_key()
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(validity.not_before)
        .not_valid_after(validity.not_after)
        .add_extension(_identifier(public_key), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(issuer_identifier), critical=False
        )
    )


def _identifier(key: ec.EllipticCurvePublicKey | rsa.RSAPublicKey) -> x509.SubjectKeyIdentifier:
    return x509.SubjectKeyIdentifier.from_public_key(key)


def _general_name(name: str) -> x509.DNSName | x509.IPAddress:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    # A P-256 leaf signs the handshake and never encrypts a key; a CA signs certificates and revocations.
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _certificate(certificate_pem: bytes) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(certificate_pem)
    except ValueError as error:
        raise CertificateError(f"not a PEM certificate: {error}") from error


def _load(pair: KeyPair) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey]:
    certificate = _certificate(pair.certificate_pem)
    try:
        key = load_pem_private_key(pair.key_pem, password=None)
    except (ValueError, TypeError) as error:  # TypeError: the key is encrypted
        raise CertificateError("not an unencrypted PEM private key") from error
    if key.public_key() != certificate.public_key():
        raise CertificateError("the private key does not match the certificate")
    if not isinstance(key, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
        raise CertificateError("the CA's key is neither ECDSA nor RSA")
    if not _may_sign(certificate.extensions):
        raise CertificateError("this certificate is not a CA: it may not sign other certificates")
    return certificate, key


def _may_sign(extensions: x509.Extensions) -> bool:
    """Return whether a certificate with these extensions is a CA; X.509 v1 CAs have no extensions."""
    for extension in extensions:
        match extension.value:
            case x509.BasicConstraints(ca=False) | x509.KeyUsage(key_cert_sign=False):
                return False
    return True


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> KeyPair:
    return KeyPair(
        certificate.public_bytes(Encoding.PEM),
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
    )
