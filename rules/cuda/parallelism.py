"""Number of GPUs that parallelism flags need in one container: data/parallelism.yaml, applied to commands.

Frameworks and flags are data; this module multiplies.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from math import prod
from typing import Any, Final, NamedTuple

from rules.cuda.command_line import CommandLine, FlagSearch, text_of
from rules.cuda.framework_flags import image_frameworks, server_frameworks
from rules.cuda.tables import Status, read_table
from rules.kube.shell_script import Command, Word

# Digits of a number of GPUs. A longer one is a mistake of which nothing is known.
_DIGITS: Final = 6
# Different results of one container that are kept. A script seldom starts more servers.
_MOST: Final = 8
# Steps for each command of a script in which flags are searched.
_STEPS_OF_COMMAND: Final = 10


@dataclass(frozen=True, slots=True)
class Parallelism:
    """The GPUs that one program needs.

    program: its name. gpus: how many, on all nodes. written: the flags that say so, as in the pod. certain:
    it fails with fewer. nodes: among how many nodes they are divided; None if an unknown number of others
    take part. per_node: it is the number of one node, however many there are. exact: it uses no others.
    splits_model: the GPUs divide the attention heads of a model, which some numbers, as 3, cannot.
    """

    program: str
    gpus: int
    written: tuple[str, ...]
    certain: bool
    nodes: int | None = 1
    per_node: bool = False
    exact: bool = False
    splits_model: bool = False


class _Value(NamedTuple):
    """The value of a flag. number: None if it is none. written: as in the pod."""

    text: str
    number: int | None
    written: str
    certain: bool


@dataclass(frozen=True, slots=True, eq=False)
class _Framework:
    """An entry of the table. numbers: the flags whose value is a number. elsewhere: values by flag."""

    key: str
    name: str
    command: re.Pattern[str]
    certain: bool
    factors: tuple[frozenset[str], ...]
    replicas: frozenset[str]
    local: frozenset[str]
    one_replica: frozenset[str]
    nodes: frozenset[str]
    elsewhere: Mapping[str, frozenset[str]]
    unless: frozenset[str]
    per_node: bool
    exact: bool
    splits_model: bool
    flags: frozenset[str]
    env: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Table:
    """data/parallelism.yaml. flags: finds its flags in a command line."""

    frameworks: tuple[_Framework, ...]
    flags: FlagSearch
    env: frozenset[str]
    multi_node: re.Pattern[str]


def variables() -> frozenset[str]:
    """Return the names of the variables that say how many GPUs a program needs."""
    return _table().env


def may_need(line: str) -> bool:
    """Return whether a command line may say how many GPUs a program needs."""
    return _table().flags.found_in(line)


@cache
def visible_devices() -> Mapping[str, frozenset[str]]:
    """Return the variables that may give a container other GPUs than it requests; values that give none."""
    found = read_table("parallelism")["visible_devices"]
    return {name: frozenset(values) for name, values in found.items()}


class MultiNodeSigns(NamedTuple):
    """What pods have whose programs run on several nodes.

    variables: how names of them begin. domains: of the names of their labels.
    """

    variables: tuple[str, ...]
    domains: frozenset[str]
    kinds: frozenset[str]


@cache
def multi_node_signs() -> MultiNodeSigns:
    """Return the signs of the table."""
    table = read_table("parallelism")
    variables, domains, kinds = (table[f"multi_node_{name}"] for name in MultiNodeSigns._fields)
    return MultiNodeSigns(tuple(variables), frozenset(domains), frozenset(kinds))


def parallelism(image: str, line: CommandLine) -> tuple[Parallelism, ...]:
    """Return what the programs of a container need, without repetitions; none if nothing says so.

    Raises OverBudgetError.
    """
    table = _table()
    if line.too_long or not (
        any(name in line.env for name in table.env) or any(map(table.flags.found_in, line.texts))
    ):
        return ()
    found = [each for each in _needed(table, image, line) if each]
    several = any(table.multi_node.search(text) for text in line.texts)
    return tuple(
        replace(
            each,
            nodes=None if several and each.nodes == 1 else each.nodes,
            exact=each.exact and len(found) == 1,
        )
        for each in [*dict.fromkeys(found)][:_MOST]
    )


def _needed(table: _Table, image: str, line: CommandLine) -> Iterator[Parallelism | None]:
    """Yield what each program of a container needs."""
    named = image_frameworks(image)
    if named is None:
        return
    found, budget = line.commands, line.budget
    arguments = text_of(found.arguments)
    scripts = [(text_of(command), command) for command in found.scripts]
    searched = "\n".join([arguments, *(text for text, _ in scripts)])
    started = [each for each in table.frameworks if each.command.search(searched)]
    for framework in started or [each for each in table.frameworks if each.key in named][:1]:
        budget.spend(_STEPS_OF_COMMAND * len(scripts))
        servers = [command for text, command in scripts if framework.command.search(text)]
        if not servers and not started:
            # Commands of an image whose name alone shows the framework: they may be other programs.
            servers = [_uncertain(command) for text, command in scripts if table.flags.found_in(text)]
        if servers or not scripts or framework.command.search(arguments):
            for server in servers or [Command(())]:
                budget.spend(len(server.words) + len(found.arguments.words))
                yield _of(framework, line.env, (server, found.arguments))


def _uncertain(command: Command) -> Command:
    return replace(command, certain=command.certain and command.words[0].text.startswith("-"))


def _of(framework: _Framework, env: Mapping[str, str], parts: tuple[Command, ...]) -> Parallelism | None:
    """Return what one program needs. env: of the container. parts: its command; a later value is used."""
    values: dict[str, _Value] = {}
    given = {name: Word(env[name]) for name in framework.env if name in env}
    for command in parts:
        given.update({name: word for name, word in command.env.items() if name in framework.env})
        values |= {
            name: _value(word.text, f"{name}={word.text}", word.certain) for name, word in given.items()
        }
    for command in parts:
        values.update(_flags(framework, command))
    factors = [_first(values, names) for names in framework.factors]
    known = [each for each in factors if each and each.number]
    replicas, one = _first(values, framework.replicas), not framework.one_replica.isdisjoint(values)
    local = _first(values, framework.local)
    if local and local.number == 0:  # an API server
        return None
    copies = (
        local if local and local.number else None if one or not (replicas and replicas.number) else replicas
    )
    written = [each for each in (*known, *([copies] if copies else [])) if (each.number or 1) > 1] or known
    if not written:
        return None
    nodes: int | None = 1
    number = _first(values, framework.nodes)
    if number:
        nodes = number.number
    elif any(_applies(values, flag, texts) for flag, texts in framework.elsewhere.items()):
        nodes = None
    return Parallelism(
        framework.name,
        prod(each.number or 1 for each in (*known, *([copies] if copies else []))),
        tuple(each.written for each in written),
        framework.certain and not copies and not one and all(each.certain for each in written),
        nodes if not (framework.per_node or local) else 1,
        framework.per_node,
        framework.exact
        and not one
        and all(each is None or (each.number and each.certain) for each in (*factors, replicas, local))
        and framework.unless.isdisjoint(values),
        framework.splits_model,
    )


def _first(values: Mapping[str, _Value], names: frozenset[str]) -> _Value | None:
    """Return the value of the flag that was written last, among those of one meaning."""
    found = [value for name, value in values.items() if name in names]
    return found[-1] if found else None


def _applies(values: Mapping[str, _Value], flag: str, texts: frozenset[str]) -> bool:
    value = values.get(flag)
    return value is not None and (not texts or value.text.lower().replace("_", "-") in texts)


def _flags(framework: _Framework, command: Command) -> dict[str, _Value]:
    """Return the values of flags in one command."""
    values: dict[str, _Value] = {}
    for word, following in zip(command.words, [*command.words[1:], Word("")], strict=False):
        name, equals, text = word.text.partition("=")
        flag, certain = name.replace("_", "-"), word.certain and command.certain
        if flag not in framework.flags:
            continue
        values.pop(flag, None)  # so that the last one is last
        if equals:
            values[flag] = _value(text, word.text, certain)
        else:
            written = f"{word.text} {following.text}"
            values[flag] = _value(following.text, written, certain and following.certain)
    return values


def _value(text: str, written: str, certain: bool) -> _Value:
    valid = text.isascii() and text.isdigit() and len(text) <= _DIGITS
    return _Value(text, int(text) if valid else None, written, certain)


@cache
def _table() -> _Table:
    table = read_table("parallelism")
    frameworks = tuple(_framework(key, entry) for key, entry in table["frameworks"].items())
    numbers = {
        flag for each in frameworks for names in (*each.factors, each.replicas, each.local) for flag in names
    }
    env = frozenset().union(*(each.env for each in frameworks))
    return _Table(
        frameworks,
        flags=FlagSearch(numbers),
        env=env,
        multi_node=re.compile(table["multi_node"]),
    )


def _framework(key: str, entry: Mapping[str, Any]) -> _Framework:
    server = server_frameworks().get(key)
    factors = tuple(map(frozenset, entry["factors"].values()))
    elsewhere = {flag: frozenset(values) for flag, values in entry.get("elsewhere", {}).items()}
    groups = {
        name: frozenset(entry.get(name, ()))
        for name in ("replicas", "local", "one_replica", "nodes", "unless")
    }
    names = frozenset(elsewhere).union(*factors, *groups.values())
    flags = frozenset(name for name in names if name.startswith("-"))
    return _Framework(
        key=key,
        name=entry["name"] if server is None else server.name,
        command=re.compile(entry["command"]) if server is None else server.command,
        certain=Status(entry["status"]).certain and (server is None or server.certain),
        factors=factors,
        elsewhere=elsewhere,
        per_node=entry.get("per_node", False),
        exact=entry.get("rest_is_idle", False),
        splits_model="processes" not in entry["factors"],
        flags=flags,
        env=names - flags,
        **groups,
    )
