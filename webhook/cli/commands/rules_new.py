"""`gpugate rules new`: a rule and its test to start from."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, Final

import click

from webhook.cli.input.files import catalog_path, read_path
from webhook.cli.output.console import BadInputError
from webhook.cli.ruletest import templates as scaffold
from webhook.cli.ruletest.draft import Draft, DraftError
from webhook.cli.ruletest.runner import SHIPPED, beside

_KINDS: Final[dict[str, Callable[..., Draft]]] = {
    "resource": scaffold.resource,
    "injection": scaffold.injection,
    "compatibility": scaffold.compatibility,
    "image-catalog": scaffold.image_catalog,
    "exemption": scaffold.exemption,
}
# What is asked on a terminal, by what it is for; a proposal makes it optional.
_KEY: Final = ("key", "Resource, such as vendor.com/device", None)
_QUESTIONS: Final[dict[str, tuple[tuple[str, str, str | None], ...]]] = {
    "resource": (
        _KEY,
        ("default", "Quantity that is put in (empty: none is)", ""),
        ("checks", "CEL that a value has to satisfy, such as value <= 8 (empty: none)", ""),
    ),
    "injection": (
        _KEY,
        ("env", "Variable that its containers get, as NAME=VALUE", None),
        ("images", "Only images like, such as */paddle* (empty: any)", ""),
    ),
    "compatibility": (
        _KEY,
        ("sharing", "How its GPUs are shared: physical or virtual", "physical"),
        ("baseline", "Highest CUDA version that a virtualisation knows (empty: no matter)", ""),
    ),
    "image-catalog": (
        ("images", "Images, such as registry.example.com/team/train:*", None),
        ("cuda", "CUDA version in them, such as 12.4", None),
    ),
    "exemption": (
        ("rules", "Rule, by its name", None),
        ("namespaces", "Namespace in which it has no effect", None),
        ("reason", "Why", None),
        ("expires", "Last day", "in 90 days"),
    ),
}
_MANY: Final = ("checks", "env", "images", "rules", "namespaces")
_NINETY_DAYS: Final = timedelta(days=90)  # a quarter, then somebody looks again


@click.command()
@click.option("--kind", type=click.Choice(list(_KINDS)), help="What the rule does.")
@click.option("--name", help="The ConfigMap's name.  [default: made of the rest]")
@click.option("--key", metavar="RESOURCE", help="The resource that containers ask for; may be a glob.")
@click.option("--group", help="resource: the group that it belongs to.  [default: its vendor]")
@click.option(
    "--limits", type=click.Choice(["optional", "required"]), help="resource: whether it has to be there."
)
@click.option(
    "--requests",
    type=click.Choice(["disabled", "required", "fromLimits"]),
    help="resource: whether it may, or has to.",
)
@click.option("--default", metavar="QUANTITY", help="resource: what is put in where there is none.")
@click.option("--data-type", type=click.Choice(["integer", "float"]), help="resource: whole numbers or any.")
@click.option(
    "--check", "checks", multiple=True, metavar="CEL", help="resource: what has to be true of `value`."
)
@click.option("--env", multiple=True, metavar="NAME=VALUE", help="injection: a variable.")
@click.option(
    "--env-quantity", "quantities", multiple=True, metavar="NAME", help="injection: one with the quantity."
)
@click.option(
    "--image", "images", multiple=True, metavar="GLOB", help="injection, image-catalog: which images."
)
@click.option(
    "--sharing", type=click.Choice(["physical", "virtual"]), help="compatibility: whole GPUs, or parts."
)
@click.option(
    "--baseline", metavar="CUDA", help="compatibility: the highest version that a virtualisation knows."
)
@click.option("--cuda", metavar="VERSION", help="image-catalog: what is in the images.")
@click.option("--rule", "rules", multiple=True, metavar="NAME", help="exemption: from which rules.")
@click.option(
    "--namespace", "namespaces", multiple=True, metavar="NAME", help="exemption: in which namespaces."
)
@click.option("--reason", help="exemption: why.")
@click.option(
    "--expires", metavar="DATE", help="exemption: the last day, such as 2026-12-31.  [default: in 90 days]"
)
@click.option("--description", help="What it is for; stands in messages.")
@click.option(
    "--folder", default=".", show_default=True, type=click.Path(file_okay=False), help="Where to write."
)
@click.option("--dry-run", is_flag=True, help="Print what would be written.")
@click.pass_context
def command(ctx: click.Context, /, kind: str | None, folder: str, dry_run: bool, **facts: Any) -> None:
    """Write a rule and its test, NAME.yaml and NAME.test.yaml, that pass `gpugate lint` and `gpugate test`.

    On a terminal and without facts it asks for them. It replaces no file.

    \b
    Examples:
      gpugate rules new
      gpugate rules new --kind resource --key vendor.com/device --check 'value <= 8' --folder my-rules
      gpugate rules new --kind injection --key vendor.com/device --env FLAGS=1 --image '*/paddle*'
      gpugate rules new --kind compatibility --key vendor.com/share --sharing virtual --baseline 12.4
      gpugate rules new --kind image-catalog --image 'registry.example.com/train:*' --cuda 12.4
      gpugate rules new --kind exemption --rule compatibility-pgpu --namespace ml --reason 'until the move'
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
            raise BadInputError(f"{path} is there already; choose another --name or --folder")
    Path(folder).mkdir(parents=True, exist_ok=True)
    for path, text in zip(paths, texts.values(), strict=True):
        path.write_text(text, "utf-8")
        click.echo(f"wrote {path}")
    rule, test = paths
    besides = "".join(f" {beside(str(test), name)}" for name in draft.besides)
    click.echo(f"next:\n  gpugate lint {rule}{besides}\n  gpugate test {test}\n  kubectl apply -f {rule}")


