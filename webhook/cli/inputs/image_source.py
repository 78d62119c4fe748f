"""Images of a command: references, files with images, and the containers of objects in files."""

from __future__ import annotations

import re
import ssl
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.request import getproxies, proxy_bypass

import click
from msgspec import Struct

from rules import ObjectError, Workloads
from rules.kube.image_reference import Image, parse_image
from rules.kube.pod import Pod
from rules.text.i18n import Message, located, os_error_text
from rules.text.yaml_document import SourceError
from webhook.cli.inputs.completers import FILE
from webhook.cli.inputs.objects import objects_in
from webhook.cli.inputs.options import option_group
from webhook.cli.terminal.console import BadInputError, print_error
from webhook.images.archive import inspect_file
from webhook.images.credentials import CredentialError, CredentialFile, default_file
from webhook.images.errors import ImageError, Reason
from webhook.images.inspection import InspectedImage

if TYPE_CHECKING:
    from yarl import URL

    from webhook.images.registry import ClientSettings

# Distinct images of one command; the manifests of a large cluster have some hundred.
_MAX_IMAGES: Final = 1000
# Number of images from which a terminal shows progress; fewer take a few seconds.
_LONG_WORK: Final = 8
_NO_CERTIFICATES: Final = Message("{file}: no PEM certificates in this file")
_NO_REFERENCE: Final = Message(
    "{name!r}: not an image reference, such as nvidia/cuda:12.4.1-base-ubuntu22.04"
)
_FILE_PREFIXES: Final = ("oci:", "archive:")
_PATH = re.compile(r"[./~].*|.*\.(?:tar|tgz|tar\.gz)", re.DOTALL)
_HOST = re.compile(r"(?:[A-Za-z0-9.*-]+|\[[0-9A-Fa-f:]+\])(?::[0-9]{1,5})?", re.ASCII)


class Access(Struct, frozen=True):
    """How registries are reached."""

    registry_config: str | None = None
    ca_file: str | None = None
    insecure: tuple[str, ...] = ()
    mirrors: Mapping[str, str] | None = None
    allow_private: bool = False

    def settings(self, named: Iterable[Image]) -> ClientSettings:
        """Return the settings of a client. named: images of the user, whose registries may be private.

        Raises BadInputError.
        """
        # Imported here: the import takes a quarter of a second, and archives need no client.
        from webhook.images.guards import Guards
        from webhook.images.registry import ClientSettings

        mirrors = self.mirrors or {}
        proxies = {scheme: url for scheme, url in getproxies().items() if scheme in {"http", "https"}}
        private = {image.registry for image in named} | {
            mirror.partition("/")[0] for mirror in mirrors.values()
        }
        private |= {_host(url) for url in proxies.values()} | ({"*"} if self.allow_private else set())
        guards = Guards(private=sorted(private), insecure=self.insecure)
        return ClientSettings(guards, self._tls(), mirrors, _proxy_of(proxies))

    def credentials(self) -> CredentialFile:
        """Return the credentials of registries. Raises BadInputError for a given file that is wrong."""
        if not self.registry_config:
            return CredentialFile(default_file(), required=False)
        credentials = CredentialFile(Path(self.registry_config))
        try:
            credentials.check()
        except CredentialError as error:
            raise BadInputError(error.text) from None
        return credentials

    def _tls(self) -> ssl.SSLContext:
        context = ssl.create_default_context()
        try:
            if self.ca_file:
                context.load_verify_locations(self.ca_file)
        except ssl.SSLError:
            raise BadInputError(_NO_CERTIFICATES.having(file=self.ca_file)) from None
        except OSError as error:
            error.filename = self.ca_file
            raise BadInputError(os_error_text(error)) from None
        return context


def _host(url: str) -> str:
    return re.sub(r"^[a-z0-9]+://", "", url).rpartition("@")[2].partition("/")[0]


def _proxy_of(proxies: Mapping[str, str]) -> Callable[[URL], str | None]:
    """Return the proxy of a URL by HTTPS_PROXY, HTTP_PROXY and NO_PROXY."""

    def proxy_of(url: URL) -> str | None:
        return None if proxy_bypass(f"{url.host}:{url.port}") else proxies.get(url.scheme)

    return proxy_of


class Inspection(Struct, frozen=True):
    """An image of a command, with its config or the reason why it cannot be read."""

    name: str  # as the user wrote it
    result: InspectedImage | ImageError


def inspect_images(
    references: Iterable[str], in_objects: Iterable[str], platforms: tuple[str, ...], access: Access
) -> list[Inspection]:
    """Return the inspected images of references, then of objects, each image once.

    Raises BadInputError.
    """
    files = {name: path for name in references if (path := _image_path(name))}
    named = {name: _parsed(name) for name in references if name not in files}
    others = {name: parse_image(name) for name in in_objects if name not in named}
    if len(named) + len(others) + len(files) > _MAX_IMAGES:
        raise BadInputError(Message("more than {most:,} images; give fewer files", most=_MAX_IMAGES))
    inspections: dict[str, list[Inspection]] = {
        name: _in_file(path, platforms) for name, path in files.items()
    }
    inspections |= _from_registries(named | others, platforms, access, named.values())
    return [inspection for name in (*references, *others) for inspection in inspections.pop(name, ())]


