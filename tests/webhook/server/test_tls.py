"""The serving certificate is replaced under load without a failure, and never by an invalid one."""

from __future__ import annotations

import socket
import ssl
import struct
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
import trustme

import webhook.server.server
from certs.authority import CertificateError, KeyPair, is_valid_at, make_authority, make_leaf, validity_of
from tests.support.serving import (
    HOST,
    NAMES,
    PATIENCE,
    answers,
    ask,
    client_context,
    connect,
    encrypted,
    new_pair,
    serving,
    wait_for,
)
from webhook.server.http import Request, Response
from webhook.server.tls import TlsCertificate
from webhook.telemetry.metrics import REGISTRY

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from webhook.server.server import Server

GET = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
HANDSHAKE = b"\x16"  # the type of a record, RFC 8446, 5.1
OTHER_KEY = make_authority("other", datetime.now(UTC)).key_pem


def application(request: Request) -> Response:
    """Return whether the client presented a certificate."""
    return Response(200, b"verified" if request.verified else b"unknown")


class Source:
    """Returns the pair, or raises the error, that a test sets."""

    def __init__(self) -> None:
        self.pair = new_pair()
        self.error: OSError | None = None

    def __call__(self) -> KeyPair:
        """Return the pair, or raise the error."""
        if self.error is not None:
            raise self.error
        return self.pair


@pytest.fixture
def source() -> Source:
    """Return a source with a new certificate."""
    return Source()


@pytest.fixture
def tls(source: Source) -> TlsCertificate:
    """Return the serving certificate of the source."""
    return TlsCertificate(source)


@pytest.fixture
def server(tls: TlsCertificate) -> Iterator[Server]:
    """Serve while the test runs."""
    with serving(application, tls=tls) as running:
        yield running


def served(port: int, name: str = "localhost") -> bytes:
    """Return the certificate that a new connection gets, as PEM."""
    with connect(port, name) as connection:
        return ssl.DER_cert_to_PEM_cert(connection.getpeercert(binary_form=True) or b"").encode()


def hello(version: int) -> bytes:
    """Return the ClientHello of a client whose newest version is this one; 0x0303 is TLS 1.2."""
    extensions = bytes.fromhex("000a00040002 0017") + bytes.fromhex(
        "000d00040002 0403"
    )  # P-256, ECDSA SHA-256
    suites = bytes.fromhex("c02b c009")  # ECDHE-ECDSA-AES128-GCM-SHA256, ECDHE-ECDSA-AES128-SHA
    body = (
        struct.pack("!H32sB", version, bytes(32), 0) + struct.pack("!H", len(suites)) + suites + b"\x01\x00"
    )
    body += struct.pack("!H", len(extensions)) + extensions
    handshake = b"\x01" + len(body).to_bytes(3) + body
    return b"\x16\x03\x01" + struct.pack("!H", len(handshake)) + handshake


@pytest.mark.parametrize(("version", "accepted"), [(0x0302, False), (0x0303, True)])
def test_a_client_needs_tls_1_2(server: Server, version: int, accepted: bool) -> None:
    """A client with at most TLS 1.1 gets no ServerHello; the same hello with TLS 1.2 gets one."""
    with socket.create_connection((HOST, server.port), timeout=PATIENCE) as connection:
        connection.sendall(hello(version))
        record = connection.recv(65536)

    assert (record[:1] == HANDSHAKE) == accepted


def test_tls_1_3_and_http_1_1_are_negotiated(server: Server) -> None:
    """The API server offers only http/1.1; other clients may offer more."""
    context = client_context()
    context.set_alpn_protocols(["h2", "http/1.1"])
    with connect(server.port, context=context) as connection:
        negotiated = (connection.version(), connection.selected_alpn_protocol())

    assert negotiated == ("TLSv1.3", "http/1.1")


@pytest.mark.parametrize("name", NAMES)
def test_new_connections_get_the_new_certificate_and_none_fails(
    server: Server, source: Source, tls: TlsCertificate, name: str
) -> None:
    """Under load, with a server name (SNI) and without, as for an IP address."""
    pairs = [source.pair]

    def load() -> list[bytes]:
        seen = []
        for _ in range(40):
            seen.append(served(server.port, name))
            assert answers(connect(server.port, name), GET).startswith(b"HTTP/1.1 200")
        return seen

    with ThreadPoolExecutor() as threads:
        loads = [threads.submit(load) for _ in range(4)]
        while not all(done.done() for done in loads):
            source.pair = new_pair()
            pairs.append(source.pair)
            assert tls.reload()
            assert served(server.port, name) == source.pair.certificate_pem
        seen = [certificate for done in loads for certificate in done.result()]

    assert len(seen) == 160
    assert 10 < len(set(seen)) <= len(pairs)
    assert set(seen) <= {pair.certificate_pem for pair in pairs}


def test_an_open_connection_continues_when_the_certificate_is_replaced(
    server: Server, source: Source, tls: TlsCertificate
) -> None:
    """Its handshake is done."""
    with connect(server.port) as kept:
        source.pair = new_pair()
        replaced = tls.reload()

        assert (replaced, answers(kept, GET)[:12]) == (True, b"HTTP/1.1 200")


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (KeyPair(new_pair().certificate_pem, OTHER_KEY), "key values mismatch"),
        (KeyPair(b"", OTHER_KEY), "cannot serve"),
        (KeyPair(new_pair().certificate_pem, b""), "cannot serve"),
        (KeyPair(b"\x00", b"\xff"), "cannot serve"),
    ],
    ids=["mismatched", "no certificate", "no key", "no PEM"],
)
def test_an_invalid_pair_is_refused_and_the_old_one_stays(
    server: Server, source: Source, tls: TlsCertificate, bad: KeyPair, message: str
) -> None:
    """The error is raised once, not in every reload; the next valid pair is served."""
    old = source.pair
    source.pair = bad
    with pytest.raises(CertificateError, match=message):
        tls.reload()
    again = tls.reload()
    kept = [served(server.port, name) for name in NAMES]
    source.pair = new_pair()
    replaced = tls.reload()

    assert (again, kept) == (False, [old.certificate_pem] * 2)
    assert (replaced, tls.pair, served(server.port)) == (True, source.pair, source.pair.certificate_pem)


