"""Flags and variables of inference servers, and their requirements on GPUs, by facts/frameworks.yaml.

Frameworks, flags and capabilities are data; this module only parses command lines.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache, partial
from math import prod
from typing import Any, Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace
from packaging.version import Version

from rules.cuda.image_catalog import covers, parse_version
from rules.cuda.shell_script import Command, CommandLine, FlagSearch, Word, text_of
from rules.cuda.tables import Facts, Status, capability, derived, pattern, read_table
from rules.cuda.versions import ComputeCapability
from rules.kube.image_reference import Image, parse_image
from rules.text.bounded_cache import Budget
from rules.text.i18n import Joined, Message, Text

# Steps for each command of a script in which flags are searched.
_STEPS_OF_COMMAND: Final = 10

# Different images in a cluster.
_REMEMBERED: Final = 4096
_TABLE: Final = "frameworks"
_NO_COMMAND = Command(())


class Value(NamedTuple):
    """The value of a flag or variable."""

    text: str
    written: str  # the flag with its value as in the pod, with variables expanded
    certain: bool


_NONE: Final = "none"
_NO_GPU: Final = (1000, 0)  # above all compute capabilities
Values = dict[str, Value]  # by flag


class FlagRow(Struct, frozen=True):
    """The requirement of a flag value in some or all versions of a framework."""

    compute: ComputeCapability | None  # None: the program for CUDA refuses the value; no other row has it
    versions: str | None  # None: all
    read: str  # the versions whose code was read
    remedy: Message
    status: Status
    instead: str  # the value of the flag that is the first fix, or empty


class ValueRequirement(NamedTuple):
    """What a value of a flag requires of a GPU."""

    compute: ComputeCapability | None  # None: the program for CUDA refuses the value on any GPU
    certain: bool
    remedy: Message
    instead: str = ""  # as of FlagRow


class Framework(Struct, frozen=True, eq=False):
    """An inference server: how to recognise it, and its flags and variables. Compares by identity."""

    __hash__ = object.__hash__

    key: str  # in the table
    name: str
    command: re.Pattern[str]
    image: re.Pattern[str]
    version: re.Pattern[str] | None  # matches an image name; its only group is the version
    newest: Version | None  # the newest version whose code was read; None if versions do not matter
    certain: bool  # it always uses its flags
    rows: Mapping[str, Mapping[str, tuple[FlagRow, ...]]]  # by flag (or variable without a flag) and value
    env: Mapping[str, str]  # variables by the flag that they set
    parallelism: Mapping[str, Any]  # from the table; may be empty
    model: Mapping[str, Any]  # from the table; may be empty


class FlagRequirement(Struct, frozen=True):
    """A compute capability that a flag requires."""

    framework: str  # with its version if known
    written: str  # as in the pod
    compute: ComputeCapability | None  # None: the program for CUDA refuses the value on any GPU
    certain: bool
    remedy: Message
    instead: str = ""  # as of FlagRow


class Subject(Struct, frozen=True):
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

        If no command starts it, the commands with its flags: they may be other programs.
        named: the keys of frameworks in the image name; the first one is used if no framework is started.
        Raises OverBudgetError.
        """
        scripts = [(text_of(command), command) for command in line.commands.scripts]
        searched = "\n".join([text_of(line.commands.arguments), *(text for text, _ in scripts)])
        started = [framework for framework in self.frameworks if framework.command.search(searched)]
        for framework in (
            started or [candidate for candidate in self.frameworks if candidate.key in named][:1]
        ):
            line.budget.spend(_STEPS_OF_COMMAND * len(scripts))
            servers = [command for text, command in scripts if framework.command.search(text)]
            others = (_of_image(command) for text, command in scripts if self.flags.found_in(text))
            yield framework, servers or [*others]


def variables(facts: Facts) -> frozenset[str]:
    """Return the names of the variables that may require something of a GPU."""
    return _precision(facts).env.union(facts.table(_TABLE)["argument_variables"])


def command_line(  # noqa: PLR0913, PLR0917 - a container
    facts: Facts,
    words: Sequence[str],
    env: Mapping[str, str],
    unknown: Collection[str] = (),
    exported: Collection[str] = (),
    budget: Budget | None = None,
) -> CommandLine:
    """Return a container's command line with the arguments that variables contain. Raises OverBudgetError.

    exported: further variables of interest.
    """
    passed_on = [
        word for name in facts.table(_TABLE)["argument_variables"] for word in env.get(name, "").split()
    ]
    return CommandLine(
        words, passed_on, env, unknown, {*_precision(facts).env, *exported}, budget or Budget()
    )


