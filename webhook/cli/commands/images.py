"""`gpugate images`: runs the image resolver."""

from __future__ import annotations

import logging
import signal
import threading
from pathlib import Path
from typing import Final

import click
from msgspec.structs import replace

from rules.text.i18n import Message, os_error_reason
from webhook.cli.inputs.cluster_source import ClusterSource
from webhook.cli.inputs.completers import FILE, FOLDER
from webhook.cli.inputs.image_source import (
    Access,
    ca_file_option,
    insecure_registry_option,
    mirror_option,
    read_hosts,
    registry_config_option,
    with_access,
)
from webhook.cli.inputs.options import (
    context_option,
    kubeconfig_option,
    namespace_option,
    option_group,
    port_option,
)
from webhook.cli.terminal.console import BadInputError
from webhook.cli.terminal.usage_errors import UsageError
from webhook.cli.terminal.vocabulary import NOT_LISTENING
from webhook.images.credentials import CredentialError

_log = logging.getLogger("gpugate.images")

# Registries of public images, with their globs.
REGISTRIES: Final = (
    "docker.io",
    "nvcr.io",
    "ghcr.io",
    "quay.io",
    "registry.k8s.io",
    "public.ecr.aws",
    "gcr.io",
    "*.gcr.io",
    "*.pkg.dev",
)


@click.command()
@click.option(
    "--registry",
    "registries",
    multiple=True,
    metavar="HOST[:PORT]",
    default=REGISTRIES,
    show_default=True,
    help="Read images of this registry, in place of the default list; a glob, may be repeated.",
)
@click.option(
    "--private-registry",
    "private",
    multiple=True,
    metavar="HOST[:PORT]",
    help="Read images of this registry, too, and allow private addresses for it; may be repeated.",
)
@insecure_registry_option
@mirror_option
@ca_file_option
@registry_config_option("`docker login` or a pull secret has them")
@click.option(
    "--pull-secrets",
    is_flag=True,
    help="Use the pull secrets of the pods with an image, too; requires the right to get Secrets.",
)
@click.option(
    "--credential-provider-config",
    "provider_config",
    type=FILE,
    metavar="FILE",
    help="Use the kubelet's credential provider plugins, too: a CredentialProviderConfig.",
)
@click.option(
    "--credential-provider-bin-dir",
    "provider_folder",
    type=FOLDER,
    metavar="FOLDER",
    help="Folder that contains their programs.",
)
@kubeconfig_option()
@context_option("Use the cluster of this context.  [default in a pod: its own cluster]")
@port_option(8080, "Port for probes and metrics over plain HTTP; 0 selects a free port.")
@namespace_option
@option_group("cluster", ClusterSource)
@with_access
def command(
    registries: tuple[str, ...],
    private: tuple[str, ...],
    pull_secrets: bool,
    provider_config: str | None,
    provider_folder: str | None,
    port: int,
    rules_namespace: str,
    cluster: ClusterSource,
    access: Access,
) -> None:
    """Read facts about the images of a cluster from registries, and write them as ImageCatalogs.

    Watches pods and workloads for containers that request accelerators, and reads the configs of images whose
    CUDA version or requirement is unknown, never their layers. Writes the facts to the ConfigMaps
    gpugate-images-0 to gpugate-images-7, which the webhook watches; the webhook itself never calls a
    registry. Serves /healthz, /readyz and /metrics. Run one process in a cluster.

    \b
    Examples:
      gpugate images --context production --port 0
      gpugate images --private-registry registry.example.com --ca-file ca.pem
      gpugate images --registry nvcr.io --registry '*.pkg.dev' --registry-config config.json
    """
    # Imported here: the import takes a quarter of a second.
    from webhook.images.guards import Guards
    from webhook.images.provider_plugins import ProviderPlugins
    from webhook.images.reader import ImageReader
    from webhook.images.registry import CredentialSource
    from webhook.images.resolver.credential_sources import FirstOf, PullSecrets
    from webhook.images.resolver.pages import pages
    from webhook.images.resolver.resolver import Resolver, ResolverService
    from webhook.server.plain_http import serve_plain
    from webhook.telemetry.logs import configure_logs

    read_hosts(registries, "--registry")
    read_hosts(private, "--private-registry")
    settings = access.settings(())
    guards = Guards((*registries, *private), (*private, *settings.guards.private), access.insecure)
    if bool(provider_config) != bool(provider_folder):
        raise UsageError(
            Message("--credential-provider-config and --credential-provider-bin-dir require each other")
        )
    sources: list[CredentialSource] = [access.credentials()]
    try:
        if provider_config and provider_folder:
            sources.append(ProviderPlugins(Path(provider_config), Path(provider_folder)))
    except CredentialError as error:
        raise BadInputError(error.text) from None
    configure_logs()
    logging.getLogger("urllib3").setLevel(logging.ERROR)  # failed requests are logged once
    api = cluster.connect()
    ended = threading.Event()
    with ImageReader(replace(settings, guards=guards), FirstOf(sources)) as reader:
        resolver = Resolver(api, reader, rules_namespace)
        if pull_secrets:
            sources.append(PullSecrets(api, resolver.secrets))
        try:
            _log.info("serving probes and metrics on port %d", serve_plain(pages(resolver), port))
        except OSError as error:
            raise BadInputError(NOT_LISTENING.having(port=port, why=os_error_reason(error))) from None
        service = ResolverService(api, resolver, rules_namespace)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: ended.set())
        service.start()
        ended.wait()
        service.stop()
