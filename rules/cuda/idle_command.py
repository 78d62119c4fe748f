"""Whether the command of a container runs no GPU code, by the names of its programs.

Source: `facts/idle_commands.yaml`. Linear in the length of the command.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Final

from rules.cuda.shell_script import script_index
from rules.cuda.tables import read_table

# Characters of a script that is read; a loop that waits is short.
_LONGEST: Final = 1000
_REDIRECTION: Final = re.compile(r"\d?>{1,2}&?[ \t]*[\w/.-]+")
_COMMAND_ENDS: Final = re.compile(r"[\n;&|()`]+|(?:^|(?<=\s))#[^\n]*")
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*=")
_LOOP: Final = "for"  # its words are no programs


def is_idle(words: Sequence[str]) -> bool:
    """Return whether the words of command and args, at least one, name only programs without GPU code."""
    names, program = _names(), _base(words[0])
    if program not in names["shells"]:
        return program in names["programs"]
    index = script_index(words)
    if index is None:
        return len(words) == 1
    script = words[index]
    return len(script) <= _LONGEST and all(map(_is_idle, _COMMAND_ENDS.split(_REDIRECTION.sub(" ", script))))


def _is_idle(command: str) -> bool:
    """Return whether a simple command of a script runs no GPU code; True for a shell's keywords alone."""
    names = _names()
    words = (
        word for word in command.split() if word not in names["keywords"] and not _ASSIGNMENT.match(word)
    )
    first = next(words, _LOOP)
    return first == _LOOP or _base(first) in names["programs"]


def _base(path: str) -> str:
    return path.rpartition("/")[2]


@cache
def _names() -> Mapping[str, frozenset[str]]:
    return {key: frozenset(names) for key, names in read_table("idle_commands").items()}
