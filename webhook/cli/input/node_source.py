"""Nodes that commands read, and the rules that say what their labels mean."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar

import click

from rules import Inventory
from rules.nodes.label_families import LabelNames
from rules.schema.errors import suggestion
from webhook.cli.input.files import BAD_INPUT, RuleSource, load_inventory
from webhook.cli.input.options import cluster_options, namespace_option, nodes_option
from webhook.cli.output.console import BadInputError, complain

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(slots=True)
class NodeSource:
    """What the options say of nodes, and by which rules their labels are read; see their help.

    failed: whether something is wrong with a rule.
    """

    paths: tuple[str, ...]
    rules: RuleSource
    rule_paths: tuple[str, ...]
    rule: str | None
    failed: bool = False

    @property
    def named(self) -> bool:
        """Whether they name any nodes."""
        return bool(self.paths or self.rules.of_cluster)

    def inventory(self) -> Inventory:
        """Return the nodes in files or of a cluster, one at least. Raises BadInputError."""
        inventory = load_inventory(self.paths, self.rules.kubeconfig, self.rules.context)
        if not len(inventory):
            where = ", ".join(self.paths) or ("this cluster" if self.rules.of_cluster else "")
            raise BadInputError(
                f"{where}: no nodes"
                if where
                else "no nodes; name a file with --nodes or a cluster with --context"
            )
        return inventory

    def labels(self) -> LabelNames:
        """Return which labels tell what, as the rules have it. Raises BadInputError where they differ."""
        if not (self.rule_paths or self.rule or self.rules.of_cluster):
            return LabelNames()  # as the rules that ship have it
        loaded = self.rules.load(self.rule_paths)
        for error in loaded.errors:
            complain(str(error))
            self.failed = True
        rules = {rule.name: rule for rule in loaded.rules.compatibility if rule.enabled}
        if self.rule and self.rule not in rules:
            hint = suggestion(self.rule, rules)
            raise BadInputError(f"no compatibility rule {self.rule!r} is in force{hint}")
        chosen = [rules[self.rule]] if self.rule else rules.values()
        found = {rule.terms.labels: rule.name for rule in chosen}
        if len(found) > 1:
            names = ", ".join(found.values())
            raise BadInputError(f"rules read labels differently; name one with --rule: {names}")
        return next(iter(found), LabelNames())


def node_options(command: F) -> F:
    """Give a command the options for nodes and their labels; it gets them as `nodes`.

    A rule with a mistake makes the exit status 2.
    """

    @wraps(command)
    def chosen(
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
        click.option("--rule", metavar="NAME", help="As this rule does, where rules differ."),
        click.option(
            "--rules",
            "rule_paths",
            multiple=True,
            metavar="PATH",
            help="Read labels as these rules do.  [default: those of the cluster, or those that ship]",
        ),
        nodes_option,
    ):
        chosen = option(chosen)
    return chosen  # type: ignore[return-value]  # the command, with other arguments
