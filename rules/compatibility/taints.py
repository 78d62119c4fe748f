"""Why a pod that is not denied stays Pending: taints of the compatible nodes, or GPUs in use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from rules.compatibility.checks.driver_support import unsupported_gpu
from rules.compatibility.node_evaluation import COMPARED, NodeEvaluator, NodeQuery
from rules.compatibility.prospects import ProspectResult
from rules.compatibility.report import (
    EXCLUDED,
    NOT_IN_FILE,
    NOT_OF_PRESET,
    NOT_OFFERED,
    NOT_READY,
    NOT_TOGETHER,
    ONLY_SHARES,
    SIMILAR_OFFERED,
    TOO_FEW,
    TOO_FEW_NOW,
    MessageWriter,
    PodDemand,
)
from rules.compatibility.result import NodeSetResult, UntoleratedTaints
from rules.cuda.mig_profiles import gpu_of, profile_of
from rules.kube.tolerations import Taint, tolerates
from rules.model.check_result import Level
from rules.model.finding import Basis, Finding
from rules.model.rule import Action, CompatibilityRule, mildest
from rules.nodes.gpu_resources import gpu_resources
from rules.nodes.inventory import Inventory, NodeClass
from rules.nodes.label_families import (
    TOLERATIONS_RULE,
    gpu_resource_domains,
    gpu_tolerations,
)
from rules.nodes.node_capabilities import NodeCapabilities
from rules.nodes.node_selector import excluding
from rules.text.i18n import Line, Message
from rules.text.paths import field_path

_SETTING = "checks.taints"


def untolerated_nodes(
    demand: PodDemand, evaluator: NodeEvaluator, query: NodeQuery, nodes: int
) -> list[Finding]:
    """Return the finding that a pod does not tolerate the compatible ones of some nodes."""
    if (strictest := _strictest(demand, evaluator)) is None:
        return []
    rule, level = strictest
    classes = evaluator.class_results(query.required, nodes)
    compatible = [node_class for node_class in classes if node_class.level is not Level.INCOMPATIBLE]
    members = sum(node_class.members for node_class in compatible)
    taints = _untolerated(demand, evaluator.inventory.taint_sets(members))
    finding = demand.writer.untolerated(rule, query.required, compatible, taints)
    return [_at_level(demand, rule, level, finding)]


def untolerated_pools(
    demand: PodDemand, evaluator: NodeEvaluator, prospects: Sequence[ProspectResult]
) -> list[Finding]:
    """Return the finding that a pod does not tolerate new nodes that may be compatible."""
    if (strictest := _strictest(demand, evaluator)) is None:
        return []
    rule, level = strictest
    taints = _untolerated(demand, [prospect.pool.taints for prospect in prospects])
    finding = demand.writer.untolerated_pools(rule, prospects, taints)
    return [_at_level(demand, rule, level, finding)]


def _strictest(demand: PodDemand, evaluator: NodeEvaluator) -> tuple[CompatibilityRule, Level] | None:
    """Return the rule with the strictest effect, with its level; None if nothing is said or counted.

    Where an autoscaler may add nodes of which nothing is known, no rule denies.
    """
    effects: list[tuple[Action, CompatibilityRule, Level]] = []
    for requirement in demand.containers:
        rule, level = requirement.rule, requirement.rule.sharing.checks.taints
        if level is Level.INCOMPATIBLE and evaluator.without_node(requirement) not in (
            rule.action,
            Action.DENY,
        ):
            level = Level.UNSTABLE
        action = rule.action if level is Level.INCOMPATIBLE else mildest(rule.action, Action.WARN)
        if level is Level.INCOMPATIBLE or (level is Level.UNSTABLE and action is not Action.DRYRUN):
            effects.append((action, rule, level))
    if not effects:
        return None
    _, rule, level = min(effects, key=lambda effect: list(Action).index(effect[0]))
    return rule, level


def _at_level(demand: PodDemand, rule: CompatibilityRule, level: Level, notice: Finding) -> Finding:
    """Return a notice, or the violation that it is if the rule says so."""
    if level is not Level.INCOMPATIBLE:
        return notice
    path = field_path((*demand.pod.containers[0].path[:-2], "tolerations"))
    fix = demand.writer.with_policy(notice.fix, _SETTING)
    return notice._replace(action=rule.action, path=path, fix=fix, basis=Basis.POLICY)


def _untolerated(demand: PodDemand, sets: Iterable[Iterable[Taint]]) -> UntoleratedTaints:
    """Return the taints that a pod does not tolerate. sets: those of each kind of compatible nodes."""
    tolerations = demand.spec.get("tolerations")
    lacking = [sorted(taint for taint in taints if not tolerates(tolerations, [taint])) for taints in sets]
    fewest = min(lacking, key=lambda missing: (len(missing), missing))
    return UntoleratedTaints(
        tuple(sorted({taint for taints in lacking for taint in taints})),
        tuple(dict.fromkeys(map(_toleration, fewest))),
        tolerates(gpu_tolerations(), fewest),
        TOLERATIONS_RULE,
    )


def _toleration(taint: Taint) -> str:
    """Return a toleration of a taint as YAML: of any value, if the taint is for GPUs, or has none."""
    if taint.value and taint.key.partition("/")[0] not in gpu_resource_domains():
        return f"{{key: {taint.key}, value: {taint.value}, effect: {taint.effect}}}"
    return f"{{key: {taint.key}, operator: Exists, effect: {taint.effect}}}"


def pending(
    demand: PodDemand,
    evaluator: NodeEvaluator,
    query: NodeQuery,
    result: NodeSetResult,
    prospects: Sequence[ProspectResult],
) -> list[Finding]:
    """Return why a pod stays Pending for now, unless all rules are dry runs."""
    reporting = (
        requirement
        for requirement in demand.containers
        if evaluator.without_node(requirement) is not Action.DRYRUN
    )
    if (first := next(reporting, None)) is None:
        return []
    writer = demand.writer
    if result.returning:
        return [writer.returning(first.rule, result.returning)]
    if any(prospect.level is Level.UNKNOWN for prospect in prospects):
        return [writer.may_come(first.rule, prospects)]
    if prospects and not query.returning:  # a denial, which names the pools
        return []
    return [_no_candidates(demand, evaluator, first.rule, query.returning)]


def _no_candidates(
    demand: PodDemand, evaluator: NodeEvaluator, rule: CompatibilityRule, returning: int
) -> Finding:
    """Return why no node is a candidate. returning: those that may be one again."""
    requests, writer = demand.requests, demand.writer
    if returning:
        names = tuple(dict.fromkeys(demand.resources))
        offering = evaluator.offering(names)
        why = TOO_FEW_NOW if returning & offering else NOT_READY
        if offering & ~evaluator.having(demand.amounts)[0]:
            names = tuple(_with_amounts(names, demand, evaluator))
        notice = writer.no_candidates(rule, requests[0][0], why, names, nodes=returning.bit_count())
        classes = evaluator.inventory.classes(returning, rule.sharing.labels)
        return _with_cause(notice, [node_class.capabilities for node_class in classes])
    nodes, together = evaluator.offering(()), dict[str, None]()
    for container, names in requests:
        offered = [name for name in names if evaluator.offering((name,))]
        if not offered:
            similar = evaluator.similar(tuple(filter(demand.comparisons.admits, names[:COMPARED])))
            notice = _not_offered(writer, evaluator.inventory, rule, container, names, similar=similar)
            other = _other_profiles(evaluator.inventory, rule, names, dict(demand.amounts))
            return notice._replace(fix=Line("{text}", text=other)) if other else notice
        together |= dict.fromkeys(offered)
        nodes &= evaluator.offering(names)
        if not nodes:
            return writer.no_candidates(rule, container, NOT_TOGETHER, tuple(together))
    resources, enough = [*together], nodes & evaluator.having(demand.amounts)[0]
    if enough != nodes:
        resources = [*_with_amounts(together, demand, evaluator)]
    if not enough:
        return writer.no_candidates(rule, requests[0][0], TOO_FEW, resources)
    parts = writer.parts(excluding(evaluator.inventory, demand.spec, enough))
    facts = {"nodes": enough.bit_count(), "parts": parts}
    return writer.no_candidates(rule, requests[0][0], EXCLUDED, resources, **facts)


def _other_profiles(
    inventory: Inventory, rule: CompatibilityRule, names: tuple[str, ...], amounts: Mapping[str, int]
) -> Message | None:
    """Return that the GPUs of nodes lack a requested MIG profile, or have fewer devices of it.

    None if they have, or it is unknown. amounts: of resources, that a node must have.
    """
    name, profile = next(((name, text) for name in names[:COMPARED] if (text := profile_of(name))), ("", ""))
    if not profile:
        return None
    classes = inventory.classes(inventory.everything, rule.sharing.labels)
    products = {node_class.capabilities.product for node_class in classes} - {None}
    gpus = {gpu_of(product) for product in products if product}
    known = sorted({gpu for gpu in gpus if gpu}, key=lambda gpu: gpu.name)
    if any(profile in gpu.profiles for gpu in known):
        return _too_many_devices(inventory, classes, profile, amounts.get(name, 1))
    if not known:
        return None
    first = known[0]
    return Message(
        "the {gpu} of the nodes has no MIG profile {profile}; it has {profiles}",
        profile=profile,
        gpu=first.name,
        profiles=", ".join(first.profiles),
    )


def _too_many_devices(
    inventory: Inventory, classes: Iterable[NodeClass], profile: str, amount: int
) -> Message | None:
    """Return that no node can have an amount of MIG devices, however partitioned; None if one may have it.

    The number of GPUs is that of a label, which counts no fewer; nothing is said of a node without it.
    """
    largest: tuple[int, int, str] = (0, 0, "")
    for node_class in classes:
        gpu = gpu_of(node_class.capabilities.product or "")
        if gpu is None or not (of_one := gpu.profiles.get(profile)):
            continue
        if (gpus := inventory.most_gpus(node_class.members)) is None:
            return None
        largest = max(largest, (gpus * of_one, of_one, gpu.name))
    most, of_one, gpu_name = largest
    if amount <= most:
        return None
    return Message(
        "one {gpu} has at most {of_one} of {profile}, a node at most {most}; "
        "request at most {most} in one pod",
        gpu=gpu_name,
        of_one=of_one,
        profile=profile,
        most=most,
    )


def _not_offered(  # noqa: PLR0913 - the first two are what it depends on
    writer: MessageWriter,
    inventory: Inventory,
    rule: CompatibilityRule,
    container: str,
    names: tuple[str, ...],
    *,
    similar: str,
) -> Finding:
    """Return the notice that no node offers any of a container's resources. similar: one that some do."""
    requested = [gpu for _, gpu in gpu_resources(names[:COMPARED]).resources]
    whole = next((gpu.shares for gpu in requested if gpu.shares), "")
    # Some installations count the devices by another resource.
    if whole and not any(gpu.units for gpu in requested):
        return writer.no_candidates(rule, container, ONLY_SHARES, names, whole=whole)
    if similar:
        return writer.no_candidates(rule, container, SIMILAR_OFFERED, names, similar=similar)
    if inventory.source and (nodes := inventory.everything.bit_count()):
        facts = {"nodes": nodes, "source": inventory.source}
        why = NOT_OF_PRESET if len(inventory.presets) == nodes else NOT_IN_FILE
        return writer.no_candidates(rule, container, why, names, **facts)
    return writer.no_candidates(rule, container, NOT_OFFERED, names)


def _with_cause(notice: Finding, nodes: Iterable[NodeCapabilities]) -> Finding:
    """Return a notice with the reason if the nodes offer nothing because their drivers ignore their GPUs."""
    reasons = [unsupported_gpu(capabilities) for capabilities in nodes]
    first = reasons[0]
    return (
        notice if first is None or None in reasons else notice._replace(fix=Line("{text}", text=first.reason))
    )


def _with_amounts(names: Iterable[str], demand: PodDemand, evaluator: NodeEvaluator) -> Iterator[str]:
    """Yield resources, each with its amount if nodes are compared by it."""
    amounts = dict(demand.amounts)
    for name in names:
        amount = amounts.get(name, 1) if evaluator.inventory.largest_amount(name) else 1
        yield f"{amount} {name}" if amount > 1 else name
