"""Options that describe changes of nodes, and the changes applied."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import click

from rules import Language
from rules.model.rule import NodeProfile
from rules.text.i18n import Text
from webhook.cli.inputs.node_changes import (
    Change,
    ChangeError,
    DriverChange,
    NodeState,
    parse_driver,
    with_driver,
    with_nodes,
    with_profiles,
    without_pool,
)
from webhook.cli.inputs.options import files_option, option_group
from webhook.cli.inputs.session import Session, read_nodes
from webhook.cli.terminal.console import BadInputError, current_language, print_error

_DRIVER: Final = Text(
    "driver {driver} (CUDA {cuda}) on {nodes}{selected}", "驱动 {driver}（CUDA {cuda}）用于 {nodes}{selected}"
)
_SELECTED: Final = Text(" of {selector}", "（{selector}）")
_REMOVED: Final = Text("without pool {name}: {nodes} removed", "移除节点池 {name}：移除 {nodes}")
_ADDED: Final = Text("with {names}: {nodes} added", "加入 {names}：新增 {nodes}")
_NO_PROFILE: Final = Text("{path}: contains no enabled NodeProfile", "{path}：没有已启用的 NodeProfile")
_NODES: Final = Text("{nodes} nodes", "{nodes} 个节点")
_ONE_NODE: Final = Text("1 node", "1 个节点")
_POOLS: Final = Text("{pools} declared pools", "{pools} 个声明的节点池")
_ONE_POOL: Final = Text("1 declared pool", "1 个声明的节点池")
_BOTH: Final = Text("{nodes} and {pools}", "{nodes}和 {pools}")


@dataclass(frozen=True, slots=True)
class NodeChanges:
    """The values of `node_change_options`; see their help."""

    drivers: tuple[DriverChange, ...]
    removed: tuple[str, ...]
    added_nodes: tuple[str, ...]
    added_profiles: tuple[str, ...]

    def __bool__(self) -> bool:
        return any((self.drivers, self.removed, self.added_nodes, self.added_profiles))

    def apply(self, state: NodeState, session: Session) -> tuple[NodeState, list[Change]]:
        """Return the nodes after the changes, and each change: removed, then added, then other drivers.

        Of drivers, one for all nodes is applied first. session: for profiles. Raises BadInputError.
        """
        try:
            return self._apply(state, session)
        except ChangeError as error:
            raise BadInputError(error.message(current_language())) from None

    def _apply(self, state: NodeState, session: Session) -> tuple[NodeState, list[Change]]:
        done: list[Change] = []
        for name in self.removed:
            state, affected = without_pool(state, name)
            done.append(Change(_filled(_REMOVED, affected, name=name), affected))
        for path in self.added_nodes:
            state, affected = with_nodes(state, read_nodes([path])[1])
            done.append(Change(_filled(_ADDED, affected, names=path), affected))
        for path in self.added_profiles:
            profiles = _profiles(path, session)
            state, affected = with_profiles(state, profiles)
            names = ", ".join(each.name for each in profiles)
            done.append(Change(_filled(_ADDED, affected, names=names), affected))
        for change in sorted(self.drivers, key=lambda each: bool(each.selector)):
            state, affected = with_driver(state, change)
            facts = {"driver": change.driver.version, "cuda": change.driver.cuda}
            selected = [_in(_SELECTED, language, selector=change.selector) for language in Language]
            text = _filled(
                _DRIVER, affected, selected=Text(*selected) if change.selector else Text("", ""), **facts
            )
            done.append(Change(text, affected))
        return state, done


def _profiles(path: str, session: Session) -> Sequence[NodeProfile]:
    """Return the enabled profiles in a file or folder. Raises BadInputError if there are none."""
    language = current_language()
    loaded = session.read_rules([path])
    for error in loaded.errors:
        print_error(error.line(language), language)
    found = [each for each in loaded.rules.profiles if each.enabled]
    if loaded.errors or not found:
        raise BadInputError(_NO_PROFILE.in_language(language).format(path=path))
    return found


def _filled(text: Text, affected: Any, **facts: Any) -> Text:
    """Return a text in both languages with the number of nodes and pools, and with facts."""
    nodes, pools = len(affected.nodes), len(affected.pools)
    filled = []
    for language in Language:
        number = _in(_ONE_NODE if nodes == 1 else _NODES, language, nodes=nodes)
        if pools:
            declared = _in(_ONE_POOL if pools == 1 else _POOLS, language, pools=pools)
            number = _in(_BOTH, language, nodes=number, pools=declared) if nodes else declared
        values = {
            key: value.in_language(language) if isinstance(value, Text) else value
            for key, value in facts.items()
        }
        filled.append(_in(text, language, nodes=number, **values))
    return Text(*filled)


def _in(text: Text, language: Language, **facts: Any) -> str:
    return text.in_language(language).format(**facts)


def _read_drivers(
    context: click.Context, parameter: click.Parameter, values: Iterable[str]
) -> tuple[DriverChange, ...]:
    """Return the changes of [SELECTOR=]VERSION; the selector may be LABEL=VALUE."""
    del parameter
    found = []
    for text in values:
        selector, equals, version = text.rpartition("=")
        try:
            found.append(DriverChange(selector, parse_driver(version if selector or not equals else text)))
        except ChangeError as error:
            language = Language(context.params.get("lang") or Language.EN)
            raise BadInputError(f"--driver {text}: {error.message(language)}") from None
    return tuple(found)


# Gives a command the changes as `changes`.
node_change_options: Final = option_group(
    "changes",
    NodeChanges,
    click.option(
        "--driver",
        "drivers",
        multiple=True,
        callback=_read_drivers,
        metavar="[POOL=]VERSION",
        help="Another driver on all nodes, or on those of a pool, with a GPU (T4=595) or with a label "
        "(LABEL=VALUE=595): a branch such as 595, or a version; may be repeated.",
    ),
    click.option(
        "--remove-pool",
        "removed",
        multiple=True,
        metavar="POOL",
        help="Remove a node pool, or the nodes with LABEL=VALUE; may be repeated.",
    ),
    files_option(
        "--add-nodes",
        "added_nodes",
        help="Add the nodes, NodePools and the like in this file; may be repeated.",
    ),
    files_option(
        "--add-profile",
        "added_profiles",
        help="Add the nodes that NodeProfiles in this file describe; may be repeated.",
    ),
)