def flag_requirements(facts: Facts, image: str, line: CommandLine) -> tuple[FlagRequirement, ...]:
    """Return the GPU requirements of a command line and variables; none if it is too long to start.

    Raises OverBudgetError.
    """
    subject = _precision(facts)
    versions = image_versions(facts, image) if subject.concerns(line) else None
    if versions is None:
        return ()
    requirements = []
    for framework, servers in subject.programs(versions, line):
        line.budget.spend(len(line.commands.arguments.words))
        values = _values(framework, line.commands.arguments, servers, line.env)
        version = versions.get(framework.key)
        requirements += [_requirement(framework, version, flag, values[flag]) for flag in values]
    return tuple(requirement for requirement in requirements if requirement)


def image_versions(facts: Facts, image: str) -> Mapping[str, Version | None] | None:
    """Return the versions of frameworks in an image name, by their keys; None for another platform."""
    parsed = parse_image(image)
    return _versions(facts)(parsed) if parsed else {}


def flag_searches(facts: Facts) -> tuple[FlagSearch, FlagSearch]:
    """Return the searches for flags that require a compute capability, and a number of GPUs."""
    return _precision(facts).flags, _subject(facts).flags


def flag_values(names: Collection[str], command: Command, switches: Collection[str] = ()) -> Values:
    """Return the last value of each flag in one command, in the order of the command.

    names: the flags to read.
    switches: flags without a value; they get an empty one.
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
    """Return a command in an image with the framework's name, uncertain if it may be another program."""
    return replace(command, certain=command.certain and command.words[0].text.startswith("-"))


@derived
def _versions(facts: Facts) -> Callable[[Image], Mapping[str, Version | None] | None]:
    return lru_cache(_REMEMBERED)(partial(_find_versions, facts))


def _find_versions(facts: Facts, image: Image) -> Mapping[str, Version | None] | None:
    """Return the frameworks in an image name, with their versions; None for another platform."""
    if re.search(facts.table(_TABLE)["other_platforms"], image.short):
        return None
    return {
        framework.key: _version(framework, image)
        for framework in frameworks(facts)
        if framework.image.search(image.short)
    }


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
    """Return the values of flags in one command, including flags that variables set."""
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
    chosen = required_by_value(framework, version, flag, key) if key in framework.rows[flag] else None
    if chosen is None:
        return None
    name = f"{framework.name} {version}" if version else framework.name
    certain = chosen.certain and framework.certain and value.certain
    return FlagRequirement(name, value.written, chosen.compute, certain, chosen.remedy, chosen.instead)


@lru_cache(maxsize=1024)
def required_by_value(
    framework: Framework, version: Version | None, flag: str, value: str
) -> ValueRequirement | None:
    """Return the requirement of a version; if unknown, the lowest one, certain if the newest has it."""
    rows = framework.rows[flag][value]
    current = _covering(rows, version or framework.newest)
    rows = current if version else rows
    if not rows:
        return None
    least = min(rows, key=lambda row: row.compute or _NO_GPU)
    read = version is None or all(covers(row.read, version) for row in rows)
    certain = read and bool(current) and all(row.status.certain for row in rows)
    return ValueRequirement(least.compute, certain, least.remedy, least.instead)


def _covering(rows: tuple[FlagRow, ...], version: Version | None) -> tuple[FlagRow, ...]:
    return tuple(row for row in rows if not (row.versions and version) or covers(row.versions, version))


@derived
def frameworks(facts: Facts) -> tuple[Framework, ...]:
    """Return the frameworks of the table."""
    return tuple(
        _framework(key, entry, facts.table(_TABLE)["ways"])
        for key, entry in facts.table(_TABLE)["frameworks"].items()
    )


@derived
def _precision(facts: Facts) -> Subject:
    selected = tuple(framework for framework in frameworks(facts) if framework.rows)
    env = frozenset(name for framework in selected for name in framework.env.values())
    return Subject(
        selected, FlagSearch({*env, *(flag for framework in selected for flag in framework.rows)}), env
    )


def _framework(key: str, entry: Mapping[str, Any], ways: Mapping[str, Mapping[str, str]]) -> Framework:
    rules = entry.get("rules", ())
    read = entry.get("read", "")
    return Framework(
        key=key,
        name=entry["name"],
        command=pattern(entry["command"]),
        image=pattern(entry.get("image", "(?!)")),
        version=pattern(entry["version"]) if "version" in entry else None,
        newest=parse_version(entry.get("newest")),
        certain=entry.get("certain", True),
        rows={
            name: _rows(rule["rows"], ways, rule.get("read", read))
            for rule in rules
            for name in rule.get("flags") or rule["env"]
        },
        env={(rule.get("flags") or [name])[0]: name for rule in rules for name in rule.get("env", ())},
        parallelism=entry.get("parallelism", {}),
        model=entry.get("model", {}),
    )


