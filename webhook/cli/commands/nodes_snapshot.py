"""`gpugate nodes snapshot`: nodes without their names, as a small file for CI."""

from __future__ import annotations

import click

from rules.nodes.label_families import LabelNames
from rules.nodes.snapshot import snapshot
from webhook.cli.inputs.options import label_options, output_option
from webhook.cli.inputs.session import Session, with_session
from webhook.cli.terminal.console import print_document, print_summary
from webhook.cli.terminal.vocabulary import NO_LABELS, SNAPSHOT_WRITTEN


@click.command()
@click.option(
    "--anonymize",
    multiple=True,
    metavar="GLOB",
    help="Replace the values of these labels, too, such as 'topology.kubernetes.io/*'; may be repeated.",
)
@output_option("yaml", "json")
@label_options
@with_session
def command(anonymize: tuple[str, ...], output: str, session: Session) -> None:
    """Print nodes, NodePools and the like, and devices without what identifies them, for --nodes in CI.

    Only what a decision reads is left: labels, taints, extended resources and readiness of nodes. Names of
    nodes are replaced by node-1, node-2, … in their order. Values of labels are replaced if they are the
    hostname, the name of the node, or contain a UUID, an IP address or an ID of AWS; equal values become
    equal ones. Other labels keep their values, because pods select nodes by them. Read the file before you
    publish it.

    A pod gets the same result as with the original, except if it selects a replaced value. NodeProfiles are
    rules: give them with --rules.

    \b
    Examples:
      gpugate nodes snapshot --context production > nodes.yaml
      gpugate nodes snapshot --context production --anonymize 'topology.kubernetes.io/*' -o json > nodes.json
      kubectl get nodes,nodepools -o yaml | gpugate nodes snapshot --nodes - > nodes.yaml
      gpugate preview -f deployment.yaml --nodes nodes.yaml
    """
    session.present_nodes()
    # Labels by which some rule reads a fact keep their values.
    labels = {rule.sharing.labels for rule in session.label_rules.compatibility} | {LabelNames()}
    anonymized = snapshot(session.node_objects, anonymize, labels)
    print_document({"apiVersion": "v1", "kind": "List", "items": anonymized.items}, output)
    counts = {"nodes": len(anonymized.names), "others": len(anonymized.items) - len(anonymized.names)}
    print_summary(SNAPSHOT_WRITTEN.having(**counts, labels=", ".join(anonymized.replaced) or NO_LABELS))
