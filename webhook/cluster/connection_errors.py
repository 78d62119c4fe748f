"""Connection errors in the words of kubectl, which its users know and search for.

Sources: https://github.com/kubernetes/kubectl/blob/v0.34.1/pkg/cmd/util/helpers.go, and the texts of the
packages net, crypto/tls and crypto/x509 of Go, which it prints.
"""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Iterator
from http.client import RemoteDisconnected
from typing import Final
from urllib.parse import SplitResult, urlsplit

# Results of OpenSSL's verification: https://docs.openssl.org/3.5/man3/X509_STORE_CTX_get_error/
_OUT_OF_DATE: Final = frozenset({9, 10})
_UNKNOWN_AUTHORITY: Final = frozenset({2, 18, 19, 20, 21})
# Reasons of OpenSSL for an answer in plain HTTP.
_NOT_TLS: Final = frozenset({"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST"})
# What timed out, by the name of urllib3's error: files at URLs are read without importing urllib3.
_TIMEOUTS: Final = {"ConnectTimeoutError": "dial", "ReadTimeoutError": "read"}
# Names of the errors of an incomplete answer.
_CUT: Final = frozenset({"ProtocolError", "InvalidChunkLength", "IncompleteRead"})


UNAUTHORIZED: Final = "You must be logged in to the server (Unauthorized)"


def not_found_text(kind: str, name: str) -> str:
    """Return the text that kubectl prints if an object does not exist."""
    return f'Error from server (NotFound): {kind} "{name}" not found'


def connection_error_text(error: BaseException, url: str) -> str:
    """Return the text that kubectl prints if a server does not answer. url: of the server."""
    server = urlsplit(url).netloc
    if any(isinstance(cause, ConnectionRefusedError) for cause in _causes(error)):
        return f"The connection to the server {server} was refused - did you specify the right host or port?"
    return f"Unable to connect to the server: {network_error_text(error, url)}"


def network_error_text(error: BaseException, url: str) -> str:
    """Return what failed between this machine and a server, in one line. url: of the server."""
    causes = list(_causes(error))
    if text := next(filter(None, (_text(cause, urlsplit(url)) for cause in causes)), None):
        return text
    if any(type(cause).__name__ in _CUT for cause in causes):
        return "connection closed"
    return " ".join(str(causes[-1]).split())


def _text(error: BaseException, server: SplitResult) -> str | None:
    """Return the text for a cause of an error; None if there is none."""
    text = None
    match error:
        case socket.gaierror():
            text = f"dial tcp: lookup {server.hostname}: no such host"
        case ssl.SSLCertVerificationError():
            text = f"tls: failed to verify certificate: x509: {_certificate_error(error)}"
        case ssl.SSLError(reason=str(reason)) if reason in _NOT_TLS:
            text = "http: server gave HTTP response to HTTPS client"
        case ssl.SSLError(reason=str(reason)):
            text = f"tls: {reason.replace('_', ' ').lower()}"
        case RemoteDisconnected():
            text = "EOF"
        case TimeoutError():
            text = f"dial tcp {server.netloc}: i/o timeout"
        case OSError(errno=int(number)):
            text = f"dial tcp {server.netloc}: connect: {os.strerror(number).lower()}"
    if step := _TIMEOUTS.get(type(error).__name__):
        text = f"{step} tcp {server.netloc}: i/o timeout"
    return text


def _certificate_error(error: ssl.SSLCertVerificationError) -> str:
    if error.verify_code in _OUT_OF_DATE:
        return "certificate has expired or is not yet valid"
    if error.verify_code in _UNKNOWN_AUTHORITY:
        return "certificate signed by unknown authority"
    return error.verify_message.rstrip(".")


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and its causes, outermost first: reasons of urllib, arguments, causes of Python."""
    seen: list[BaseException] = []
    pending: list[object] = [error]
    while pending:
        candidate = pending.pop(0)
        if isinstance(candidate, BaseException) and not any(candidate is other for other in seen):
            seen.append(candidate)
            yield candidate
            pending += [
                getattr(candidate, "reason", None),
                *candidate.args,
                candidate.__cause__,
                candidate.__context__,
            ]
