"""`gpugate serve`: the admission webhook."""

from __future__ import annotations

import errno
import logging
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from rules import Language, Loaded
from webhook.cli.input.certificate_options import CertificateSource, certificate_options
from webhook.cli.input.files import RuleSource, load_inventory, load_workloads, read_file
from webhook.cli.input.options import (
    language_option,
    namespace_option,
    nodes_option,
    rules_option,
    workloads_option,
)
from webhook.cli.output.console import BadInputError
from webhook.cluster.in_cluster import in_pod

if TYPE_CHECKING:
    from collections.abc import Iterator

    from webhook.admission.handler import AdmissionHandler
    from webhook.cluster.client import ClusterApi
    from webhook.cluster.rule_sync import Followed
    from webhook.runtime import Background

_log = logging.getLogger("gpugate")

_OTHER_HOST: Final = "--host takes an address of this machine"
_ADVICE: Final[dict[int | None, str]] = {
    errno.EADDRINUSE: "end what listens there, or choose another --port",
    errno.EACCES: "choose a --port above 1023",
}


@click.command()
@rules_option
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
@certificate_options
@nodes_option
@workloads_option
@namespace_option
@language_option
def command(
    rule_paths: tuple[str, ...],
    kubeconfig: str | None,
    context: str | None,
    host: str,
    port: int,
    certificate: CertificateSource,
    client_ca: Path | None,
    on_error: str,
    drain_seconds: float,
    log_format: str,
    node_paths: tuple[str, ...],
    workload_paths: tuple[str, ...],
    rules_namespace: str,
    lang: str,
) -> None:
    """Serve /mutate and /validate over TLS, and /healthz, /readyz, /metrics.

    Rules with mistakes are logged and left out; the others are served. Rule ConfigMaps and nodes of a cluster
    are followed, but for what --rules and --nodes give, and readiness waits until they are known. With
    --certs-secret it waits for the certificate too, and both webhook configurations are made to trust that.
    SIGTERM drains: readiness turns false, requests are answered for --drain-seconds, the rest is finished.

    \b
    Examples:
      gpugate serve --port 8443
      gpugate serve --certs-secret gpugate-certs
      gpugate serve --context production --certs-secret gpugate-certs --name 192.0.2.7
      gpugate serve --rules my-rules/ --tls-cert tls.crt --tls-key tls.key --lang zh
      curl -k https://localhost:8443/readyz
    """
    # Imported here: no other command needs the server.
    from certs.authority import CertificateError  # noqa: PLC0415
    from certs.bundle import certificates_named  # noqa: PLC0415
    from webhook.admission.handler import AdmissionHandler  # noqa: PLC0415
    from webhook.runtime import make_server, report_thread  # noqa: PLC0415
    from webhook.server.server import ServerConfig  # noqa: PLC0415
    from webhook.telemetry.logs import configure_logs  # noqa: PLC0415

    configure_logs(plain={"json": False, "text": True}.get(log_format))
    api = _cluster(kubeconfig, context, of_pod=not rule_paths)
    from_cluster = api is not None and not rule_paths
    loaded = Loaded() if from_cluster else RuleSource(rules_namespace).load(rule_paths)
    for error in loaded.errors:
        _log.error("rule left out: %s", error)
    gate = AdmissionHandler(
        loaded,
        Language(lang),
        load_inventory(node_paths),
        on_error_allow=on_error == "allow",
        rules_namespace=rules_namespace,
        workloads=load_workloads(workload_paths),
    )
    followed: list[Followed] = [] if rule_paths else ["rules"]
    followed += [] if node_paths else ["nodes"]
    if api and not (followed or certificate.secret):
        raise click.UsageError("with --rules and --nodes nothing is left to take from the cluster")
    background: list[Background] = []
    if api and followed:
        background += _following(api, gate, rules_namespace, followed, certificate.shared_namespace)
    try:
        client_ca_pem = read_file(client_ca) if client_ca else None
        if client_ca_pem is not None:
            certificates_named(str(client_ca), client_ca_pem)
        if certificate.secret:
            kept = certificate.of_secret(api or _own_cluster(), client_ca_pem)
            background.append(kept)
            tls = kept.tls
        else:
            tls = certificate.without_cluster(client_ca_pem)
    except CertificateError as error:
        raise BadInputError(str(error)) from None
    try:
        config = ServerConfig(host, port, drain_seconds=drain_seconds)
        server = make_server(gate, tls, background, config, require_client_certificate=client_ca is not None)
    except OSError as error:
        raise BadInputError(_not_listening(host, port, error)) from None
    enabled = sum(rule.enabled for rule in loaded.rules)
    what = "the rules of a cluster" if from_cluster else f"{enabled} rules"
    _log.info("serving on https://%s:%s with %s", host, server.port, what)
    threading.excepthook = report_thread
    for each in background:
        each.start()
    with gate.ledger.gathering():
        sys.exit(server.run())


def _cluster(kubeconfig: str | None, context: str | None, *, of_pod: bool) -> ClusterApi | None:
    """Return the cluster to follow; of_pod: with neither option, the one that this pod runs in, if it does.

    Raises BadInputError.
    """
    if not (kubeconfig or context or (of_pod and in_pod())):
        return None
    # Imported here: without a cluster, the client is not needed.
    from webhook.cluster.client import ClusterApi, ClusterError  # noqa: PLC0415

    try:
        if kubeconfig or context:
            return ClusterApi.of_kubeconfig(kubeconfig, context)
        return ClusterApi.in_cluster()
    except ClusterError as error:
        raise BadInputError(str(error)) from None


def _not_listening(host: str, port: int, error: OSError) -> str:
    """Return why a server cannot listen, and what to do."""
    why = (error.strerror or str(error)).partition(" (")[0]
    return f"cannot listen on {host} port {port}: {why}; {_ADVICE.get(error.errno, _OTHER_HOST)}"


def _own_cluster() -> ClusterApi:
    """Return the cluster that this pod runs in; raises click.UsageError where there is none."""
    if api := _cluster(None, None, of_pod=True):
        return api
    raise click.UsageError("--certs-secret needs a cluster; outside a pod, name --kubeconfig or --context")


def _following(
    api: ClusterApi,
    gate: AdmissionHandler,
    rules_namespace: str,
    followed: list[Followed],
    shared_namespace: str | None,
) -> Iterator[Background]:
    """Yield what keeps a gate at its cluster and, where it is installed there, the cluster at its rules.

    shared_namespace: of what replicas share; None where this is no replica, but a gate that looks on.
    """
    from webhook.cluster.rule_snapshot import RuleSnapshot  # noqa: PLC0415
    from webhook.cluster.rule_sync import Live  # noqa: PLC0415
    from webhook.cluster.webhook_configuration import Conditions  # noqa: PLC0415 - as above

    if shared_namespace is None or "rules" not in followed:
        yield Live(api, gate, rules_namespace, followed)
        return
    yield Live(api, gate, rules_namespace, followed, last_good=RuleSnapshot(api, shared_namespace))
    yield Conditions(api, gate)
