"""Commands of a POSIX shell script, with known variables expanded.

A reader, not an interpreter: a value that depends on anything but the container's variables and unconditional
assignments of the script is unknown. Linear in the length of the script.
Source: https://pubs.opengroup.org/onlinepubs/9799919799/utilities/V3_chap02.html
The command line of a container has its variables expanded; its shell scripts are read into commands.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Final, NamedTuple

from msgspec import Struct, field

from rules.kube.pod import CHARACTERS_PER_STEP, LONGEST, expand_all
from rules.text.bounded_cache import Budget

# Stands for text that is unknown until the script runs; no argument of a program can contain it.
UNKNOWN: Final = "\0"
# Levels of scripts inside each other (`bash -c "sh -c '…'"`) that are read; deeper ones are plain arguments.
MAX_DEPTH: Final = 8
# Characters of all expansions in a script; later ones are unknown.
LONGEST_EXPANSIONS: Final = 64 * 2**10
# Steps for a script, and for each word or operator. In a step, so many characters are searched, and so many
# variables are copied.
_STEPS_OF_SCRIPT: Final = 50
_STEPS_OF_TOKEN: Final = 10
_CHARACTERS_PER_STEP: Final = 32
_VARIABLES_PER_STEP: Final = 4

_NAME: Final = r"[A-Za-z_][A-Za-z0-9_]*"
_TOKEN = re.compile(
    r"""(?P<plain>[^\s\\'"`$;&|()<>\#]+)(?=[ \t\n;])|(?P<space>[ \t]+)|(?P<newline>\n)|(?P<comment>\#[^\n]*)
    |(?P<document><<-?[ \t]*\\?(?P<quote>['"]?)(?P<delimiter>[\w.-]+)(?P=quote))
    |(?P<redirection><<<|[<>]&|&>>?|>>|>\||<>|[<>](?!\())
    |(?P<operator>&&|\|\|?|;;?|[&()])
    |(?P<word>)""",
    re.VERBOSE,
)
# A part of a word; one character where its end is not found so simply, or a quote is not closed.
_PART = re.compile(
    r"""[^\s\\'"`$;&|()<>]+|\\.|'[^']*'|`[^`]*`|[^\s;&|()<>]|[<>](?=\()|[^\S \t\n]""", re.DOTALL
)
_PLAIN = re.compile(r"""[^\\'"`$]+""")
_PIECE = re.compile(r"""[^\\'"`$]+|\\(?P<escaped>.)|'(?P<single>[^']*)'|(?P<command>`[^`]*`)|.""", re.DOTALL)
_QUOTED_PIECE = re.compile(
    r"""[^\\"`$]+|\\(?P<escaped>[$`"\\])|(?P<single>(?!))|(?P<command>`[^`]*`)|.""", re.DOTALL
)
_PARAMETER = re.compile(
    rf"""\$(?:(?P<name>{_NAME})
    |\{{(?P<braced>{_NAME})(?:(?P<operator>:?[-=+?])(?P<other>(?:[^{{}}\\]|\$\{{[^{{}}]*\}})*))?\}}
    |\{{[^{{}}]*\}}|[0-9@*\#?$!-])""",
    re.VERBOSE,
)
_IN_PARENTHESES = re.compile(r"""\\.|'[^']*'|[()"]""", re.DOTALL)
_IN_QUOTES = re.compile(r"""\\.|\$\(|\"""", re.DOTALL)
_WHITE_SPACE = re.compile(r"\s+")
_ASSIGNMENT = re.compile(rf"(?P<name>{_NAME})(?P<append>\+?)=")
# What sets a variable, anywhere in a script.
_ASSIGNED = re.compile(rf"(?<![\w$.:/-])(?:({_NAME})(?:\[[^\[\]\n]*\])?\+?=(?!=))|\$\{{({_NAME}):?=")
_SETTER = re.compile(
    r"(?<![\w$./-])(?:read|unset|getopts|mapfile|readarray|for|select|let|printf[ \t]+-v)\b([^;&|\n]*)"
)
_IDENTIFIER = re.compile(_NAME)
# Commands that may set any variable. The script of a Python environment sets no variable of a server.
_SETS_ANY = re.compile(
    r"(?:(?:\A|[;&|({\n])[ \t]*|\b(?:then|do|else)[ \t]+)"
    r"(?:eval|(?:source|\.)(?![ \t]+\S*/activate\b))[ \t]"
)

_CLOSING: Final = {"fi": ("if",), "done": ("do",), "esac": ("case",), "}": ("{", "function")}
_HEADS: Final = frozenset({"for", "select", "case"})
_SKIPPED: Final = frozenset({"then", "else", "elif", "while", "until", "!", "time"})
_GROUPS: Final = frozenset({"(", "{"})  # without a condition
_DECLARATIONS: Final = frozenset({"export", "declare", "typeset", "readonly", "local"})
# Commands of the shell that print or test their arguments.
_NO_PROGRAM: Final = frozenset({"echo", "printf", ":", "[", "[[", "test"})
_SHELLS: Final = frozenset({"sh", "bash", "dash", "ash", "ksh", "zsh"})
_OPTION_C = re.compile(r"-[a-z]*c[a-z]*")


class Word(NamedTuple):
    """An argument."""

    text: str
    certain: bool = True  # it does not depend on a default for a variable that the image may set


_UNKNOWN_WORD: Final = Word(UNKNOWN)
_UNSET: Final = Word("", certain=False)  # a variable that neither the container nor the script sets


class Command(Struct, frozen=True):
    """A program with its arguments."""

    words: tuple[Word, ...]
    env: Mapping[str, Word] = field(
        default_factory=dict
    )  # the variables of interest that the script sets for it
    certain: bool = True  # no condition or loop decides whether it runs


def commands(
    script: str,
    known: Mapping[str, str],
    unknown: Collection[str] = (),
    exported: Collection[str] = (),
    budget: Budget | None = None,
) -> list[Command]:
    """Return the commands of a script, including those of scripts in it. Raises OverBudgetError.

    known, unknown: the container's variables.
    exported: the names of interest for `Command.env`.
    """
    given = frozenset(unknown), frozenset(exported), budget or Budget()
    return list(_Reader(script, known, *given).read())


def script_index(words: Sequence[str]) -> int | None:
    """Return the index of a shell's script (`sh -c SCRIPT`, `sh -c -- SCRIPT`); None if there is none."""
    shell = next((at for at, word in enumerate(words) if word.rpartition("/")[2] in _SHELLS), len(words))
    options = (at for at in range(shell + 1, len(words) - 1) if _OPTION_C.fullmatch(words[at]))
    option = next(options, None)
    if option is None:
        return None
    script = option + 1 + (words[option + 1] == "--")
    return script if script < len(words) else None


class _Reader:
    """Reads one script. Raises OverBudgetError."""

    def __init__(
        self,
        script: str,
        known: Mapping[str, str],
        unknown: frozenset[str],
        exported: frozenset[str],
        budget: Budget,
    ) -> None:
        self._script = script.replace("\r\n", "\n").replace("\\\n", "")
        self._known, self._unknown, self._interesting = known, unknown, exported
        budget.spend(_steps(script, len(known) + len(unknown)))
        self._budget = budget
        self._depth = 0  # number of scripts around it
        # Characters of expansions that are left.
        self._room = min(len(script) + sum(map(len, known.values())), LONGEST_EXPANSIONS)
        self._opaque = _SETS_ANY.search(self._script) is not None
        self._assigned = _assigned(self._script)
        self._variables: dict[str, Word | None] = {}  # assigned so far; None: unknown
        self._exported: dict[str, Word] = {}
        # Where the current command runs
        self._open: list[str] = []  # the compound commands around it
        self._conditions = 0  # number of open commands with a condition
        self._function = False  # the next { begins a function
        self._chain = ""  # "||" if its list has || before it, else "&&" if its list has && before it
        self._alone = True  # it is in no subshell
        self._pending: list[str] = []  # variables that its list assigns after &&

    def read(self) -> Iterator[Command]:
        """Yield the commands in order."""
        words: deque[str] = deque()
        before = ""
        for token, is_operator in _Lexer(self._script).tokens():
            if not is_operator:
                words.append(token)
                continue
            operator = token
            if not words and operator == "\n" and before in ("&&", "||", "|"):
                continue
            self._alone = before != "|" and operator not in ("|", "&", "(")  # NAME=( is an array
            yield from self._command(words)
            words.clear()
            self._end_command(before, operator)
            before = operator

    def _end_command(self, before: str, operator: str) -> None:
        if operator == "(":
            self._begin("(")
        elif operator == ")":
            self._end("(")
            self._function = before == "("
        if operator in ("&&", "||"):
            self._chain = "||" if "||" in (self._chain, operator) else "&&"
        elif operator != "|":
            self._chain = ""
            for name in self._pending:
                self._set(name, None)
            self._pending.clear()

    # Commands

    def _command(self, words: deque[str]) -> Iterator[Command]:
        """Yield the command of these words if it starts a program; record its assignments."""
        self._pop_keywords(words)
        prefix = self._pop_assignments(words)
        if not words:
            self._assign(prefix)
        elif words[0] in _DECLARATIONS:
            self._declare(words)
        elif words[0] in _NO_PROGRAM:
            for word in words:
                self._expand(word)  # ${NAME:=value} assigns
        else:
            if words[0] == "env":
                words.popleft()
                prefix |= self._pop_assignments(words)
            yield from self._program(words, prefix, certain=self._chain != "||" and not self._conditions)

    def _begin(self, kind: str) -> None:
        self._open.append(kind)
        self._conditions += kind not in _GROUPS

    def _end(self, *kinds: str) -> None:
        if self._open and self._open[-1] in kinds:
            self._conditions -= self._open.pop() not in _GROUPS

    def _pop_keywords(self, words: deque[str]) -> None:
        """Remove the reserved words before a command; open and close compound commands."""
        while words:
            word = words[0]
            if word in _CLOSING:
                self._end(*_CLOSING[word])
            elif word in _HEADS:
                if word == "case":
                    self._begin(word)
                words.clear()
                return
            elif word in ("if", "do", "{"):
                self._begin("function" if word == "{" and self._function else word)
                self._function = False
            elif word == "function" and len(words) > 1:
                self._function = True
                words.popleft()
            elif word not in _SKIPPED:
                return
            words.popleft()

    def _pop_assignments(self, words: deque[str]) -> dict[str, Word]:
        """Remove the assignments before a command."""
        values: dict[str, Word] = {}
        while words and (match := _ASSIGNMENT.match(words[0])):
            values[match["name"]] = self._assignment(match)
            words.popleft()
        return values

    def _assignment(self, match: re.Match[str]) -> Word:
        if match["append"]:
            return _UNKNOWN_WORD
        (value,) = self._expand(match.string[match.end() :], split=False)
        return value

    def _declare(self, words: deque[str]) -> None:
        matches = {word: _ASSIGNMENT.match(word) for word in words}
        self._assign({match["name"]: self._assignment(match) for match in matches.values() if match})
        if words[0] == "export":
            names = {match["name"] if match else word for word, match in matches.items()}
            for name in self._interesting & names & self._variables.keys():
                self._exported[name] = self._variables[name] or _UNKNOWN_WORD

    def _program(
        self, sources: Iterable[str], prefix: Mapping[str, Word], *, certain: bool
    ) -> Iterator[Command]:
        words = tuple(word for source in sources for word in self._expand(source))
        env = self._exported | {name: prefix[name] for name in self._interesting & prefix.keys()}
        texts = [word.text for word in words]
        index = script_index(texts)
        script = " ".join(texts[1:]) if texts[:1] == ["eval"] else None if index is None else texts[index]
        if script is None or self._depth + 1 >= MAX_DEPTH:
            yield Command(words, env, certain)
            return
        changed = self._assigned.keys() | prefix.keys()
        known = {name: text for name, text in self._known.items() if name not in changed}
        unknown = self._unknown | changed
        inside = _Reader(script, known, unknown, self._interesting, self._budget)
        inside._depth = self._depth + 1
        certain = certain and all(word.certain for word in words)
        for command in inside.read():
            yield Command(command.words, {**env, **command.env}, certain and command.certain)

    # Variables

    def _assign(self, values: Mapping[str, Word]) -> None:
        certain = self._alone and self._chain != "||" and not self._open
        for name, word in values.items():
            self._set(name, word if certain and UNKNOWN not in word.text else None)
            if self._chain:
                self._pending.append(name)

    def _set(self, name: str, word: Word | None) -> None:
        self._variables[name] = word if self._assigned.get(name, 0) < 2 else None
        inherited = name in self._exported or name in self._known or name in self._unknown
        if inherited and name in self._interesting:
            self._exported[name] = self._variables[name] or _UNKNOWN_WORD

    def _lookup(self, name: str) -> Word | None:
        """Return the value of a variable; None if it is unknown, _UNSET if only the image may set it."""
        assignments = self._assigned.get(name, 0)
        if self._opaque or assignments > 1:
            return None
        if name in self._variables:
            return self._variables[name]
        # A loop or function may run again after the assignment.
        if name in self._unknown or (assignments and self._open):
            return None
        return Word(self._known[name]) if name in self._known else _UNSET

    # Expansions

    def _expand(self, source: str, *, split: bool = True) -> list[Word]:
        """Return the words of a written word. split: unquoted expansions may become several words or none."""
        if _PLAIN.fullmatch(source):
            return [Word(source)]
        fields: list[list[str]] = [[]]
        at, quoted, keep, certain = 0, False, not split, True
        while match := (_QUOTED_PIECE if quoted else _PIECE).match(source, at):
            text, at = match[0], match.end()
            if text == '"':
                quoted, keep = not quoted, True
            elif text == "$":
                at, (value, sure) = self._expansion(source, match.start())
                certain = certain and sure
                values = _WHITE_SPACE.split(value) if split and not quoted else [value]
                fields[-1].append(values[0])
                fields += ([value] for value in values[1:])
            elif match["single"] is not None:
                keep = True
                fields[-1].append(match["single"])
            else:
                fields[-1].append(UNKNOWN if match["command"] else match["escaped"] or text)
        texts = map("".join, fields)
        return [Word(text, certain) for text in texts if text or (keep and len(fields) == 1)]

    def _expansion(self, source: str, at: int) -> tuple[int, Word]:
        """Return the end and the value of the expansion at a dollar sign."""
        if source.startswith("$(", at):
            end = _after(source, at + 2, "(")
            return (len(source) if end is None else end), _UNKNOWN_WORD
        if match := _PARAMETER.match(source, at):
            value = self._parameter(match)
            self._room -= len(value.text)
            return match.end(), value if self._room >= 0 else _UNKNOWN_WORD
        # $'…' and $"…" are text in quotes; another dollar sign is a character.
        return at + 1, Word("" if source[at + 1 : at + 2] in ("'", '"') else "$")

    def _parameter(self, match: re.Match[str]) -> Word:
        """Return the value of a parameter expansion."""
        name, operator = match["name"] or match["braced"], match["operator"] or ""
        value = self._lookup(name) if name else None
        if value is None or UNKNOWN in value.text:
            return _UNKNOWN_WORD
        missing = value is _UNSET or (operator.startswith(":") and not value.text)
        if missing and operator.endswith(("-", "=")):
            default = self._default(match["other"])
            if value is _UNSET:
                default = default._replace(certain=False)
            if operator.endswith("="):
                self._assign({name: default})
            return default
        if operator.endswith("+") and value is not _UNSET:
            return Word("") if missing else self._default(match["other"])
        return _UNKNOWN_WORD if value is _UNSET else value

    def _default(self, source: str) -> Word:
        """Return the value of the text after an operator in braces."""
        (value,) = self._expand(source, split=False)
        return value


class _Lexer:
    """The tokens of a script, without comments, redirections and here-documents; the last is a newline."""

    def __init__(self, script: str) -> None:
        self._script = script
        # An unmatched quote or bracket is literal; so are all later ones.
        self._searched = {"(": True, '"': True}

    def tokens(self) -> Iterator[tuple[str, bool]]:
        """Yield the tokens in order, words as written, each with whether it is an operator."""
        script, at = self._script, 0
        documents: list[str] = []
        redirected = False  # the next word is a file
        while match := _TOKEN.match(script, at) if at < len(script) else None:
            kind, at = match.lastgroup, match.end()
            if kind in ("plain", "word"):
                at = at if kind == "plain" else self._word_end(at)
                text = script[match.start() : at]
                if not redirected and not (text.isdigit() and script[at : at + 1] in ("<", ">")):
                    yield text, False
            elif kind == "document":
                documents.append(match["delimiter"])
            elif kind in ("operator", "newline"):
                yield match[0], True
            if kind == "newline":
                for delimiter in documents:
                    at = _after_document(script, at, delimiter)
                documents = []
            if kind != "space":
                redirected = kind == "redirection"
        yield "\n", True

    def _word_end(self, at: int) -> int:
        script = self._script
        while at < len(script):
            character = script[at]
            end: int | None = None
            if character == '"':
                end = self._after(at + 1, '"')
            elif script.startswith("$(", at):
                end = self._after(at + 2, "(")
            elif character == "$" and (parameter := _PARAMETER.match(script, at)):
                end = parameter.end()
            if end is None:
                part = _PART.match(script, at)
                if part is None:
                    return at
                end = part.end()
            at = end
        return at

    def _after(self, at: int, opened: str) -> int | None:
        end = _after(self._script, at, opened) if self._searched[opened] else None
        self._searched[opened] = end is not None
        return end


def _steps(script: str, variables: int) -> int:
    """Return the steps to read a script with this number of variables, by the characters of its tokens."""
    tokens = len(script.split()) + sum(map(script.count, ";&|()$`\"'\\"))
    searched = len(script) // _CHARACTERS_PER_STEP + variables // _VARIABLES_PER_STEP
    return _STEPS_OF_SCRIPT + _STEPS_OF_TOKEN * tokens + searched


def _assigned(script: str) -> dict[str, int]:
    """Return how often a script assigns each variable; 2 for any other way of setting it."""
    counts: dict[str, int] = {}
    for match in _ASSIGNED.finditer(script):
        name = match[1] or match[2]
        counts[name] = counts.get(name, 0) + 1
    for match in _SETTER.finditer(script):
        counts.update((name, 2) for name in _IDENTIFIER.findall(match[1]))
    return counts


def _after(text: str, at: int, opened: str) -> int | None:
    """Return the end of a command substitution or quoted text that is open at a position, or None."""
    stack = [opened]
    while stack:
        match = (_IN_PARENTHESES if stack[-1] == "(" else _IN_QUOTES).search(text, at)
        if match is None:
            return None
        at = match.end()
        if match[0] == ")" or match[0] == stack[-1] == '"':
            stack.pop()
        elif match[0] in ("(", "$(", '"'):
            stack.append('"' if match[0] == '"' else "(")
    return at


def _after_document(script: str, at: int, delimiter: str) -> int:
    """Return the end of a here-document that begins here."""
    while at < len(script):
        newline = script.find("\n", at)
        end = len(script) if newline < 0 else newline
        line, at = script[at:end], end + 1
        if line.strip("\t") == delimiter:
            break
    return at


# Steps for each word that is not a script.
_STEPS_OF_WORD: Final = 4

_SPACE = re.compile(r"\s")


class FlagSearch:
    """Finds flags and variables of a table in a command line; `_` and `-` are equal."""

    __slots__ = ("_parts", "_pattern")

    def __init__(self, names: Iterable[str]) -> None:
        plain = sorted({name.replace("_", "-") for name in names})
        patterns = "|".join(re.escape(name).replace(r"\-", "[-_]") for name in plain)
        self._pattern = re.compile(rf"(?<![\w-])(?:{patterns})(?![\w-])")
        # Each name contains one of these.
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
    """The commands of a container."""

    arguments: Command  # the words that are not scripts
    scripts: tuple[Command, ...]  # the commands in scripts


class CommandLine:
    """The command line of a container. Its scripts are read once, if needed. Raises OverBudgetError.

    words: command and args, with variables expanded.
    passed_on: arguments that the runtime adds.
    env: variables with a known value.
    unknown: variables without a known value.
    exported: the variables of interest for Command.env.
    too_long: no program can start with it.
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
        # Texts in which flags are searched: scripts may use variables.
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
    """Yield each argument with whether it is a script, of a shell in the command line or in the image."""
    index = script_index(words)
    if index is None:
        code = any(word == "-c" for word in words[1:])  # of Python, for example
        yield from ((word, not code and _SPACE.search(word) is not None) for word in words)
        return
    yield from ((word, at == index) for at, word in enumerate(words[: index + 1]))
    if "$@" in words[index] or "$*" in words[index]:  # otherwise the script ignores its arguments
        yield from ((word, False) for word in words[index + 1 :])
