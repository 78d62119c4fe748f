"""GPU requirements of flags and variables of inference servers: data/precision.yaml, applied to a container.

Frameworks, flags and capabilities are data; this module only parses command lines.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any, Final, NamedTuple

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from rules.cuda.command_line import CommandLine, FlagSearch, text_of
from rules.cuda.image_catalog import covers, parse_version
from rules.cuda.tables import Status, capability, read_table
from rules.cuda.versions import ComputeCapability
from rules.kube.image_reference import Image, parse_image
from rules.kube.shell_script import Command, Word
from rules.text.budget import Budget
from rules.text.i18n import Text

# Steps for each command of a script in which flags are searched.
_STEPS_OF_COMMAND: Final = 10

_NO_COMMAND = Command(())


class _Value(NamedTuple):
    """The value of a flag or variable. written: as in the pod, with its variables expanded."""

    text: str
    written: str
    certain: bool


_NONE: Final = "none"
_NO_GPU: Final = (1000, 0)  # above all compute capabilities
_Values = Mapping[str, _Value]  # by flag


@dataclass(frozen=True, slots=True)
class FlagRow:
    """The requirement of a flag value in some or all versions. read: the versions whose code was read.

    compute: None: the program for CUDA refuses the value, and no other row is for it.
    """

    compute: ComputeCapability | None
    versions: SpecifierSet | None
    read: SpecifierSet
    way_out: Text
    status: Status


class _Choice(NamedTuple):
    compute: ComputeCapability | None
    certain: bool
    way_out: Text


@dataclass(frozen=True, slots=True, eq=False)
class Framework:
    """An inference server: how it is recognised, and the requirements of its flags and variables.

    version: finds the version in an image name, as its only group. newest: the newest version whose code was
    read; None if versions do not matter. certain: whether it always uses its flags. rows: by flag and value,
    or by variable and value if no flag is as the variable. env: variables by the flag that they set. Compares
    by identity.
    """

    name: str
    command: re.Pattern[str]
    image: re.Pattern[str]
    version: re.Pattern[str] | None
    newest: Version | None
    certain: bool
    rows: Mapping[str, Mapping[str, tuple[FlagRow, ...]]]
    env: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class FlagRequirement:
    """A capability that a flag requires. framework: with its version if known. written: as in the pod.

    compute: None: no GPU helps, as the program for CUDA refuses the value.
    """

    framework: str
    written: str
    compute: ComputeCapability | None
    certain: bool
    way_out: Text


@dataclass(frozen=True, slots=True)
class _Table:
    """data/precision.yaml. flags, env: a container without any of these flags and variables requires nothing.

    flags: finds flags and variables in a command line. arguments: variables that contain further flags.
    """

    frameworks: Mapping[str, Framework]
    flags: FlagSearch
    env: tuple[str, ...]
    arguments: tuple[str, ...]
    other_platforms: re.Pattern[str]


def variables() -> frozenset[str]:
    """Return the names of the variables that may require something of a GPU."""
    table = _table()
    return frozenset({*table.env, *table.arguments})


def command_line(
    words: Sequence[str],
    env: Mapping[str, str],
    unknown: Collection[str] = (),
    exported: Collection[str] = (),
    budget: Budget | None = None,
) -> CommandLine:
    """Return a container's command line with the arguments that variables contain. Raises OverBudgetError.

    exported: variables of interest other than those of this module.
    """
    table = _table()
    passed_on = [word for name in table.arguments for word in env.get(name, "").split()]
    return CommandLine(words, passed_on, env, unknown, {*table.env, *exported}, budget or Budget())


def flag_requirements(image: str, line: CommandLine) -> tuple[FlagRequirement, ...]:
    """Return the GPU requirements of a command line and variables; none if it is too long to start.

    Raises OverBudgetError.
    """
    table = _table()
    if line.too_long:
        return ()
    if any(name in line.env for name in table.env) or any(map(table.flags.found_in, line.texts)):
        return _find(image, line)
    return ()


def server_frameworks() -> Mapping[str, Framework]:
    """Return the inference servers of the table by their keys."""
    return _table().frameworks


def image_frameworks(image: str) -> Collection[str] | None:
    """Return the keys of the inference servers in an image name; None for another platform."""
    parsed = parse_image(image)
    return _versions(parsed) if parsed else ()


def names_a_flag(line: str) -> bool:
    """Return whether a command line contains a flag or variable of the table."""
    return _table().flags.found_in(line)


def _find(image: str, line: CommandLine) -> tuple[FlagRequirement, ...]:
    parsed = parse_image(image)
    versions = _versions(parsed) if parsed else {}
    if versions is None:
        return ()
    found, env, budget = line.commands, line.env, line.budget
    lines = [(text_of(command), command) for command in found.scripts]
    searched = "\n".join([text_of(found.arguments), *(text for text, _ in lines)])
    frameworks = _table().frameworks
    started = [key for key in frameworks if frameworks[key].command.search(searched)]
    requirements = []
    for key in started or list(versions)[:1]:
        budget.spend(len(found.arguments.words) + _STEPS_OF_COMMAND * len(lines))
        framework = frameworks[key]
        servers = [command for text, command in lines if framework.command.search(text)]
        servers = servers or [_of_image(command) for text, command in lines if _table().flags.found_in(text)]
        values = _values(framework, found.arguments, servers, env)
        requirements += [_requirement(framework, versions.get(key), flag, values[flag]) for flag in values]
    return tuple(requirement for requirement in requirements if requirement)


def _of_image(command: Command) -> Command:
    """Return a command of an image whose name alone shows the framework; it may be another program."""
    return replace(command, certain=command.certain and command.words[0].text.startswith("-"))


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


def _values(
    framework: Framework, arguments: Command, servers: Sequence[Command], env: Mapping[str, str]
) -> _Values:
    """Return the values of flags of a container.

    If a script can start several servers, only flags with the same value in all of them: it is unknown which
    server runs.
    """
    first, *others = [_values_of(framework, server, env) for server in servers or [_NO_COMMAND]]
    by_all = {
        flag: value._replace(certain=value.certain or any(other[flag].certain for other in others))
        for flag, value in first.items()
        if all(flag in other and other[flag].text == value.text for other in others)
    }
    return {**by_all, **_parsed_flags(framework, arguments)}


def _values_of(framework: Framework, command: Command, env: Mapping[str, str]) -> _Values:
    """Return the values of flags of one command, those that variables set included."""
    given = {name: Word(env[name]) for name in framework.env.values() if name in env}
    given.update(command.env)
    by_env = {
        flag: _Value(given[name].text, f"{name}={given[name].text}", given[name].certain and command.certain)
        for flag, name in framework.env.items()
        if name in given
    }
    return {**by_env, **_parsed_flags(framework, command)}


def _parsed_flags(framework: Framework, command: Command) -> _Values:
    """Return the values of flags in one command; the last value is used, and a switch has an empty one."""
    values = {}
    for word, following in zip(command.words, [*command.words[1:], Word("")], strict=False):
        name, equals, text = word.text.partition("=")
        flag, certain = name.replace("_", "-"), word.certain and command.certain
        if flag not in framework.rows:
            continue
        if equals or "" in framework.rows[flag]:
            values[flag] = _Value(text, word.text, certain)
        else:
            values[flag] = _Value(
                following.text, f"{word.text} {following.text}", certain and following.certain
            )
    return values


def _requirement(
    framework: Framework, version: Version | None, flag: str, value: _Value
) -> FlagRequirement | None:
    key = value.text.lower()
    chosen = _choose(framework, version, flag, key) if key in framework.rows[flag] else None
    if chosen is None:
        return None
    name = f"{framework.name} {version}" if version else framework.name
    certain = chosen.certain and framework.certain and value.certain
    return FlagRequirement(name, value.written, chosen.compute, certain, chosen.way_out)


@lru_cache(maxsize=1024)
def _choose(framework: Framework, version: Version | None, flag: str, value: str) -> _Choice | None:
    """Return the requirement of a version; for an unknown one the lowest, certain if the newest has it."""
    rows = framework.rows[flag][value]
    current = _covering(rows, version or framework.newest)
    rows = current if version else rows
    if not rows:
        return None
    least = min(rows, key=lambda row: row.compute or _NO_GPU)
    read = version is None or all(covers(row.read, version) for row in rows)
    certain = read and bool(current) and all(row.status.certain for row in rows)
    return _Choice(least.compute, certain, least.way_out)


def _covering(rows: tuple[FlagRow, ...], version: Version | None) -> tuple[FlagRow, ...]:
    return tuple(row for row in rows if not (row.versions and version) or covers(row.versions, version))


@cache
def _table() -> _Table:
    table = read_table("precision")
    frameworks = {key: _framework(entry, table["ways"]) for key, entry in table["frameworks"].items()}
    env = tuple(dict.fromkeys(name for framework in frameworks.values() for name in framework.env.values()))
    flags = {flag for framework in frameworks.values() for flag in framework.rows}
    return _Table(
        frameworks,
        flags=FlagSearch((*flags, *env)),
        env=env,
        arguments=tuple(table["argument_variables"]),
        other_platforms=re.compile(table["other_platforms"]),
    )


def _framework(entry: Mapping[str, Any], ways: Mapping[str, Mapping[str, str]]) -> Framework:
    rules = entry["rules"]
    read = entry.get("read", "")
    return Framework(
        name=entry["name"],
        command=re.compile(entry["command"]),
        image=re.compile(entry.get("image", "(?!)")),
        version=re.compile(entry["version"]) if "version" in entry else None,
        newest=parse_version(entry.get("newest")),
        certain=entry.get("certain", True),
        rows={
            name: _rows(rule["rows"], ways, SpecifierSet(rule.get("read", read)))
            for rule in rules
            for name in rule.get("flags") or rule["env"]
        },
        env={(rule.get("flags") or [name])[0]: name for rule in rules for name in rule.get("env", ())},
    )


def _rows(
    rows: Iterable[Mapping[str, Any]], ways: Mapping[str, Mapping[str, str]], read: SpecifierSet
) -> Mapping[str, tuple[FlagRow, ...]]:
    by_value: dict[str, tuple[FlagRow, ...]] = {}
    for row in rows:
        texts = [ways[name] for name in row["ways"]]
        way_out = Text(" or ".join(way["en"] for way in texts), "，或".join(way["zh"] for way in texts))
        versions = SpecifierSet(row["versions"]) if "versions" in row else None
        for value in row["values"]:
            written = value if row["compute"] == "value" else row["compute"]
            compute = None if written == _NONE else capability(written)
            flag_row = FlagRow(compute, versions, read, way_out, Status(row["status"]))
            by_value[value.lower()] = (*by_value.get(value.lower(), ()), flag_row)
    return by_value
