"""Tables, trees and complaints for people: coloured on a terminal, plain and unwrapped in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Final

import click

from rules.text.display_width import width

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

# What is not wrapped in a pipe; longer than any row.
_UNBOUNDED = 10_000


class BadInputError(click.ClickException):
    """What a command is given cannot be used; says where and why. The fault of who gave it."""

    exit_code = 2


def told(error: OSError) -> str:
    """Return what the system says of a file or of the output, without the number of the error."""
    why = error.strerror or str(error)
    return why if error.filename is None else f"{error.filename}: {why}"


def counted(number: int, noun: str) -> str:
    """Return a number with what it counts: `1 rule`, `2 rules`."""
    return f"{number} {noun}{'s' * (number != 1)}"


def padded(text: str, columns: int) -> str:
    """Return a text with blanks up to so many columns."""
    return text + " " * (columns - width(text))


def complain(message: str) -> None:
    """Print an error on stderr."""
    click.echo(f"{click.style('error:', fg='red', bold=True)} {message}", err=True)


def warn(message: str) -> None:
    """Say on stderr what may not be meant."""
    click.echo(f"{click.style('warning:', fg='yellow')} {message}", err=True)


def show_table(rows: Sequence[Mapping[str, str]], **colours: Mapping[str, str]) -> None:
    """Print rows under their keys as headings; colours: for a column, the style of each of its words.

    On a terminal that is narrower than the longest words of all columns, each row is a paragraph.
    """
    from rich.padding import Padding  # noqa: PLC0415 - 50 ms that only a table is worth
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    if not rows:
        return
    lines = [[Text(name.upper(), "bold") for name in rows[0]]]
    lines += [[Text(text, colours.get(name, {}).get(text, "")) for name, text in row.items()] for row in rows]
    columns = list(zip(*lines, strict=True))
    least = [max(map(_longest_word, column)) for column in columns]
    gap = min(2, (_width() - sum(least)) // len(least))
    if gap < 1:
        for line in lines:
            name, *others = (cell for cell in line if cell)
            show(name)
            show(Padding(Text("  ").join(others), (0, 0, 0, 4)))
        return
    whole = [max(cell.cell_len for cell in column) for column in columns]
    room = _width() - gap * len(whole)
    widest = next(most for most in range(max(whole), 0, -1) if sum(_capped(whole, least, most)) <= room)
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, gap, 0, 0))
    for places in _capped(whole, least, widest):
        table.add_column(overflow="fold", width=places)
    for line in lines:
        table.add_row(*line)
    show(table)


def _capped(whole: Sequence[int], least: Sequence[int], most: int) -> list[int]:
    """Return the widths of columns of which none is wider than most, but for a word."""
    return [max(low, min(full, most)) for full, low in zip(whole, least, strict=True)]


def _longest_word(text: Text) -> int:
    """Return the columns of the longest word, in which nobody looks for a break."""
    from rich.cells import cell_len  # noqa: PLC0415

    return max(map(cell_len, text.plain.split()), default=0)


def _width() -> int:
    """Return the columns of the terminal, or of a pipe, where nothing is broken."""
    return get_terminal_size().columns if sys.stdout.isatty() else _UNBOUNDED


def show(renderable: RenderableType) -> None:
    """Print what rich renders."""
    from rich.console import Console  # noqa: PLC0415

    terminal = sys.stdout.isatty()
    console = Console(width=_width(), highlight=False)
    with console.capture() as capture:
        console.print(renderable)
    for line in capture.get().splitlines():
        print(line.rstrip() if not terminal else line)  # noqa: T201


UNKNOWN: Final = "-"
