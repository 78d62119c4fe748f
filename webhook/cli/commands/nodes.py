"""`gpugate nodes`: what the nodes offer, and which of their labels cannot be read."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, Final, TypeVar

import click

from rules.nodes.inventory import Inventory
from rules.nodes.label_families import LabelNames
from rules.nodes.node_capabilities import Offer, Problem
from rules.report.matrix import dotted, sort_key
from rules.schema.errors import suggestion
from webhook.cli.input.files import BAD_INPUT, RuleSource, load_inventory
from webhook.cli.input.options import cluster_options, namespace_option, nodes_option
from webhook.cli.output.console import BadInputError, complain, show_table

F = TypeVar("F", bound=Callable[..., Any])

UNKNOWN: Final = "-"
# Problems on stderr. One publisher's mistake is on every node, so the first say it all.
_MOST_PROBLEMS: Final = 10


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


@click.command()
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@node_options
def command(output: str, nodes: NodeSource) -> None:
    """List what nodes offer, equal ones as one class, from files or a cluster.

    Labels that cannot be read are told on stderr; what they would tell is unknown, `-`.

    \b
    Examples:
      gpugate nodes --context production
      kubectl get nodes -o yaml | gpugate nodes --nodes -
      gpugate nodes --nodes nodes.yaml -o json | jq -r '.classes[] | select(.cuda == null) | .nodes[]'
    """
    inventory, labels = nodes.inventory(), nodes.labels()
    classes = sorted(inventory.classes(inventory.everything, labels), key=lambda each: sort_key(each.offer))
    unread = inventory.problems(labels)
    if output == "json":
        found = [_facts(each.offer) | {"nodes": sorted(inventory.names(each.members))} for each in classes]
        problems = [
            {"node": problem.node, "label": problem.key, "value": problem.value} for problem in unread
        ]
        click.echo(json.dumps({"classes": found, "problems": problems}, ensure_ascii=False))
        return
    show_table([_row(each.offer, each.members.bit_count()) for each in classes])
    _report(unread)


def _facts(offer: Offer) -> dict[str, Any]:
    return {
        "product": offer.product,
        "driver": offer.driver,
        "cuda": dotted(offer.cuda),
        "compute": dotted(offer.compute_capability),
        "memoryMiB": offer.memory_mib,
        "mig": offer.mig_strategy,
        "slices": offer.mig_devices or None,
        "sharing": offer.sharing_strategy,
        "mode": offer.device_mode,
    }


def _row(offer: Offer, nodes: int) -> dict[str, str]:
    facts = _facts(offer)
    memory, slices = facts.pop("memoryMiB"), facts.pop("slices")
    facts["memory"] = None if memory is None else f"{memory}Mi"
    facts["mig"] = ", ".join(filter(None, [facts["mig"], "slices" if slices else None]))
    columns = ("product", "driver", "cuda", "compute", "memory", "mig", "sharing", "mode")
    return {"nodes": str(nodes)} | {name: str(facts[name] or UNKNOWN) for name in columns}


def _report(problems: tuple[Problem, ...]) -> None:
    """Say on stderr what cannot be read."""
    head = click.style("warning:", fg="yellow")
    for node, label, value in problems[:_MOST_PROBLEMS]:
        text = f"node {node!r:.80}: label {label!r:.80} cannot be read: {value!r:.80}"
        click.echo(f"{head} {text}", err=True)
    if len(problems) > _MOST_PROBLEMS:
        more = len(problems) - _MOST_PROBLEMS
        click.echo(f"{head} {more} more cannot be read; -o json lists all", err=True)
