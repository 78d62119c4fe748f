"""The serving certificate is replaced under load without a failure, and never by one that cannot serve."""

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
from certs.authority import (
    CertificateError,
    KeyPair,
    is_valid_at,
    make_authority,
    make_leaf,
    validity_of,
)
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
from webhook.server.tls import TlsCertificate
from webhook.telemetry.metrics import REGISTRY

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path
    from wsgiref.types import StartResponse, WSGIEnvironment

    from webhook.server.server import Server

GET = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
HANDSHAKE = b"\x16"  # the type of a record, RFC 8446, 5.1
OTHER_KEY = make_authority("other", datetime.now(UTC)).key_pem


def application(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """Tell whether the client showed a certificate."""
    start_response("200 OK", [])
    return [f"verified {environ['SSL_CLIENT_VERIFY']}".encode()]


class Source:
    """Gives the pair that a test puts in."""

    def __init__(self) -> None:
        self.pair = new_pair()
        self.error: OSError | None = None

    def __call__(self) -> KeyPair:
        """Return the pair, or raise the error that a test put in."""
        if self.error is not None:
            raise self.error
        return self.pair


@pytest.fixture
def source() -> Source:
    """Return a source with a certificate in it."""
    return Source()


@pytest.fixture
def tls(source: Source) -> TlsCertificate:
    """Return what the server serves."""
    return TlsCertificate(source)


@pytest.fixture
def server(tls: TlsCertificate) -> Iterator[Server]:
    """Serve while the test runs."""
    with serving(application, tls=tls) as running:
        yield running


def shown(port: int, name: str = "localhost") -> bytes:
    """Return the certificate that a new connection is shown, as PEM."""
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


@pytest.mark.parametrize(("version", "welcome"), [(0x0302, False), (0x0303, True)])
def test_a_client_needs_tls_1_2(server: Server, version: int, welcome: bool) -> None:
    """One that knows TLS 1.1 at most gets no ServerHello; the same hello of TLS 1.2 gets one."""
    with socket.create_connection((HOST, server.port), timeout=PATIENCE) as connection:
        connection.sendall(hello(version))
        record = connection.recv(65536)

    assert (record[:1] == HANDSHAKE) == welcome


def test_tls_1_3_and_http_1_1_are_agreed_on(server: Server) -> None:
    """The API server offers no other protocol than http/1.1; others may."""
    context = client_context()
    context.set_alpn_protocols(["h2", "http/1.1"])
    with connect(server.port, context=context) as connection:
        agreed = (connection.version(), connection.selected_alpn_protocol())

    assert agreed == ("TLSv1.3", "http/1.1")


@pytest.mark.parametrize("name", NAMES)
def test_a_new_certificate_is_shown_to_new_connections_and_none_fails(
    server: Server, source: Source, tls: TlsCertificate, name: str
) -> None:
    """Under load, with a server name (SNI) and without, as a client that calls an IP address."""
    pairs = [source.pair]

    def load() -> list[bytes]:
        seen = []
        for _ in range(40):
            seen.append(shown(server.port, name))
            assert answers(connect(server.port, name), GET).startswith(b"HTTP/1.1 200")
        return seen

    with ThreadPoolExecutor() as threads:
        loads = [threads.submit(load) for _ in range(4)]
        while not all(done.done() for done in loads):
            source.pair = new_pair()
            pairs.append(source.pair)
            assert tls.reload()
            assert shown(server.port, name) == source.pair.certificate_pem
        seen = [certificate for done in loads for certificate in done.result()]

    assert len(seen) == 160
    assert 10 < len(set(seen)) <= len(pairs)
    assert set(seen) <= {pair.certificate_pem for pair in pairs}


def test_a_connection_that_is_kept_goes_on_when_the_certificate_is_replaced(
    server: Server, source: Source, tls: TlsCertificate
) -> None:
    """It has shaken hands already."""
    with connect(server.port) as kept:
        source.pair = new_pair()
        replaced = tls.reload()

        assert (replaced, answers(kept, GET)[:12]) == (True, b"HTTP/1.1 200")


@pytest.mark.parametrize(
    ("bad", "complaint"),
    [
        (KeyPair(new_pair().certificate_pem, OTHER_KEY), "key values mismatch"),
        (KeyPair(b"", OTHER_KEY), "cannot serve"),
        (KeyPair(new_pair().certificate_pem, b""), "cannot serve"),
        (KeyPair(b"\x00", b"\xff"), "cannot serve"),
    ],
    ids=["mismatched", "no certificate", "no key", "no PEM"],
)
def test_a_pair_that_cannot_serve_is_refused_and_the_old_one_stays(
    server: Server, source: Source, tls: TlsCertificate, bad: KeyPair, complaint: str
) -> None:
    """It is complained of once, not at every look; the next good one is taken."""
    old = source.pair
    source.pair = bad
    with pytest.raises(CertificateError, match=complaint):
        tls.reload()
    again = tls.reload()
    kept = [shown(server.port, name) for name in NAMES]
    source.pair = new_pair()
    replaced = tls.reload()

    assert (again, kept) == (False, [old.certificate_pem] * 2)
    assert (replaced, tls.pair, shown(server.port)) == (True, source.pair, source.pair.certificate_pem)


def test_a_key_under_a_password_is_refused_without_asking_for_it() -> None:
    """OpenSSL would ask on the terminal, for ever."""
    pair = new_pair()

    with pytest.raises(CertificateError, match="cannot serve"):
        TlsCertificate(lambda: KeyPair(pair.certificate_pem, encrypted(pair.key_pem)))


def write(directory: Path, pair: KeyPair) -> None:
    """Put the pair where the kubelet would: a new directory, to which a symlink is moved in one step."""
    version = directory / f"..{len(list(directory.iterdir()))}"
    version.mkdir()
    (version / "tls.crt").write_bytes(pair.certificate_pem)
    (version / "tls.key").write_bytes(pair.key_pem)
    link = directory / "..data_tmp"
    link.symlink_to(version.name)
    link.rename(directory / "..data")


def test_files_are_followed_through_the_kubelets_symlink(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the server itself, at every look; a bad pair between two good ones changes nothing."""
    monkeypatch.setattr(webhook.server.server, "_RELOAD_INTERVAL", 0.01)
    first, second = new_pair(), new_pair()
    write(tmp_path, first)
    data = tmp_path / "..data"
    with serving(application, tls=TlsCertificate.from_files(data / "tls.crt", data / "tls.key")) as server:
        seen = [shown(server.port)]
        write(tmp_path, KeyPair(second.certificate_pem, OTHER_KEY))
        seen.append(shown(server.port))
        write(tmp_path, second)
        deadline = time.monotonic() + PATIENCE
        while seen[-1] != second.certificate_pem and time.monotonic() < deadline:
            seen.append(shown(server.port))

    assert set(seen[:-1]) == {first.certificate_pem}
    assert seen[-1] == second.certificate_pem


def test_metrics_tell_when_the_ca_beside_the_chain_expires(tmp_path: Path) -> None:
    """As cert-manager puts it there: its chain does not hold the root."""
    now = datetime.now(UTC)
    authority = make_authority("beside", now, timedelta(days=77))
    leaf = make_leaf(authority, ["localhost"], now, timedelta(days=7))
    for name, content in (("tls.crt", leaf.certificate_pem), ("ca.crt", authority.certificate_pem)):
        (tmp_path / name).write_bytes(content)
    (tmp_path / "tls.key").write_bytes(leaf.key_pem)
    TlsCertificate.from_files(tmp_path / "tls.crt", tmp_path / "tls.key")
    expiry = "gpugate_certificate_expiry_timestamp_seconds"

    assert [validity_of(each.certificate_pem).not_after.timestamp() for each in (leaf, authority)] == [
        REGISTRY.get_sample_value(expiry, {"certificate": which}) for which in ("serving", "ca")
    ]


def test_what_keeps_a_certificate_from_being_replaced_is_logged(
    source: Source, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A refused pair and an unreadable source, each with its reason; the server goes on."""
    complaints = ["key values mismatch", "no such secret"]
    monkeypatch.setattr(webhook.server.server, "_RELOAD_INTERVAL", 0.01)
    with serving(application, tls=TlsCertificate(source)) as watched:
        source.pair = KeyPair(source.pair.certificate_pem, OTHER_KEY)
        wait_for(lambda: complaints[0] in caplog.text)
        source.error = OSError(complaints[1])
        wait_for(lambda: complaints[1] in caplog.text)

        assert ask(watched.port)[0] == 200


def test_without_a_certificate_one_is_made_that_clients_can_verify() -> None:
    """Its CA comes in the handshake; whoever trusts that accepts the names, and may show one of its own."""
    clients = trustme.CA()
    tls = TlsCertificate.self_signed(NAMES, clients.cert_pem.bytes())
    authority = tls.pair.certificate_pem[tls.pair.certificate_pem.rindex(b"-----BEGIN") :]
    context = client_context(authority)
    clients.issue_cert("api-server@kubernetes.example").configure_cert(context)
    with serving(application, tls=tls) as server:
        raw = [answers(connect(server.port, name, context), GET) for name in NAMES]

    assert [one.rpartition(b"verified ")[2] for one in raw] == [b"SUCCESS"] * 2
    assert is_valid_at(tls.pair.certificate_pem, datetime.now(UTC))


def test_a_client_certificate_is_asked_for_verified_and_told_to_the_application(source: Source) -> None:
    """Before and after a new serving certificate: a good one, none at all, and one of a stranger."""
    authority, stranger = trustme.CA(), trustme.CA()
    contexts = [client_context() for _ in range(3)]
    authority.issue_cert("api-server@kubernetes.example").configure_cert(contexts[0])
    stranger.issue_cert("api-server@kubernetes.example").configure_cert(contexts[2])
    tls = TlsCertificate(source, client_ca_pem=authority.cert_pem.bytes())
    with serving(application, tls=tls) as server:
        for _ in range(2):
            raw = [answers(connect(server.port, context=context), GET) for context in contexts]
            source.pair = new_pair()

            assert [one.rpartition(b"verified ")[2] for one in raw] == [b"SUCCESS", b"NONE", b""]
            assert tls.reload()
