"""The options of `gpugate serve` for its certificate: from a Secret, from files, or self-signed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from webhook.cli.input.files import read_file
from webhook.cluster.in_cluster import own_namespace

if TYPE_CHECKING:
    from certs.kubernetes_api import Kubernetes
    from webhook.runtime import SecretCertificate
    from webhook.server.tls import TlsCertificate

F = TypeVar("F", bound=Callable[..., Any])

# Names in a self-signed certificate: this machine, and the Service of the manifests.
_NAMES = ("localhost", "127.0.0.1", "::1", "gpugate", "gpugate.gpugate", "gpugate.gpugate.svc")
_NAMESPACE = "gpugate"


@dataclass(frozen=True, slots=True)
class CertificateSource:
    """The values of `certificate_options`; see their help."""

    files: tuple[Path, Path] | None
    secret: str | None
    namespace: str | None
    names: tuple[str, ...]

    @property
    def shared_namespace(self) -> str | None:
        """Namespace of the objects that replicas share: that of the Secret or of this pod, or None."""
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


def certificate_options(command: F) -> F:
    """Add the options for the certificate; the command gets them as `certificate`.

    The command raises click.UsageError if they contradict each other.
    """

    @wraps(command)
    def wrapper(
        tls_cert: Path | None,
        tls_key: Path | None,
        certs_secret: str | None,
        certs_namespace: str | None,
        names: tuple[str, ...],
        **others: Any,
    ) -> Any:
        if (tls_cert is None) != (tls_key is None):
            raise click.UsageError("--tls-cert and --tls-key must be used together")
        files = (tls_cert, tls_key) if tls_cert and tls_key else None
        if files and (certs_secret or names):
            raise click.UsageError("--tls-cert cannot be used with --certs-secret or --name")
        if certs_namespace and not certs_secret:
            raise click.UsageError("--certs-namespace requires --certs-secret")
        if not all(name and name.isascii() for name in names):
            raise click.UsageError("--name must be a DNS name or an IP address")
        source = CertificateSource(files, certs_secret, certs_namespace, names)
        return command(certificate=source, **others)

    for option in (
        click.option(
            "--name",
            "names",
            multiple=True,
            metavar="NAME",
            help="Additional DNS name or IP address of the server; may be repeated.",
        ),
        click.option(
            "--certs-namespace",
            metavar="NS",
            help="Namespace of the Secret.  [default: the pod's namespace, or gpugate]",
        ),
        click.option(
            "--certs-secret",
            metavar="NAME",
            help="Secret that stores the certificate; it is created and rotated automatically.",
        ),
        click.option("--tls-key", type=click.Path(path_type=Path), help="File that contains the PEM key."),
        click.option(
            "--tls-cert",
            type=click.Path(path_type=Path),
            help="File that contains the PEM chain; reloaded when it changes.  [default: self-signed]",
        ),
    ):
        wrapper = option(wrapper)
    return wrapper  # type: ignore[return-value]  # the command, with other arguments
