"""Errors in the arguments of a command, of click and of commands, in the language of the user."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from string import Formatter
from typing import Final

import click

from rules import Language
from rules.text.i18n import Message

LANGUAGE_VARIABLE: Final = "GPUGATE_LANG"
_OPTION: Final = "--lang"
_USAGE: Final = Message("Usage: {usage}\nTry '{command} --help' for help.\n")
# The messages of click 8, which it can only translate by the locale. Values may be such messages, too.
_OF_CLICK: Final = (
    Message("Invalid value for {param}: {problem}"),
    Message("Missing argument {param}. Choose from: {choices}"),
    Message("Missing argument {param}."),
    Message("Missing option {param}."),
    Message("No such option {name}. Did you mean {near}?"),
    Message("No such option {name}. (Did you mean one of: {near}?)"),
    Message("No such option {name}."),
    Message("No such command {name} – did you mean {near}?"),
    Message("No such command {name}."),
    Message("Option {name} requires an argument."),
    Message("Option {name} does not take a value."),
    Message("Got unexpected extra argument ({args})"),
    Message("Got unexpected extra arguments ({args})"),
    Message("{value} is not one of {choices}."),
    Message("{value} is not in the range {range}."),
    Message("{value} is not a valid integer."),
    Message("{value} is not a valid float."),
    Message("Directory {name} is a file."),
    Message("Directory {name} does not exist."),
)


class UsageError(click.UsageError):
    """Arguments that do not go together. The caller's fault."""

    def __init__(self, text: Message) -> None:
        super().__init__(text.en)
        self.text = text


def language_of(arguments: Sequence[str], environment: Mapping[str, str]) -> Language:
    """Return the language that the arguments of a command ask for, which may not be parsed: else English."""
    chosen = environment.get(LANGUAGE_VARIABLE, "")
    for argument, following in zip(arguments, [*arguments[1:], ""], strict=False):
        name, equals, value = argument.partition("=")
        if name == _OPTION:
            chosen = value if equals else following
    return Language(chosen) if chosen in set(Language) else Language.EN


def usage_of(context: click.Context, language: Language) -> str:
    """Return the lines above an error: how the command is called, and where its help is."""
    usage = context.get_usage().partition(": ")[2]
    return _USAGE.having(usage=usage, command=context.command_path).in_language(language)


def text_of_error(error: click.ClickException, language: Language) -> tuple[str, Language]:
    """Return the text of an error and its language: English if it has no translation."""
    if isinstance(error, UsageError):
        return error.text.in_language(language), language
    text = error.format_message()
    if isinstance(error, click.UsageError) and language is not Language.EN:
        text = " ".join(text.split())
        translated = _translated(text, language)
        return translated, Language.EN if translated == text else language
    return text, Language.EN


def _translated(text: str, language: Language) -> str:
    for message in _OF_CLICK:
        if match := _pattern(message[0]).fullmatch(text):
            values = {name: _translated(value, language) for name, value in match.groupdict().items()}
            return message.having(**values).in_language(language)
    return text


@cache
def _pattern(template: str) -> re.Pattern[str]:
    """Return a pattern of the texts of a template, with a group for each of its values."""
    parts = Formatter().parse(template)
    return re.compile(
        "".join(re.escape(text) + (f"(?P<{name}>.+?)" if name else "") for text, name, *_ in parts)
    )