def test_an_encrypted_key_is_refused_without_a_password_prompt() -> None:
    """OpenSSL would wait on the terminal forever."""
    pair = new_pair()

    with pytest.raises(CertificateError, match="cannot serve"):
        TlsCertificate(lambda: KeyPair(pair.certificate_pem, encrypted(pair.key_pem)))


def write(directory: Path, pair: KeyPair) -> None:
    """Write the pair as the kubelet does: to a new directory, then replace a symlink atomically."""
    version = directory / f"..{len(list(directory.iterdir()))}"
    version.mkdir()
    (version / "tls.crt").write_bytes(pair.certificate_pem)
    (version / "tls.key").write_bytes(pair.key_pem)
    link = directory / "..data_tmp"
    link.symlink_to(version.name)
    link.rename(directory / "..data")


def test_files_are_reloaded_through_the_symlink_of_the_kubelet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the server itself, periodically; an invalid pair between two valid ones changes nothing."""
    monkeypatch.setattr(webhook.server.server, "_RELOAD_INTERVAL", 0.01)
    first, second = new_pair(), new_pair()
    write(tmp_path, first)
    data = tmp_path / "..data"
    with serving(application, tls=TlsCertificate.from_files(data / "tls.crt", data / "tls.key")) as server:
        seen = [served(server.port)]
        write(tmp_path, KeyPair(second.certificate_pem, OTHER_KEY))
        seen.append(served(server.port))
        write(tmp_path, second)
        deadline = time.monotonic() + PATIENCE
        while seen[-1] != second.certificate_pem and time.monotonic() < deadline:
            seen.append(served(server.port))

    assert set(seen[:-1]) == {first.certificate_pem}
    assert seen[-1] == second.certificate_pem


def test_metrics_have_the_expiry_time_of_the_ca_file(tmp_path: Path) -> None:
    """cert-manager writes it, because its chain does not contain the root."""
    now = datetime.now(UTC)
    authority = make_authority("ca file", now, timedelta(days=77))
    leaf = make_leaf(authority, ["localhost"], now, timedelta(days=7))
    for name, content in (("tls.crt", leaf.certificate_pem), ("ca.crt", authority.certificate_pem)):
        (tmp_path / name).write_bytes(content)
    (tmp_path / "tls.key").write_bytes(leaf.key_pem)
    TlsCertificate.from_files(tmp_path / "tls.crt", tmp_path / "tls.key")
    expiry = "gpugate_certificate_expiry_timestamp_seconds"

    assert [
        validity_of(certificate.certificate_pem).not_after.timestamp() for certificate in (leaf, authority)
    ] == [REGISTRY.get_sample_value(expiry, {"certificate": which}) for which in ("serving", "ca")]


def test_the_reason_why_a_certificate_cannot_be_replaced_is_logged(
    source: Source, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """For an invalid pair and for an unreadable source; the server keeps serving."""
    messages = ["key values mismatch", "no such secret"]
    monkeypatch.setattr(webhook.server.server, "_RELOAD_INTERVAL", 0.01)
    with serving(application, tls=TlsCertificate(source)) as watched:
        source.pair = KeyPair(source.pair.certificate_pem, OTHER_KEY)
        wait_for(lambda: messages[0] in caplog.text)
        source.error = OSError(messages[1])
        wait_for(lambda: messages[1] in caplog.text)

        assert ask(watched.port)[0] == 200


def test_a_self_signed_certificate_can_be_verified_by_clients() -> None:
    """Its CA is part of the handshake; clients that trust it accept its names."""
    clients = trustme.CA()
    tls = TlsCertificate.self_signed(NAMES, clients.cert_pem.bytes())
    authority = tls.pair.certificate_pem[tls.pair.certificate_pem.rindex(b"-----BEGIN") :]
    context = client_context(authority)
    clients.issue_cert("api-server@kubernetes.example").configure_cert(context)
    with serving(application, tls=tls) as server:
        raw = [answers(connect(server.port, name, context), GET) for name in NAMES]

    assert [one.rpartition(b"\r\n\r\n")[2] for one in raw] == [b"verified"] * 2
    assert is_valid_at(tls.pair.certificate_pem, datetime.now(UTC))


def test_a_client_certificate_is_requested_verified_and_reported_to_the_application(source: Source) -> None:
    """Before and after a new serving certificate: a valid one, none, and one of another CA."""
    authority, other = trustme.CA(), trustme.CA()
    contexts = [client_context() for _ in range(3)]
    authority.issue_cert("api-server@kubernetes.example").configure_cert(contexts[0])
    other.issue_cert("api-server@kubernetes.example").configure_cert(contexts[2])
    tls = TlsCertificate(source, client_ca_pem=authority.cert_pem.bytes())
    with serving(application, tls=tls) as server:
        for _ in range(2):
            raw = [answers(connect(server.port, context=context), GET) for context in contexts[:2]]
            with pytest.raises(ssl.SSLError, match="UNKNOWN_CA"):
                answers(connect(server.port, context=contexts[2]), GET)
            source.pair = new_pair()

            assert [one.rpartition(b"\r\n\r\n")[2] for one in raw] == [b"verified", b"unknown"]
            assert tls.reload()
