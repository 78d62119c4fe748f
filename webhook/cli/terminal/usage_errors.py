"""Errors in the arguments of a command, of click and of commands, in the language of the user."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from string import Formatter
from typing import Final

import click

from rules import Language
from rules.text.i18n import Message, Text

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


# The errors of certificates and their stores: `certs` has no messages.
_OF_CERTIFICATES: Final = (
    Message("{store} holds no certificates of gpugate: {why}; delete it, or use another"),
    Message("{store} does not settle: another client keeps changing it"),
    Message("cannot serve this certificate with this key: {why}"),
    Message("not a PEM certificate: {why}"),
    Message("not an unencrypted PEM private key"),
    Message("the private key does not match the certificate"),
    Message("the CA's key is neither ECDSA nor RSA"),
    Message("this certificate is not a CA: it may not sign other certificates"),
    Message("{name} is not signed by {ca}"),
    Message("{name} is missing or empty"),
    Message("{name} is not an unencrypted PEM private key"),
    Message("{name} is not the key of {certificate}"),
    Message("{name} is not a PEM certificate"),
    Message("{name} is not a timestamp in RFC 3339 format"),
    Message("{name} has no time zone"),
    Message("directory {path}"),
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
        message = _recognized(" ".join(text.split()), _OF_CLICK)
        return message.in_language(language), Language.EN if isinstance(message, Text) else language
    return text, Language.EN


def message_of(error: object) -> Message:
    """Return the message of an error of `certs`, or the name of a store, and of an error that has one."""
    text = getattr(error, "text", None)
    return text if isinstance(text, Message) else _recognized(str(error), _OF_CERTIFICATES)


def _recognized(text: str, messages: Iterable[Message]) -> Message:
    """Return the message, with its values, that an English text is; the text if it is none."""
    for message in messages:
        if match := _pattern(message[0]).fullmatch(text):
            values = {name: _recognized(value, messages) for name, value in match.groupdict().items()}
            return message.having(**values)
    return Text(text)


@cache
def _pattern(template: str) -> re.Pattern[str]:
    """Return a pattern of the texts of a template, with a group for each of its values."""
    parts = Formatter().parse(template)
    return re.compile(
        "".join(re.escape(text) + (f"(?P<{name}>.+?)" if name else "") for text, name, *_ in parts)
    )
