"""`gpugate certs`: creates, shows and rotates the CA and the serving certificate."""

from __future__ import annotations

import sys
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path
from typing import Any, Final, TypeVar

import click
from cryptography import x509
from cryptography.hazmat.primitives.hashes import SHA256
from msgspec import Struct

from certs.authority import CertificateError
from certs.bundle import Bundle, names_in
from certs.ca_bundle import KINDS, NAME, Configuration, read_configurations
from certs.kubernetes_api import Kubernetes, KubernetesError
from certs.rotation_plan import Plan, Step, service_names
from certs.rotator import CertRotator
from certs.store import DirectoryStore, SecretStore
from rules import Language
from rules.text.i18n import Message
from webhook.cli.inputs.options import (
    context_option,
    kubeconfig_option,
    language_option,
    options,
    output_option,
)
from webhook.cli.terminal.console import (
    BadInputError,
    first_of,
    padded,
    print_document,
    print_error,
    show_table,
)
from webhook.cli.terminal.usage_errors import UsageError, message_of
from webhook.cli.terminal.vocabulary import (
    BOTH_TRUSTED,
    EMPTY_STORE,
    EXPIRED_CERTIFICATE,
    NO_CONFIGURATION,
    NO_SERVING_CERTIFICATE,
    NOT_TRUSTED,
    ROLES,
    ROTATING,
    VALID_UNTIL,
    WHEN_TRUSTED,
)

F = TypeVar("F", bound=Callable[..., Any])

_NAMESPACE: Final = "gpugate"
_SECRET: Final = "gpugate-certs"  # noqa: S105 - the name of a Secret
_NONE: Final = "-"
# Short names of webhook configurations, for the table.
_SHORT: Final = {kind: kind.removesuffix("WebhookConfiguration").lower() for kind in KINDS}
_FOUND: Final = 1
# Columns of the widest role.
_ROLE_WIDTH: Final = 8
# Hexadecimal digits of a fingerprint in the table; 64 bits are unique within a cluster.
_DIGITS: Final = 16


class _Place(Struct, frozen=True):
    """Location of the certificates."""

    store: SecretStore | DirectoryStore
    api: Kubernetes | None  # None for a directory, whose caBundle the user distributes
    namespace: str

    def rotator(self, names: tuple[str, ...], bundle: Bundle | None) -> CertRotator:
        """Return the rotator. names: of the server; if empty, those in the certificate or of the Service."""
        current = names_in(bundle.leaf.certificate_pem) if bundle and bundle.leaf else ()
        return CertRotator(self.store, Plan(names or current or service_names(self.namespace)), self.api)


def _place_options(command: F) -> F:
    """Add the options for the certificates' location and the language, as `place` and `language`."""

    @wraps(command)
    def wrapper(
        directory: Path | None,
        kubeconfig: str | None,
        context: str | None,
        namespace: str | None,
        secret: str | None,
        lang: str,
        **others: Any,
    ) -> Any:
        if directory and (kubeconfig or context or namespace or secret):
            raise UsageError(Message("--directory cannot be used with options of a cluster"))
        namespace = namespace or _NAMESPACE
        others["language"] = Language(lang)
        with _as_bad_input():
            if directory:
                return command(place=_Place(DirectoryStore(directory), None, namespace), **others)
            # Imported here: the import takes 0.2 s, and a directory does not need it.
            from webhook.cluster.client import connect

            api = connect(kubeconfig, context)
            store = SecretStore(api, namespace, secret or _SECRET)
            return command(place=_Place(store, api, namespace), **others)

    return options(
        click.option(
            "--directory",
            type=click.Path(path_type=Path),
            help="Use PEM files in this directory instead of a cluster.",
        ),
        kubeconfig_option(),
        context_option(),
        click.option(
            "--namespace", "-n", metavar="NS", help=f"Namespace of the Secret.  [default: {_NAMESPACE}]"
        ),
        click.option("--secret", metavar="NAME", help=f"Name of the Secret.  [default: {_SECRET}]"),
        language_option,
    )(wrapper)  # type: ignore[return-value]  # the command, with other arguments


