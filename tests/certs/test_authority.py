"""Certificates work in real TLS handshakes, only for their names and in their validity period."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import NamedTemporaryFile

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from hypothesis import given
from hypothesis import strategies as st

from certs.authority import (
    CA_LIFETIME,
    CLOCK_SKEW,
    CertificateError,
    KeyPair,
    _key_usage,
    is_valid_at,
    make_authority,
    make_leaf,
    validity_of,
)
from tests.support.serving import encrypted

Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey
# OpenSSL verifies by the real clock, so a certificate that must be valid is created now.
NOW = datetime.now(UTC).replace(microsecond=0)  # X.509 knows whole seconds
AUTHORITY = make_authority("test CA", NOW)
SERVICE = "gpugate.gpugate-system.svc"
LEAF = make_leaf(AUTHORITY, [SERVICE], NOW)


def handshake(
    leaf: KeyPair, trusted_pem: bytes, name: str, flags: ssl.VerifyFlags = ssl.VERIFY_X509_STRICT
) -> str:
    """Do a handshake in memory with a strict client; return the TLS version, raise the client's error."""
    server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with NamedTemporaryFile() as file:
        Path(file.name).write_bytes(leaf.certificate_pem + leaf.key_pem)
        server_context.load_cert_chain(file.name)
    client_context = ssl.create_default_context(cadata=trusted_pem.decode())
    client_context.verify_flags |= flags
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context.wrap_bio(to_client, to_server, server_hostname=name)
    server = server_context.wrap_bio(to_server, to_client, server_side=True)
    for side in (client, server, client):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    return str(client.version())


@pytest.mark.parametrize("name", [SERVICE, "localhost", "127.0.0.1", "::1"])
def test_a_client_that_trusts_the_authority_accepts_every_name_of_the_leaf(name: str) -> None:
    """DNS names and IP addresses alike, under OpenSSL's strict checks."""
    leaf = make_leaf(AUTHORITY, [SERVICE, "localhost", "127.0.0.1", "::1"], NOW)

    assert handshake(leaf, AUTHORITY.certificate_pem, name) == "TLSv1.3"


def test_an_authority_without_a_key_identifier_signs_leaves() -> None:
    """As old versions of `openssl req -x509` created them; clients use its name and key."""
    issuer = x509.load_pem_x509_certificate(AUTHORITY.certificate_pem)
    key = load_pem_private_key(AUTHORITY.key_pem, password=None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    bare = (
        x509.CertificateBuilder()
        .subject_name(issuer.subject)
        .issuer_name(issuer.subject)
        .public_key(issuer.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(issuer.not_valid_before_utc)
        .not_valid_after(issuer.not_valid_after_utc)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, SHA256())
        .public_bytes(Encoding.PEM)
    )
    leaf = make_leaf(KeyPair(bare, AUTHORITY.key_pem), [SERVICE], NOW)

    assert handshake(leaf, bare, SERVICE, ssl.VerifyFlags.VERIFY_DEFAULT) == "TLSv1.3"


def external_authority(key: Key, *, is_authority: bool = True) -> KeyPair:
    """Return an external CA, as an organisation creates it; `is_authority` false: a server's certificate."""
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "own CA")])
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), 1, NOW - CLOCK_SKEW, NOW + CA_LIFETIME)
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=is_authority), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, None if isinstance(key, ed25519.Ed25519PrivateKey) else SHA256())
    )
    return KeyPair(
        certificate.public_bytes(Encoding.PEM),
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
    )


RSA = rsa.generate_private_key(65537, 2048)


@pytest.mark.parametrize("key", [RSA, ec.generate_private_key(ec.SECP384R1())], ids=["rsa", "p-384"])
def test_an_external_authority_signs_leaves(key: Key) -> None:
    """Also if its key is RSA, as in most organisations, or on another curve."""
    authority = external_authority(key)

    assert handshake(make_leaf(authority, [SERVICE], NOW), authority.certificate_pem, SERVICE) == "TLSv1.3"


