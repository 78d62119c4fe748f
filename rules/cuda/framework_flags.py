"""Flags and variables of inference servers, and what they require of a GPU: data/frameworks.yaml, applied.

Frameworks, flags and capabilities are data; this module only parses command lines.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
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


class Value(NamedTuple):
    """The value of a flag or variable. written: as in the pod, with its variables expanded."""

    text: str
    written: str
    certain: bool


_NONE: Final = "none"
_NO_GPU: Final = (1000, 0)  # above all compute capabilities
Values = dict[str, Value]  # by flag


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

    key: in the table. version: finds the version in an image name, as its only group. newest: the newest
    version whose code was read; None if versions do not matter. certain: whether it always uses its flags.
    rows: by flag and value, or by variable and value if no flag is as the variable. env: variables by the
    flag that they set. parallelism: its part of the table, empty if it has none. Compares by identity.
    """

    key: str
    name: str
    command: re.Pattern[str]
    image: re.Pattern[str]
    version: re.Pattern[str] | None
    newest: Version | None
    certain: bool
    rows: Mapping[str, Mapping[str, tuple[FlagRow, ...]]]
    env: Mapping[str, str]
    parallelism: Mapping[str, Any]


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
class Subject:
    """The frameworks of the table with facts of one kind, and the flags and variables that they depend on."""

    frameworks: tuple[Framework, ...]
    flags: FlagSearch
    env: frozenset[str]

    def concerns(self, line: CommandLine) -> bool:
        """Return whether a command line that can start may have one of the flags and variables."""
        if line.too_long:
            return False
        return not self.env.isdisjoint(line.env) or any(map(self.flags.found_in, line.texts))

    def programs(
        self, named: Collection[str], line: CommandLine
    ) -> Iterator[tuple[Framework, list[Command]]]:
        """Yield each framework that a command line starts, with the commands of scripts that start it.

        named: the keys of frameworks in the image name, of which the first one counts if none is started.
        Without a command that starts it, those with flags: they may be other programs.
        Raises OverBudgetError.
        """
        scripts = [(text_of(command), command) for command in line.commands.scripts]
        searched = "\n".join([text_of(line.commands.arguments), *(text for text, _ in scripts)])
        started = [each for each in self.frameworks if each.command.search(searched)]
        for framework in started or [each for each in self.frameworks if each.key in named][:1]:
            line.budget.spend(_STEPS_OF_COMMAND * len(scripts))
            servers = [command for text, command in scripts if framework.command.search(text)]
            others = (_of_image(command) for text, command in scripts if self.flags.found_in(text))
            yield framework, servers or [*others]


def variables() -> frozenset[str]:
    """Return the names of the variables that may require something of a GPU."""
    return _precision().env.union(frameworks_table()["argument_variables"])


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
    passed_on = [
        word for name in frameworks_table()["argument_variables"] for word in env.get(name, "").split()
    ]
    return CommandLine(words, passed_on, env, unknown, {*_precision().env, *exported}, budget or Budget())


def flag_requirements(image: str, line: CommandLine) -> tuple[FlagRequirement, ...]:
    """Return the GPU requirements of a command line and variables; none if it is too long to start.

    Raises OverBudgetError.
    """
    subject = _precision()
    versions = image_versions(image) if subject.concerns(line) else None
    if versions is None:
        return ()
    requirements = []
    for framework, servers in subject.programs(versions, line):
        line.budget.spend(len(line.commands.arguments.words))
        values = _values(framework, line.commands.arguments, servers, line.env)
        version = versions.get(framework.key)
        requirements += [_requirement(framework, version, flag, values[flag]) for flag in values]
    return tuple(requirement for requirement in requirements if requirement)


def image_versions(image: str) -> Mapping[str, Version | None] | None:
    """Return the versions of frameworks in an image name, by their keys; None for another platform."""
    parsed = parse_image(image)
    return _versions(parsed) if parsed else {}


def names_a_flag(line: str) -> bool:
    """Return whether a command line contains a flag or variable of the table."""
    return _precision().flags.found_in(line)


def flag_values(names: Collection[str], command: Command, switches: Collection[str] = ()) -> Values:
    """Return the values of flags in one command: the last one of each, in the order of the command.

    names: of the flags. switches: those without a value, which is empty.
    """
    values: Values = {}
    for word, following in zip(command.words, [*command.words[1:], Word("")], strict=False):
        name, equals, text = word.text.partition("=")
        flag, certain = name.replace("_", "-"), word.certain and command.certain
        if flag not in names:
            continue
        values.pop(flag, None)
        if equals or flag in switches:
            values[flag] = Value(text, word.text, certain)
        else:
            written = f"{word.text} {following.text}"
            values[flag] = Value(following.text, written, certain and following.certain)
    return values


def _of_image(command: Command) -> Command:
    """Return a command of an image whose name alone shows the framework; it may be another program."""
    return replace(command, certain=command.certain and command.words[0].text.startswith("-"))


@lru_cache(maxsize=4096)
def _versions(image: Image) -> Mapping[str, Version | None] | None:
    """Return the frameworks in an image name, with their versions; None for another platform."""
    if re.search(frameworks_table()["other_platforms"], image.short):
        return None
    return {each.key: _version(each, image) for each in frameworks() if each.image.search(image.short)}


def _version(framework: Framework, image: Image) -> Version | None:
    match = framework.version.search(image.short) if framework.version else None
    return parse_version(match[1]) if match else None


def _values(
    framework: Framework, arguments: Command, servers: Sequence[Command], env: Mapping[str, str]
) -> Values:
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
    return {**by_all, **_parsed(framework, arguments)}


def _values_of(framework: Framework, command: Command, env: Mapping[str, str]) -> Values:
    """Return the values of flags of one command, those that variables set included."""
    given = {name: Word(env[name]) for name in framework.env.values() if name in env}
    given.update(command.env)
    by_env = {
        flag: Value(given[name].text, f"{name}={given[name].text}", given[name].certain and command.certain)
        for flag, name in framework.env.items()
        if name in given
    }
    return {**by_env, **_parsed(framework, command)}


def _parsed(framework: Framework, command: Command) -> Values:
    return flag_values(framework.rows, command, [flag for flag, rows in framework.rows.items() if "" in rows])


def _requirement(
    framework: Framework, version: Version | None, flag: str, value: Value
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
def frameworks_table() -> Any:
    """Return the table as plain values, read once."""
    return read_table("frameworks")


@cache
def frameworks() -> tuple[Framework, ...]:
    """Return the frameworks of the table."""
    return tuple(
        _framework(key, entry, frameworks_table()["ways"])
        for key, entry in frameworks_table()["frameworks"].items()
    )


@cache
def _precision() -> Subject:
    found = tuple(each for each in frameworks() if each.rows)
    env = frozenset(name for each in found for name in each.env.values())
    return Subject(found, FlagSearch({*env, *(flag for each in found for flag in each.rows)}), env)


def _framework(key: str, entry: Mapping[str, Any], ways: Mapping[str, Mapping[str, str]]) -> Framework:
    rules = entry.get("rules", ())
    read = entry.get("read", "")
    return Framework(
        key=key,
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
        parallelism=entry.get("parallelism", {}),
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
