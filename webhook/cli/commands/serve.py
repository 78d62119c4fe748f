"""`gpugate serve`: runs the admission webhook.

Its certificate is from a Secret, from files, or self-signed.
"""

from __future__ import annotations

import errno
import logging
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import click
from msgspec import Struct

from rules import Loaded, RuleSet
from rules.model.rule import Action
from rules.text.i18n import Message, os_error_reason
from webhook.cli.inputs.cluster_source import NO_CLUSTER, ClusterSource
from webhook.cli.inputs.files import read_file
from webhook.cli.inputs.nodes import read_nodes
from webhook.cli.inputs.options import (
    context_option,
    kubeconfig_option,
    language_option,
    namespace_option,
    nodes_option,
    option_group,
    port_option,
    rules_in_force_option,
    workloads_option,
)
from webhook.cli.inputs.session import Session, with_session
from webhook.cli.terminal.console import BadInputError
from webhook.cli.terminal.usage_errors import UsageError, message_of
from webhook.cluster.in_cluster import in_pod, own_namespace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from certs.kubernetes_api import Kubernetes
    from webhook.admission.handler import AdmissionHandler
    from webhook.admission.tokens import TokenVerifier
    from webhook.cluster.client import ClusterApi
    from webhook.cluster.watched_objects import WatchedObjects
    from webhook.runtime import Background, SecretCertificate, Sync
    from webhook.server.server import ServerConfig
    from webhook.server.tls import TlsCertificate

# Names in a self-signed certificate: this machine, and the Service of the manifests.
_NAMES = ("localhost", "127.0.0.1", "::1", "gpugate", "gpugate.gpugate", "gpugate.gpugate.svc")
_NAMESPACE = "gpugate"


class CertificateSource(Struct, frozen=True):
    """Where the certificate is: in files, or in a Secret; without both, it is self-signed."""

    files: tuple[Path, Path] | None
    secret: str | None
    namespace: str | None
    names: tuple[str, ...]

    @property
    def shared_namespace(self) -> str | None:
        """Namespace of the objects that replicas share: of the Secret, else of this pod; may be None."""
        return self.namespace or own_namespace() or (_NAMESPACE if self.secret else None)

    def of_secret(self, api: Kubernetes, client_ca_pem: bytes | None) -> SecretCertificate:
        """Return the certificate in the Secret; the caller starts its rotation."""
        from certs.rotation_plan import service_names
        from webhook.runtime import SecretCertificate

        namespace = self.shared_namespace or _NAMESPACE
        names = (*service_names(namespace), *self.names)
        return SecretCertificate(api, namespace, self.secret or "", names, client_ca_pem)

    def without_cluster(self, client_ca_pem: bytes | None) -> TlsCertificate:
        """Return the certificate in the files, or a self-signed one; raises CertificateError."""
        from certs.bundle import pair_of
        from webhook.server.tls import TlsCertificate

        if self.files:
            certificate, key = map(str, self.files)
            pair_of({str(path): read_file(path) for path in self.files}, certificate, key)
            return TlsCertificate.from_files(*self.files, client_ca_pem)
        return TlsCertificate.self_signed((*_NAMES, *self.names), client_ca_pem)


def _certificate(
    tls_cert: Path | None,
    tls_key: Path | None,
    certs_secret: str | None,
    certs_namespace: str | None,
    names: tuple[str, ...],
) -> CertificateSource:
    """Return the certificate that options select. Raises click.UsageError if they contradict each other."""
    if (tls_cert is None) != (tls_key is None):
        raise UsageError(Message("--tls-cert and --tls-key must be used together"))
    files = (tls_cert, tls_key) if tls_cert and tls_key else None
    if files and (certs_secret or names):
        raise UsageError(Message("--tls-cert cannot be used with --certs-secret or --name"))
    if certs_namespace and not certs_secret:
        raise UsageError(Message("--certs-namespace requires --certs-secret"))
    if not all(name and name.isascii() for name in names):
        raise UsageError(Message("--name must be a DNS name or an IP address"))
    return CertificateSource(files, certs_secret, certs_namespace, names)


