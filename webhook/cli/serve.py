"""`gpugate serve`: the admission webhook."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import click

from rules.model import Language
from webhook.cli.inputs import (
    RuleSource,
    language_option,
    load_inventory,
    namespace_option,
    nodes_option,
)

_log = logging.getLogger("gpugate")
# Where a certificate made at start is good for: this machine, and the Service of the shipped manifests.
_NAMES = ("localhost", "127.0.0.1", "::1", "gpugate", "gpugate.gpugate", "gpugate.gpugate.svc")


@click.command()
@click.option(
    "--rules",
    "rule_paths",
    multiple=True,
    metavar="PATH",
    help="Rule file or folder; may be repeated.  [default: the shipped rules]",
)
@click.option("--host", default="0.0.0.0", show_default=True, help="Address to listen on; :: for IPv6 too.")  # noqa: S104
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8443, show_default=True, help="0: any free one."
)
@click.option("--tls-cert", type=click.Path(path_type=Path), help="PEM chain; renewed files are picked up.")
@click.option(
    "--tls-key", type=click.Path(path_type=Path), help="PEM key.  [default: self-signed, made at start]"
)
@click.option(
    "--client-ca", type=click.Path(path_type=Path), help="PEM; clients have to show a certificate of it."
)
@click.option(
    "--on-error",
    type=click.Choice(["deny", "allow"]),
    default="deny",
    show_default=True,
    help="Verdict on an object on which gpugate itself fails.",
)
@click.option(
    "--drain-seconds",
    type=click.FloatRange(0),
    default=5.0,
    show_default=True,
    help="How long to answer on after SIGTERM, while endpoints are withdrawn.",
)
@click.option("--log-format", type=click.Choice(["auto", "json", "text"]), default="auto", show_default=True)
@nodes_option
@namespace_option
@language_option
def command(
    rule_paths: tuple[str, ...],
    host: str,
    port: int,
    tls_cert: Path | None,
    tls_key: Path | None,
    client_ca: Path | None,
    on_error: str,
    drain_seconds: float,
    log_format: str,
    node_paths: tuple[str, ...],
    rules_namespace: str,
    lang: str,
) -> None:
    """Serve /mutate and /validate over TLS, and /healthz, /readyz, /metrics.

    Rules with mistakes are logged and left out; the others are served. SIGTERM drains: readiness turns false,
    requests are answered for --drain-seconds, then the rest is finished.

    \b
    Examples:
      gpugate serve --port 8443
      gpugate serve --rules my-rules/ --tls-cert tls.crt --tls-key tls.key --lang zh
      curl -k https://localhost:8443/readyz
    """
    # Imported here: no other command needs the server.
    from certs.authority import CertificateError  # noqa: PLC0415
    from webhook.app import create_app  # noqa: PLC0415
    from webhook.gate import Gate  # noqa: PLC0415
    from webhook.logs import configure_logs  # noqa: PLC0415
    from webhook.server import Server, ServerConfig  # noqa: PLC0415
    from webhook.tls import TlsCertificate  # noqa: PLC0415

    if (tls_cert is None) != (tls_key is None):
        raise click.UsageError("--tls-cert and --tls-key go together")
    configure_logs(plain={"json": False, "text": True}.get(log_format))
    loaded = RuleSource(rules_namespace).load(rule_paths)
    for error in loaded.errors:
        _log.error("rule left out: %s", error)
    gate = Gate(loaded, Language(lang), load_inventory(node_paths), on_error_allow=on_error == "allow")

    def drain() -> None:
        gate.ready = False
        _log.info("draining for %s s", drain_seconds)

    try:
        client_ca_pem = client_ca.read_bytes() if client_ca else None
        tls = (
            TlsCertificate.from_files(tls_cert, tls_key, client_ca_pem)
            if tls_cert and tls_key
            else TlsCertificate.self_signed(_NAMES, client_ca_pem)
        )
        app = create_app(gate, require_client_certificate=client_ca is not None)
        server = Server(app, ServerConfig(host, port, drain_seconds=drain_seconds), tls, drain)
    except (CertificateError, OSError) as error:
        raise click.UsageError(str(error)) from None
    enabled = sum(rule.enabled for rule in loaded.rules)
    _log.info("serving on https://%s:%s with %s rules", host, server.port, enabled)
    sys.exit(server.run())