def _ask(kind: str) -> dict[str, Any]:
    """Return what is answered to the questions of a kind."""
    answers = {
        name: click.prompt(text, default=proposal, show_default=bool(proposal))
        for name, text, proposal in _QUESTIONS[kind]
    }
    answers = {name: answer for name, answer in answers.items() if answer}
    if answers.get("expires") == "in 90 days":
        del answers["expires"]
    return {name: [answer] if name in _MANY else answer for name, answer in answers.items()}


def _draft(kind: str, given: dict[str, Any], folder: Path, flags: Mapping[str, str]) -> Draft:
    """Return the draft of a rule, whose test holds. Raises click.UsageError, BadInputError."""
    facts = dict(given)
    if "env" in facts:
        facts["env"] = dict(_pair(text) for text in facts["env"])
    if kind == "exemption":
        facts.setdefault("expires", f"{datetime.now(UTC) + _NINETY_DAYS:%Y-%m-%d}")
        facts["known"] = _known(folder)
    wanted = signature(_KINDS[kind]).parameters
    for name in facts:
        if name not in wanted:
            raise click.UsageError(f"{flags[name]} does not go with --kind {kind}")
    for name, parameter in wanted.items():
        if parameter.default is Parameter.empty and name not in facts:
            raise click.UsageError(f"{flags[name]} is missing")
    try:
        draft = _KINDS[kind](**facts)
        beside_it = str(folder / f"{draft.file}.test.yaml")
        return draft.checked(found for name in draft.besides for found in read_path(beside(beside_it, name)))
    except DraftError as error:
        raise BadInputError(str(error)) from None


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise click.UsageError(f"expected --env NAME=VALUE, got {text!r}")
    return name, value


def _known(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the files of rules in a folder, then those that ship, as a test in the folder names them."""
    if any(folder.glob("**/*.y*ml")):
        for file, text in read_path(str(folder), lenient=True):
            yield os.path.relpath(file, folder), text
    for file, text in read_path(str(catalog_path())):
        yield f"{SHIPPED}{Path(file).relative_to(catalog_path())}", text
