"""Compatibility of containers with the devices that their resource claims may be given.

A claim chooses its device itself: it is never changed, and node affinity does not replace its selectors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, NamedTuple

from rules.compatibility.checks.gpu_settings import of_claims
from rules.compatibility.container_findings import report_findings
from rules.compatibility.node_evaluation import NodeEvaluator, node_evaluator, results_on
from rules.compatibility.prospects import NO_PROSPECTS, Prospects
from rules.compatibility.report import MessageWriter
from rules.compatibility.result import (
    CheckedDevices,
    ClaimAllowance,
    NodeClassResult,
    NodeSetResult,
    RuleRequirement,
)
from rules.cuda.gpu_memory import MIB, shown
from rules.cuda.requirements import GpuRequirements
from rules.kube.pod import Container, Pod
from rules.kube.resource_quota import quantity_text
from rules.model.check_result import Level, level_of
from rules.model.finding import Finding
from rules.model.rule import Action
from rules.nodes.devices.claims import (
    TOO_MANY,
    Candidate,
    ClaimRequest,
    ExcludedDevice,
    FailedSelector,
    PodClaim,
    candidates,
)
from rules.nodes.devices.device_classes import IMPLICIT_PREFIX
from rules.nodes.devices.device_configs import type_of_class
from rules.nodes.devices.devices import DeviceKind, facts_of, gpu_drivers
from rules.nodes.devices.selectors import memory_selector, minimum_selector
from rules.nodes.inventory import Inventory
from rules.nodes.node_selector import candidates as candidate_nodes
from rules.text.i18n import Message
from rules.text.paths import field_path

# The driver whose devices a selector is suggested for if it is unknown which are meant.
_DRIVER: Final = next(iter(gpu_drivers()))
_SMALL_PART: Final = Message(
    "the claim has {part} of the memory of a device, and the container needs {needed}"
)
_NO_DEVICE: Final = Message("no device that it selects is on a node that the pod can use")


class ClaimUse(NamedTuple):
    """A container that a rule applies to, and the claims that it uses, each with the requests it uses."""

    container: Container
    required: RuleRequirement
    claims: tuple[PodClaim, ...]


# Claims by their id, each with the resources that stand for its device classes.
KnownResources = dict[int, tuple[PodClaim, dict[str, None]]]


class _Judged(NamedTuple):
    """Devices that a request may be given, and what they are for a container."""

    kind: DeviceKind
    nodes: NodeClassResult
    certain: bool
    too_little: Message | None = None  # the claim has less of their memory than the container needs

    @property
    def level(self) -> Level:
        """The level on these devices; what is perhaps not given, or changes, is unknown."""
        if self.too_little and self.nodes.level <= Level.UNSTABLE:
            return Level.UNKNOWN
        return self.nodes.level if self.certain else Level.UNKNOWN


def resources_of(claims: Iterable[PodClaim], known: KnownResources | None = None) -> tuple[str, ...]:
    """Return the extended resources that stand for the device classes of claims, which rules match.

    A claim of which the class is unknown has the one without a class. known: what is found, for the other
    containers of a pod.
    """
    resources: dict[str, None] = {}
    known = {} if known is None else known
    for claim in claims:
        if id(claim) not in known:
            names = [
                alternative.device_class for request in claim.requests for alternative in request.alternatives
            ]
            known[id(claim)] = claim, dict.fromkeys(IMPLICIT_PREFIX + name for name in names or [""])
        resources |= known[id(claim)][1]
    return tuple(resources)


def evaluate_claims(
    uses: Sequence[ClaimUse],
    pod: Pod,
    inventory: Inventory,
    prospects: Prospects = NO_PROSPECTS,
    *,
    allowance: ClaimAllowance | None = None,
) -> list[Finding]:
    """Return the findings on containers with claims. prospects: as in `evaluate`.

    The time is linear in requests times the kinds of devices in the cluster, which has a bound: the claims
    beyond it are not checked. allowance: what is left of it for an object of several pods.
    """
    allowance = allowance or ClaimAllowance()
    kinds = len(inventory.dra.devices.by_kind) + len(inventory.dra.devices.elsewhere)
    evaluator = node_evaluator(inventory, prospects)
    allowed = candidate_nodes(inventory, pod.spec)
    findings: list[Finding] = []
    for use in uses:
        writer = MessageWriter()
        writer.containers = {use.required: [use.container]}
        checked = allowance.checked.setdefault(use.required, {})
        judge = _Judge(use, evaluator, allowed, pod.spec, writer, checked)
        for claim in use.claims:
            allowance.left -= 1 + kinds * sum(
                len(claim_request.alternatives) for claim_request in claim.requests
            )
            if allowance.left < 0:
                findings += judge.unknown(claim.name, TOO_MANY)
                break
            if claim.unknown:
                findings += judge.unknown(claim.name, claim.unknown)
            for request in claim.requests:
                findings += judge.judge(claim.name, request)
        if allowance.left < 0:
            break
        rule = use.required.rule
        results = of_claims(rule.sharing, use.container, use.claims)
        findings += report_findings([(use.container, rule, result) for result in results], writer)
    return findings


class _Judge(NamedTuple):
    """Judges the requests of one container.

    allowed: the nodes that the pod's own selectors allow. checked: results for equal requirements.
    """

    use: ClaimUse
    evaluator: NodeEvaluator
    allowed: int
    spec: Mapping[str, Any]
    writer: MessageWriter
    checked: CheckedDevices

    def judge(self, claim: str, request: ClaimRequest) -> list[Finding]:
        """Return the findings on one request."""
        if request.admin or not self._may_be_gpu(request):
            return []
        dra = self.evaluator.inventory.dra
        selected, unknown, failed, excluded = candidates(request, dra.classes, dra.devices)
        failing = [*self._failed(claim, failed)]
        judged = list(self._judged(selected))
        fit = [devices for devices in judged if devices.level <= Level.UNSTABLE]
        # Several alternatives may select the same devices.
        unfit = list(
            {devices.kind: devices for devices in judged if devices.level is Level.INCOMPATIBLE}.values()
        )
        doubtful = [devices for devices in judged if devices.level is Level.UNKNOWN]
        if request.allocated and unfit:
            return self._denied(claim, request, unfit)
        if not unfit:
            if fit or (failing and not unknown and not doubtful):
                return failing
            reasons = [
                *unknown,
                *(reason for devices in doubtful for reason in _reasons(devices)),
                *self._excluded(excluded),
                _NO_DEVICE,
            ]
            return [*self.unknown(claim, reasons[0]), *failing]
        if fit or doubtful or unknown or self._may_come(request):
            return [*self._partly(claim, unfit), *failing]
        return self._denied(claim, request, unfit)

    def unknown(self, claim: str, why: Message) -> list[Finding]:
        """Return the notice that the devices of a claim were not checked, unless the rule is a dry run."""
        if self._action is Action.DRYRUN:
            return []
        return [self.writer.claim_unchecked(self.use.required.rule, claim, why)]

    @property
    def _action(self) -> Action:
        return self.evaluator.without_node(self.use.required)

    def _may_be_gpu(self, request: ClaimRequest) -> bool:
        """Return whether a request may be given GPUs."""
        names = {alternative.device_class for alternative in request.alternatives}
        return not names or any(map(self._may_be_gpus, names))

    def _may_be_gpus(self, device_class: str) -> bool:
        """Return whether devices of a class may be GPUs; of a class that is not known, its driver decides."""
        dra = self.evaluator.inventory.dra
        if device_class in dra.classes.by_name:
            return IMPLICIT_PREFIX + device_class in dra.gpu_resources
        devices = type_of_class(device_class)
        return devices is None or devices.driver in gpu_drivers()

    def _judged(self, selected: Iterable[Candidate]) -> Iterator[_Judged]:
        """Yield the candidates that are GPUs, on nodes that the pod can be on."""
        rule, requirements = self.use.required
        for candidate in selected:
            facts = facts_of(candidate.kind)
            if facts is None:
                continue
            nodes, ready = self.evaluator.nodes_of(candidate.kind)
            if candidate.nodes is not None and not nodes & self.allowed:
                continue
            if candidate.kind not in self.checked:
                gpu = self.evaluator.gpu_of(candidate.kind, facts)
                self.checked[candidate.kind] = gpu, results_on((rule.sharing, requirements, gpu))[1]
            gpu, checks = self.checked[candidate.kind]
            pairs = ((self.use.required, checks),)
            certain = candidate.certain and candidate.nodes is not None and bool(ready & self.allowed)
            yield _Judged(
                candidate.kind,
                NodeClassResult(gpu, nodes & self.allowed, level_of(checks), pairs),
                certain,
                _too_little(candidate.memory, requirements),
            )

    def _may_come(self, request: ClaimRequest) -> bool:
        """Return whether an autoscaler may add a node with devices for a request."""
        if self.evaluator.undeclared:
            return True
        names = [IMPLICIT_PREFIX + alternative.device_class for alternative in request.alternatives]
        pools = self.evaluator.prospects
        return any(
            prospect.level is not Level.INCOMPATIBLE
            for tolerated in (True, False)
            for prospect in pools.results((self.use.required,), self.spec, names, tolerated=tolerated)
        )

    def _failed(self, claim: str, failed: Iterable[FailedSelector]) -> Iterator[Finding]:
        """Yield the notice that a selector fails on a device of a node that the pod can use."""
        if self._action is Action.DRYRUN:
            return
        for kind, nodes, reason in failed:
            if nodes is None or self.evaluator.nodes_of(kind)[0] & self.allowed:
                yield self.writer.selector_fails(self.use.required.rule, claim, kind.driver, reason)
                return

    def _excluded(self, excluded: Iterable[ExcludedDevice]) -> Iterator[Message]:
        """Yield why GPUs of nodes that the pod can use are not allocated."""
        for kind, nodes, reason in excluded:
            if facts_of(kind) and (nodes is None or self.evaluator.nodes_of(kind)[0] & self.allowed):
                yield reason

    def _partly(self, claim: str, unfit: Sequence[_Judged]) -> list[Finding]:
        """Return the notice that a claim may be given devices that are not compatible."""
        if self._action is Action.DRYRUN:
            return []
        classes = [devices.nodes for devices in unfit]
        return [self.writer.claim_too_wide(self.use.required.rule, claim, classes, self._selector(unfit))]

    def _denied(self, claim: str, request: ClaimRequest, unfit: Sequence[_Judged]) -> list[Finding]:
        required, container = self.use.required, self.use.container.path
        result = NodeSetResult(required, self._action, tuple(devices.nodes for devices in unfit))
        selector = "" if request.allocated else self._selector(unfit)
        violation = self.writer.no_device(required.rule, result, claim, selector)
        path = field_path((*container, "resources", "claims"))
        return [violation._replace(path=path, container=container)]

    def _selector(self, unfit: Sequence[_Judged]) -> str:
        """Return the shortest CEL expression that excludes the devices that do not run the container."""
        driver = next((devices.kind.driver for devices in unfit), _DRIVER)
        facts = [devices.nodes.capabilities for devices in unfit]
        lines = []
        for fact, version in _minima(self.use.required.requirements):
            line = minimum_selector(driver, fact, version)
            versions = [
                capabilities.cuda if fact == "cuda" else capabilities.gpu_capability for capabilities in facts
            ]
            if line and all(number is not None and number < version for number in versions):
                return line
            lines += [line] if line else []
        need = self.use.required.requirements.memory
        if need and (line := memory_selector(driver, shown(need.mib))):
            if all(
                capabilities.gpu_memory_mib is not None and capabilities.gpu_memory_mib < need.mib
                for capabilities in facts
            ):
                return line
            lines.append(line)
        return " && ".join(lines)


def _too_little(memory: int | Decimal | None, requirements: GpuRequirements) -> Message | None:
    """Return that a part of a GPU's memory, in bytes, is less than a container needs."""
    need = requirements.memory
    if need is None or memory is None or memory >= need.mib * MIB:
        return None
    return _SMALL_PART.having(part=quantity_text(memory), needed=shown(need.mib))


def _reasons(judged: _Judged) -> list[Message]:
    return [*filter(None, [judged.too_little])] + [
        check.reason for check in judged.nodes.checks if check.level is Level.UNKNOWN
    ]


def _minima(requirements: GpuRequirements) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield each fact of a device that a container has a least version of."""
    needed = [constraint.native for constraint in requirements.constraints if constraint.native]
    needed += [requirements.cuda.version] if requirements.cuda else []
    if needed:
        yield "cuda", max(tuple(version) for version in needed)
    if requirements.compute:
        yield "computeCapability", max(tuple(least.minimum) for least in requirements.compute)
