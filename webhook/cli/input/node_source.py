"""Nodes of commands, and the rules that define the meaning of their labels."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, TypeVar

import click

from rules import Inventory, RuleSet
from rules.model.rule import NodeProfile
from rules.nodes.label_families import LabelNames
from rules.schema.errors import suggestion
from webhook.cli.input.files import BAD_INPUT, RuleSource, load_inventory
from webhook.cli.input.options import cluster_options, namespace_option, nodes_option
from webhook.cli.output.console import BadInputError, print_error

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(slots=True)
class NodeSource:
    """The values of `node_options`; see their help. failed: whether a rule has an error."""

    paths: tuple[str, ...]
    rules: RuleSource
    rule_paths: tuple[str, ...]
    rule: str | None
    failed: bool = False
    _read: RuleSet | None = field(default=None, init=False)

    @property
    def named(self) -> bool:
        """Whether the options select nodes."""
        return bool(self.paths or self.rules.of_cluster)

    def inventory(self) -> Inventory:
        """Return the nodes and declared pools in files or of a cluster.

        Raises BadInputError, also if there are none.
        """
        inventory = load_inventory(self.paths, self.rules.kubeconfig, self.rules.context)
        if not (len(inventory) or inventory.declared.pools):
            where = ", ".join(self.paths) or ("this cluster" if self.rules.of_cluster else "")
            missing = "no nodes given (use --nodes FILE or --context NAME)"
            raise BadInputError(f"{where}: no nodes" if where else missing)
        return inventory

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
        if self._read is None:
            self._read = RuleSet()
            if self.rule_paths or self.rule or self.rules.of_cluster:
                loaded = self.rules.load(self.rule_paths)
                for error in loaded.errors:
                    print_error(str(error))
                    self.failed = True
                self._read = loaded.rules
        return self._read


def node_options(command: F) -> F:
    """Add the options for nodes and their labels; the command gets them as `nodes`.

    The exit status is 2 if a rule has an error.
    """

    @wraps(command)
    def wrapper(
        node_paths: tuple[str, ...],
        rule_paths: tuple[str, ...],
        rule: str | None,
        rules_namespace: str,
        kubeconfig: str | None,
        context: str | None,
        **others: Any,
    ) -> Any:
        nodes = NodeSource(node_paths, RuleSource(rules_namespace, kubeconfig, context), rule_paths, rule)
        command(nodes=nodes, **others)
        if nodes.failed:
            sys.exit(BAD_INPUT)

    for option in (
        cluster_options,
        namespace_option,
        click.option(
            "--rule", metavar="NAME", help="Read labels as this rule defines them, if rules differ."
        ),
        click.option(
            "--rules",
            "rule_paths",
            multiple=True,
            metavar="PATH",
            help="Read labels as these rules define them.  [default: the rules of the cluster, or the "
            "built-in rules]",
        ),
        nodes_option,
    ):
        wrapper = option(wrapper)
    return wrapper  # type: ignore[return-value]  # the command, with other arguments
