"""Clients that do not verify certificates."""

from __future__ import annotations

import ssl


def unverified() -> ssl.SSLContext:
    """Return the context of a client that accepts any certificate, like the probes of the kubelet."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context
