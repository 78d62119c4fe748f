"""Options that describe changes of nodes, and the changes applied."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import click
from msgspec import Struct

from rules import Facts
from rules.model.rule import NodeProfile
from rules.nodes.driver_lifecycle import driver_support
from rules.text.i18n import Message, located
from webhook.cli.inputs.month import this_month
from webhook.cli.inputs.node_changes import (
    Change,
    ChangeError,
    DriverChange,
    EditableInventory,
    parse_driver,
    with_driver,
    with_nodes,
    with_profiles,
    without_pool,
)
from webhook.cli.inputs.nodes import read_nodes
from webhook.cli.inputs.options import files_option, option_group
from webhook.cli.inputs.session import Session
from webhook.cli.terminal.console import BadInputError, print_error

_DRIVER: Final = Message("driver {driver} (CUDA {cuda}) on {nodes}{selected}")
_NEWER_DRIVER: Final = Message(
    "driver {driver} (unknown branch: at least CUDA {cuda}, by {by}) on {nodes}{selected}"
)
_SELECTED: Final = Message(" of {selector}")
_REMOVED: Final = Message("without pool {name}: {nodes} removed")
_ADDED: Final = Message("with {names}: {nodes} added")
_NO_PROFILE: Final = Message("{path}: contains no enabled NodeProfile")
_NODES: Final = Message("{nodes} nodes")
_ONE_NODE: Final = Message("1 node")
_POOLS: Final = Message("{pools} declared pools")
_ONE_POOL: Final = Message("1 declared pool")
_BOTH: Final = Message("{nodes} and {pools}")


class NodeChanges(Struct, frozen=True):
    """The values of `node_change_options`; see their help."""

    drivers: tuple[str, ...]  # [SELECTOR=]VERSION
    removed: tuple[str, ...]
    added_nodes: tuple[str, ...]
    added_profiles: tuple[str, ...]

    def __bool__(self) -> bool:
        return any((self.drivers, self.removed, self.added_nodes, self.added_profiles))

    def apply(self, state: EditableInventory, session: Session) -> tuple[EditableInventory, list[Change]]:
        """Return the nodes after the changes, and the changes in the order in which they are applied.

        Pools are removed, then nodes are added, then drivers are changed: first on all nodes, then on
        selected ones. session: reads profiles. Raises BadInputError.
        """
        try:
            return self._apply(state, session)
        except ChangeError as error:
            raise BadInputError(error.text) from None

    def _apply(self, state: EditableInventory, session: Session) -> tuple[EditableInventory, list[Change]]:
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
            names = ", ".join(profile.name for profile in profiles)
            done.append(Change(_filled(_ADDED, affected, names=names), affected))
        changes = [_driver_change(text, state.facts) for text in self.drivers]
        for change in sorted(changes, key=lambda driver: bool(driver.selector)):
            state, affected = with_driver(state, change)
            driver, selector = change.driver, change.selector
            facts = {"driver": driver.version, "cuda": driver.cuda, "by": driver.by}
            facts["selected"] = _SELECTED.having(selector=selector) if selector else Message()
            text = _NEWER_DRIVER if driver.by else _DRIVER
            support = driver_support(state.facts, driver.version.branch, this_month())
            done.append(Change(_filled(text, affected, **facts), affected, support))
        return state, done


def _profiles(path: str, session: Session) -> Sequence[NodeProfile]:
    """Return the enabled profiles in a file or folder. Raises BadInputError if there are none."""
    loaded = session.read_rules([path])
    for error in loaded.errors:
        print_error(error.located)
    profiles = [profile for profile in loaded.rules.profiles if profile.enabled]
    if loaded.errors or not profiles:
        raise BadInputError(_NO_PROFILE.having(path=path))
    return profiles


def _filled(text: Message, affected: Any, **facts: Any) -> Message:
    """Return a message with the number of nodes and pools, and with facts."""
    nodes, pools = len(affected.nodes), len(affected.pools)
    number = _ONE_NODE if nodes == 1 else _NODES.having(nodes=nodes)
    if pools:
        declared = _ONE_POOL if pools == 1 else _POOLS.having(pools=pools)
        number = _BOTH.having(nodes=number, pools=declared) if nodes else declared
    return text.having(nodes=number, **facts)


def _driver_change(text: str, facts: Facts) -> DriverChange:
    """Return the change of [SELECTOR=]VERSION; the selector may be LABEL=VALUE. Raises BadInputError."""
    selector, equals, version = text.rpartition("=")
    try:
        return DriverChange(selector, parse_driver(version if selector or not equals else text, facts))
    except ChangeError as error:
        raise BadInputError(located(f"--driver {text}", error.text)) from None


# Gives a command the changes as `changes`.
node_change_options: Final = option_group(
    "changes",
    NodeChanges,
    click.option(
        "--driver",
        "drivers",
        multiple=True,
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
