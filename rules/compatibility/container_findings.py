"""Findings on containers that hold on every node, such as more GPUs than any node has."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from rules.compatibility.checks import check_on_any_node
from rules.compatibility.checks.gpu_memory import too_much_memory, too_much_together
from rules.compatibility.checks.shared_gpu_count import may_share_one, too_many
from rules.compatibility.node_evaluation import NodeEvaluator
from rules.compatibility.report import MessageWriter
from rules.compatibility.result import ExcessiveRequest, RuleRequirement
from rules.cuda.gpu_memory import MIB, RequestedMemory, is_of_bytes, requested_memory
from rules.cuda.requirements import shared_resources
from rules.kube.pod import Container, ContainerKind, Pod
from rules.model.check_result import OFF, CheckResult, Level
from rules.model.finding import Finding, notice
from rules.model.rule import Action, CompatibilityRule, mildest
from rules.nodes.gpu_resources import (
    Amounts,
    quantity_of,
    requested_gpus,
    requested_resources,
)
from rules.nodes.node_selector import candidates
from rules.text.i18n import Line
from rules.text.paths import Path

# GPUs of one node at most.
_MOST_GPUS: Final = 16
_STRICTEST_FIRST: Final = [*Action]


def report_findings(
    results: Iterable[tuple[Container, CompatibilityRule, CheckResult]], writer: MessageWriter
) -> Iterator[Finding]:
    """Yield a finding for each result on a container, each once: by the rule that is strictest."""

    def effect(of_rule: tuple[Container, CompatibilityRule, CheckResult]) -> int:
        _, rule, result = of_rule
        action = rule.action if result.level is Level.INCOMPATIBLE else mildest(rule.action, Action.WARN)
        return _STRICTEST_FIRST.index(action)

    reported: set[tuple[Path, str]] = set()
    for container, rule, result in sorted(results, key=effect):
        key = result.path, result.reason.en
        if key not in reported:
            reported.add(key)
            if result.level is Level.INCOMPATIBLE or rule.action is not Action.DRYRUN:
                yield writer.anywhere(rule, container, result)


def report_on_any_node(
    container: Container, required: RuleRequirement, writer: MessageWriter, findings: list[Finding]
) -> bool:
    """Add what holds on every node to the findings; return whether a requirement is unmet."""
    rule, requirements = required
    if requirements.declared and rule.declarations:
        findings.append(writer.declared(rule, rule.declarations, container, requirements.declared))
    results = check_on_any_node(rule.sharing, requirements)
    if not results and not requirements.problems:
        return False
    if rule.action is not Action.DRYRUN:
        findings += (notice(rule.name, Line("{text}", text=problem)) for problem in requirements.problems)
    unmet = False
    for result in results:
        unmet |= result.level is Level.INCOMPATIBLE
        if result.level is Level.INCOMPATIBLE or rule.action is not Action.DRYRUN:
            findings.append(writer.anywhere(rule, container, result))
    return unmet


def counted_amounts(pod: Pod, required: Iterable[RuleRequirement], names: Iterable[str]) -> Amounts:
    """Return how many of each resource the containers of a pod need at one time; none if no rule counts them.

    Those of which they need 0 are left out, and those with a quantity in bytes. Init containers run one after
    the other, before all others except the sidecars above them. Linear in the resources of all containers.
    """
    if all(requirement.rule.sharing.checks.gpu_count is OFF for requirement in required):
        return ()
    total = dict.fromkeys(names, 0)
    sidecars: dict[str, int] = {}
    most: dict[str, int] = {}
    in_bytes: set[str] = set()
    for container in pod.users:  # the init containers are last, in their order
        for name in container.names:
            if name not in total:
                continue
            quantity = container.request(name)
            if is_of_bytes(name, quantity):
                in_bytes.add(name)
            amount = quantity_of(quantity)
            if container.kind is ContainerKind.INIT:
                most[name] = max(most.get(name, 0), amount + sidecars.get(name, 0))
                continue
            total[name] += amount
            if container.kind is ContainerKind.SIDECAR:
                sidecars[name] = sidecars.get(name, 0) + amount
    if most:
        total |= {name: amount for name, amount in most.items() if amount > total[name]}
    return tuple([(name, amount) for name, amount in total.items() if amount and name not in in_bytes])


def selects_nodes(required: Iterable[RuleRequirement]) -> bool:
    """Return whether only nodes that have enough are candidates: a dry run of this check has no effect."""
    for requirement in required:
        sharing = requirement.rule.sharing
        if sharing.checks.gpu_count is not OFF and not sharing.trial:
            return True
    return False


def excess_findings(
    excess: Iterable[ExcessiveRequest],
    pod: Pod,
    required: Collection[RuleRequirement],
    evaluator: NodeEvaluator,
) -> Iterator[tuple[Container, CompatibilityRule, CheckResult]]:
    """Yield for each rule what a pod requests more of than any node has.

    Where an autoscaler may add nodes of which nothing is known, that is a warning, and so it is if only nodes
    of a cloud's pools are known: another pool, without nodes now, may have larger ones.
    """
    in_pools = evaluator.inventory.in_managed_pools
    rules = {requirement.rule: requirement for requirement in required}.values()
    first: dict[str, Container] = {}
    for container in pod.users:
        for name in container.names:
            first.setdefault(name, container)
    for excessive in excess:
        container = first[excessive.resource]
        own = quantity_of(container.request(excessive.resource))
        field = "limits" if excessive.resource in container.limits else "requests"
        path = container.resource_path(field, excessive.resource)
        for requirement in rules:
            denies = evaluator.without_node(requirement) in (requirement.rule.action, Action.DENY)
            unknown = in_pools and requirement.rule.no_fitting_node is None
            certain = excessive.certain and denies and not unknown
            if result := too_many(requirement.rule.sharing, excessive, own, certain=certain):
                yield container, requirement.rule, replace(result, path=path)


# A container, and the memory that its share has.
_Share = tuple[Container, RequestedMemory]


def memory_findings(
    pod: Pod,
    containers: Mapping[RuleRequirement, Sequence[Container]],
    evaluator: NodeEvaluator,
    excessive: Collection[str],
) -> Iterator[tuple[Container, CompatibilityRule, CheckResult]]:
    """Yield for each container that its share has more memory than any GPU of the nodes.

    If none has, also that the containers of the pod together request more than all GPUs of any node have, of
    a resource that no node counts: only the scheduler that shares the GPUs does. Nothing if the memory of a
    GPU is unknown, or if nodes may be added. excessive: resources of which no node has enough.
    """
    if evaluator.prospects or evaluator.undeclared:
        return
    shares = defaultdict[tuple[CompatibilityRule, str], list[_Share]](list)
    for required, users in containers.items():
        for container in users:
            share = requested_memory(container)
            if share is None or not share.unit or share.resource in excessive:
                continue
            if any(
                name in names
                for name in share.several
                for names in (container.names, pod.labels, pod.annotations)
            ):
                continue
            shares[required.rule, share.resource].append((container, share))
    for (rule, resource), requests in shares.items():
        single = [(container, _too_much(rule, container, share, evaluator)) for container, share in requests]
        for container, result in single:
            if result:
                yield container, rule, _at(container, resource, result)
        together = [request for request in requests if request[0].kind is not ContainerKind.INIT]
        if len(together) < 2 or any(result for _, result in single) or not evaluator.uncounted((resource,)):
            continue
        if result := _too_much_together(rule, together, evaluator):
            yield together[0][0], rule, _at(together[0][0], resource, result)


def _too_much(
    rule: CompatibilityRule, container: Container, share: RequestedMemory, evaluator: NodeEvaluator
) -> CheckResult | None:
    """Return that a share has more memory than any GPU of the nodes that may have it."""
    most = evaluator.largest_memory((requested_resources(container), rule.sharing.labels))
    if most is None or share.mib <= most:
        return None
    offered = evaluator.inventory.largest_amount(share.resource) * share.unit // MIB
    if offered > _MOST_GPUS * most:
        return None  # a setting of the cluster makes the unit smaller
    return too_much_memory(rule.sharing, share, most)


def _too_much_together(
    rule: CompatibilityRule, requests: list[_Share], evaluator: NodeEvaluator
) -> CheckResult | None:
    """Return that containers together request more memory than all GPUs of any node have."""
    nodes, total = evaluator.inventory.everything, 0
    for container, share in requests:
        gpus, names = requested_gpus(container), requested_resources(container)
        total += share.mib * (gpus.devices if gpus else 1)
        nodes &= evaluator.offering(names) | evaluator.returning(names)
    most = 0
    for node_class in evaluator.inventory.classes(nodes, rule.sharing.labels):
        memory = node_class.capabilities.gpu_memory_mib
        count = evaluator.inventory.most_gpus(node_class.members)
        if memory is None or not count:
            return None
        most = max(most, memory * count)
    return too_much_together(rule.sharing, requests[0][1], total, most) if most else None


def _at(container: Container, resource: str, result: CheckResult) -> CheckResult:
    return replace(result, path=container.resource_path("limits", resource))


def shared_gpu_findings(
    pod: Pod, required: Iterable[RuleRequirement], evaluator: NodeEvaluator
) -> Iterator[tuple[Container, CompatibilityRule, CheckResult]]:
    """Yield for each rule that several containers of a pod may get one GPU.

    Init containers run one after the other, before the others.
    """
    if len(pod.users) == 1:
        return
    running = [container for container in pod.users if container.kind is not ContainerKind.INIT]
    rules = dict.fromkeys(requirement.rule for requirement in required)
    for resource in shared_resources():
        together = [container for container in running if resource in container.names]
        if len(together) < 2:
            continue
        nodes = candidates(evaluator.inventory, pod.spec) & evaluator.offering((resource,))
        for rule in rules:
            if not rule.match.is_for((resource,)):
                continue
            classes = evaluator.inventory.classes(nodes, rule.sharing.labels)
            capabilities = [node_class.capabilities for node_class in classes]
            if result := may_share_one(rule.sharing, resource, len(together), capabilities):
                field = "limits" if resource in together[0].limits else "requests"
                path = together[0].resource_path(field, resource)
                yield together[0], rule, replace(result, path=path)
