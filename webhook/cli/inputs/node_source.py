"""Nodes of commands, and the rules that define the meaning of their labels."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import Any, TypeVar

import click

from rules import Inventory, Language, RuleSet
from rules.model.rule import NodeProfile
from rules.nodes.label_families import LabelNames
from rules.nodes.snapshot import CopiedObjects, snapshot
from rules.schema.errors import suggestion
from webhook.cli.inputs.cluster_source import ClusterSource
from webhook.cli.inputs.completers import RULE, RULE_PATH
from webhook.cli.inputs.files import BAD_INPUT, RuleSource, read_inventory
from webhook.cli.inputs.node_change_options import NodeChanges
from webhook.cli.inputs.node_changes import Change, NodeState
from webhook.cli.inputs.options import (
    cluster_options,
    language_option,
    namespace_option,
    nodes_option,
    quiet_option,
)
from webhook.cli.terminal.console import BadInputError, print_error

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(slots=True)
class NodeSource:
    """The values of `node_options`; see their help. failed: whether a rule has an error."""

    paths: tuple[str, ...]
    rules: RuleSource
    rule_paths: tuple[str, ...]
    rule: str | None
    language: Language
    failed: bool = False
    _rules: RuleSet | None = field(default=None, init=False)

    @property
    def named(self) -> bool:
        """Whether the options select nodes."""
        return bool(self.paths or self.rules.cluster.selected)

    def inventory(self) -> Inventory:
        """Return the nodes and declared pools in files or of a cluster; by default, of the current context.

        Raises BadInputError, also if there are none.
        """
        return self._read()[0]

    def changed(self, changes: NodeChanges) -> tuple[Inventory, list[Change]]:
        """Return the inventory after changes, and each change. Raises BadInputError."""
        state, done = changes.apply(NodeState.of(self._read()[1], self._read_rules()), self.rules)
        return state.inventory(), done

    def _read(self) -> tuple[Inventory, list[Any]]:
        """Return the inventory and the objects that it is made of. Raises BadInputError."""
        if not self.named:
            self.rules = replace(self.rules, cluster=self.rules.cluster.or_current("--nodes FILE"))
        inventory, objects = read_inventory(self.paths, self.rules.cluster)
        if not (len(inventory) or inventory.declared.pools):
            raise BadInputError(f"{', '.join(self.paths) or 'this cluster'}: no nodes")
        return inventory, objects

    def snapshot(self, anonymize: Iterable[str]) -> CopiedObjects:
        """Return the snapshot of the nodes that `inventory` reads. anonymize: globs of label keys.

        Labels by which some compatibility rule reads a fact keep their values. Raises BadInputError.
        """
        _, objects = self._read()
        labels = {rule.sharing.labels for rule in self._read_rules().compatibility} | {LabelNames()}
        return snapshot(objects, anonymize, labels)

    def labels(self) -> LabelNames:
        """Return the label names that the compatibility rules set. Raises BadInputError if these differ."""
        rules = {rule.name: rule for rule in self._read_rules().compatibility if rule.enabled}
        if self.rule and self.rule not in rules:
            hint = suggestion(self.rule, rules)
            raise BadInputError(f"no enabled compatibility rule is named {self.rule!r}{hint}")
        chosen = [rules[self.rule]] if self.rule else rules.values()
        found = {rule.sharing.labels: rule.name for rule in chosen}
        if len(found) > 1:
            names = ", ".join(found.values())
            raise BadInputError(f"rules set different labels; choose one with --rule: {names}")
        return next(iter(found), LabelNames())

    def profiles(self) -> tuple[NodeProfile, ...]:
        """Return the enabled node profiles in the rules. Raises BadInputError."""
        return tuple(profile for profile in self._read_rules().profiles if profile.enabled)

    def _read_rules(self) -> RuleSet:
        """Return the rules of the options, read once; without any, the built-in rules and their labels."""
        if self._rules is None:
            self._rules = RuleSet()
            if self.rule_paths or self.rule or self.rules.cluster.selected:
                loaded = self.rules.load_in_force(self.rule_paths, self.language)
                for error in loaded.errors:
                    print_error(error.line(self.language), self.language)
                    self.failed = True
                self._rules = loaded.rules
        return self._rules


def node_options(command: F) -> F:
    """Add the options for nodes, their labels and the language; the command gets `nodes` and `language`.

    The exit status is 2 if a rule has an error.
    """

    @wraps(command)
    def wrapper(
        node_paths: tuple[str, ...],
        rule_paths: tuple[str, ...],
        rule: str | None,
        rules_namespace: str,
        cluster: ClusterSource,
        lang: str,
        **others: Any,
    ) -> Any:
        language, source = Language(lang), RuleSource(rules_namespace, cluster)
        nodes = NodeSource(node_paths, source, rule_paths, rule, language)
        command(nodes=nodes, language=language, **others)
        if nodes.failed:
            sys.exit(BAD_INPUT)

    for option in (
        quiet_option,
        language_option,
        cluster_options,
        namespace_option,
        click.option(
            "--rule",
            type=RULE,
            metavar="NAME",
            help="Read labels as this rule defines them, if rules differ.",
        ),
        click.option(
            "--rules",
            "rule_paths",
            multiple=True,
            type=RULE_PATH,
            metavar="PATH",
            help="Read labels as these rules define them.  [default: the rules of the cluster, or the "
            "built-in rules]",
        ),
        nodes_option,
    ):
        wrapper = option(wrapper)
    return wrapper  # type: ignore[return-value]  # the command, with other arguments
