"""`gpugate rules new`: a commented rule of a kind and its test, to edit."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Final

import click

from rules import Language
from rules.text.i18n import Message
from webhook.cli.inputs.options import language_option
from webhook.cli.terminal.console import BadInputError
from webhook.cli.terminal.usage_errors import UsageError

KINDS: Final = ("resource", "injection", "compatibility", "image-catalog", "exemption", "node-profile")
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?")  # part of names of Kubernetes objects
_NINETY_DAYS: Final = timedelta(days=90)  # a quarter, then the exemption is reviewed
_CATALOG: Final = Path("rules/catalog")  # in a checkout
_LIST: Final = "kustomization.yaml"
_NO_NAME: Final = Message("--name: expected lower-case letters, digits and -, got {name!r}")
_NO_CATALOG: Final = Message("no {file} here; run this in the top folder of a checkout of gpugate")
_EXISTS: Final = Message("{path} already exists; set another --name or --folder")
_WROTE: Final = Message("wrote {path}")
_LISTED: Final = Message("listed in {one} and {other}")
_NEXT: Final = Message("next: edit both, then")


@click.command()
@click.argument("kind", type=click.Choice(KINDS), metavar="KIND")
@click.option(
    "--name",
    default="example",
    show_default=True,
    metavar="WORD",
    help="Vendor or team: part of the names of rule, files and resources.",
)
@click.option("--folder", type=click.Path(file_okay=False), help="Write the files to this folder.")
@click.option(
    "--catalog", is_flag=True, help="Write them to a folder of the built-in rules, in a checkout of gpugate."
)
@language_option
def command(kind: str, name: str, folder: str | None, catalog: bool, lang: str) -> None:
    """Print a rule of KIND with comments, and its test, or write them to files.

    The rule is complete: it passes `gpugate lint`, and the test passes `gpugate test`. Edit both. Never
    overwrites a file.

    \b
    Examples:
      gpugate rules new resource
      gpugate rules new resource --name acme --folder my-rules
      gpugate rules new exemption --name team-a --folder my-rules
      gpugate rules new compatibility --name acme --catalog
    """
    if not _NAME.fullmatch(name):
        raise BadInputError(_NO_NAME.having(name=name))
    if catalog and folder:
        raise UsageError(Message("--catalog has its own folder; leave out --folder"))
    if catalog and not (_CATALOG / _LIST).is_file():
        raise BadInputError(_NO_CATALOG.having(file=_CATALOG / _LIST))
    texts = _texts(kind, name)
    if not (catalog or folder):
        click.echo("\n".join(f"# {file}\n{text}" for file, text in texts.items()), nl=False)
        return
    language = Language(lang)
    target = _CATALOG / name if catalog else Path(str(folder))
    paths = [target / file for file in texts]
    for path in paths:
        if path.exists():
            raise BadInputError(_EXISTS.having(path=path))
    target.mkdir(parents=True, exist_ok=True)
    for path, text in zip(paths, texts.values(), strict=True):
        path.write_text(text, "utf-8")
        click.echo(_WROTE.having(path=path).in_language(language))
    if catalog:
        _add_to_list(target / _LIST, paths[0].name, f"# {name}.\n")
        _add_to_list(_CATALOG / _LIST, name)
        lists = {"one": target / _LIST, "other": _CATALOG / _LIST}
        click.echo(_LISTED.having(**lists).in_language(language))
    click.echo(_NEXT.in_language(language))
    click.echo(f"  gpugate lint {paths[0]}\n  gpugate test {paths[1]}")
    click.echo("  make chart check" if catalog else f"  kubectl apply -f {paths[0]}")


def _texts(kind: str, name: str) -> dict[str, str]:
    """Return the rule and its test by the names of their files."""
    file, folder = f"{name}-{kind}", files("webhook.cli.test") / "templates"
    words = {"name": name, "file": file, "expires": f"{datetime.now(UTC) + _NINETY_DAYS:%Y-%m-%d}"}
    return {
        f"{file}{suffix}": Template((folder / f"{kind}{suffix}").read_text("utf-8")).substitute(words)
        for suffix in (".yaml", ".test.yaml")
    }


def _add_to_list(kustomization: Path, resource: str, comment: str = "") -> None:
    """Add a resource to the list at the end of a kustomization. comment: first lines of a new file."""
    head = f"{comment}apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n"
    text = kustomization.read_text("utf-8") if kustomization.exists() else head
    before, key, resources = text.partition("resources:\n")
    lines = sorted({*resources.splitlines(keepends=True), f"  - {resource}\n"})
    kustomization.write_text("".join((before, key, *lines)), "utf-8")
