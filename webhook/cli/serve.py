"""`gpugate serve`: the admission webhook."""

from __future__ import annotations

import logging
import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rules.load import Loaded
from rules.model import Language
from webhook.cli.inputs import (
    RuleSource,
    language_option,
    load_inventory,
    namespace_option,
    nodes_option,
)

if TYPE_CHECKING:
    from webhook.cluster.client import ClusterApi
    from webhook.cluster.state import Followed, Live
    from webhook.gate import Gate

_log = logging.getLogger("gpugate")
# Where a certificate made at start is good for: this machine, and the Service of the shipped manifests.
_NAMES = ("localhost", "127.0.0.1", "::1", "gpugate", "gpugate.gpugate", "gpugate.gpugate.svc")


@click.command()
@click.option(
    "--rules",
    "rule_paths",
    multiple=True,
    metavar="PATH",
    help="Rule file or folder; may be repeated.  [default: those of the cluster, or the shipped rules]",
)
@click.option("--kubeconfig", metavar="FILE", help="Follow the rules and nodes of this file's cluster.")
@click.option(
    "--context",
    metavar="NAME",
    help="Follow those of this context's cluster.  [default in a pod, without --rules: its own cluster]",
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
    kubeconfig: str | None,
    context: str | None,
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

    Rules with mistakes are logged and left out; the others are served. Rule ConfigMaps and nodes of a cluster
    are followed, but for what --rules and --nodes give, and readiness waits until they are known. SIGTERM
    drains: readiness turns false, requests are answered for --drain-seconds, then the rest is finished.

    \b
    Examples:
      gpugate serve --port 8443
      gpugate serve --context production --tls-cert tls.crt --tls-key tls.key
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
    api = _cluster(kubeconfig, context, of_pod=not rule_paths)
    from_cluster = api is not None and not rule_paths
    loaded = Loaded() if from_cluster else RuleSource(rules_namespace).load(rule_paths)
    for error in loaded.errors:
        _log.error("rule left out: %s", error)
    gate = Gate(
        loaded,
        Language(lang),
        load_inventory(node_paths),
        on_error_allow=on_error == "allow",
        rules_namespace=rules_namespace,
    )
    live = _follow(api, gate, rules_namespace, rules=not rule_paths, nodes=not node_paths) if api else None

    def drain() -> None:
        if live:
            live.stop()  # first, so that it does not open the gate after
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
    what = "the rules of a cluster" if from_cluster else f"{enabled} rules"
    _log.info("serving on https://%s:%s with %s", host, server.port, what)
    threading.excepthook = _report
    if live:
        live.start()
    sys.exit(server.run())


def _cluster(kubeconfig: str | None, context: str | None, *, of_pod: bool) -> ClusterApi | None:
    """Return the cluster to follow; of_pod: with neither option, the one that this pod runs in, if it does.

    Raises click.UsageError.
    """
    own = of_pod and "KUBERNETES_SERVICE_HOST" in os.environ  # as in every pod
    if not (kubeconfig or context or own):
        return None
    # Imported here: without a cluster, the client is not needed.
    from webhook.cluster.client import ClusterApi, ClusterError  # noqa: PLC0415

    try:
        if kubeconfig or context:
            return ClusterApi.of_kubeconfig(kubeconfig, context)
        return ClusterApi.in_cluster()
    except ClusterError as error:
        raise click.UsageError(str(error)) from None


def _follow(api: ClusterApi, gate: Gate, namespace: str, *, rules: bool, nodes: bool) -> Live:
    """Return what keeps a gate at what is not given by files. Raises click.UsageError where all is."""
    from webhook.cluster.state import Live  # noqa: PLC0415 - as above

    followed: list[Followed] = ["rules"] if rules else []
    if nodes:
        followed.append("nodes")
    if not followed:
        raise click.UsageError("with --rules and --nodes nothing is left to take from the cluster")
    return Live(api, gate, namespace, followed)


def _report(thrown: threading.ExceptHookArgs) -> None:
    """Log what a thread died of: a bug."""
    from webhook import metrics  # noqa: PLC0415 - as above

    metrics.ERRORS.labels("internal").inc()
    name = thrown.thread.name if thrown.thread else "?"
    _log.error("thread %s failed", name, exc_info=(thrown.exc_type, thrown.exc_value, thrown.exc_traceback))  # type: ignore[arg-type]
