"""GPU requirements of flags and variables of inference servers: data/precision.yaml, applied to a container.

Frameworks, flags and capabilities are data; this module only parses command lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, NamedTuple

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from rules.cuda.image_catalog import covers, parse_version
from rules.cuda.tables import Status, capability, read_table
from rules.cuda.versions import ComputeCapability
from rules.kube.container_env import LONGEST, expand_all
from rules.kube.image_reference import Image, parse_image
from rules.text.i18n import Text

_SPACE = re.compile(r"\s")
_COMMENT = re.compile(r"(?m)(?:^|(?<=\s))#.*$")
# Text in quotes or in $(…) is part of a command; a quote that is not closed is an ordinary character.
_COMMAND = re.compile(
    r"""(?:\\.|"(?:\\.|[^"\\])*"|'[^']*'|\$\([^()]*\)|&>|>&|[^;&|()\n])+""",
    re.DOTALL,
)
_SHELL_WORD = re.compile(r"[^\s;&|()]+")
_QUOTES = str.maketrans("", "", "\"'\\")

_FlagValues = Mapping[str, tuple[str, str]]  # by flag


@dataclass(frozen=True, slots=True)
class FlagRow:
    """The requirement of a flag value in some or all versions."""

    compute: ComputeCapability
    versions: SpecifierSet | None
    way_out: Text
    status: Status


class _Choice(NamedTuple):
    compute: ComputeCapability
    certain: bool
    way_out: Text


@dataclass(frozen=True, slots=True, eq=False)
class Framework:
    """An inference server: how it is recognised, and the requirements of its flags and variables.

    version: finds the version in an image name, as its only group. read: the versions whose code was read, up
    to newest; None if versions do not matter. rows: by flag and value. env: variables by the flag that they
    set. Compares by identity.
    """

    name: str
    command: re.Pattern[str]
    image: re.Pattern[str]
    version: re.Pattern[str] | None
    read: SpecifierSet
    newest: Version | None
    rows: Mapping[str, Mapping[str, tuple[FlagRow, ...]]]
    env: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class FlagRequirement:
    """A capability that a flag requires. framework: with its version if known. written: as in the pod."""

    framework: str
    written: str
    compute: ComputeCapability
    certain: bool
    way_out: Text


@dataclass(frozen=True, slots=True)
class _Table:
    """data/precision.yaml. names, env: a container without any of these flags and variables requires nothing.

    flags: finds the names; `_` equals `-`. arguments: variables that contain further flags.
    """

    frameworks: Mapping[str, Framework]
    names: tuple[str, ...]
    flags: re.Pattern[str]
    env: tuple[str, ...]
    arguments: tuple[str, ...]
    other_platforms: re.Pattern[str]

    def names_a_flag(self, line: str) -> bool:
        """Return whether a command line contains a flag."""
        # A substring search is faster, and most command lines contain no flag.
        plain = line.replace("_", "-")
        return any(name in plain for name in self.names) and self.flags.search(line) is not None


def variables() -> frozenset[str]:
    """Return the names of the variables that may require something of a GPU."""
    table = _table()
    return frozenset({*table.env, *table.arguments})


def flag_requirements(
    image: str, words: Sequence[str], env: Mapping[str, str]
) -> tuple[FlagRequirement, ...]:
    """Return the GPU requirements of a command line and variables; none if it is too long to start.

    words: command and args; env: the variables whose values are known.
    """
    table = _table()
    passed_on = (word for name in table.arguments if name in env for word in _words(env[name]))
    words = expand_all([*words, *passed_on], env)
    set_by_env = tuple((name, env[name]) for name in table.env if name in env)
    line = " ".join(words)
    if len(line) > LONGEST or not (set_by_env or table.names_a_flag(line)):
        return ()
    return _find(image, words, set_by_env)


def may_require(words: Sequence[str]) -> bool:
    """Return whether a command line may require something of a GPU, alone or with its variables."""
    line = " ".join(words)
    return "$(" in line or _table().names_a_flag(line)


def _find(
    image: str, words: Sequence[str], set_by_env: Iterable[tuple[str, str]]
) -> tuple[FlagRequirement, ...]:
    parsed = parse_image(image)
    versions = _versions(parsed) if parsed else {}
    if versions is None:
        return ()
    line = " ".join(words)
    frameworks = _table().frameworks
    by_command = (key for key, framework in frameworks.items() if framework.command.search(line))
    key = next(by_command, None) or next(iter(versions), None)
    if key is None:
        return ()
    framework, version = frameworks[key], versions.get(key)
    values = {**_env_values(framework, dict(set_by_env)), **_command_values(framework, words)}
    found = (_requirement(framework, version, flag, *values[flag]) for flag in values)
    return tuple(requirement for requirement in found if requirement)


@lru_cache(maxsize=4096)
def _versions(image: Image) -> Mapping[str, Version | None] | None:
    """Return the frameworks in an image name, with their versions; None for another platform."""
    if _table().other_platforms.search(image.short):
        return None
    frameworks = _table().frameworks
    named = (key for key in frameworks if frameworks[key].image.search(image.short))
    return {key: _version(frameworks[key], image) for key in named}


