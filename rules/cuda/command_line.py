"""The command line of a container with its variables expanded, and the commands of its shell scripts."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Final, NamedTuple

from rules.kube.container_env import CHARACTERS_PER_STEP, LONGEST, expand_all
from rules.kube.shell_script import UNKNOWN, Command, Word, commands, script_index
from rules.text.budget import Budget

# Steps for each word that is no script.
_STEPS_OF_WORD: Final = 4

_SPACE = re.compile(r"\s")


class FlagSearch:
    """Finds flags and variables of a table in a command line; `_` and `-` are equal. names: theirs."""

    __slots__ = ("_parts", "_pattern")

    def __init__(self, names: Iterable[str]) -> None:
        plain = sorted({name.replace("_", "-") for name in names})
        patterns = "|".join(re.escape(name).replace(r"\-", "[-_]") for name in plain)
        self._pattern = re.compile(rf"(?<![\w-])(?:{patterns})(?![\w-])")
        # One of these is in each name.
        self._parts = tuple(
            name for name in plain if not any(other in name for other in plain if other != name)
        )

    def found_in(self, line: str) -> bool:
        """Return whether a command line contains one of the names."""
        # A substring search is faster, and most command lines contain no flag.
        plain = line.replace("_", "-")
        for part in self._parts:  # faster than any()
            if part in plain:
                return self._pattern.search(line) is not None
        return False


class Commands(NamedTuple):
    """What a container runs. arguments: words that are no script; scripts: the commands of those that are."""

    arguments: Command
    scripts: tuple[Command, ...]


class CommandLine:
    """The command line of a container, whose scripts are read once, and only if they are needed.

    words: command and args, with variables expanded. passed_on: arguments that the runtime adds. env: the
    variables whose values are known; unknown: those whose values are not. exported: the variables of interest
    for Command.env. too_long: no program can start with it. Raises OverBudgetError.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - a container
        self,
        words: Sequence[str],
        passed_on: Sequence[str],
        env: Mapping[str, str],
        unknown: Collection[str],
        exported: Collection[str],
        budget: Budget,
    ) -> None:
        budget.spend(len(words))
        self.words = expand_all(words, env, budget)
        self.passed_on = passed_on
        self.env = env
        self.budget = budget
        self._unknown = unknown
        self._exported = exported
        line = " ".join([*self.words, *passed_on])
        self.too_long = len(line) > LONGEST
        # Where flags are searched: scripts may use variables.
        self.texts = [line, *env.values()] if "$" in line else [line]
        if not self.too_long:
            budget.spend(sum(map(len, self.texts)) // CHARACTERS_PER_STEP)

    @cached_property
    def commands(self) -> Commands:
        """The commands of the line. Raises OverBudgetError."""
        self.budget.spend(_STEPS_OF_WORD * (len(self.words) + len(self.passed_on)))
        arguments: list[str] = []
        scripts: list[Command] = []
        for word, is_script in _scripts(self.words):
            if is_script:
                scripts += commands(word, self.env, self._unknown, self._exported, self.budget)
            else:
                arguments.append(word)
        return Commands(Command(tuple(map(Word, [*arguments, *self.passed_on]))), tuple(scripts))


def text_of(command: Command) -> str:
    """Return a command as a line, in which text with spaces cannot look like a command."""
    return " ".join(word.text if not _SPACE.search(word.text) else UNKNOWN for word in command.words)


def _scripts(words: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """Yield each argument with whether it is a shell script: of a shell in it, else of one in the image."""
    index = script_index(words)
    if index is None:
        code = any(word == "-c" for word in words[1:])  # of Python, for example
        yield from ((word, not code and _SPACE.search(word) is not None) for word in words)
        return
    yield from ((word, at == index) for at, word in enumerate(words[: index + 1]))
    if "$@" in words[index] or "$*" in words[index]:  # otherwise the script ignores its arguments
        yield from ((word, False) for word in words[index + 1 :])
