"""Tables, trees and complaints for people: coloured on a terminal, plain and unwrapped in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.console import RenderableType

# What is not wrapped in a pipe; longer than any row.
_UNBOUNDED = 10_000


def counted(number: int, noun: str) -> str:
    """Return a number with what it counts: `1 rule`, `2 rules`."""
    return f"{number} {noun}{'s' * (number != 1)}"


def complain(message: str) -> None:
    """Print an error on stderr."""
    click.echo(f"{click.style('error:', fg='red', bold=True)} {message}", err=True)


def warn(message: str) -> None:
    """Say on stderr what may not be meant."""
    click.echo(f"{click.style('warning:', fg='yellow')} {message}", err=True)


def show_table(rows: Sequence[Mapping[str, str]], **colours: Mapping[str, str]) -> None:
    """Print rows under their keys as headings; colours: for a column, the style of each of its words."""
    from rich.table import Table  # noqa: PLC0415 - 50 ms that only a table is worth
    from rich.text import Text  # noqa: PLC0415

    if not rows:
        return
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name in rows[0]:
        table.add_column(name.upper(), overflow="fold")
    for row in rows:
        table.add_row(*(Text(text, colours.get(name, {}).get(text, "")) for name, text in row.items()))
    show(table)


def show(renderable: RenderableType) -> None:
    """Print what rich renders."""
    from rich.console import Console  # noqa: PLC0415

    terminal = sys.stdout.isatty()
    console = Console(width=None if terminal else _UNBOUNDED, highlight=False)
    with console.capture() as capture:
        console.print(renderable)
    for line in capture.get().splitlines():
        print(line.rstrip() if not terminal else line)  # noqa: T201