def text_of_way(way: Mapping[str, str]) -> Text:
    """Return the text of a row of `ways`, a suggested fix."""
    return Text(**{language: text for language, text in way.items() if language != "value"})


def _rows(
    rows: Iterable[Mapping[str, Any]], ways: Mapping[str, Mapping[str, str]], read: str
) -> Mapping[str, tuple[FlagRow, ...]]:
    by_value: dict[str, tuple[FlagRow, ...]] = {}
    for row in rows:
        texts = [ways[name] for name in row["ways"]]
        remedy = Joined(" or ", map(text_of_way, texts))
        versions = row.get("versions")
        for value in row["values"]:
            written = value if row["compute"] == "value" else row["compute"]
            compute = None if written == _NONE else capability(written)
            flag_row = FlagRow(
                compute,
                versions,
                read,
                remedy,
                Status(row["status"]),
                next((way.get("value", "") for way in texts), ""),
            )
            by_value[value.lower()] = (*by_value.get(value.lower(), ()), flag_row)
    return by_value


# Digits of a number of GPUs; a longer number is ignored as a mistake.
_DIGITS: Final = 6
# Maximum results for one container. A script seldom starts more servers.
_MOST: Final = 8


class Parallelism(Struct, frozen=True):
    """The number of GPUs that one program needs."""

    program: str  # its name
    gpus: int  # on all nodes together
    written: tuple[str, ...]  # the flags that set the number, as in the pod
    certain: bool  # it fails with fewer
    nodes: int | None = 1  # the number of nodes; None: unknown
    per_node: bool = False  # `gpus` is the number on each node
    exact: bool = False  # it does not use further GPUs
    splits_model: bool = False  # the number must divide the attention heads of a model: 3 seldom does


class _Program(Struct, frozen=True, eq=False):
    """The flags and variables of a framework that set its number of GPUs, from the table."""

    __hash__ = object.__hash__

    name: str
    certain: bool
    factors: tuple[frozenset[str], ...]
    replicas: frozenset[str]
    local: frozenset[str]
    one_replica: frozenset[str]
    nodes: frozenset[str]
    elsewhere: Mapping[str, frozenset[str]]  # by flag, the values with which GPUs of other nodes take part
    unless: frozenset[str]
    per_node: bool
    exact: bool
    splits_model: bool
    flags: frozenset[str]  # all of them
    env: frozenset[str]  # all variables


def parallelism_variables(facts: Facts) -> frozenset[str]:
    """Return the names of the variables that set the number of GPUs that a program needs."""
    return _subject(facts).env


@cache
def visible_devices() -> Mapping[str, frozenset[str]]:
    """Return the variables that may give a container GPUs that it does not request.

    By name, the values that give it none.
    """
    table = read_table("container_signs")["visible_devices"]
    return {name: frozenset(values) for name, values in table.items()}


class MultiNodeSigns(NamedTuple):
    """Signs of pods whose programs run on several nodes."""

    variables: tuple[str, ...]  # prefixes of names
    domains: frozenset[str]  # of the names of labels
    kinds: frozenset[str]


@cache
def multi_node_signs() -> MultiNodeSigns:
    """Return the signs of the table."""
    table = read_table("container_signs")
    variables, domains, kinds = (table[f"multi_node_{name}"] for name in MultiNodeSigns._fields)
    return MultiNodeSigns(tuple(variables), frozenset(domains), frozenset(kinds))


def parallelism(facts: Facts, image: str, line: CommandLine) -> tuple[Parallelism, ...]:
    """Return the numbers of GPUs that the programs of a container need, without repetitions.

    Raises OverBudgetError.
    """
    subject = _subject(facts)
    named = image_versions(facts, image) if subject.concerns(line) else None
    if named is None:
        return ()
    needs = [need for need in _needed(facts, named, line) if need]
    several = any(_multi_node().search(text) for text in line.texts)
    return tuple(
        replace(
            need,
            nodes=None if several and need.nodes == 1 else need.nodes,
            exact=need.exact and len(needs) == 1,
        )
        for need in [*dict.fromkeys(needs)][:_MOST]
    )


def _needed(facts: Facts, named: Collection[str], line: CommandLine) -> Iterator[Parallelism | None]:
    """Yield the GPUs that each program of a container needs. named: the frameworks in its image name."""
    for framework, parts in started_programs(_subject(facts), named, line):
        yield _of(_programs(facts)[framework], line.env, parts)


