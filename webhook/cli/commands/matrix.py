"""`gpugate matrix`: the compatibility of CUDA runtimes with nodes, drivers and GPUs."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import click

from rules import Language
from rules.cuda.versions import CudaVersion
from rules.model.check_result import Level, level_of
from rules.model.sharing import SharingPolicy
from rules.nodes.driver_lifecycle import DriverSupport, SupportState, driver_support, support_of
from rules.nodes.fleet import classes_of
from rules.text.i18n import Joined, Message
from webhook.cli.inputs.month import this_month
from webhook.cli.inputs.node_change_options import NodeChanges, node_change_options
from webhook.cli.inputs.node_changes import EditableInventory
from webhook.cli.inputs.options import cuda_option, label_options, output_option
from webhook.cli.inputs.session import Session, with_session
from webhook.cli.matrix.matrix import (
    FACTS,
    LEVEL_LABELS,
    Cell,
    Column,
    Footnotes,
    Table,
    cell_document,
    class_table,
    driver_table,
    footnotes,
    gpu_table,
    labelled,
    letters,
)
from webhook.cli.matrix.svg import draw
from webhook.cli.report.html import page
from webhook.cli.report.sources import sources_of
from webhook.cli.terminal.console import UNKNOWN, BadInputError, padded, print_document, print_note
from webhook.cli.terminal.usage_errors import UsageError
from webhook.cli.terminal.vocabulary import OUT_OF_SUPPORT, SUPPORT_ENDS, UNLABELLED_NODES, WHAT_IF_CHANGE

# The highest CUDA version that the virtualization of GPU-Manager supports.
_BASELINE: Final = CudaVersion(12, 4)
_COLOURS: Final[Mapping[Level, str]] = {
    Level.COMPATIBLE: "green",
    Level.UNSTABLE: "yellow",
    Level.INCOMPATIBLE: "red",
    Level.UNKNOWN: "cyan",
}
_MACHINE: Final = ("json", "yaml")
_PICTURES: Final = ("svg", "html")
_MAX_NAMES: Final = 10  # of nodes in a note; -o json has all
_GAP: Final = " "  # between columns
_LABEL_WIDTH: Final = 14  # columns; one more than the longest label, a compute capability in Chinese


@click.command()
@click.option(
    "--sharing",
    type=click.Choice(["physical", "virtual"]),
    default="physical",
    show_default=True,
    help="virtual: shares of GPUs, which have stricter requirements.",
)
@cuda_option(
    "--baseline",
    str(_BASELINE),
    help=f"Highest CUDA version that the virtual GPUs support.  [default: {_BASELINE}]",
)
@output_option("text", "json", "yaml", "svg", "html")
@node_change_options
@label_options
@with_session
def command(
    sharing: str,
    baseline: CudaVersion | None,
    output: str,
    changes: NodeChanges,
    session: Session,
) -> None:
    """Show which CUDA runtimes are compatible with which nodes, with reasons, as admission checks it.

    Without nodes: with all known driver branches and compute capabilities. With changes of nodes: after them.

    \b
    Examples:
      gpugate matrix
      gpugate matrix --sharing virtual --baseline 12.4
      gpugate matrix --context production -o svg > cuda.svg
      gpugate matrix --context production -o html > cuda.html
      kubectl get nodes -o yaml | gpugate matrix --nodes - -o json
      gpugate matrix --context production --driver gpu-v100=580 --remove-pool gpu-t4
    """
    policy, language = _policy(sharing, baseline), session.language
    unlabelled: list[str] = []
    notes: list[Message] = []
    if session.nodes_given:
        inventory = session.present_nodes()
        if changes:
            state, done = changes.apply(
                EditableInventory.of(session.node_objects, session.label_rules), session
            )
            inventory = state.inventory()
            notes = [WHAT_IF_CHANGE.having(change=change.text) for change in done]
        classes = classes_of(inventory, inventory.everything, session.label_rules.label_names)
        supports = [support_of(node_class.capabilities, this_month()) for node_class in classes]
        tables = [table] if (table := class_table(policy, classes, session.facts)) else []
        unlabelled = inventory.names(
            sum(node_class.members for node_class in classes if not labelled(node_class.capabilities))
        )
        if output in _PICTURES and not tables:
            raise BadInputError(Message("no node has GPU labels"))
    elif session.rule_paths or changes:
        raise UsageError(Message("--rules and changes of nodes require --nodes or --context"))
    else:
        tables = [drivers := driver_table(policy, session.facts), gpu_table(session.facts)]
        branches = [int(str(column.facts["driver"])) for column in drivers.columns]
        supports = [driver_support(session.facts, branch, this_month()) for branch in branches]
    for note in notes:
        print_note(note)
    if output in _MACHINE:
        facts = {"sharing": sharing, "baseline": str(policy.baseline) if policy.baseline else None}
        document = facts | _document(tables, language) | {"unlabelled": sorted(unlabelled)}
        document["drivers"] = [support.document() for support in sorted({*filter(None, supports)})]
        print_document(document, output)
        return
    left_out = _left_out(unlabelled)
    for line in _lines(output, tables, supports, (*notes, *left_out), session):
        click.echo(line)
    for note in left_out:
        print_note(note)


def _left_out(unlabelled: Sequence[str]) -> tuple[Message, ...]:
    """Return the note about nodes without GPU labels, if there are any."""
    if not unlabelled:
        return ()
    names = ", ".join(sorted(unlabelled)[:_MAX_NAMES])
    more = ", …" if len(unlabelled) > _MAX_NAMES else ""
    return (UNLABELLED_NODES.having(count=len(unlabelled), names=f"{names}{more}"),)


def _lines(
    output: str,
    tables: Sequence[Table],
    supports: Iterable[DriverSupport | None],
    notes: Sequence[Message],
    session: Session,
) -> Iterator[str]:
    """Yield the tables as an image, a page or text. notes: of the page; otherwise, stderr has them."""
    language, known = session.language, sorted({*filter(None, supports)})
    ends = [text.in_language(language) for text in _ends(known)]
    if output == "svg":
        yield draw(tables, footnotes(tables), language)
    elif output == "html":
        facts = {"tables": tables, "supports": known, "facts": sources_of(session), "notes": notes}
        yield page("cuda_matrix.html", language, summary=Joined("; ", ends).in_language(language), **facts)
    else:
        yield from _text(tables, footnotes(tables), language) if tables else ()
        yield from ends


def _policy(sharing: str, baseline: CudaVersion | None) -> SharingPolicy:
    if sharing == "virtual":
        return SharingPolicy(virtual=True, baseline=baseline or _BASELINE)
    if baseline:
        raise UsageError(Message("--baseline requires --sharing virtual"))
    return SharingPolicy()


def _document(tables: Sequence[Table], language: Language) -> dict[str, Any]:
    """Return the tables as one JSON object: rows of runtimes with a cell for each column of each table."""
    columns = [(column.name(language), column) for table in tables for column in table.columns]
    return {
        "classes": [
            {"class": name, **column.facts, "about": column.about.in_language(language)}
            for name, column in columns
        ],
        "rows": [
            {
                "cuda": str(cuda),
                "cells": [
                    {"class": name} | cell_document(column.cells[at], language) for name, column in columns
                ],
            }
            for at, cuda in enumerate(tables[0].runtimes if tables else ())
        ],
    }


def _text(tables: Sequence[Table], notes: Footnotes, language: Language) -> Iterator[str]:
    for table in tables:
        yield click.style(table.title.in_language(language), bold=True)
        yield ""
        for columns in _blocks(table, notes):
            yield from _grid(table, columns, notes, language)
            yield ""
        about = [(column, column.about.in_language(language)) for column in table.columns]
        lines = [f"{padded(column.name(language), _LABEL_WIDTH)}{text}" for column, text in about if text]
        yield from (*lines, "") if lines else ()
    yield "  ".join(
        f"{click.style(label.mark, fg=_COLOURS[level], bold=True)} {label.text.in_language(language)}"
        for level, label in LEVEL_LABELS.items()
    )
    for note in dict.fromkeys(notes.values()):
        yield f"{note.letter} {note.reason.in_language(language)}"
        if error := note.error.in_language(language):
            yield click.style(f"  {error}", dim=True)


def _ends(known: Sequence[DriverSupport]) -> Iterator[Message]:
    """Yield which driver branches are out of support, and whose support ends soon."""
    for state, text in ((SupportState.ENDED, OUT_OF_SUPPORT), (SupportState.ENDING, SUPPORT_ENDS)):
        ends = [f"{support.branch} ({support.end})" for support in known if support.state is state]
        if ends:
            yield text.having(branches=", ".join(ends))


def _blocks(table: Table, notes: Footnotes) -> Iterator[list[Column]]:
    """Yield blocks of columns that fit into the width of the terminal; in a pipe, one block."""
    space = shutil.get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize
    block: list[Column] = []
    left = space - _LABEL_WIDTH
    for column in table.columns:
        width = _width(column, notes) + len(_GAP)
        if block and width > left:
            yield block
            block, left = [], space - _LABEL_WIDTH
        block.append(column)
        left -= width
    yield block


def _grid(table: Table, columns: Sequence[Column], notes: Footnotes, language: Language) -> Iterator[str]:
    """Yield the lines of a block: headings, then runtimes, with a blank line between major versions."""
    widths = [_width(column, notes) for column in columns]
    for key in columns[0].facts:
        label = click.style(padded(FACTS[key].in_language(language), _LABEL_WIDTH), dim=True)
        facts = (_fact(column, key).ljust(width) for column, width in zip(columns, widths, strict=True))
        yield label + _GAP.join(facts).rstrip()
    major = None
    for at, cuda in enumerate(table.runtimes):
        if cuda.major != major:
            major = cuda.major
            yield ""
        label = click.style(padded(f"CUDA {cuda}", _LABEL_WIDTH), bold=True)
        cells = ((column.cells[at], width) for column, width in zip(columns, widths, strict=True))
        yield (label + _GAP.join(_coloured(cell, width, notes) for cell, width in cells)).rstrip()


def _coloured(cell: Cell, width: int, notes: Footnotes) -> str:
    text = _marked(cell, notes)
    return click.style(text, fg=_COLOURS[level_of(cell)]) + " " * (width - len(text))


def _fact(column: Column, key: str) -> str:
    fact = column.facts[key]
    return UNKNOWN if fact is None else str(fact)


def _marked(cell: Cell, notes: Footnotes) -> str:
    """Return the mark of a cell with the letters of its footnotes."""
    return LEVEL_LABELS[level_of(cell)].mark + letters(cell, notes)


def _width(column: Column, notes: Footnotes) -> int:
    facts = (_fact(column, key) for key in column.facts)
    return max(map(len, (*facts, *(_marked(cell, notes) for cell in column.cells))))
