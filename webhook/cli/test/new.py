"""`gpugate rules new`: creates a rule and its test from a template."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, Final

import click

from webhook.cli.inputs.completers import RULE
from webhook.cli.inputs.files import catalog_path, read_path
from webhook.cli.terminal.console import BadInputError
from webhook.cli.test import templates
from webhook.cli.test.draft import Draft, DraftError
from webhook.cli.test.runner import BUILT_IN, resolve

_KINDS: Final[dict[str, Callable[..., Draft]]] = {
    "resource": templates.resource,
    "injection": templates.injection,
    "compatibility": templates.compatibility,
    "image-catalog": templates.image_catalog,
    "exemption": templates.exemption,
    "node-profile": templates.node_profile,
}
# The questions on a terminal: parameter, prompt, default; a parameter without a default is required.
_KEY: Final = ("key", "Resource, such as vendor.com/device", None)
_QUESTIONS: Final[dict[str, tuple[tuple[str, str, str | int | None], ...]]] = {
    "resource": (
        _KEY,
        ("default", "Default quantity (empty: none)", ""),
        ("checks", "CEL validation, such as value <= 8 (empty: none)", ""),
    ),
    "injection": (
        _KEY,
        ("env", "Environment variable to inject, as NAME=VALUE", None),
        ("images", "Image glob, such as */paddle* (empty: any image)", ""),
    ),
    "compatibility": (
        _KEY,
        ("sharing", "GPU sharing: physical or virtual", "physical"),
        ("baseline", "Highest CUDA version that the virtualization supports (empty: any)", ""),
    ),
    "image-catalog": (
        ("images", "Image glob, such as registry.example.com/team/train:*", None),
        ("cuda", "CUDA version of these images, such as 12.4", None),
    ),
    "exemption": (
        ("rules", "Name of the rule", None),
        ("namespaces", "Exempt namespace", None),
        ("reason", "Reason", None),
        ("expires", "Last day", "in 90 days"),
    ),
    "node-profile": (
        ("labels", "Label of a new node, such as karpenter.sh/nodepool=gpu-h100", None),
        ("product", "Product, as in the label nvidia.com/gpu.product", None),
        ("cuda", "CUDA version of the driver, such as 13.0", None),
        ("gpus", "GPUs of one node", 1),
    ),
}
_LISTS: Final = ("checks", "env", "images", "rules", "namespaces", "labels")
_NINETY_DAYS: Final = timedelta(days=90)  # a quarter, then the exemption is reviewed


@click.command()
@click.option("--kind", type=click.Choice(list(_KINDS)), help="Kind of the rule.")
@click.option("--name", help="Name of the ConfigMap.  [default: derived from the other options]")
@click.option("--key", metavar="RESOURCE", help="Extended resource of the rule; may be a glob.")
@click.option("--group", help="resource: group of the rule.  [default: the vendor of the resource]")
@click.option(
    "--limits", type=click.Choice(["optional", "required"]), help="resource: whether a limit is required."
)
@click.option(
    "--requests",
    type=click.Choice(["disabled", "required", "fromLimits"]),
    help="resource: policy for requests.",
)
@click.option("--default", metavar="QUANTITY", help="resource: default quantity.")
@click.option(
    "--data-type", type=click.Choice(["integer", "float"]), help="resource: whole numbers, or also fractions."
)
@click.option(
    "--check",
    "checks",
    multiple=True,
    metavar="CEL",
    help="resource: CEL validation of `value`; may be repeated.",
)
@click.option(
    "--exclude",
    "excludes",
    multiple=True,
    metavar="RESOURCE",
    help="resource: name or glob that must not be used together with it; may be repeated.",
)
@click.option(
    "--runtime-class", metavar="NAME", help="resource, injection: runtimeClassName for pods without one."
)
@click.option(
    "--toleration",
    "tolerations",
    multiple=True,
    metavar="TAINT",
    help="injection: toleration of KEY, KEY=VALUE, KEY:EFFECT or KEY=VALUE:EFFECT; may be repeated.",
)
@click.option(
    "--env", multiple=True, metavar="NAME=VALUE", help="injection: environment variable; may be repeated."
)
@click.option(
    "--env-quantity",
    "quantities",
    multiple=True,
    metavar="NAME",
    help="injection: environment variable set to the quantity; may be repeated.",
)
@click.option(
    "--image",
    "images",
    multiple=True,
    metavar="GLOB",
    help="injection, image-catalog: matching images; may be repeated.",
)
@click.option(
    "--sharing",
    type=click.Choice(["physical", "virtual"]),
    help="compatibility: whole GPUs or shares of GPUs.",
)
@click.option(
    "--baseline",
    metavar="CUDA",
    help="compatibility: highest CUDA version that the virtualization supports.",
)
@click.option(
    "--cuda",
    metavar="VERSION",
    help="image-catalog: CUDA version of the images; node-profile: of the driver.",
)
@click.option(
    "--label",
    "labels",
    multiple=True,
    metavar="KEY=VALUE",
    help="node-profile: label of a new node; may be repeated.",
)
@click.option("--product", metavar="NAME", help="node-profile: product, as in nvidia.com/gpu.product.")
@click.option("--gpus", type=click.IntRange(min=1), help="node-profile: GPUs of one node.  [default: 1]")
@click.option(
    "--rule",
    "rules",
    multiple=True,
    type=RULE,
    metavar="NAME",
    help="exemption: name of the rule; may be repeated.",
)
@click.option(
    "--namespace", "namespaces", multiple=True, metavar="NAME", help="exemption: namespace; may be repeated."
)
@click.option("--reason", help="exemption: reason.")
@click.option(
    "--expires", metavar="DATE", help="exemption: last day, such as 2026-12-31.  [default: in 90 days]"
)
@click.option("--description", help="Description of the rule, which messages contain.")
@click.option("--description-zh", help="The same in Chinese.")
@click.option(
    "--folder", default=".", show_default=True, type=click.Path(file_okay=False), help="Output folder."
)
@click.option("--dry-run", is_flag=True, help="Print the files without writing them.")
@click.pass_context
def command(ctx: click.Context, /, kind: str | None, folder: str, dry_run: bool, **facts: Any) -> None:
    """Create a rule and its test, NAME.yaml and NAME.test.yaml, which pass `gpugate lint` and `gpugate test`.

    Without options of the rule, asks for them on a terminal. Never overwrites a file.

    \b
    Examples:
      gpugate rules new
      gpugate rules new --kind resource --key vendor.com/device --check 'value <= 8' --folder my-rules
      gpugate rules new --kind resource --key vendor.com/device --exclude nvidia.com/gpu
      gpugate rules new --kind injection --key vendor.com/device --env FLAGS=1 --image '*/paddle*'
      gpugate rules new --kind injection --key vendor.com/device --toleration vendor.com/device:NoSchedule
      gpugate rules new --kind compatibility --key vendor.com/share --sharing virtual --baseline 12.4
      gpugate rules new --kind image-catalog --image 'registry.example.com/train:*' --cuda 12.4
      gpugate rules new --kind exemption --rule compatibility-pgpu --namespace ml --reason migration
      gpugate rules new --kind node-profile --label karpenter.sh/nodepool=gpu-h100 \
        --product NVIDIA-H100-80GB-HBM3 --cuda 13.0 --gpus 8
    """
    given = {name: value for name, value in facts.items() if value}
    if not given and sys.stdin and sys.stdin.isatty():
        kind = kind or click.prompt("Kind", type=click.Choice(list(_KINDS)), default="resource")
        given = _ask(kind)
    if not kind:
        raise click.UsageError(f"--kind is missing: one of {', '.join(_KINDS)}")
    flags = {str(parameter.name): parameter.opts[0] for parameter in ctx.command.params}
    draft = _draft(kind, given, Path(folder), flags)
    texts = {f"{draft.file}.yaml": draft.rule, f"{draft.file}.test.yaml": draft.test}
    if dry_run:
        for name, text in texts.items():
            click.echo(f"# {Path(folder) / name}\n{text}")
        return
    paths = [Path(folder) / name for name in texts]
    for path in paths:
        if path.exists():
            raise BadInputError(f"{path} already exists; set another --name or --folder")
    Path(folder).mkdir(parents=True, exist_ok=True)
    for path, text in zip(paths, texts.values(), strict=True):
        path.write_text(text, "utf-8")
        click.echo(f"wrote {path}")
    rule, test = paths
    others = "".join(f" {resolve(str(test), name)}" for name in draft.other_rules)
    click.echo(f"next:\n  gpugate lint {rule}{others}\n  gpugate test {test}\n  kubectl apply -f {rule}")


def _ask(kind: str) -> dict[str, Any]:
    """Return the answers to the questions of a kind."""
    answers: dict[str, Any] = {
        name: click.prompt(text, default=default, show_default=bool(default))
        for name, text, default in _QUESTIONS[kind]
    }
    answers = {name: answer for name, answer in answers.items() if answer}
    if answers.get("expires") == "in 90 days":
        del answers["expires"]
    return {name: [answer] if name in _LISTS else answer for name, answer in answers.items()}


def _draft(kind: str, given: dict[str, Any], folder: Path, flags: Mapping[str, str]) -> Draft:
    """Return the draft of a rule whose test passes. Raises click.UsageError, BadInputError."""
    facts = dict(given)
    for option in ("env", "labels"):
        if option in facts:
            facts[option] = dict(_pair(text, flags[option]) for text in facts[option])
    if kind == "exemption":
        facts.setdefault("expires", f"{datetime.now(UTC) + _NINETY_DAYS:%Y-%m-%d}")
        facts["known"] = _known_rules(folder)
    parameters = signature(_KINDS[kind]).parameters
    for name in facts:
        if name not in parameters:
            raise click.UsageError(f"{flags[name]} cannot be used with --kind {kind}")
    for name, parameter in parameters.items():
        if parameter.default is Parameter.empty and name not in facts:
            raise click.UsageError(f"{flags[name]} is missing")
    try:
        draft = _KINDS[kind](**facts)
        test = str(folder / f"{draft.file}.test.yaml")
        return draft.checked(found for name in draft.other_rules for found in read_path(resolve(test, name)))
    except DraftError as error:
        raise BadInputError(str(error)) from None


def _pair(text: str, option: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise click.UsageError(f"expected {option} NAME=VALUE, got {text!r}")
    return name, value


def _known_rules(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the rule files in a folder, then the built-in ones, by their names in a test in the folder."""
    if any(folder.glob("**/*.y*ml")):
        for file, text in read_path(str(folder), lenient=True):
            yield os.path.relpath(file, folder), text
    for file, text in read_path(str(catalog_path())):
        yield f"{BUILT_IN}{Path(file).relative_to(catalog_path())}", text
