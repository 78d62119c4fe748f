"""Tables, trees and errors for people: coloured on a terminal, plain and unwrapped in a pipe."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from shutil import get_terminal_size
from threading import Event, Thread
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import click

from rules import Language
from rules.text.i18n import Lines, Message, width
from rules.text.printable import printable, printable_json
from webhook.cli.terminal.usage_errors import text_of_error, usage_of
from webhook.cli.terminal.vocabulary import COLON, COUNTED, LEVELS, NOTE, heading, is_word, value
from webhook.yaml_output import dump_yaml

if TYPE_CHECKING:
    from rich.console import RenderableType

# Columns of a line in a pipe, which is not wrapped; longer than any row.
_UNBOUNDED: Final = 10_000
# The key of --quiet in the context of a command.
QUIET: Final = "gpugate.quiet"
# A value that is not known, in a table.
UNKNOWN: Final = "-"
_CLEAR_LINE: Final = "\r\x1b[2K"
_GAP: Final = "  "  # between columns
_CUT: Final = "…"  # at the end of a cell that is cut
_MIN_WIDTH: Final = 12  # columns of a cell that is cut; versions and numbers are shorter


class BadInputError(click.ClickException):
    """The input of a command cannot be used; the text has the place and the reason. The caller's fault."""

    exit_code = 2

    def __init__(self, text: Message) -> None:
        super().__init__(text.en)
        self.text = text


class ForbiddenError(BadInputError):
    """The user has no right to read objects of a cluster."""


def counted(number: int, noun: str) -> Message:
    """Return a number with its noun: `1 rule`, `2 rules`."""
    singular, plural = COUNTED[noun]
    return singular if number == 1 else plural.having(count=number)


def first_of(items: Sequence[str]) -> str:
    """Return the first item and the number of further ones, as kubectl prints lists."""
    first, *others = items or [""]
    return f"{first} + {len(others)} more..." if others else first


def padded(text: str, columns: int) -> str:
    """Return a text, padded with spaces to a display width."""
    return text + " " * (columns - width(text))


class Styled(str):
    """A text that is printed as it is: gpugate has set its styles and line breaks."""

    __slots__ = ()


def styled(text: str, **style: Any) -> Styled:
    """Return a text with a style of `click.style`, in one line."""
    return Styled(click.style(printable(text), **style))


def lines(text: str) -> Styled:
    """Return a message of several lines, whose line breaks stay."""
    return Styled(printable(text, "\n"))


def print_line(*parts: str, err: bool = False, color: bool | None = None) -> None:
    """Print parts, separated by spaces, as one line; only Styled parts may have more lines.

    Control characters of other parts are escaped: a text of an object can neither act on the terminal nor
    begin a line that a CI system reads as its command.
    """
    texts = [part if isinstance(part, Styled) else printable(part) for part in parts]
    click.echo(" ".join(texts), err=err, color=color)


def led(word: Message | str, text: str, language: Language, **style: Any) -> Styled:
    """Return a text after a word, which has the style, and a colon."""
    begin = COLON.having(word=word).in_language(language)
    shown = text if isinstance(text, Styled) else printable(text)
    return Styled(f"{styled(begin.rstrip(), **style)}{' ' * begin.endswith(' ')}{shown}")


def print_error(message: str | Message, language: Language | None = None, color: bool | None = None) -> None:
    """Print an error on stderr.

    language: see `_rendered`. color: whether to use colours; None: as the stream.
    """
    text, language = _rendered(message, language)
    print_line(led(LEVELS["error"], text, language, fg="red", bold=True), err=True, color=color)


def show_error(error: click.ClickException, language: Language) -> None:
    """Print the error that ends a command, below the usage of the command if it was called in a wrong way."""
    if isinstance(error, click.UsageError) and error.ctx:
        click.echo(usage_of(error.ctx, language), err=True)
    if isinstance(error, BadInputError):
        text = error.text.in_language(language)
        text = lines(text) if isinstance(error.text, Lines) else text
    else:
        text, language = text_of_error(error, language)
    print_error(text, language, color=error.show_color)


def print_warning(message: str | Message, language: Language | None = None) -> None:
    """Print a warning on stderr. language: see `_rendered`."""
    text, language = _rendered(message, language)
    print_line(led(LEVELS["warning"], text, language, fg="yellow"), err=True)


