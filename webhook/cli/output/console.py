"""Tables, trees and errors for people: coloured on a terminal, plain and unwrapped in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Final

import click

from rules import Language
from rules.text.display_width import width
from webhook.cli.output.vocabulary import LEVELS, NOTE, heading, value

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

# Columns of a line in a pipe, which is not wrapped; longer than any row.
_UNBOUNDED: Final = 10_000
# A value that is not known, in a table.
UNKNOWN: Final = "-"


class BadInputError(click.ClickException):
    """The input of a command cannot be used; the message has the place and the reason. The caller's fault."""

    exit_code = 2


def os_error_text(error: OSError) -> str:
    """Return the message of a system error with its file name, without the error number."""
    why = error.strerror or str(error)
    return why if error.filename is None else f"{error.filename}: {why}"


def counted(number: int, noun: str) -> str:
    """Return a number with its English noun: `1 rule`, `2 rules`."""
    return f"{number} {noun}{'s' * (number != 1)}"


def padded(text: str, columns: int) -> str:
    """Return a text, padded with spaces to a display width."""
    return text + " " * (columns - width(text))


def print_error(message: str, language: Language = Language.EN, color: bool | None = None) -> None:
    """Print an error on stderr; color: whether with colours, if not by the stream."""
    level = LEVELS["error"].in_language(language)
    click.echo(f"{click.style(f'{level}:', fg='red', bold=True)} {message}", err=True, color=color)


def show_error(error: click.ClickException) -> None:
    """Print the error that ends a command, below the usage of the command if it was called in a wrong way."""
    if isinstance(error, click.UsageError) and error.ctx:
        click.echo(f"{error.ctx.get_usage()}\nTry '{error.ctx.command_path} --help' for help.\n", err=True)
    print_error(error.format_message(), color=error.show_color)


def print_warning(message: str, language: Language = Language.EN) -> None:
    """Print a warning on stderr."""
    level = LEVELS["warning"].in_language(language)
    click.echo(f"{click.style(f'{level}:', fg='yellow')} {message}", err=True)


def print_note(message: str, language: Language = Language.EN) -> None:
    """Print a note on stderr: what the user should know of the result."""
    click.echo(f"{click.style(f'{NOTE.in_language(language)}:', fg='cyan')} {message}", err=True)


def show_table(
    rows: Sequence[Mapping[str, str]], language: Language = Language.EN, **colours: Mapping[str, str]
) -> None:
    """Print rows, each a mapping of column keys to cells; colours: for a column, the style of each value.

    Each row is a paragraph if the terminal is narrower than the longest words of all columns.
    """
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    if not rows:
        return
    lines = [[Text(heading(name, language), "bold") for name in rows[0]]]
    lines += [
        [Text(value(name, cell, language), colours.get(name, {}).get(cell, "")) for name, cell in row.items()]
        for row in rows
    ]
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
    """Return the widths of columns, at most `most` unless a single word is longer."""
    return [max(low, min(full, most)) for full, low in zip(whole, least, strict=True)]


def _longest_word(text: Text) -> int:
    """Return the display width of the longest word, which is never broken."""
    from rich.cells import cell_len

    return max(map(cell_len, text.plain.split()), default=0)


def _width() -> int:
    """Return the columns of the terminal; in a pipe, lines are not broken."""
    return get_terminal_size().columns if sys.stdout.isatty() else _UNBOUNDED


def show(renderable: RenderableType) -> None:
    """Print a rich renderable."""
    from rich.console import Console

    terminal = sys.stdout.isatty()
    console = Console(width=_width(), highlight=False)
    with console.capture() as capture:
        console.print(renderable)
    for line in capture.get().splitlines():
        print(line.rstrip() if not terminal else line)  # noqa: T201