@pytest.mark.parametrize(
    ("authority", "complaint"),
    [
        (external_authority(ed25519.Ed25519PrivateKey.generate()), "the CA's key is neither ECDSA nor RSA"),
        (
            external_authority(RSA, is_authority=False),
            "this certificate is not a CA: it may not sign other certificates",
        ),
        (
            KeyPair(external_authority(RSA).certificate_pem, AUTHORITY.key_pem),
            "the private key does not match",
        ),
    ],
)
def test_the_error_for_an_external_authority_that_cannot_sign_says_why(
    authority: KeyPair, complaint: str
) -> None:
    """It does not blame the key if the key matches."""
    with pytest.raises(CertificateError, match=complaint):
        make_leaf(authority, [SERVICE], NOW)


def test_a_client_that_trusts_another_authority_of_the_same_name_refuses() -> None:
    """The name of a CA proves nothing."""
    other = make_authority("test CA", NOW)

    with pytest.raises(ssl.SSLCertVerificationError, match="certificate verify failed"):
        handshake(LEAF, other.certificate_pem, SERVICE)


def test_two_authorities_with_the_same_name_can_be_trusted_together() -> None:
    """As during a CA rotation: leaves of both are accepted, in either order."""
    other = make_authority("test CA", NOW)
    bundles = [
        AUTHORITY.certificate_pem + other.certificate_pem,
        other.certificate_pem + AUTHORITY.certificate_pem,
    ]
    leaves = [make_leaf(authority, [SERVICE], NOW) for authority in (AUTHORITY, other)]

    assert {handshake(leaf, bundle, SERVICE) for leaf in leaves for bundle in bundles} == {"TLSv1.3"}


@pytest.mark.parametrize("name", ["gpugate.elsewhere.svc", "127.0.0.2"])
def test_a_client_that_calls_another_name_refuses(name: str) -> None:
    """A leaf is valid for its own names only."""
    leaf = make_leaf(AUTHORITY, [SERVICE, "127.0.0.1"], NOW)

    with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
        handshake(leaf, AUTHORITY.certificate_pem, name)


@pytest.mark.parametrize(
    ("made", "complaint"),
    [(NOW - timedelta(days=91), "expired"), (NOW + timedelta(hours=2), "not yet valid")],
)
def test_a_client_refuses_a_leaf_outside_its_validity(made: datetime, complaint: str) -> None:
    """Whether it is expired or not valid yet."""
    leaf = make_leaf(AUTHORITY, [SERVICE], made)

    with pytest.raises(ssl.SSLCertVerificationError, match=complaint):
        handshake(leaf, AUTHORITY.certificate_pem, SERVICE)


def test_a_client_whose_clock_is_an_hour_behind_accepts_a_new_leaf() -> None:
    """A leaf created 59 minutes in the verifier's future is already valid."""
    ahead = NOW + timedelta(minutes=59)
    authority = make_authority("test CA", ahead)

    assert handshake(make_leaf(authority, [SERVICE], ahead), authority.certificate_pem, SERVICE) == "TLSv1.3"


def test_a_leaf_cannot_act_as_an_authority(monkeypatch: pytest.MonkeyPatch) -> None:
    """A certificate signed with a stolen serving key is refused."""
    monkeypatch.setattr("certs.authority._may_sign", lambda _: True)
    forged = make_leaf(LEAF, ["kubernetes.default.svc"], NOW)
    chain = KeyPair(forged.certificate_pem + LEAF.certificate_pem, forged.key_pem)

    with pytest.raises(ssl.SSLCertVerificationError, match="invalid CA certificate"):
        handshake(chain, AUTHORITY.certificate_pem, "kubernetes.default.svc")


