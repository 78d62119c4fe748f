"""`gpugate image`: the CUDA facts of container images, from registries and files."""

from __future__ import annotations

import re
import sys
from typing import Final

import click

from rules import Language
from webhook.cli.input.completers import FILE
from webhook.cli.input.files import BAD_INPUT, load_workloads
from webhook.cli.input.image_source import Access, images_in, inspect_images, read_hosts, read_mirrors
from webhook.cli.input.options import (
    ca_file_option,
    insecure_registry_option,
    language_option,
    mirror_option,
    output_option,
    quiet_option,
    workloads_option,
)
from webhook.cli.output.console import print_document, print_error, print_summary, print_warning, show_table
from webhook.cli.output.image_report import catalog_rows, document, table_rows
from webhook.cli.output.vocabulary import BLOCKED_HINT, HINT, NO_IMAGES
from webhook.images.errors import ImageError, Reason

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
@click.option(
    "-f",
    "--filename",
    "filenames",
    multiple=True,
    type=FILE,
    metavar="FILE",
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
@click.option(
    "--registry-config",
    type=FILE,
    metavar="FILE",
    help="Credentials, as `docker login` writes them.  [default: ~/.docker/config.json]",
)
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
def inspect(
    references: tuple[str, ...],
    filenames: tuple[str, ...],
    output: str,
    name: str,
    platforms: tuple[str, ...],
    registry_config: str | None,
    ca_file: str | None,
    insecure: tuple[str, ...],
    mirrors: tuple[str, ...],
    allow_private: bool,
    workload_paths: tuple[str, ...],
    lang: str,
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
    language = Language(lang)
    if not references and not filenames:
        raise click.UsageError("no images given (use IMAGE or --filename FILE)")
    for platform in platforms:
        if not _PLATFORM.fullmatch(platform):
            message = f"expected OS/ARCH, such as linux/amd64, got {platform!r}"
            raise click.BadParameter(message, param_hint="'--platform'")
    access = Access(
        registry_config,
        ca_file,
        read_hosts(insecure, "--insecure-registry"),
        read_mirrors(mirrors),
        allow_private,
    )
    in_objects, complete = images_in(filenames, load_workloads(workload_paths))
    if filenames and complete and not in_objects:
        print_warning(NO_IMAGES.in_language(language).format(files=", ".join(filenames)))
    found = inspect_images(references, in_objects, platforms, access)
    errors = [(each.name, each.result) for each in found if isinstance(each.result, ImageError)]
    if output in ("json", "yaml"):
        print_document(document(found, language), output)
    elif output != "rule":
        show_table(list(table_rows(found)), language, wide=output == "wide")
    elif rows := catalog_rows(found):
        from webhook.cli.ruletest.draft import Draft

        click.echo(Draft.of_document(name, "ImageCatalog", {"images": rows}).rule, nl=False)
    for image, error in errors:
        print_error(f"{image}: {error.text.in_language(language)}")
    if any(error.reason is Reason.BLOCKED for _, error in errors):
        print_summary(f"{HINT.in_language(language)}: {BLOCKED_HINT.in_language(language)}")
    sys.exit((_FAILED if errors else 0) if complete else BAD_INPUT)