_certificate_options: Final = option_group(
    "certificate",
    _certificate,
    click.option(
        "--tls-cert",
        type=click.Path(path_type=Path),
        help="File that contains the PEM chain; reloaded when it changes.  [default: self-signed]",
    ),
    click.option("--tls-key", type=click.Path(path_type=Path), help="File that contains the PEM key."),
    click.option(
        "--certs-secret",
        metavar="NAME",
        help="Secret that stores the certificate; it is created and rotated automatically.",
    ),
    click.option(
        "--certs-namespace",
        metavar="NS",
        help="Namespace of the Secret.  [default: the pod's namespace, or gpugate]",
    ),
    click.option(
        "--name",
        "names",
        multiple=True,
        metavar="NAME",
        help="Additional DNS name or IP address of the server; may be repeated.",
    ),
)


_log = logging.getLogger("gpugate")

_NOT_LISTENING: Final = Message("cannot listen on {host} port {port}: {why}; {remedy}")
_OTHER_HOST: Final = Message("set --host to an address of this machine")
_REMEDIES: Final[dict[int | None, Message]] = {
    errno.EADDRINUSE: Message("stop the process that listens there, or set another --port"),
    errno.EACCES: Message("set --port to 1024 or higher"),
}


def _https_urls(_context: click.Context, _option: click.Parameter, urls: tuple[str, ...]) -> tuple[str, ...]:
    """Return the URLs; raises click.BadParameter if one is not https."""
    for url in urls:
        if not url.startswith("https://") or len(url.split()) != 1:
            raise click.BadParameter(f"{url!r} is not an https URL")
    return urls


class Listener(NamedTuple):
    """Where the server listens, whom it trusts, and how long it serves after SIGTERM."""

    host: str
    port: int
    client_ca: Path | None
    token_audiences: tuple[str, ...]
    drain_seconds: float

    def config(self) -> ServerConfig:
        """Return the configuration of the server."""
        from webhook.server.server import ServerConfig

        return ServerConfig(host=self.host, port=self.port, drain_seconds=self.drain_seconds)


@click.command()
@rules_in_force_option
@kubeconfig_option("Watch the rules and nodes of the cluster in this kubeconfig.")
@context_option(
    "Watch those of the cluster of this context.  [default in a pod, without --rules: its own cluster]"
)
@click.option("--host", default="0.0.0.0", show_default=True, help="Address to listen on; :: includes IPv6.")  # noqa: S104
@port_option(8443, "Port to listen on; 0 selects a free port.")
@click.option(
    "--client-ca",
    type=click.Path(path_type=Path),
    help="File that contains a PEM CA; clients must present a certificate signed by it.",
)
@click.option(
    "--token-audience",
    "token_audiences",
    multiple=True,
    metavar="URL",
    callback=_https_urls,
    help="URL by which API servers call the webhook, without /mutate and /validate; they must present a token"
    " of the cluster for it (KEP-6060). A Service is https://NAME.NAMESPACE.svc:443. May be repeated.",
)
@click.option(
    "--on-error",
    type=click.Choice(["deny", "allow"]),
    default="deny",
    show_default=True,
    help="Result for an object that causes an internal error.",
)
@click.option(
    "--enforcement-action",
    type=click.Choice([action.value for action in Action]),
    default=Action.DENY.value,
    show_default=True,
    help="Most that any rule may do. warn: warnings instead of denials, and no node affinity; dryrun: nothing"
    " is denied, patched or warned of. What would be is in metrics, log and audit annotations.",
)
@click.option(
    "--drain-seconds",
    type=click.FloatRange(0),
    default=5.0,
    show_default=True,
    help="Seconds to keep serving after SIGTERM while endpoints are removed.",
)
@click.option(
    "--denial-events",
    is_flag=True,
    help="Write a Warning Event on the workload whose pod is denied, as its Deployment or CronJob.",
)
@click.option("--log-format", type=click.Choice(["auto", "json", "text"]), default="auto", show_default=True)
@_certificate_options
@nodes_option
@workloads_option
@namespace_option
@language_option
@option_group("listener", Listener)
@option_group("cluster", ClusterSource)
@with_session
def command(
    listener: Listener,
    on_error: str,
    enforcement_action: str,
    denial_events: bool,
    log_format: str,
    certificate: CertificateSource,
    session: Session,
) -> None:
    """Serve /mutate, /validate, /healthz, /readyz and /metrics over TLS.

    Watches the cluster's rule ConfigMaps and nodes unless --rules or --nodes is given; ready after the first
    sync. Invalid rules are logged and skipped. With --certs-secret, readiness also requires the certificate,
    and the caBundle of both webhook configurations is set. After SIGTERM, the server reports not ready,
    accepts requests for --drain-seconds, and finishes open requests.

    \b
    Examples:
      gpugate serve --port 8443
      gpugate serve --certs-secret gpugate-certs
      gpugate serve --context production --certs-secret gpugate-certs --name 192.0.2.7
      gpugate serve --rules my-rules/ --tls-cert tls.crt --tls-key tls.key --lang zh
      curl -k https://localhost:8443/readyz
    """
    # Imported here: only this command needs the server.
    from certs.authority import CertificateError
    from webhook.admission.handler import AdmissionHandler
    from webhook.runtime import make_server, report_thread
    from webhook.telemetry.logs import configure_logs

    configure_logs(plain={"json": False, "text": True}.get(log_format))
    api = _cluster(session.cluster, of_pod=not session.rule_paths)
    from_cluster = api is not None and not session.rule_paths
    loaded = Loaded() if from_cluster else session.read_rules(session.rule_paths)
    for error in loaded.errors:
        _log.error("invalid rule skipped: %s", error)
    handler = AdmissionHandler(
        loaded,
        session.language,
        read_nodes(session.node_paths)[0],
        on_error_allow=on_error == "allow",
        rules_namespace=session.rules_namespace,
        workloads=session.workloads,
        enforcement=Action(enforcement_action),
    )
    background: list[Background] = []
    is_used = bool(listener.token_audiences) or denial_events
    objects = _watch(api, handler, certificate, session, background, is_used=is_used)
    tokens = _tokens(api, listener.token_audiences, background)
    if denial_events:
        from webhook.cluster.denial_events import DenialEvents

        background.append(DenialEvents(api or _own_cluster("--denial-events"), handler))
    try:
        tls = _tls(certificate, objects, listener.client_ca, background)
    except CertificateError as error:
        raise BadInputError(message_of(error)) from None
    try:
        server = make_server(
            handler,
            tls,
            background,
            listener.config(),
            require_client_certificate=listener.client_ca is not None,
            tokens=tokens,
        )
    except OSError as error:
        raise BadInputError(_not_listening(listener, error)) from None
    _log.info(
        "serving on https://%s:%s with %s, enforcement action %s",
        listener.host,
        server.port,
        "the rules of a cluster" if from_cluster else _enabled(loaded.rules),
        enforcement_action,
    )
    threading.excepthook = report_thread
    for part in background:
        part.start()
    with handler.decision_log.batching():
        sys.exit(server.run())


