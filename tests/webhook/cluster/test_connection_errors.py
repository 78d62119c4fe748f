"""What is printed if the API server does not answer: the words of kubectl."""

from __future__ import annotations

import datetime as dt
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
import trustme

from webhook.cluster.client import Cluster, ClusterError
from webhook.cluster.connection_errors import connection_error_text

Answer = Callable[[socket.socket], None]

SERVER: Final = "Unable to connect to the server: "
CERTIFICATE: Final = "tls: failed to verify certificate: x509: "


@contextmanager
def _listening(answer: Answer) -> Iterator[int]:
    """Answer each connection to a port; yield the port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_serve, args=(listener, answer), daemon=True).start()
        yield listener.getsockname()[1]


def _serve(listener: socket.socket, answer: Answer) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:  # the end of the test
            return
        with connection:
            try:
                answer(connection)
            except OSError:  # the client has hung up
                continue


def _error(tmp_path: Path, server: str, authority: bytes | None = None) -> str:
    """Return the error of a command for a server, with a CA of its own in the kubeconfig."""
    (tmp_path / "ca.pem").write_bytes(authority or trustme.CA().cert_pem.bytes())
    cluster = {"server": server} | (
        {"certificate-authority": str(tmp_path / "ca.pem")} if server.startswith("https") else {}
    )
    config = {
        "clusters": [{"name": "one", "cluster": cluster}],
        "users": [{"name": "one", "user": {}}],
        "contexts": [{"name": "one", "context": {"cluster": "one", "user": "one"}}],
        "current-context": "one",
    }
    (tmp_path / "kubeconfig").write_text(json.dumps(config), "utf-8")
    with pytest.raises(ClusterError) as error:
        Cluster(str(tmp_path / "kubeconfig")).webhooks()
    return str(error.value)


def _tls(authority: trustme.CA, name: str, end: dt.datetime | None = None) -> Answer:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert(name, not_after=end).configure_cert(context)

    def answer(connection: socket.socket) -> None:
        context.wrap_socket(connection, server_side=True).close()

    return answer


def _http(answer: bytes) -> Answer:
    def write(connection: socket.socket) -> None:
        connection.recv(1 << 16)
        connection.sendall(answer)

    return write


def test_a_refused_connection_names_the_server(tmp_path: Path) -> None:
    """And asks for the address."""
    assert (
        "The connection to the server 127.0.0.1:1 was refused - did you specify the right host or port?"
        == _error(tmp_path, "https://127.0.0.1:1")
    )


def test_an_unknown_host_is_named(tmp_path: Path) -> None:
    """Without the text of the library."""
    assert f"{SERVER}dial tcp: lookup nowhere.invalid: no such host" == _error(
        tmp_path, "https://nowhere.invalid:6443"
    )


@pytest.mark.parametrize(
    ("name", "known", "valid", "why"),
    [
        ("127.0.0.1", False, True, "certificate signed by unknown authority"),
        ("127.0.0.1", True, False, "certificate has expired or is not yet valid"),
        ("192.0.2.7", True, True, "IP address mismatch, certificate is not valid for '127.0.0.1'"),
    ],
)
def test_a_certificate_that_is_not_valid_is_reported_with_the_reason(
    name: str, known: bool, valid: bool, why: str, tmp_path: Path
) -> None:
    """Unknown CA, expired, other address."""
    authority = trustme.CA()
    end = None if valid else dt.datetime(2001, 1, 1, tzinfo=dt.UTC)
    with _listening(_tls(authority, name, end)) as port:
        error_text = _error(
            tmp_path, f"https://127.0.0.1:{port}", authority.cert_pem.bytes() if known else None
        )

    assert f"{SERVER}{CERTIFICATE}{why}" == error_text


@pytest.mark.parametrize(
    ("scheme", "answer", "why"),
    [
        ("https", b"HTTP/1.1 400 Bad Request\r\n\r\n", "http: server gave HTTP response to HTTPS client"),
        ("http", b"", "EOF"),
    ],
)
def test_an_answer_that_is_not_of_an_api_server_is_reported(
    scheme: str, answer: bytes, why: str, tmp_path: Path
) -> None:
    """Plain HTTP, and a connection that is closed."""
    with _listening(_http(answer)) as port:
        assert f"{SERVER}{why}" == _error(tmp_path, f"{scheme}://127.0.0.1:{port}")


def test_a_server_that_does_not_know_the_user_is_reported(tmp_path: Path) -> None:
    """Such as an expired token or client certificate."""
    with _listening(_http(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n")) as port:
        assert "You must be logged in to the server (Unauthorized)" == _error(
            tmp_path, f"http://127.0.0.1:{port}"
        )


def test_a_server_that_answers_too_late_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its address."""
    monkeypatch.setattr("webhook.cluster.client._READ_S", 0.05)
    done = threading.Event()

    def wait(_: socket.socket) -> None:
        done.wait(10)

    with _listening(wait) as port:
        error_text = _error(tmp_path, f"http://127.0.0.1:{port}")
        done.set()

    assert f"{SERVER}read tcp 127.0.0.1:{port}: i/o timeout" == error_text


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (OSError(113, "No route to host"), "dial tcp 192.0.2.7: connect: no route to host"),
        (ConnectionResetError(104, "reset"), "dial tcp 192.0.2.7: connect: connection reset by peer"),
        (ValueError("some\nreason"), "some reason"),
    ],
)
def test_other_errors_are_one_line(error: Exception, why: str) -> None:
    """Of the system, or what the innermost cause says."""
    outer = RuntimeError("outer")
    outer.__cause__ = error

    assert f"{SERVER}{why}" == connection_error_text(outer, "https://192.0.2.7")


@pytest.mark.parametrize(
    "sent",
    [
        b"Transfer-Encoding: chunked\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n5\r\n{",
        b"Transfer-Encoding: chunked\r\n\r\nnonsense\r\n",
        b"Content-Length: 100\r\n\r\n{",
    ],
)
def test_an_answer_that_ends_early_is_a_closed_connection(sent: bytes, tmp_path: Path) -> None:
    """As after the end of an API server; the library's own words name its numbers and classes."""

    def answer(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\n" + sent)

    with _listening(answer) as port:
        assert f"{SERVER}connection closed" == _error(tmp_path, f"http://127.0.0.1:{port}")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"current-context": "two"}, "context was not found for specified context: two"),
        (
            {"contexts": [{"name": "one", "context": {"cluster": "two", "user": "one"}}]},
            'cluster "two" does not',
        ),
        ({"current-context": None}, "current-context is not set"),
    ],
)
def test_a_name_that_is_missing_in_the_kubeconfig_is_reported(
    change: dict[str, object], why: str, tmp_path: Path
) -> None:
    """With the file."""
    config: dict[str, object] = {
        "clusters": [{"name": "one", "cluster": {"server": "https://127.0.0.1:1"}}],
        "contexts": [{"name": "one", "context": {"cluster": "one", "user": "one"}}],
        "current-context": "one",
    }
    kept = {name: value for name, value in (config | change).items() if value is not None}
    (tmp_path / "kubeconfig").write_text(json.dumps(kept), "utf-8")
    with pytest.raises(ClusterError) as error:
        Cluster(str(tmp_path / "kubeconfig"))

    assert f"{tmp_path}/kubeconfig: {why}" in str(error.value)
