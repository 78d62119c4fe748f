"""The options of `gpugate serve` for its certificate: kept in a Secret, given as files, or self-signed."""

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

# Where a self-signed certificate is good for: this machine, and the Service of the shipped manifests.
_NAMES = ("localhost", "127.0.0.1", "::1", "gpugate", "gpugate.gpugate", "gpugate.gpugate.svc")
_NAMESPACE = "gpugate"


@dataclass(frozen=True, slots=True)
class CertificateSource:
    """What the options say; see their help. Raises click.UsageError where they contradict each other."""

    files: tuple[Path, Path] | None
    secret: str | None
    namespace: str | None
    names: tuple[str, ...]

    @property
    def shared_namespace(self) -> str | None:
        """Where replicas keep what they share: with the Secret, else in this pod's; None where neither is."""
        return self.namespace or own_namespace() or (_NAMESPACE if self.secret else None)

    def of_secret(self, api: Kubernetes, client_ca_pem: bytes | None) -> SecretCertificate:
        """Return the certificate in the Secret, to be started."""
        from certs.rotation_plan import service_names  # noqa: PLC0415 - no other command needs these
        from webhook.runtime import SecretCertificate  # noqa: PLC0415

        namespace = self.shared_namespace or _NAMESPACE
        names = (*service_names(namespace), *self.names)
        return SecretCertificate(api, namespace, self.secret or "", names, client_ca_pem)

    def without_cluster(self, client_ca_pem: bytes | None) -> TlsCertificate:
        """Return the certificate in the files, or a self-signed one; raises CertificateError."""
        from certs.bundle import pair_of  # noqa: PLC0415 - as above
        from webhook.server.tls import TlsCertificate  # noqa: PLC0415 - as above

        if self.files:
            certificate, key = map(str, self.files)
            pair_of({str(path): read_file(path) for path in self.files}, certificate, key)
            return TlsCertificate.from_files(*self.files, client_ca_pem)
        return TlsCertificate.self_signed((*_NAMES, *self.names), client_ca_pem)


def certificate_options(command: F) -> F:
    """Give a command these options; it gets them as `certificate`, a CertificateSource."""

    @wraps(command)
    def chosen(
        tls_cert: Path | None,
        tls_key: Path | None,
        certs_secret: str | None,
        certs_namespace: str | None,
        names: tuple[str, ...],
        **others: Any,
    ) -> Any:
        if (tls_cert is None) != (tls_key is None):
            raise click.UsageError("--tls-cert and --tls-key go together")
        files = (tls_cert, tls_key) if tls_cert and tls_key else None
        if files and (certs_secret or names):
            raise click.UsageError("--tls-cert is a certificate made elsewhere: no --certs-secret, no --name")
        if certs_namespace and not certs_secret:
            raise click.UsageError("--certs-namespace goes with --certs-secret")
        if not all(name and name.isascii() for name in names):
            raise click.UsageError("--name takes a DNS name or an address")
        source = CertificateSource(files, certs_secret, certs_namespace, names)
        return command(certificate=source, **others)

    for option in (
        click.option(
            "--name",
            "names",
            multiple=True,
            metavar="NAME",
            help="DNS name or address of the server, beside its Service's; may be repeated.",
        ),
        click.option(
            "--certs-namespace", metavar="NS", help="Of the Secret.  [default: the pod's, or gpugate]"
        ),
        click.option(
            "--certs-secret", metavar="NAME", help="Secret of the certificate; made, kept, renewed."
        ),
        click.option("--tls-key", type=click.Path(path_type=Path), help="PEM key."),
        click.option(
            "--tls-cert",
            type=click.Path(path_type=Path),
            help="PEM chain; renewed files are picked up.  [default: self-signed, made at start]",
        ),
    ):
        chosen = option(chosen)
    return chosen  # type: ignore[return-value]  # the command, with other arguments
