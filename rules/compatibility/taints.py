"""What is said if a pod tolerates none of the compatible nodes: the check `taints`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rules.compatibility.node_evaluation import EvaluationRequest, NodeEvaluator
from rules.compatibility.pod_request import PodRequest
from rules.compatibility.prospects import ProspectResult
from rules.compatibility.result import UntoleratedTaints
from rules.kube.tolerations import Taint, tolerates
from rules.model.check_result import Level
from rules.model.decision import AdmissionWarning, Basis, Violation, Wording
from rules.model.rule import Action, CompatibilityRule, mildest
from rules.nodes.label_families import TOLERATIONS_RULE, gpu_resource_domains, gpu_tolerations
from rules.text.paths import field_path

_SETTING = "checks.taints"


def untolerated_nodes(
    asked: PodRequest, evaluator: NodeEvaluator, request: EvaluationRequest, nodes: int
) -> Violation | AdmissionWarning | None:
    """Return what is said of a pod that does not tolerate the compatible ones of some nodes."""
    if (found := _strictest(asked, evaluator)) is None:
        return None
    classes = evaluator.class_results(request.required, nodes)
    compatible = [each for each in classes if each.level is not Level.INCOMPATIBLE]
    members = sum(each.members for each in compatible)
    taints = _untolerated(asked, evaluator.inventory.taint_sets(members))
    return _said(asked, *found, asked.writer.untolerated(request.required, compatible, taints))


def untolerated_pools(
    asked: PodRequest, evaluator: NodeEvaluator, prospects: Sequence[ProspectResult]
) -> Violation | AdmissionWarning | None:
    """Return what is said of a pod that does not tolerate new nodes that may be compatible."""
    if (found := _strictest(asked, evaluator)) is None:
        return None
    taints = _untolerated(asked, [each.pool.taints for each in prospects])
    return _said(asked, *found, asked.writer.untolerated_pools(prospects, taints))


def _strictest(asked: PodRequest, evaluator: NodeEvaluator) -> tuple[CompatibilityRule, Level] | None:
    """Return the rule with the strictest effect, with its level; None if nothing is said or counted.

    Where an autoscaler may add nodes of which nothing is known, no rule denies.
    """
    found: list[tuple[Action, CompatibilityRule, Level]] = []
    for each in asked.containers:
        rule, level = each.rule, each.rule.sharing.checks.taints
        if level is Level.INCOMPATIBLE and evaluator.without_node(each) not in (rule.action, Action.DENY):
            level = Level.UNSTABLE
        action = rule.action if level is Level.INCOMPATIBLE else mildest(rule.action, Action.WARN)
        if level is Level.INCOMPATIBLE or (level is Level.UNSTABLE and action is not Action.DRYRUN):
            found.append((action, rule, level))
    if not found:
        return None
    _, rule, level = min(found, key=lambda each: list(Action).index(each[0]))
    return rule, level


def _said(
    asked: PodRequest, rule: CompatibilityRule, level: Level, said: Wording
) -> Violation | AdmissionWarning:
    if level is not Level.INCOMPATIBLE:
        return AdmissionWarning(rule.name, *said)
    path = field_path((*asked.pod.containers[0].path[:-2], "tolerations"))
    said = said._replace(fix=asked.writer.with_policy(said.fix, _SETTING))
    return Violation(rule.name, rule.action, path, *said, asked.writer.language, Basis.POLICY)


def _untolerated(asked: PodRequest, sets: Iterable[Iterable[Taint]]) -> UntoleratedTaints:
    """Return the taints that a pod does not tolerate. sets: those of each kind of compatible nodes."""
    tolerations = asked.spec.get("tolerations")
    lacking = [sorted(each for each in taints if not tolerates(tolerations, [each])) for taints in sets]
    fewest = min(lacking, key=lambda each: (len(each), each))
    return UntoleratedTaints(
        tuple(sorted({each for taints in lacking for each in taints})),
        tuple(dict.fromkeys(map(_toleration, fewest))),
        tolerates(gpu_tolerations(), fewest),
        TOLERATIONS_RULE,
    )


def _toleration(taint: Taint) -> str:
    """Return a toleration of a taint as YAML: of any value, if the taint is for GPUs, or has none."""
    if taint.value and taint.key.partition("/")[0] not in gpu_resource_domains():
        return f"{{key: {taint.key}, value: {taint.value}, effect: {taint.effect}}}"
    return f"{{key: {taint.key}, operator: Exists, effect: {taint.effect}}}"
