"""`gpugate schema`: the JSON Schema of rule files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from rules.schema.json_schema import schemas
from rules.text.i18n import Message
from webhook.cli.terminal.usage_errors import UsageError


@click.command()
@click.argument("kind", type=click.Choice(list(schemas())), required=False)
@click.option(
    "--write",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Write the schema of each kind to FOLDER/KIND.json.",
)
def command(kind: str | None, folder: Path | None) -> None:
    """Print the JSON Schema of a kind of rule file, or write the schemas of all kinds.

    An editor with a YAML language server checks a file against the schema named in its first line.

    \b
    Examples:
      gpugate schema resource-rule > resource-rule.json
      gpugate schema --write docs/schema
      # yaml-language-server: $schema=resource-rule.json
    """
    if (kind is None) is (folder is None):
        raise UsageError(Message("give either KIND or --write FOLDER"))
    if kind is not None:
        click.echo(written(schemas()[kind]), nl=False)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        for name, schema in schemas().items():
            (folder / f"{name}.json").write_text(written(schema), "utf-8")


def written(schema: dict[str, Any]) -> str:
    """Return the text of a schema file."""
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
