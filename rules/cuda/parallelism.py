"""Number of GPUs that parallelism flags need in one container: data/frameworks.yaml, applied to commands."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from math import prod
from typing import Final, NamedTuple

from rules.cuda.command_line import CommandLine, FlagSearch, text_of
from rules.cuda.framework_flags import (
    Framework,
    Subject,
    Value,
    Values,
    flag_values,
    frameworks,
    frameworks_table,
    image_versions,
)
from rules.cuda.tables import Status
from rules.kube.shell_script import Command, Word

# Digits of a number of GPUs. A longer one is a mistake of which nothing is known.
_DIGITS: Final = 6
# Different results of one container that are kept. A script seldom starts more servers.
_MOST: Final = 8


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


@dataclass(frozen=True, slots=True, eq=False)
class _Program:
    """What the table says of a framework. elsewhere: values by flag. flags, env: all that it names."""

    name: str
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


def variables() -> frozenset[str]:
    """Return the names of the variables that say how many GPUs a program needs."""
    return _subject().env


def may_need(line: str) -> bool:
    """Return whether a command line may say how many GPUs a program needs."""
    return _subject().flags.found_in(line)


@cache
def visible_devices() -> Mapping[str, frozenset[str]]:
    """Return the variables that may give a container other GPUs than it requests; values that give none."""
    found = frameworks_table()["visible_devices"]
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
    table = frameworks_table()
    variables, domains, kinds = (table[f"multi_node_{name}"] for name in MultiNodeSigns._fields)
    return MultiNodeSigns(tuple(variables), frozenset(domains), frozenset(kinds))


def parallelism(image: str, line: CommandLine) -> tuple[Parallelism, ...]:
    """Return what the programs of a container need, without repetitions; none if nothing says so.

    Raises OverBudgetError.
    """
    subject = _subject()
    named = image_versions(image) if subject.concerns(line) else None
    if named is None:
        return ()
    found = [each for each in _needed(subject, named, line) if each]
    several = any(_multi_node().search(text) for text in line.texts)
    return tuple(
        replace(
            each,
            nodes=None if several and each.nodes == 1 else each.nodes,
            exact=each.exact and len(found) == 1,
        )
        for each in [*dict.fromkeys(found)][:_MOST]
    )


def _needed(subject: Subject, named: Collection[str], line: CommandLine) -> Iterator[Parallelism | None]:
    """Yield what each program of a container needs. named: the frameworks in its image name."""
    arguments, scripts = line.commands
    for framework, commands in subject.programs(named, line):
        started = framework.command.search(text_of(arguments))
        servers = [each for each in commands if not started or framework.command.search(text_of(each))]
        if servers or started or not scripts:
            for server in servers or [Command(())]:
                line.budget.spend(len(server.words) + len(arguments.words))
                yield _of(_program(framework), line.env, (server, arguments))


def _of(framework: _Program, env: Mapping[str, str], parts: tuple[Command, ...]) -> Parallelism | None:
    """Return what one program needs. env: of the container. parts: its command; a later value is used."""
    values: Values = {}
    given = {name: Word(env[name]) for name in framework.env if name in env}
    for command in parts:
        given.update({name: word for name, word in command.env.items() if name in framework.env})
        values |= {
            name: Value(word.text, f"{name}={word.text}", word.certain) for name, word in given.items()
        }
    for command in parts:
        values |= flag_values(framework.flags, command)
    factors = [_first(values, names) for names in framework.factors]
    known = [each for each in factors if each and _number(each)]
    replicas, one = _first(values, framework.replicas), not framework.one_replica.isdisjoint(values)
    local = _first(values, framework.local)
    if local and _number(local) == 0:  # an API server
        return None
    copies = local if local and _number(local) else None if one else replicas
    if copies and not _number(copies):
        copies = None
    counted = [*known, *([copies] if copies else [])]
    written = [each for each in counted if (_number(each) or 1) > 1] or known
    if not written:
        return None
    nodes: int | None = 1
    number = _first(values, framework.nodes)
    if number:
        nodes = _number(number)
    elif any(_applies(values, flag, texts) for flag, texts in framework.elsewhere.items()):
        nodes = None
    return Parallelism(
        framework.name,
        prod(_number(each) or 1 for each in counted),
        tuple(each.written for each in written),
        framework.certain and not copies and not one and all(each.certain for each in written),
        nodes if not (framework.per_node or local) else 1,
        framework.per_node,
        framework.exact
        and not one
        and all(each is None or (_number(each) and each.certain) for each in (*factors, replicas, local))
        and framework.unless.isdisjoint(values),
        framework.splits_model,
    )


def _first(values: Values, names: frozenset[str]) -> Value | None:
    """Return the value of the flag that was written last, among those of one meaning."""
    found = [value for name, value in values.items() if name in names]
    return found[-1] if found else None


def _applies(values: Values, flag: str, texts: frozenset[str]) -> bool:
    value = values.get(flag)
    return value is not None and (not texts or value.text.lower().replace("_", "-") in texts)


def _number(value: Value) -> int | None:
    """Return the number of a value; None if it is none."""
    valid = value.text.isascii() and value.text.isdigit() and len(value.text) <= _DIGITS
    return int(value.text) if valid else None


@cache
def _multi_node() -> re.Pattern[str]:
    return re.compile(frameworks_table()["multi_node"])


@cache
def _subject() -> Subject:
    found = tuple(each for each in frameworks() if each.parallelism)
    programs = [*map(_program, found)]
    numbers = frozenset().union(
        *(names for each in programs for names in (*each.factors, each.replicas, each.local))
    )
    return Subject(found, FlagSearch(numbers), frozenset().union(*(each.env for each in programs)))


@cache
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
