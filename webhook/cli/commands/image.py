"""`gpugate image`: the CUDA facts of container images, from registries and files."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from typing import Any, Final

import click

from rules import Language
from rules.cuda.nvidia_require import constraints
from rules.kube.image_reference import parse_image
from rules.text.i18n import Message, located
from webhook.cli.inputs.files import BAD_INPUT
from webhook.cli.inputs.image_source import (
    Access,
    Inspection,
    ca_file_option,
    images_in,
    insecure_registry_option,
    inspect_images,
    mirror_option,
    registry_config_option,
    with_access,
)
from webhook.cli.inputs.options import (
    files_option,
    language_option,
    output_option,
    quiet_option,
    workloads_option,
)
from webhook.cli.inputs.session import Session, with_session
from webhook.cli.terminal.console import (
    UNKNOWN,
    print_document,
    print_error,
    print_summary,
    print_warning,
    show_table,
)
from webhook.cli.terminal.usage_errors import UsageError
from webhook.cli.terminal.vocabulary import BLOCKED_HINT, HINT, NO_IMAGES
from webhook.images.errors import ImageError, Reason
from webhook.images.inspection import InspectedImage, PlatformConfig

_LINUX: Final = "linux/"
_SHORT_DIGEST: Final = 19  # characters: sha256: and 12 digits, as Docker shows ids


def table_rows(inspections: Iterable[Inspection]) -> Iterator[dict[str, str]]:
    """Yield a row for each image and set of facts."""
    for inspection in inspections:
        if isinstance(inspection.result, InspectedImage):
            more = f" (+{inspection.result.omitted})" if inspection.result.omitted else ""
            for _, platforms in inspection.result.by_facts():
                yield {
                    "image": _short(inspection.result),
                    "cuda": str(platforms[0].cuda or UNKNOWN),
                    "requires": _requires(platforms[0]),
                    "platforms": ", ".join(config.platform.removeprefix(_LINUX) for config in platforms)
                    + more,
                }


def _short(image: InspectedImage) -> str:
    parsed = parse_image(image.reference)
    if parsed is None:
        return image.reference
    return (
        parsed.short if parsed.tag or not parsed.digest else f"{parsed.short}@{parsed.digest[:_SHORT_DIGEST]}"
    )


def _requires(config: PlatformConfig) -> str:
    """Return the first alternative of each requirement, and the number of further ones."""
    shown = []
    for constraint in constraints(config.env):
        first, *others = constraint.text.split() or [UNKNOWN]
        shown.append(f"{first} (+{len(others)})" if others else first)
    return ", ".join(shown) or UNKNOWN


def document(inspections: Iterable[Inspection], language: Language) -> dict[str, Any]:
    """Return the images and the errors as JSON."""
    images, errors = [], []
    for inspection in inspections:
        if isinstance(inspection.result, ImageError):
            message = inspection.result.text.in_language(language)
            errors.append(
                {"image": inspection.name, "reason": inspection.result.reason.value, "message": message}
            )
        else:
            images.append(_image(inspection.result))
    return {"images": images, "errors": errors}


def _image(image: InspectedImage) -> dict[str, Any]:
    platforms = [
        {"platform": config.platform, "digest": config.digest or None, **config.facts}
        for config in image.platforms
    ]
    facts = {"image": image.reference, "digest": image.digest or None}
    return facts | {"platforms": platforms, "omittedPlatforms": image.omitted}


def catalog_rows(inspections: Iterable[Inspection]) -> list[dict[str, Any]]:
    """Return the rows of an ImageCatalog, each once."""
    rows: list[dict[str, Any]] = []
    for inspection in inspections:
        for row in inspection.result.rows() if isinstance(inspection.result, InspectedImage) else ():
            if row not in rows:
                rows.append(row)
    return rows


_FAILED: Final = 1
_PLATFORM = re.compile(r"[a-z0-9]+/[a-z0-9_]+", re.ASCII)


@click.group()
def command() -> None:
    """Show the CUDA facts of container images.

    \b
    Examples:
      gpugate image inspect nvidia/cuda:12.4.1-base-ubuntu22.04
      gpugate image inspect -f pods.yaml
    """


@command.command()
@click.argument("references", nargs=-1, metavar="[IMAGE]...")
@files_option(
    "-f",
    "--filename",
    "filenames",
    help="File or folder with objects, or - for stdin: inspect the images of their containers.",
)
@output_option("text", "wide", "json", "yaml", "rule", help="rule: an ImageCatalog of these images.")
@click.option("--name", default="inspected-images", show_default=True, help="rule: name of the ConfigMap.")
@click.option(
    "--platform",
    "platforms",
    multiple=True,
    metavar="OS/ARCH",
    help="Read this platform; may be repeated.  [default: all, at most 8]",
)
@registry_config_option("`docker login` writes them")
@ca_file_option
@insecure_registry_option
@mirror_option
@click.option(
    "--allow-private",
    is_flag=True,
    help="Allow private addresses for registries that are not named as an argument, and for redirects.",
)
@workloads_option
@quiet_option
@language_option
@with_access
@with_session
def inspect(
    references: tuple[str, ...],
    filenames: tuple[str, ...],
    output: str,
    name: str,
    platforms: tuple[str, ...],
    access: Access,
    session: Session,
) -> None:
    """Show CUDA version, requirements and platforms of images, from their own configs.

    IMAGE is a reference; or a file: an OCI layout (a folder, or a tar archive) or an archive of `docker save`
    or `podman save`, as a path or with the prefix oci: or archive:. Reads manifests and configs, never
    layers. Exit status 1 if an image cannot be read, 2 if an object cannot.

    \b
    Examples:
      gpugate image inspect nvidia/cuda:12.4.1-base-ubuntu22.04 --platform linux/arm64
      gpugate image inspect -f manifests/ -o rule > images.yaml
      gpugate image inspect ./image.tar -o json | jq '.images[].platforms[].cuda'
      docker save app:1 -o app.tar && gpugate image inspect app.tar
    """
    language = session.language
    if not references and not filenames:
        raise UsageError(Message("no images given (use IMAGE or -f FILE)"))
    for platform in platforms:
        if not _PLATFORM.fullmatch(platform):
            message = f"expected OS/ARCH, such as linux/amd64, got {platform!r}"
            raise click.BadParameter(message, param_hint="'--platform'")
    in_objects, complete = images_in(filenames, session.workloads)
    if filenames and complete and not in_objects:
        print_warning(NO_IMAGES.having(files=", ".join(filenames)))
    inspections = inspect_images(references, in_objects, platforms, access)
    errors = [
        (inspection.name, inspection.result)
        for inspection in inspections
        if isinstance(inspection.result, ImageError)
    ]
    if output in ("json", "yaml"):
        print_document(document(inspections, language), output)
    elif output != "rule":
        show_table(list(table_rows(inspections)), language, wide=output == "wide")
    elif rows := catalog_rows(inspections):
        click.echo(_catalog(name, rows), nl=False)
    for image, error in errors:
        print_error(located(image, error.text))
    if any(error.reason is Reason.BLOCKED for _, error in errors):
        print_summary(f"{HINT.in_language(language)}: {BLOCKED_HINT.in_language(language)}")
    sys.exit((_FAILED if errors else 0) if complete else BAD_INPUT)


def _catalog(name: str, rows: list[dict[str, Any]]) -> str:
    """Return an ImageCatalog as a file."""
    from rules import DEFAULT_NAMESPACE
    from webhook.yaml_output import dump_yaml

    labels = {"gpugate.dev/type": "ImageCatalog", "gpugate.dev/enabled": "true"}
    metadata = {"name": name, "namespace": DEFAULT_NAMESPACE, "labels": labels}
    data = {"rule.yaml": dump_yaml({"images": rows})}
    return dump_yaml({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
