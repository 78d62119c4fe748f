"""Laws of agreement: the commands say the same of one pod, whatever its node and its state are."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from rules import Language, RuleSet
from tests.laws.test_inventory_laws import (
    EXAMPLES,
    clusters,
    inventory_of,
    pod_of,
    policy_of,
    rules,
    selecting,
    wishes,
)
from tests.support.reference_verdict import Cluster
from webhook.cli.evaluation.findings import evaluate
from webhook.cli.evaluation.workloads import WorkloadObject, workloads_in
from webhook.cli.input.cluster_source import NO_CLUSTER
from webhook.cli.input.decision_context import DecisionContext
from webhook.cli.input.quotas import Quotas
from webhook.cli.output.report_model import Finding

bound_to = st.sampled_from(["n0", "n1", "n2", "n9"])
selecting_pods = st.builds(pod_of, selecting, st.lists(wishes, min_size=1, max_size=2))


def context_of(cluster: Cluster, rule: int) -> DecisionContext:
    """Return rules and nodes as a command has them."""
    quotas = Quotas(NO_CLUSTER, Language.EN)
    return DecisionContext(RuleSet(), policy_of(rule)[0], inventory_of(cluster), quotas, nodes_given=True)


def audited(context: DecisionContext, document: dict[str, Any]) -> list[Finding]:
    """Return the findings of `audit` on a pod that a cluster has."""
    workloads = workloads_in([WorkloadObject("", "Pod", document)])
    return [finding for each in evaluate(context, workloads) for finding, _ in each.findings()]


@settings(max_examples=EXAMPLES)
@given(clusters, selecting_pods, bound_to, rules)
def test_selectors_and_affinity_of_a_bound_pod_change_nothing(
    cluster: Cluster, document: dict[str, Any], node: str, rule: int
) -> None:
    """They are ignored during execution: the pod stays on its node, whatever labels that has now."""
    spec = document["spec"] | {"nodeName": node}
    free = {key: value for key, value in spec.items() if key not in ("nodeSelector", "affinity")}
    context = context_of(cluster, rule)

    assert audited(context, document | {"spec": free}) == audited(context, document | {"spec": spec})