_names_option = click.option(
    "--name",
    "names",
    multiple=True,
    metavar="NAME",
    help="DNS name or IP address of the server; may be repeated.  [default: the current names, or the "
    "Service names]",
)


@contextmanager
def _as_bad_input() -> Iterator[None]:
    """Convert errors of the cluster and of certificates to BadInputError."""
    try:
        yield
    except (KubernetesError, CertificateError) as error:
        raise BadInputError(message_of(error)) from None


@click.group()
def command() -> None:
    """Create, show and rotate the CA and the serving certificate.

    They are in a Secret that all replicas share, in which `gpugate serve --certs-secret` rotates them
    automatically, or in a directory, whose caBundle you distribute yourself.

    \b
    Examples:
      gpugate certs init
      gpugate certs show
      gpugate certs rotate --ca
    """


@command.command()
@_place_options
@_names_option
def init(place: _Place, names: tuple[str, ...], language: Language) -> None:
    """Create missing certificates and rotate those that are due.

    Also sets the caBundle of the webhook configurations. Valid certificates stay unchanged.

    \b
    Examples:
      gpugate certs init --context production
      gpugate certs init --directory certs/ --name localhost --name 127.0.0.1
      gpugate serve --tls-cert certs/tls.crt --tls-key certs/tls.key
    """
    bundle = place.rotator(names, place.store.load().bundle).reconcile()
    _summarize(place, bundle, language)


@command.command()
@_place_options
@output_option("text", "wide", "json", "yaml", help="wide: also subject, start and fingerprint.")
def show(place: _Place, output: str, language: Language) -> None:
    """List the certificates and the webhook configurations that trust them.

    Exit status 1 if a certificate has expired or is not trusted.

    \b
    Examples:
      gpugate certs show --context production
      gpugate certs show -o json | jq '.certificates[] | {role, daysLeft}'
      gpugate certs show --directory certs/ -o json | jq -r .caBundle
    """
    configurations = read_configurations(place.api) if place.api else []
    bundle = place.store.load().bundle
    now = datetime.now(UTC)
    certificates = list(_certificates(bundle, configurations, now)) if bundle else []
    problems = list(_problems(place, bundle, configurations, certificates))
    if output in ("json", "yaml"):
        trusted = b64encode(b"".join(bundle.trusted)).decode() if bundle else None
        document = {"store": str(place.store), "caBundle": trusted, "certificates": certificates}
        texts = [problem.in_language(language) for problem in problems]
        print_document(document | {"problems": texts}, output)
    else:
        wide, in_cluster = output == "wide", place.api is not None
        rows = [
            _row(certificate, in_cluster=in_cluster) | (_wide_cells(certificate) if wide else {})
            for certificate in certificates
        ]
        show_table(rows, language, wide=wide)
    for problem in problems:
        print_error(problem)
    sys.exit(_FOUND if problems else 0)


@command.command()
@_place_options
@_names_option
@click.option("--ca", is_flag=True, help="Also start the rotation of the CA, in steps without downtime.")
def rotate(place: _Place, names: tuple[str, ...], ca: bool, language: Language) -> None:
    """Replace the serving certificate now, even if it is not due.

    With --ca, creates a new CA, which is trusted in addition to the old one. It may sign the serving
    certificate after one minute; one day later, the old CA is removed. Servers with --certs-secret do these
    steps automatically; without such a server, `gpugate certs rotate` does the steps that are due.

    \b
    Examples:
      gpugate certs rotate
      gpugate certs rotate --ca --context production
      gpugate certs rotate --directory certs/
    """
    before = place.store.load().bundle
    if before is None:
        raise BadInputError(EMPTY_STORE.having(store=message_of(place.store)))
    rotator = place.rotator(names, before)
    bundle = rotator.force(Step.MAKE_AUTHORITY) if ca else rotator.reconcile()
    if not ca and bundle.leaf == before.leaf:
        if bundle.issuer() != bundle.authority.certificate_pem:
            raise BadInputError(ROTATING.having(when=_takeover(bundle, language)))
        bundle = rotator.force(Step.ISSUE_LEAF)
    _summarize(place, bundle, language)