def _version(framework: Framework, image: Image) -> Version | None:
    match = framework.version.search(image.short) if framework.version else None
    return parse_version(match[1]) if match else None


def _env_values(framework: Framework, env: Mapping[str, str]) -> _FlagValues:
    """Return the values of flags that variables set: flag to (value, as written)."""
    return {flag: (env[name], f"{name}={env[name]}") for flag, name in framework.env.items() if name in env}


def _command_values(framework: Framework, words: Iterable[str]) -> _FlagValues:
    """Return the values of flags in the command line: flag to (value, as written).

    If a script can start several servers, only flags with the same value in all of them: it is unknown which
    server runs.
    """
    arguments: list[str] = []
    commands: list[str] = []
    for word in words:
        if _SPACE.search(word):
            commands += _COMMAND.findall(_COMMENT.sub("", word))
        else:
            arguments.append(word)
    servers = list(filter(framework.command.search, commands)) or filter(_table().flags.search, commands)
    first, *others = [_parsed_flags(framework, _words(server)) for server in servers] or [{}]
    by_all = {
        flag: (value, written)
        for flag, (value, written) in first.items()
        if all(flag in other and other[flag][0] == value for other in others)
    }
    return {**by_all, **_parsed_flags(framework, arguments)}


def _parsed_flags(framework: Framework, command: Sequence[str]) -> _FlagValues:
    """Return the values of flags in one command: flag to (value, as written); the last value is used."""
    values = {}
    for token, following in zip(command, [*command[1:], ""], strict=False):
        name, equals, value = token.partition("=")
        flag = name.replace("_", "-")
        if flag in framework.rows:
            values[flag] = (value, token) if equals else (following, f"{token} {following}")
    return values


def _words(command: str) -> list[str]:
    """Return the words of a shell command, without quotes."""
    words = (word.translate(_QUOTES) for word in _SHELL_WORD.findall(command))
    return [word for word in words if word]


def _requirement(
    framework: Framework, version: Version | None, flag: str, value: str, written: str
) -> FlagRequirement | None:
    key = value.lower()
    chosen = _choose(framework, version, flag, key) if key in framework.rows[flag] else None
    if chosen is None:
        return None
    name = f"{framework.name} {version}" if version else framework.name
    return FlagRequirement(name, written, chosen.compute, chosen.certain, chosen.way_out)


@lru_cache(maxsize=1024)
def _choose(framework: Framework, version: Version | None, flag: str, value: str) -> _Choice | None:
    """Return the requirement of a version; for an unknown one the lowest, certain if the newest has it."""
    rows = framework.rows[flag][value]
    current = _covering(rows, version or framework.newest)
    rows = current if version else rows
    if not rows:
        return None
    least = min(rows, key=lambda row: row.compute)
    read = version is None or covers(framework.read, version)
    certain = read and bool(current) and all(row.status.certain for row in rows)
    return _Choice(least.compute, certain, least.way_out)


def _covering(rows: tuple[FlagRow, ...], version: Version | None) -> tuple[FlagRow, ...]:
    return tuple(row for row in rows if not (row.versions and version) or covers(row.versions, version))


@cache
def _table() -> _Table:
    table = read_table("precision")
    frameworks = {key: _framework(entry, table["ways"]) for key, entry in table["frameworks"].items()}
    flags = sorted({flag for framework in frameworks.values() for flag in framework.rows})
    patterns = "|".join(re.escape(flag).replace(r"\-", "[-_]") for flag in flags)
    return _Table(
        frameworks,
        names=tuple(flags),
        flags=re.compile(rf"(?<![\w-])(?:{patterns})(?![\w-])"),
        env=tuple(name for framework in frameworks.values() for name in framework.env.values()),
        arguments=tuple(table["argument_variables"]),
        other_platforms=re.compile(table["other_platforms"]),
    )


def _framework(entry: Mapping[str, Any], ways: Mapping[str, Mapping[str, str]]) -> Framework:
    rules = entry["rules"]
    return Framework(
        name=entry["name"],
        command=re.compile(entry["command"]),
        image=re.compile(entry["image"]),
        version=re.compile(entry["version"]) if "version" in entry else None,
        read=SpecifierSet(entry.get("read", "")),
        newest=parse_version(entry.get("newest")),
        rows={flag: _rows(rule["rows"], ways) for rule in rules for flag in rule["flags"]},
        env={rule["flags"][0]: name for rule in rules for name in rule.get("env", ())},
    )


def _rows(
    rows: Iterable[Mapping[str, Any]], ways: Mapping[str, Mapping[str, str]]
) -> Mapping[str, tuple[FlagRow, ...]]:
    by_value: dict[str, tuple[FlagRow, ...]] = {}
    for row in rows:
        texts = [ways[name] for name in row["ways"]]
        way_out = Text(" or ".join(way["en"] for way in texts), "，或".join(way["zh"] for way in texts))
        versions = SpecifierSet(row["versions"]) if "versions" in row else None
        for value in row["values"]:
            compute = capability(value if row["compute"] == "value" else row["compute"])
            flag_row = FlagRow(compute, versions, way_out, Status(row["status"]))
            by_value[value] = (*by_value.get(value, ()), flag_row)
    return by_value
