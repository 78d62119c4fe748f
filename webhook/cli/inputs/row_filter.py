"""Rows of a listing that names and `--filter` select."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

import click

from rules import Language
from rules.schema.errors import suggested
from rules.text.glob import glob
from rules.text.i18n import Joined, Message
from webhook.cli.terminal.console import BadInputError
from webhook.cli.terminal.vocabulary import NO_COLUMN, NO_FILTER, NOT_NAMED, USE_PATH_OPTION, heading

T = TypeVar("T")

filter_option: Final = click.option(
    "--filter",
    "filters",
    multiple=True,
    metavar="COLUMN=GLOB",
    help="List only rows with this value, such as state=enabled; COLUMN!=GLOB: without it. Several are "
    "separated by commas. COLUMN is a heading of -o wide.",
)


def filtered(filters: Iterable[str], items: Sequence[T], row_of: Callable[[T], Mapping[str, str]]) -> list[T]:
    """Return the items whose rows match all filters. A cell with several values matches by any of them.

    Raises BadInputError for a filter that is not COLUMN=GLOB, and for an unknown column.
    """
    parts = [part for text in filters for part in text.split(",")]
    rows = [(_columns(row_of(item)), item) for item in items] if parts else []
    columns = rows[0][0] if rows else {}
    for part in parts:
        column, equals, pattern = part.partition("=")
        negated = column.endswith("!")
        column = column.removesuffix("!").strip().lower()
        if not (column and equals):
            raise BadInputError(NO_FILTER.having(text=part))
        if columns and column not in columns:
            raise BadInputError(NO_COLUMN.having(name=column, columns=Joined(", ", columns)))
        matches = glob(pattern.strip()).fullmatch
        rows = [
            (row, item) for row, item in rows if any(map(matches, row[column].split(", "))) is not negated
        ]
    return [item for _, item in rows] if parts else list(items)


def _columns(row: Mapping[str, str]) -> dict[str, str]:
    """Return the cells by their headings in English and lower case."""
    return {heading(key, Language.EN).lower(): cell for key, cell in row.items()}


def named(
    names: Iterable[str], known: Sequence[str], noun: Message, for_paths: Message = USE_PATH_OPTION
) -> list[str]:
    """Return the known names that match names and globs, in their order; without names, all.

    for_paths: the hint for a name that matches nothing and is the path of a file.
    Raises BadInputError for a name that matches nothing.
    """
    chosen = list(names)
    selected: dict[str, None] = {}
    for name in chosen:
        matching = list(filter(glob(name).fullmatch, known))
        if not matching:
            hint = suggested(name, known) or (for_paths if Path(name).exists() else Message())
            raise BadInputError(NOT_NAMED.having(noun=noun, name=name, hint=hint))
        selected |= dict.fromkeys(matching)
    return list(selected) if chosen else list(known)