def print_note(message: str | Message, language: Language | None = None) -> None:
    """Print a note about the result on stderr; not with --quiet."""
    text, language = _rendered(message, language)
    print_summary(led(NOTE, text, language, fg="cyan"))


def print_summary(*parts: str | Message, err: bool = True) -> None:
    """Print a summary or an explanation of results; not with --quiet. err: on stderr."""
    if not is_quiet():
        print_line(*(_rendered(part)[0] for part in parts), err=err)


def _rendered(message: str | Message, language: Language | None = None) -> tuple[str, Language]:
    """Return the text of a message and its language, by default the command's; a plain text is English."""
    if isinstance(message, str):
        return message, language or Language.EN
    language = language or current_language()
    return message.in_language(language), language


@contextmanager
def progress(text: Message, after_s: float = 1.0) -> Iterator[None]:
    """Show on stderr what is running, and for how many seconds; the line is removed at the end.

    Only on a terminal, and not with --quiet. after_s: seconds until the first line, and between updates.
    Nothing else may be printed meanwhile.
    """
    if is_quiet() or not sys.stderr.isatty():
        yield
        return
    ended, words = Event(), text.in_language(current_language())

    def show_line() -> None:
        begun = monotonic()
        while not ended.wait(after_s):
            sys.stderr.write(f"{_CLEAR_LINE}{words} ({monotonic() - begun:.0f} s)")
            sys.stderr.flush()

    thread = Thread(target=show_line, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        sys.stderr.write(_CLEAR_LINE)
        sys.stderr.flush()


def current_language() -> Language:
    """Return the language of the running command."""
    context = click.get_current_context(silent=True)
    return Language(context.params.get("lang", Language.EN)) if context else Language.EN


def is_quiet() -> bool:
    """Return whether the command has the option --quiet."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(QUIET))


def print_json(document: Any) -> None:
    """Print a document, or its JSON text, as JSON in one line."""
    text = document if isinstance(document, str) else json.dumps(document, ensure_ascii=False)
    click.echo(printable_json(text))


def print_document(document: Any, output: str) -> None:
    """Print a document as JSON in one line, or as YAML. output: json or yaml."""
    if output == "json":
        print_json(document)
    else:
        click.echo(dump_yaml(document), nl=False)


def show_table(
    rows: Sequence[Mapping[str, str]],
    language: Language = Language.EN,
    *,
    wide: bool = False,
    **colours: Mapping[str, str],
) -> None:
    """Print rows, each a mapping of column keys to cells, as kubectl does: one line a row.

    On a terminal that is too narrow, columns are cut, the last one first, except headings and columns of
    fixed words. wide: cut nothing. colours: for a column, the style of each value.
    """
    if not rows:
        return
    columns = [
        [heading(name, language), *(printable(value(name, row[name], language)) for row in rows)]
        for name in rows[0]
    ]
    widths = [max(map(width, column)) for column in columns]
    excess = 0 if wide else sum(widths) + len(_GAP) * (len(widths) - 1) - _width()
    for at, name in reversed([*enumerate(rows[0])]):
        if excess > 0 and not all(is_word(name, row[name]) for row in rows):
            least = min(widths[at], max(width(columns[at][0]), _MIN_WIDTH))
            cut = min(excess, widths[at] - least)
            widths[at] -= cut
            excess -= cut
    styles = [["bold"] * len(widths)]
    styles += [[colours.get(name, {}).get(row[name], "") for name in rows[0]] for row in rows]
    for line, of_line in zip(zip(*columns, strict=True), styles, strict=True):
        cells = map(_styled, line, widths, of_line)
        click.echo(_GAP.join(cells).rstrip())


def _styled(cell: str, columns: int, style: str) -> str:
    """Return a cell, cut and padded to a display width. style: bold, dim, a colour, or empty."""
    text = _shortened(cell, columns)
    attributes: dict[str, Any] = {style: True} if style in ("bold", "dim") else {"fg": style}
    return (click.style(text, **attributes) if style else text) + " " * (columns - width(text))


def _shortened(text: str, columns: int) -> str:
    """Return a text that is cut to a display width."""
    if width(text) <= columns:
        return text
    text = text[: columns - 1]
    while width(text) > columns - 1:
        text = text[:-1]
    return f"{text}{_CUT}"


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