def test_an_authority_is_valid_for_ten_years_and_a_leaf_for_ninety_days_from_an_hour_ago() -> None:
    """The defaults, to the second, as in X.509."""
    now = datetime(2026, 1, 1, 12, tzinfo=UTC)
    authority = validity_of(make_authority("test CA", now).certificate_pem)
    leaf = validity_of(make_leaf(make_authority("test CA", now), [SERVICE], now).certificate_pem)

    assert datetime(2026, 1, 1, 11, tzinfo=UTC) == authority.not_before == leaf.not_before
    assert now + timedelta(days=3650) == authority.not_after
    assert now + timedelta(days=90) == leaf.not_after


def test_a_leaf_never_expires_after_its_authority() -> None:
    """A verifier would then refuse it with a misleading message about the leaf."""
    authority = make_authority("test CA", NOW, lifetime=timedelta(days=7))
    leaf = make_leaf(authority, [SERVICE], NOW)

    assert validity_of(authority.certificate_pem).not_after == validity_of(leaf.certificate_pem).not_after


@given(offset=st.timedeltas(timedelta(days=-1), timedelta(days=91)))
def test_a_certificate_is_valid_from_its_first_to_its_last_second(offset: timedelta) -> None:
    """And at no other time, in any time zone."""
    expected = timedelta(hours=-1) <= offset <= timedelta(days=90)

    assert expected == is_valid_at(LEAF.certificate_pem, NOW + offset)


def test_keys_use_the_curve_p_256_and_the_fewest_usages() -> None:
    """A CA signs certificates, a leaf signs handshakes; neither may do the other."""
    authority = x509.load_pem_x509_certificate(AUTHORITY.certificate_pem)
    leaf = x509.load_pem_x509_certificate(LEAF.certificate_pem)
    usages = [one.extensions.get_extension_for_class(x509.KeyUsage).value for one in (authority, leaf)]
    keys = [one.public_key() for one in (authority, leaf)]

    assert [isinstance(key, ec.EllipticCurvePublicKey) and key.curve.name for key in keys] == [
        "secp256r1"
    ] * 2
    assert [(usage.key_cert_sign, usage.digital_signature) for usage in usages] == [
        (True, False),
        (False, True),
    ]


def test_a_name_too_long_for_a_common_name_is_served() -> None:
    """It is in the SAN only, which verifiers read."""
    name = f"{'g' * 63}.{'n' * 63}.svc"

    assert handshake(make_leaf(AUTHORITY, [name], NOW), AUTHORITY.certificate_pem, name) == "TLSv1.3"


def test_a_private_key_is_not_shown() -> None:
    """The pair neither prints nor logs it."""
    assert "PRIVATE KEY" in AUTHORITY.key_pem.decode()
    assert "PRIVATE KEY" not in f"{AUTHORITY} {AUTHORITY!r}"


@pytest.mark.parametrize(
    ("authority", "complaint"),
    [
        (KeyPair(b"", AUTHORITY.key_pem), "not a PEM certificate"),
        (KeyPair(AUTHORITY.certificate_pem, b"no key"), "not an unencrypted PEM private key"),
        (KeyPair(AUTHORITY.certificate_pem, encrypted(AUTHORITY.key_pem)), "not an unencrypted PEM"),
        (KeyPair(AUTHORITY.certificate_pem, make_authority("other", NOW).key_pem), "does not match"),
    ],
)
def test_an_invalid_authority_is_refused_with_the_reason(authority: KeyPair, complaint: str) -> None:
    """No leaf is signed that no client could verify."""
    with pytest.raises(CertificateError, match=complaint):
        make_leaf(authority, [SERVICE], NOW)


@pytest.mark.parametrize(
    ("names", "complaint"),
    [([], "needs at least one DNS name"), ([SERVICE, ""], "no empty name"), (["gpugate.例.svc"], "A-label")],
)
def test_a_leaf_without_a_valid_name_is_refused(names: list[str], complaint: str) -> None:
    """An empty list, an empty name, a name that is not valid in DNS."""
    with pytest.raises(ValueError, match=complaint):
        make_leaf(AUTHORITY, names, NOW)