def started_programs(
    subject: Subject, named: Collection[str], line: CommandLine
) -> Iterator[tuple[Framework, tuple[Command, Command]]]:
    """Yield each program that a container starts: its command in a script, and the arguments.

    named: the frameworks in its image name. Raises OverBudgetError.
    """
    arguments, scripts = line.commands
    for framework, commands in subject.programs(named, line):
        started = framework.command.search(text_of(arguments))
        servers = [server for server in commands if not started or framework.command.search(text_of(server))]
        if servers or started or not scripts:
            for server in servers or [Command(())]:
                line.budget.spend(len(server.words) + len(arguments.words))
                yield framework, (server, arguments)


def program_values(
    flags: Collection[str], variables: Collection[str], env: Mapping[str, str], parts: Iterable[Command]
) -> Values:
    """Return the values of flags and variables of one program, a later one last; flags after variables.

    env: of the container.
    parts: its command; a later value takes precedence.
    """
    values: Values = {}
    given = {name: Word(env[name]) for name in variables if name in env}
    for command in parts:
        given.update({name: word for name, word in command.env.items() if name in variables})
        values |= {
            name: Value(word.text, f"{name}={word.text}", word.certain) for name, word in given.items()
        }
    for command in parts:
        values |= flag_values(flags, command)
    return values


def _of(framework: _Program, env: Mapping[str, str], parts: tuple[Command, ...]) -> Parallelism | None:
    """Return the GPUs that one program needs. env, parts: as in `program_values`."""
    values = program_values(framework.flags, framework.env, env, parts)
    factors = [first_value(values, names) for names in framework.factors]
    known = [factor for factor in factors if factor and number_of(factor)]
    replicas, one = first_value(values, framework.replicas), not framework.one_replica.isdisjoint(values)
    local = first_value(values, framework.local)
    if local and number_of(local) == 0:  # an API server
        return None
    copies = local if local and number_of(local) else None if one else replicas
    if copies and not number_of(copies):
        copies = None
    counted = [*known, *([copies] if copies else [])]
    written = [value for value in counted if (number_of(value) or 1) > 1] or known
    if not written:
        return None
    nodes: int | None = 1
    number = first_value(values, framework.nodes)
    if number:
        nodes = number_of(number)
    elif any(applies(values, flag, texts) for flag, texts in framework.elsewhere.items()):
        nodes = None
    return Parallelism(
        framework.name,
        prod(number_of(value) or 1 for value in counted),
        tuple(value.written for value in written),
        framework.certain and not copies and not one and all(value.certain for value in written),
        nodes if not (framework.per_node or local) else 1,
        framework.per_node,
        framework.exact
        and not one
        and all(
            value is None or (number_of(value) and value.certain) for value in (*factors, replicas, local)
        )
        and framework.unless.isdisjoint(values),
        framework.splits_model,
    )


def first_value(values: Values, names: frozenset[str]) -> Value | None:
    """Return the last value of flags with one meaning."""
    matching = [value for name, value in values.items() if name in names]
    return matching[-1] if matching else None


def applies(values: Values, flag: str, texts: Collection[str]) -> bool:
    """Return whether a flag has one of these values; any, if there are none."""
    value = values.get(flag)
    return value is not None and (not texts or value.text.lower().replace("_", "-") in texts)


def number_of(value: Value) -> int | None:
    """Return the number of a value; None if it is not a number."""
    valid = value.text.isascii() and value.text.isdigit() and len(value.text) <= _DIGITS
    return int(value.text) if valid else None


@cache
def _multi_node() -> re.Pattern[str]:
    return re.compile(read_table("container_signs")["multi_node"])


@derived
def _subject(facts: Facts) -> Subject:
    selected = tuple(framework for framework in frameworks(facts) if framework.parallelism)
    programs = _programs(facts).values()
    numbers = frozenset().union(
        *(names for program in programs for names in (*program.factors, program.replicas, program.local))
    )
    return Subject(selected, FlagSearch(numbers), frozenset().union(*(program.env for program in programs)))


@derived
def _programs(facts: Facts) -> Mapping[Framework, _Program]:
    return {framework: _program(framework) for framework in frameworks(facts) if framework.parallelism}


def _program(framework: Framework) -> _Program:
    entry = framework.parallelism
    factors = tuple(map(frozenset, entry["factors"].values()))
    elsewhere = {flag: frozenset(values) for flag, values in entry.get("elsewhere", {}).items()}
    groups = {
        name: frozenset(entry.get(name, ()))
        for name in ("replicas", "local", "one_replica", "nodes", "unless")
    }
    names = frozenset(elsewhere).union(*factors, *groups.values())
    flags = frozenset(name for name in names if name.startswith("-"))
    return _Program(
        name=framework.name,
        certain=Status(entry["status"]).certain and framework.certain,
        factors=factors,
        elsewhere=elsewhere,
        per_node=entry.get("per_node", False),
        exact=entry.get("rest_is_idle", False),
        splits_model="processes" not in entry["factors"],
        flags=flags,
        env=names - flags,
        **groups,
    )