def _summarize(place: _Place, bundle: Bundle, language: Language) -> None:
    """Print the certificates and the next step."""
    for certificate in _certificates(bundle, [], datetime.now(UTC)):
        role = padded(ROLES[certificate["role"]].in_language(language), _ROLE_WIDTH)
        until = VALID_UNTIL.having(day=certificate["notAfter"][:10]).in_language(language)
        click.echo(f"{role}  {until}  {' '.join(certificate['names'])}".rstrip())
    if isinstance(place.store, DirectoryStore):
        click.echo(f"caBundle  gpugate certs show --directory {place.store.path} -o json | jq -r .caBundle")
    if bundle.issuer() != bundle.authority.certificate_pem:
        click.echo(BOTH_TRUSTED.having(when=_takeover(bundle, language)).in_language(language))


def _takeover(bundle: Bundle, language: Language) -> str:
    moment = Plan(()).takes_over_at(bundle)
    return f"{moment:%Y-%m-%d %H:%M:%SZ}" if moment else WHEN_TRUSTED.in_language(language)


def _certificates(
    bundle: Bundle, configurations: list[Configuration], now: datetime
) -> Iterator[dict[str, Any]]:
    """Yield the facts of each certificate, as JSON."""
    roles = [("CA", bundle.authority.certificate_pem, bundle.authority.certificate_pem)]
    roles += [("old CA", pem, pem) for pem in bundle.previous]
    if bundle.leaf and (issuer := bundle.issuer()):
        roles.append(("serving", bundle.leaf.certificate_pem, issuer))
    for role, pem, authority in roles:
        certificate = x509.load_pem_x509_certificate(pem)
        yield {
            "role": role,
            "subject": certificate.subject.rfc4514_string(),
            "names": names_in(pem),
            "notBefore": certificate.not_valid_before_utc.isoformat(),
            "notAfter": certificate.not_valid_after_utc.isoformat(),
            "daysLeft": (certificate.not_valid_after_utc - now).days,
            "sha256": certificate.fingerprint(SHA256()).hex(),
            "trustedBy": [
                configuration.kind for configuration in configurations if authority in configuration.trusted
            ],
        }


def _problems(
    place: _Place,
    bundle: Bundle | None,
    configurations: list[Configuration],
    certificates: list[dict[str, Any]],
) -> Iterator[Message]:
    """Yield the problems that an operator has to fix; an old CA may expire, as it is being replaced."""
    if bundle is None:
        yield EMPTY_STORE.having(store=message_of(place.store))
        return
    if bundle.leaf is None:
        yield NO_SERVING_CERTIFICATE
    kinds = [configuration.kind for configuration in configurations]
    if place.api is not None and not kinds:
        yield NO_CONFIGURATION.having(name=NAME)
    for certificate in certificates:
        if certificate["role"] == "old CA":
            continue
        role = ROLES[certificate["role"]]
        if certificate["daysLeft"] < 0:
            yield EXPIRED_CERTIFICATE.having(role=role, when=certificate["notAfter"])
        for kind in kinds:
            if kind not in certificate["trustedBy"]:
                yield NOT_TRUSTED.having(role=role, kind=kind, name=NAME)


def _row(certificate: dict[str, Any], *, in_cluster: bool) -> dict[str, str]:
    trusted = " ".join(_SHORT[kind] for kind in certificate["trustedBy"])
    return {
        "certificate": certificate["role"],
        "not after": certificate["notAfter"][:10],
        "days left": str(certificate["daysLeft"]),
        "trusted by": (trusted or "none") if in_cluster else _NONE,
        "names": first_of(certificate["names"]) or _NONE,
    }


def _wide_cells(certificate: dict[str, Any]) -> dict[str, str]:
    """Return the cells that only -o wide shows, and those that it shows in full."""
    return {
        "names": " ".join(certificate["names"]) or _NONE,
        "subject": certificate["subject"],
        "not before": certificate["notBefore"][:10],
        "sha-256": certificate["sha256"][:_DIGITS],
    }
