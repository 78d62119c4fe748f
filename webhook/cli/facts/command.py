"""`gpugate facts`: the facts in use, their differences, and their refresh from public documents."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click

from rules import Language
from rules.cuda.fact_bundle import SCHEMA, FactBundle, write_bundle
from rules.cuda.tables import GENERATED
from rules.cuda.versions import CudaVersion
from rules.text.i18n import Message
from webhook.cli.facts.differences import Difference, differences
from webhook.cli.facts.folder import locked_documents
from webhook.cli.facts.workloads import changed_workloads
from webhook.cli.inputs.completers import FILE
from webhook.cli.inputs.facts import BUILT_IN, LOCK, read_facts, read_folder, release_of
from webhook.cli.inputs.files import BAD_INPUT
from webhook.cli.inputs.image_source import Access, ca_file_option, read_mirrors
from webhook.cli.inputs.options import (
    cluster_options,
    existing_objects_option,
    language_option,
    namespace_option,
    nodes_option,
    output_option,
    quiet_option,
    rules_in_force_option,
)
from webhook.cli.inputs.session import Session, with_session
from webhook.cli.terminal.console import (
    BadInputError,
    print_document,
    print_error,
    print_line,
    print_summary,
    show_table,
)
from webhook.cli.whatif.command import show as show_impact
from webhook.cli.whatif.compare import document

_DIFFERENT: Final = 1
_FOLDER: Final = Path("rules/facts")
_NO_FOLDER: Final = Message("{folder}: no such folder; run this in a checkout, or give --folder")
_SOURCE_ARGUMENT: Final = "[FACTS]"


@click.group()
def command() -> None:
    """Show the facts in use and what changed in them, or refresh them from public documents.

    FACTS is a bundle, a folder of tables, or builtin: the facts of this program.

    \b
    Examples:
      gpugate facts show
      gpugate facts diff builtin facts.json
      gpugate facts bundle rules/facts > facts.json
      gpugate facts update --check
    """


@command.command()
@click.argument("facts", type=FILE, default=BUILT_IN, metavar=_SOURCE_ARGUMENT)
@output_option("text", "json", "yaml")
@language_option
def show(facts: str, output: str, lang: str) -> None:
    """Show the date of facts, the newest versions in them, and where each table is from.

    \b
    Examples:
      gpugate facts show
      gpugate facts show facts.json -o json | jq -r .date
    """
    bundle = read_facts(facts)
    document = {**_summary(bundle), "tables": [*map(dict, _tables(bundle))]}
    if output != "text":
        print_document(document, output)
        return
    for name, heading in _HEADINGS.items():
        value = document[name]
        shown = f"{value:,}" if isinstance(value, int) and name != "schema" else str(value)
        print_line(heading.having(value=shown).in_language(Language(lang)))
    print_line()
    rows = [{name: str(value) for name, value in row.items()} for row in document["tables"]]
    show_table(rows, Language(lang))


_HEADINGS: Final = {
    "date": Message("Date: {value}"),
    "schema": Message("Schema: {value}"),
    "driver": Message("Newest driver branch: {value}"),
    "cuda": Message("Newest CUDA of a driver: {value}"),
    "toolkit": Message("Newest CUDA toolkit: {value}"),
    "toolkits": Message("CUDA toolkits: {value}"),
    "frameworks": Message("Frameworks: {value}"),
    "gpus": Message("GPUs: {value}"),
    "images": Message("Image families: {value}"),
}


def _summary(bundle: FactBundle) -> dict[str, Any]:
    """Return what facts have, in numbers and newest versions."""
    tables = bundle.tables
    branches = (*tables["drivers"]["branches"], *tables["driver_redist"])
    toolkits = _versions((*tables["toolkits"], *tables["toolkit_wheels"]))
    return {
        "date": bundle.date,
        "schema": SCHEMA,
        "driver": max(row["branch"] for row in branches),
        "cuda": str(max(_versions(branches))),
        "toolkit": str(max(toolkits)),
        "toolkits": len(toolkits),
        "frameworks": len(tables["frameworks"]["frameworks"]),
        "gpus": len({row["product"] for row in (*tables["gpus"], *tables["gpu_profiles"])}),
        "images": len(tables["images"]),
    }


def _versions(rows: Iterable[Mapping[str, Any]]) -> set[CudaVersion]:
    return {version for row in rows if (version := CudaVersion.parse(row["cuda"]))}


def _tables(bundle: FactBundle) -> Iterable[Mapping[str, Any]]:
    """Yield the tables: rows, origin, and the newest date on which a document of it was retrieved."""
    documents = locked_documents(bundle.tables)
    for name, table in sorted(bundle.tables.items()):
        if name != LOCK:
            dates = [document.retrieved for document in documents if document.table == name]
            yield {
                "table": name,
                "rows": _count(table),
                "origin": "generated" if name in GENERATED else "by hand",
                "documents": len(dates),
                "retrieved": max(dates, default="-"),
            }


def _count(value: Any) -> int:
    """Return the rows of a table: the items of its lists of objects; of a table without such, its keys."""
    rows = _rows_in(value)
    return rows or len(value)


def _rows_in(value: Any) -> int:
    if isinstance(value, dict):
        return sum(map(_rows_in, value.values()))
    if isinstance(value, list):
        return sum(isinstance(item, dict) for item in value)
    return 0


@command.command()
@click.argument("facts", type=FILE, default=BUILT_IN, metavar=_SOURCE_ARGUMENT)
@language_option
def bundle(facts: str, lang: str) -> None:
    """Print facts as one JSON file.

    \b
    Examples:
      gpugate facts bundle > facts.json
      gpugate facts bundle rules/facts > facts.json
    """
    del lang
    click.echo(write_bundle(read_facts(facts)), nl=False)


@command.command()
@click.argument("old", type=FILE, metavar="OLD")
@click.argument("new", type=FILE, metavar="NEW")
@existing_objects_option
@click.option("-n", "--namespace", metavar="NS", help="Evaluate only workloads of this namespace.")
@output_option("text", "wide", "json", "yaml", help="wide: all reasons of workloads.")
@rules_in_force_option
@nodes_option
@cluster_options
@namespace_option
@language_option
@quiet_option
@with_session
def diff(
    old: str,
    new: str,
    filenames: tuple[str, ...],
    namespace: str | None,
    output: str,
    session: Session,
) -> None:
    """Show the differences of facts, in words; with workloads: which of them change.

    Workloads are those in files, or in a cluster, evaluated with the old and with the new facts, as `gpugate
    whatif` does. Exit status 1 if the facts differ.

    \b
    Examples:
      gpugate facts diff builtin facts.json
      gpugate facts diff facts.json rules/facts -o json
      gpugate facts diff builtin facts.json --context production
    """
    before, after = read_facts(old), read_facts(new)
    changes = list(differences(before.tables, after.tables))
    result = None
    if filenames or session.cluster.selected:
        session.release = release_of(before, old)
        result = changed_workloads(session, release_of(after, new), filenames, namespace)
    if output in ("json", "yaml"):
        workloads = {"workloads": document(result, session.language)["workloads"]} if result else {}
        print_document({"differences": _rows(changes, session.language), **workloads}, output)
    else:
        _print_differences(changes, session.language)
        if result:
            print_line()
            show_impact(result, session.language, wide=output == "wide")
    sys.exit(BAD_INPUT if session.failed else _DIFFERENT if changes else 0)


def _print_differences(changes: Iterable[Difference], language: Language) -> None:
    for change in changes:
        print_line(f"{change.table}: {change.text.in_language(language)}")


def _rows(changes: Iterable[Difference], language: Language) -> list[dict[str, str]]:
    return [
        {"table": change.table, "change": change.change, "text": change.text.in_language(language)}
        for change in changes
    ]


@command.command()
@click.argument("names", nargs=-1, type=click.Choice(GENERATED), metavar="[TABLE]...")
@click.option(
    "--folder",
    type=click.Path(file_okay=False, exists=True, path_type=Path),
    metavar="FOLDER",
    help=f"Folder of the tables.  [default: {_FOLDER}]",
)
@click.option("--check", is_flag=True, help="Write nothing; exit status 1 if a table would change.")
@click.option(
    "--locked",
    is_flag=True,
    help="Make the tables of the documents that the lock file names, and compare their hashes.",
)
@click.option(
    "--mirror",
    "mirrors",
    multiple=True,
    metavar="HOST=MIRROR[/PREFIX]",
    help="Read documents of a host from a mirror; may be repeated.",
)
@ca_file_option
@quiet_option
@language_option
def update(
    names: tuple[str, ...],
    folder: Path | None,
    check: bool,
    locked: bool,
    mirrors: tuple[str, ...],
    ca_file: str | None,
    lang: str,
) -> None:
    """Refresh the generated tables of a checkout from public documents, and show what changed.

    Tables by hand stay as they are. A document whose address never has other content is read once. A source
    that cannot be read leaves its table as it is; exit status 2.

    \b
    Examples:
      gpugate facts update
      gpugate facts update toolkit_wheels --check
      gpugate facts update --locked --check
    """
    folder = folder or _FOLDER
    if not folder.is_dir():
        raise BadInputError(_NO_FOLDER.having(folder=folder))
    from webhook.cli.facts.refresh import refresh

    language = Language(lang)
    access = Access(ca_file=ca_file, mirrors=read_mirrors(mirrors))
    today = datetime.now(UTC).date().isoformat()
    old = read_folder(folder)
    result = refresh(folder, old, names or GENERATED, access.settings(()), today=None if locked else today)
    for error in result.errors:
        print_error(error)
    files = {path: text for path, text in result.files.items() if _differs(path, text)}
    without_lock = {name: table for name, table in old.items() if name != LOCK}
    _print_differences(differences(without_lock, {**without_lock, **result.tables}), language)
    if not check:
        for path, text in files.items():
            path.write_text(text, "utf-8")
            print_summary(Message("wrote {path}", path=str(path)))
    if not files:
        print_summary(Message("no changes"))
    sys.exit(2 if result.errors else _DIFFERENT if check and files else 0)


def _differs(path: Path, text: str) -> bool:
    return not path.exists() or path.read_text("utf-8") != text