def _watch(
    api: ClusterApi | None,
    handler: AdmissionHandler,
    certificate: CertificateSource,
    session: Session,
    background: list[Background],
    *,
    is_used: bool,
) -> WatchedObjects | None:
    """Add the tasks that watch a cluster; return the client for the objects that replicas share, if any.

    api: the cluster of the options. is_used: whether other options need it. Raises click.UsageError if
    nothing of that cluster is used.
    """
    watched = [] if session.rule_paths else ["rules"]
    watched += [] if session.node_paths else ["nodes"]
    if api and not (watched or certificate.secret or is_used):
        raise UsageError(
            Message("--kubeconfig and --context have no effect together with --rules and --nodes")
        )
    cluster = api or (_own_cluster("--certs-secret") if certificate.secret else None)
    if cluster is None:
        return None
    objects = _watched_objects(cluster, certificate, has_rules=not session.rule_paths)
    background.append(objects)
    if api and watched:
        namespace = certificate.shared_namespace
        background += _background(api, objects, handler, session.rules_namespace, watched, namespace)
    return objects


def _tokens(
    api: ClusterApi | None, audiences: tuple[str, ...], background: list[Background]
) -> TokenVerifier | None:
    """Return what verifies the tokens of reviews, and add the task that reads its keys.

    None without audiences. api: the cluster of the options. Raises click.UsageError if there is no cluster.
    """
    if not audiences:
        return None
    # Imported here: only needed with this option.
    from webhook.admission.tokens import TokenVerifier
    from webhook.cluster.token_keys import TokenKeysSync

    tokens = TokenVerifier(audiences)
    background.append(TokenKeysSync(api or _own_cluster("--token-audience"), tokens))
    return tokens