def _image_path(reference: str) -> Path | None:
    """Return the path of a file or folder with images; None for an image of a registry."""
    for prefix in _FILE_PREFIXES:
        if reference.startswith(prefix):
            return Path(reference.removeprefix(prefix))
    return Path(reference).expanduser() if _PATH.fullmatch(reference) else None


def _parsed(reference: str) -> Image:
    image = parse_image(reference)
    if image is None:
        raise BadInputError(_NO_REFERENCE.having(name=reference))
    return image


def _in_file(path: Path, platforms: tuple[str, ...]) -> list[Inspection]:
    try:
        return [Inspection(image.reference, image) for image in inspect_file(path, platforms)]
    except ImageError as error:
        return [Inspection(str(path), error)]
    except OSError as error:
        raise BadInputError(os_error_text(error)) from None


def _from_registries(
    images: Mapping[str, Image | None], platforms: tuple[str, ...], access: Access, named: Iterable[Image]
) -> dict[str, list[Inspection]]:
    """Return the inspected images by name. images: by name; None if the name is not a reference."""
    if not images:
        return {}
    from webhook.images.reader import ImageReader

    wrong = Message("not an image reference")
    inspections: dict[str, list[Inspection]] = {}
    with (
        ImageReader(access.settings(named), access.credentials()) as reader,
        click.progressbar(images, file=sys.stderr, hidden=len(images) < _LONG_WORK) as shown,
    ):
        futures = {
            name: reader.inspect(image, platforms) for name, image in images.items() if image is not None
        }
        for name in shown:
            try:
                result: InspectedImage | ImageError = futures[name].result()
            except KeyError:
                result = ImageError(Reason.INVALID, wrong)
            except ImageError as error:
                result = error
            inspections[name] = [Inspection(name, result)]
    return inspections


def images_in(filenames: Iterable[str], workloads: Workloads) -> tuple[list[str], bool]:
    """Return the distinct images of the objects in files, and whether all objects could be read.

    Objects of other kinds are skipped; errors are printed.
    """
    images: dict[str, None] = {}
    complete = True
    for filename in filenames:
        for entry in objects_in(filename):
            if isinstance(entry, SourceError):
                print_error(entry.text)
                complete = False
                continue
            try:
                images |= dict.fromkeys(_images_of_object(entry[1], workloads))
            except ObjectError as error:
                print_error(located(entry[0], error.text))
                complete = False
    return list(images), complete


def _images_of_object(value: Any, workloads: Workloads) -> Iterator[str]:
    """Yield the images of the containers of an object."""
    if not isinstance(value, dict):
        return
    kind, version = value.get("kind"), value.get("apiVersion")
    if not (isinstance(kind, str) and isinstance(version, str)):
        return
    for path, (raw, others) in workloads.pods_of(version.rpartition("/")[0], kind, value).items():
        pod = Pod(value, raw, path, others)
        init = [container for container in pod.containers if "initContainers" in container.path]
        for container in dict.fromkeys((*init, *pod.containers, *pod.ephemeral_containers)):
            if container.image:
                yield container.image


def read_hosts(texts: Iterable[str], option: str) -> tuple[str, ...]:
    """Return hosts with optional ports. Raises BadParameter."""
    for text in texts:
        if not _HOST.fullmatch(text):
            raise click.BadParameter(f"expected HOST[:PORT], got {text!r}", param_hint=f"'{option}'")
    return tuple(texts)


def read_mirrors(texts: Iterable[str]) -> dict[str, str]:
    """Return the mirrors of `HOST=MIRROR[/PREFIX]`. Raises BadParameter."""
    mirrors = {}
    for text in texts:
        host, _, mirror = text.partition("=")
        image = parse_image(f"{mirror}/x")
        if not _HOST.fullmatch(host) or image is None or image.name != f"{mirror}/x":
            raise click.BadParameter(f"expected HOST=MIRROR[/PREFIX], got {text!r}", param_hint="'--mirror'")
        mirrors[host] = mirror
    return mirrors


def _access(
    registry_config: str | None,
    ca_file: str | None,
    insecure: tuple[str, ...],
    mirrors: tuple[str, ...],
    allow_private: bool = False,
) -> Access:
    """Return the access to registries that options describe. Raises BadParameter."""
    hosts = read_hosts(insecure, "--insecure-registry")
    return Access(registry_config, ca_file, hosts, read_mirrors(mirrors), allow_private)


insecure_registry_option: Final = click.option(
    "--insecure-registry",
    "insecure",
    multiple=True,
    metavar="HOST[:PORT]",
    help="Use http for this registry; may be repeated.",
)
mirror_option: Final = click.option(
    "--mirror",
    "mirrors",
    multiple=True,
    metavar="HOST=MIRROR[/PREFIX]",
    help="Read images of a registry from a mirror; may be repeated.",
)
ca_file_option: Final = click.option(
    "--ca-file", type=FILE, metavar="FILE", help="Certificates of CAs to trust in addition, as PEM."
)


def registry_config_option(writer: str) -> Callable[[Any], Any]:
    """Return the option --registry-config. writer: who writes such a file."""
    return click.option(
        "--registry-config",
        type=FILE,
        metavar="FILE",
        help=f"Credentials, as {writer}.  [default: ~/.docker/config.json]",
    )


# Gives a command the values of these options as `access`.
with_access: Final = option_group("access", _access)