def _tls(
    certificate: CertificateSource,
    objects: WatchedObjects | None,
    client_ca: Path | None,
    background: list[Background],
) -> TlsCertificate:
    """Return the certificate; one in a Secret adds the task that rotates it. Raises CertificateError."""
    from certs.bundle import certificates_named

    client_ca_pem = read_file(client_ca) if client_ca else None
    if client_ca_pem is not None:
        certificates_named(str(client_ca), client_ca_pem)
    if not (objects and certificate.secret):
        return certificate.without_cluster(client_ca_pem)
    secret = certificate.of_secret(objects, client_ca_pem)
    background.append(secret)
    return secret.tls


def _cluster(cluster: ClusterSource, *, of_pod: bool) -> ClusterApi | None:
    """Return the cluster that options select. of_pod: without options, return the cluster of this pod.

    None if options select no cluster, and outside a pod. Raises BadInputError.
    """
    if not (cluster.named or (of_pod and in_pod())):
        return None
    # Imported here: only needed with a cluster.
    from webhook.cluster.client import ClusterApi, ClusterError

    try:
        if cluster.named:
            return ClusterApi.of_kubeconfig(cluster.kubeconfig, cluster.context)
        return ClusterApi.in_cluster()
    except ClusterError as error:
        raise BadInputError(error.text) from None


def _not_listening(listener: Listener, error: OSError) -> Message:
    """Return why a server cannot listen, and what to do."""
    error.strerror = (error.strerror or str(error)).partition(" (")[0]
    remedy = _REMEDIES.get(error.errno, _OTHER_HOST)
    reason = os_error_reason(error)
    return _NOT_LISTENING.having(host=listener.host, port=listener.port, why=reason, remedy=remedy)


def _own_cluster(option: str) -> ClusterApi:
    """Return the cluster of this pod. Raises click.UsageError, for this option, if it does not run in one."""
    if api := _cluster(NO_CLUSTER, of_pod=True):
        return api
    words = Message("{option} requires --kubeconfig or --context outside a pod", option=option)
    raise UsageError(words)


def _enabled(rules: RuleSet) -> str:
    """Return how many rules are in force, in the words of `gpugate version`."""
    states = [rule.enabled for rule in rules]
    return f"{sum(states)} of {len(states)} rules enabled"


def _watched_objects(api: ClusterApi, certificate: CertificateSource, *, has_rules: bool) -> WatchedObjects:
    """Return a client that watches the objects that replicas share and read often.

    has_rules: whether the rules are from the cluster; matchConditions are written for them.
    """
    from certs.ca_bundle import KINDS, configuration_path
    from certs.store import secret_path
    from webhook.cluster.watched_objects import WatchedObjects

    namespace, paths = certificate.shared_namespace, []
    if certificate.secret and namespace:
        paths.append(secret_path(namespace, certificate.secret))
    if certificate.secret or (has_rules and namespace is not None):
        paths += map(configuration_path, KINDS)
    return WatchedObjects(api, paths)


def _background(
    api: ClusterApi,
    objects: WatchedObjects,
    handler: AdmissionHandler,
    rules_namespace: str,
    watched: list[str],
    shared_namespace: str | None,
) -> Iterator[Background]:
    """Yield the background tasks of a webhook that watches a cluster.

    objects: client that watches the webhook configurations, if they are written.
    shared_namespace: namespace of the objects that replicas share; None outside the cluster, from where
    nothing is written.
    """
    from webhook.cluster.inventory_sync import InventorySync
    from webhook.cluster.namespace_sync import NamespaceSync
    from webhook.cluster.profile_events import ProfileEvents
    from webhook.cluster.rule_snapshot import RuleSnapshot
    from webhook.cluster.rule_sync import RuleSync
    from webhook.cluster.webhook_configuration import WebhookConfigurationSync
    from webhook.runtime import ClusterSync

    snapshot = None if shared_namespace is None else RuleSnapshot(api, shared_namespace)
    rules = RuleSync(api, handler, rules_namespace, snapshot)
    parts: list[Sync] = []
    if "rules" in watched:
        parts.append(rules)
    if "nodes" in watched:
        parts.append(InventorySync(api, handler))
    parts.append(NamespaceSync(api, handler))
    yield ClusterSync(handler, parts)
    if "rules" in watched and shared_namespace is not None:
        yield WebhookConfigurationSync(objects, handler)
        if "nodes" in watched:
            yield ProfileEvents(api, handler, rules.config_map)
