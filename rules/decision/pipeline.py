"""The decision pipeline: the one place where the stages meet.

Admission, preview, explain, audit and tests call `decide`. The order is: resource defaults, injection,
compatibility with the nodes, validation of the result. Pure: an equal snapshot and request give an equal
decision, and neither is changed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain, islice
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from msgspec.structs import replace

from rules.affinity.node_affinity import inject, pairs_budget
from rules.cel.syntax_errors import ExpressionError, UnknownInputError
from rules.compatibility.claim_configs import config_findings, config_resources, evaluate_configs
from rules.compatibility.claims import ClaimUse, KnownResources, evaluate_claims, resources_of
from rules.compatibility.evaluate import evaluate, inject_affinity
from rules.compatibility.result import ClaimAllowance, RuleRequirement
from rules.cuda.requirements import ObjectRequirements
from rules.cuda.tables import OLD_S, looked_up
from rules.decision import injection_stage, messages, not_checked, resource_stage
from rules.decision.exemptions import PodExemptions, capped, permitted, warning_lines
from rules.decision.injection_stage import ContainerInputs
from rules.decision.not_checked import out_of_scope
from rules.decision.policy import Policy
from rules.decision.recorder import Change, Observer, Obstacle, Record
from rules.decision.size_limit import Evaluations, over_budget, overfull, oversize
from rules.kube.pod import Container, Pod
from rules.model.decision import (
    ALLOWED,
    NO_NODES,
    UNKNOWN_CUDA,
    AdmissionRequest,
    Decision,
    NotChecked,
)
from rules.model.finding import Basis, Finding
from rules.model.rule import (
    Action,
    CompatibilityRule,
    InjectionAction,
    InjectionRule,
    ResourceRule,
)
from rules.nodes.devices.claims import pod_claims, used_claims
from rules.nodes.devices.state import CONFIGURED, GROUP, Claims
from rules.nodes.inventory import Inventory
from rules.text.bounded_cache import OverBudgetError
from rules.text.glob import Comparisons
from rules.text.i18n import Message
from rules.text.paths import Path, field_path

R = TypeVar("R", InjectionRule, CompatibilityRule)

# Short, for people who look at a pod: the injection rules that changed it.
INJECTED_ANNOTATION: Final = f"{not_checked.PREFIX}{not_checked.INJECTED}"
FRAMEWORK_ANNOTATION: Final = f"{not_checked.PREFIX}{not_checked.FRAMEWORK}"


class NamespaceLabels(Protocol):
    """The labels of namespaces, by name."""

    def get(self, key: str, /) -> Mapping[str, str] | None:
        """Return the labels of a namespace, or None if they are unknown."""


class Snapshot(NamedTuple):
    """Rules and nodes that decide requests; replaced as a whole, never changed.

    claims: those of DRA that pods may refer to, which change with each such pod; default: the inventory's.
    namespaces: the labels of each namespace; one that is not there is unknown. None: all are.
    """

    policy: Policy
    inventory: Inventory
    claims: Claims | None = None
    namespaces: NamespaceLabels | None = None


def decide(
    snapshot: Snapshot,
    request: AdmissionRequest,
    now: float = math.inf,
    observer: Observer | None = None,
) -> Decision:
    """Return the decision on a request, with a patch if it is a pod that may be changed.

    Pods are completed and validated at CREATE; at UPDATE, images that change are validated; ephemeral
    containers get variables only; workloads are validated by their pod templates, as their pods would be
    completed, and never changed. Everything else is allowed as it is. now: seconds since the epoch, for
    exemptions; without it all have expired. observer: sees the records of the pods. Raises ObjectError if the
    object does not have the shape of its kind. The effect is capped by that of the policy. With `dryrun`, in
    which no pod is patched, a pod to validate is completed first, as it would have been.
    """
    policy, document, mutating = snapshot.policy, request.object, request.mutating
    if document is None:
        return ALLOWED
    if policy.enforcement is Action.DRYRUN:
        request = replace(request, mutating=True)

    unchecked, decision = not_checked.of_object(policy.workloads, request), ALLOWED
    if request.group == GROUP and request.kind in CONFIGURED:
        decision = _of_configs(snapshot, request, document)
    elif not out_of_scope(policy.workloads, request):
        try:
            decision = _decide(snapshot, request, document, now, observer)
        except OverBudgetError as error:
            decision = _permitted(policy, request, over_budget(error, request.kind))
    if unchecked:
        decision = decision._replace(not_checked=(*unchecked, *decision.not_checked))
    return capped(decision, policy.enforcement, mutating=mutating)


def _decide(
    snapshot: Snapshot,
    request: AdmissionRequest,
    document: Mapping[str, Any],
    now: float,
    observer: Observer | None,
) -> Decision:
    """Return the decision without the cap; a denial has the patch of the pod, too."""
    policy = snapshot.policy
    workloads = policy.workloads
    raw_pods = workloads.pods_of(request.group, request.kind, document)
    if (denied := overfull(raw_pods.values(), request.kind)) is not None:
        return _permitted(policy, request, denied)
    if request.subresource:
        pod = Pod(document, document, annotation_requests=policy.annotation_requests)
        pipeline = Pipeline(_Shared(snapshot, request, now, observer), pod)
        return oversize([pod], request.kind) or pipeline.debug(request.old_object or {})
    if request.operation == "UPDATE" and (request.group, request.kind) == ("", "Pod"):
        return _of_images(_Shared(snapshot, request, now, observer), document, request.old_object or {})
    by_annotation = policy.annotation_requests
    pods = [Pod(document, raw, path, others, by_annotation) for path, (raw, others) in raw_pods.items()]
    # Rules apply by extended resources and claims: a pod without them costs this look and no more.
    users = [pod for pod in pods if pod.users or pod.claimers or pod.misplaced]
    if observer is None:  # which would see them all
        if not users:
            return ALLOWED
        pods = users
    if request.operation == "UPDATE" and request.old_object:
        before = workloads.templates_of(request.group, request.kind, request.old_object)
        changed = _changed({pod.path: pod.raw for pod in pods}, before)
        pods = [pod for pod in pods if pod.path in changed]
        users = [pod for pod in users if pod.path in changed]
    if users and (denied := oversize(users, request.kind)) is not None:
        return _permitted(policy, request, denied)
    shared = _Shared(snapshot, request, now, observer)
    decisions = [Pipeline(shared, pod).run() for pod in pods]
    decision = decisions[0] if len(decisions) == 1 else _together(shared, decisions)
    return decision if decision.allowed else _permitted(policy, request, decision)


def _changed(templates: Mapping[Path, Any], before: Mapping[Path, Any]) -> set[Path]:
    """Return the paths of the templates that are not among those before, at whatever place in a list.

    The time is linear in their length: each is compared with the one at its place, or else by a hash.
    """
    changed = {path for path, raw in templates.items() if path not in before or raw != before[path]}
    if len(changed) == 1:
        return {path for path in changed if templates[path] not in before.values()}
    if changed:
        known = {_encode(raw) for raw in before.values()}
        changed = {path for path in changed if _encode(templates[path]) not in known}
    return changed


_encode: Final = json.JSONEncoder(sort_keys=True).encode


class _Shared:
    """What the decisions on the pods of one object share.

    now: seconds since the epoch. observer: of the records. requirements: those that were read. The others
    are what all pods may take: allowance, comparisons, evaluations, pairs: evaluations of claims, comparisons
    of similar names, evaluation steps, combinations of node selector terms.
    """

    __slots__ = (
        "allowance",
        "comparisons",
        "evaluations",
        "now",
        "observer",
        "pairs",
        "request",
        "requirements",
        "snapshot",
    )

    def __init__(
        self, snapshot: Snapshot, request: AdmissionRequest, now: float, observer: Observer | None = None
    ) -> None:
        self.snapshot = snapshot
        self.request = request
        self.now = now
        self.observer = observer
        self.requirements = ObjectRequirements(snapshot.policy.requirements_of, snapshot.policy.catalog)
        self.evaluations = Evaluations()
        self.allowance = ClaimAllowance()
        self.comparisons = Comparisons()
        self.pairs = pairs_budget()

    def framework(self, container: Container, pod: Pod) -> str:
        """Return what the pod, the image catalogue or else the kind says that a container runs, or ""."""
        stated = pod.annotations.get(FRAMEWORK_ANNOTATION)
        if stated is None:
            stated = self.requirements.framework_of(container.image)
        kind = self.request.group, self.request.kind
        return stated or self.snapshot.policy.workloads.frameworks.get(kind, "")

    def denial(self, violations: Sequence[Finding]) -> Message:
        """Return the message of a denial; it says so if it rests on facts that are old at a known time."""
        policy = self.snapshot.policy
        date = ""
        if OLD_S < self.now - looked_up(policy.facts) < math.inf:
            by_facts = {violation.rule for violation in violations if violation.basis is Basis.FACT}
            if any(rule.name in by_facts for rule in policy.rules.compatibility):
                date = policy.facts.date
        return messages.denial(self.request.kind, violations, date)


class Pipeline:
    """The stages of one pod, in their order; everything that they do is recorded."""

    def __init__(self, shared: _Shared, pod: Pod) -> None:
        self._policy, self._inventory, self._claims, namespaces = shared.snapshot
        self._shared = shared
        self._request = shared.request
        self._exemptions: PodExemptions | None = None
        if exemptions := self._policy.exemptions:
            self._exemptions = PodExemptions(exemptions, pod, self._request.namespace, shared.now)
        self._is_pod = self._request.kind == "Pod" and not self._request.group
        self._pod = pod
        if namespaces is not None:
            pod.namespace_labels = namespaces.get(self._request.namespace)
        self._has_unknown = False
        # With the number of edits. They do not refer to this pipeline: a cycle would hold a whole review.
        self._known_inputs: dict[Container, tuple[int, ContainerInputs]] = {}
        self._record = Record(pod)
        self._not_checked: list[NotChecked] = []
        if shared.observer:
            shared.observer.begin(self._record)

    def run(self) -> Decision:
        """Complete the pod if it may be patched or stands for future pods, then validate it."""
        users = self._pod.users
        if self._pod.misplaced:
            self._record.findings += resource_stage.of_pod(self._pod)
        elif not (users or self._pod.claimers):
            return ALLOWED
        is_pod = self._is_pod
        rules: dict[Container, Sequence[ResourceRule]] = {}
        if self._request.mutating or not is_pod:
            rules = {container: self._complete(container) for container in users}
            self._inject(users)
        self._check_compatibility(users)
        if self._pod.claimers:
            self._check_claims(self._pod.claimers)
        for container in users:
            self._validate(container, rules[container] if rules else self._resource_rules(container))
        unchecked = not_checked.of_pod(self._policy, self._pod, self._shared.comparisons)
        self._not_checked += islice(unchecked, not_checked.MOST)
        return self._decision(patch=is_pod and self._request.mutating)

    def check_images(self, names: Collection[str], before: Pipeline) -> Decision:
        """Check the compatibility of some containers; what is found in the pod before, too, is left out."""
        if self.compatibility(names):
            before.compatibility(names)
            self._record.remove(before._record)
        return self._decision(patch=False)

    def compatibility(self, names: Collection[str]) -> bool:
        """Check the compatibility of some containers; return whether there is a finding."""
        pod = self._pod
        self._check_compatibility([container for container in pod.users if container.name in names])
        self._check_claims([container for container in pod.claimers if container.name in names])
        return bool(self._record.findings)

    def debug(self, before: Mapping[str, Any]) -> Decision:
        """Give new ephemeral containers the variables of the container that they target."""
        started = {container.name for container in Pod(before, before).ephemeral_containers}
        targets = {container.name: container for container in self._pod.containers}
        if self._request.mutating:
            for container in self._pod.ephemeral_containers:
                target = targets.get(container.target)
                if target is None or container.name in started:
                    continue
                for rule in self._injection_rules(target):
                    done = injection_stage.inject_environment(rule, container, target)
                    self._record_injection(rule, done, [container])
        return self._decision(patch=self._request.mutating)

    def _complete(self, container: Container) -> Sequence[ResourceRule]:
        """Set the defaults of resource rules; return the rules that apply to the container in the end."""
        while True:
            changed = False
            rules = self._resource_rules(container)
            for rule in rules:
                default = self._default(rule, container) if rule.default_when else rule.default
                if done := resource_stage.complete(rule, container, default):
                    self._record.defaults.append((rule, (container,), done, self._edits()))
                    changed = True
                if rule.runtime_class and resource_stage.requests(rule, container):
                    self._set_runtime_class(rule, container)
            if not changed:  # a default may make another group apply, by a glob
                return rules

    def _default(self, rule: ResourceRule, container: Container) -> str:
        """Return the default of a rule for a container; empty, with a notice, if its condition fails."""
        if rule.default_when is None or container.request(rule.key) is not None:
            return rule.default
        inputs = self._inputs(container)
        try:
            return rule.default if rule.default_when.evaluate(inputs) else ""
        except UnknownInputError:
            self._add_unknown()
            return ""
        except ExpressionError as error:
            words, finding = messages.NOTHING_INJECTED, messages.evaluation_error
            self._record.findings.append(finding(words, rule.name, container, error=str(error)))
            return ""

    def _inputs(self, container: Container) -> ContainerInputs:
        """Return the inputs of expressions about a container, until the next edit."""
        edits = self._edits()
        known = self._known_inputs.get(container)
        if known is None or known[0] != edits:
            inputs = ContainerInputs(container, self._pod, self._request.namespace, self._shared.framework)
            known = self._known_inputs[container] = (edits, inputs)
        return known[1]

    def _resource_rules(self, container: Container) -> Sequence[ResourceRule]:
        rules, matches = self._policy.plan_for(container.names).resources, self._record.matches
        if not self._exemptions:
            matches += [(rule, container, None) for rule in rules]
            return rules
        applicable = []
        for rule in rules:
            exemption = self._exemptions.of(rule.name)
            matches.append((rule, container, exemption))
            if exemption is None:
                applicable.append(rule)
        return applicable

    def _edits(self) -> int:
        return len(self._pod.recorder.edits)

    def _set_runtime_class(self, rule: ResourceRule, container: Container) -> None:
        done: tuple[Change, ...] = ()
        if not self._pod.get("spec", "runtimeClassName"):
            self._pod.set("spec", "runtimeClassName", value=rule.runtime_class)
            done = ((None, f"runtimeClassName {rule.runtime_class}"),)
        self._record.defaults.append((rule, (container,), done, self._edits()))

    def _inject(self, users: list[Container]) -> None:
        done: set[tuple[str, Container]] = set()
        injected: list[str] = []
        again = True
        while again and (applying := self._to_inject(users, done)):
            again = False
            for _, (rule, containers) in sorted(applying.items()):
                changes = injection_stage.inject(rule, self._pod, containers)
                if self._record_injection(rule, changes, containers):
                    injected.append(rule.name)
                # An injected label or annotation may be what the next rule selects by.
                again |= bool(rule.inject.labels or rule.inject.annotations)
        if injected:
            existing = self._pod.get("metadata", "annotations", INJECTED_ANNOTATION)
            before = existing.split(", ") if isinstance(existing, str) and existing else ()
            names = sorted({*filter(None, before), *injected})
            self._pod.set("metadata", "annotations", INJECTED_ANNOTATION, value=", ".join(names))

    def _to_inject(
        self, users: list[Container], done: set[tuple[str, Container]]
    ) -> dict[str, tuple[InjectionRule, list[Container]]]:
        """Return the rules that apply, by name, each with its containers, except for pairs done before."""
        applying: dict[str, tuple[InjectionRule, list[Container]]] = {}
        for container in users:
            for rule in self._injection_rules(container):
                if (rule.name, container) not in done:
                    done.add((rule.name, container))
                    applying.setdefault(rule.name, (rule, []))[1].append(container)
        return applying

    def _check_compatibility(self, users: list[Container]) -> None:
        required: list[tuple[Container, RuleRequirement]] = []
        for container in users:
            required += self._required(container, container.names)
        if not required:
            return
        policy = self._policy
        inventory = self._inventory
        compared = [pair for pair in required if pair[1].rule.sharing.cuda]
        if compared and inventory.is_empty and not policy.prospects:
            self._not_checked.append(NotChecked(field_path(self._pod.path), NO_NODES))
        elif unknown := [container for container, need in compared if need.requirements.cuda_unknown]:
            self._not_checked += [
                NotChecked(field_path((*container.path, "image")), UNKNOWN_CUDA)
                for container in [*dict.fromkeys(unknown)][: not_checked.MOST]
            ]
        result = evaluate(
            required,
            self._pod,
            inventory,
            policy.prospects,
            comparisons=self._shared.comparisons,
        )
        record = self._record
        record.findings += result.findings
        record.notes = result.notes
        if self._shared.observer:
            self._shared.observer.complete(record)
        if policy.enforcement is Action.WARN:  # a rule that only warns leaves the pod as it is
            return
        if self._request.mutating:
            if inject_affinity(result, self._pod, self._shared.pairs):
                record.affinity = [container for container, _ in compared]
        elif self._is_pod and self._request.operation == "UPDATE":
            spec = self._pod.spec
            if not spec.get("nodeName") and inject(spec, result.requirement) is not None:
                (_, first), *_ = required
                record.findings.append(messages.old_affinity(first.rule.name))

    def _required(
        self, container: Container, names: tuple[str, ...]
    ) -> list[tuple[Container, RuleRequirement]]:
        """Return what the rules that match a container require of its node. names: of resources."""
        matching = self._policy.plan_for(names).compatibility
        # A rule whose conditions cannot be evaluated applies: nothing in a pod can switch it off.
        rules = self._matching(matching, container, messages.RULE_APPLIES, applies_on_error=True)
        if not rules:
            return []
        requirements = self._shared.requirements.of(
            container, self._pod.annotations, self._pod.spec.get("runtimeClassName")
        )
        required = []
        for rule in rules:
            requirement = RuleRequirement(rule, requirements)
            required.append((container, requirement))
            if rule.sharing.cuda:
                self._shared.evaluations.add(requirement)
                self._record.requirements.append((container, requirement))
        return required

    def _check_claims(self, claimers: Iterable[Container]) -> None:
        policy, namespace = self._policy, self._request.namespace
        known = self._inventory.dra.claims if self._claims is None else self._claims
        claims = pod_claims(self._pod.spec, lambda kind, name: known.get((kind, namespace, name)))
        uses: list[ClaimUse] = []
        rules: list[CompatibilityRule] = []
        resources: KnownResources = {}
        for container in claimers:
            used = used_claims(container.raw, claims)
            required = self._required(container, resources_of(used, resources))
            rules += (requirement.rule for _, requirement in required if requirement.rule.sharing.cuda)
            uses += (ClaimUse(*pair, used) for pair in required if pair[1].rule.sharing.cuda)
        self._record.findings += evaluate_claims(
            uses,
            self._pod,
            self._inventory,
            policy.prospects,
            allowance=self._shared.allowance,
        )
        place = field_path(self._pod.place("spec", "resourceClaims"))
        self._record.findings += evaluate_configs(
            claims, place, rules, self._inventory.dra, self._shared.allowance
        )

    def _injection_rules(self, container: Container) -> list[InjectionRule]:
        rules = self._policy.plan_for(container.names).injections
        return self._matching(rules, container, messages.NOTHING_INJECTED, applies_on_error=False)

    def _matching(
        self, rules: Collection[R], container: Container, words: Message, *, applies_on_error: bool
    ) -> list[R]:
        """Return the rules that match a container. words: of the notice on a condition that fails."""
        matching: list[R] = []
        if not rules:
            return matching
        inputs = self._inputs(container)
        record, matches, exemptions = self._record, self._record.matches, self._exemptions
        for rule in rules:
            obstacle: Obstacle | None
            failed: ExpressionError | None = None
            try:
                obstacle = injection_stage.unmet(rule.match, inputs)
            except UnknownInputError as error:
                self._add_unknown()
                obstacle = None if applies_on_error else error.with_traceback(None)
            except ExpressionError as error:
                obstacle = failed = error.with_traceback(None)  # its frames refer to this pod
            if exemptions and (obstacle is None or failed) and (exemption := exemptions.of(rule.name)):
                obstacle, failed = exemption, None
            if failed:
                notice = messages.evaluation_error(words, rule.name, container, error=str(failed))
                record.findings.append(notice)
                if applies_on_error:
                    obstacle = None
            matches.append((rule, container, obstacle))
            if obstacle is None:
                matching.append(rule)
        return matching

    def _record_injection(
        self, rule: InjectionRule, changes: list[Change], containers: list[Container]
    ) -> bool:
        """Record what a rule injected, or would; return whether it did."""
        self._record.injections.append((rule, containers, changes, self._edits()))
        if rule.action is InjectionAction.DRYRUN or not changes:
            return False
        given = [container for container in containers if "envFrom" in container.raw]
        injected = set(changes) if given else ()
        for container in given:
            self._record.findings += injection_stage.hidden_sources(rule, container, injected)
        return True

    def _validate(self, container: Container, rules: Iterable[ResourceRule]) -> None:
        inputs, inventory = self._inputs(container), self._inventory
        self._record.findings += resource_stage.validate(rules, inputs, lambda: inventory.resources)
        if inputs.is_unknown:
            self._add_unknown()

    def _add_unknown(self) -> None:
        """Say once that an expression names labels of the namespace, which are unknown here."""
        if not self._has_unknown:
            self._has_unknown = True
            path = field_path(self._pod.place("metadata", "namespace"))
            reason = messages.NAMESPACE_UNKNOWN.having(namespace=self._request.namespace)
            self._not_checked.append(NotChecked(path, reason))

    def _decision(self, *, patch: bool) -> Decision:
        record = self._record
        rules = record.rules
        cuda_versions, declared = record.image_facts()
        violations: tuple[Finding, ...] = ()
        notices: tuple[Finding, ...] = ()
        warnings: tuple[Message, ...] = ()
        if record.findings:
            violations = tuple([finding for finding in record.findings if finding.basis])
            others = [finding for finding in record.findings if not finding.basis]
            if self._exemptions:
                others += self._exemptions.expired([violation.rule for violation in violations])
            notices = tuple(dict.fromkeys(others) if len(others) > 1 else others)
            warnings = warning_lines((*violations, *notices))
        exempted = self._exemptions.taken if self._exemptions else {}
        audit = record.audit(rules, violations, declared, exempted)
        # That no nodes are known is no property of the pod; unknown CUDA versions are counted in a metric.
        if lines := [
            f"{path}: {reason.en}"
            for path, reason in self._not_checked
            if reason is not NO_NODES and reason is not UNKNOWN_CUDA
        ]:
            audit["not-checked"] = "; ".join(lines)
        denying = [violation for violation in violations if violation.action is Action.DENY]
        return Decision(
            allowed=not denying,
            denial=self._shared.denial(denying) if denying else Message(),
            violations=violations,
            notices=notices,
            warning_lines=warnings,
            patch=tuple(self._pod.recorder.operations) if patch else (),
            audit=audit,
            rules=tuple(rules),
            cuda_versions=cuda_versions,
            notes=record.notes,
            declared=tuple(dict.fromkeys(chain(*declared.values()))) if declared else (),
            not_checked=tuple(self._not_checked),
            pods_patch=() if self._is_pod else tuple(self._pod.recorder.operations),
            exempted=tuple(exempted.items()),
        )


def _of_images(
    shared: _Shared,
    document: Mapping[str, Any],
    old: Mapping[str, Any],
) -> Decision:
    """Return the decision on the update of a pod, of which only the containers with a new image are checked.

    old: the pod that it replaces. A finding that this one has, too, is none: the pod is there already.
    """
    by_annotation = shared.snapshot.policy.annotation_requests
    pod = Pod(document, document, annotation_requests=by_annotation)
    before = Pod(old, old, annotation_requests=by_annotation)
    images = {container.name: container.image for container in before.containers}
    changed = {
        container.name
        for container in (*pod.users, *pod.claimers)
        if images.get(container.name) != container.image
    }
    if not changed:
        return ALLOWED
    if (denied := oversize([pod], shared.request.kind)) is not None:
        return denied
    of_before = _Shared(shared.snapshot, shared.request, shared.now)
    of_before.requirements, of_before.evaluations = shared.requirements, shared.evaluations
    return Pipeline(shared, pod).check_images(changed, Pipeline(of_before, before))


def _of_configs(snapshot: Snapshot, request: AdmissionRequest, document: Mapping[str, Any]) -> Decision:
    """Return the decision on a claim, a template or a DeviceClass: on its configurations of devices."""
    resources = config_resources(request.kind, document)
    rules = [
        rule
        for rule in (snapshot.policy.plan_for(resources).compatibility if resources else ())
        if rule.sharing.cuda and rule.match.pod(request.namespace, {})
    ]
    findings = config_findings(request.kind, document, rules, snapshot.inventory.dra) if rules else []
    violations = tuple([finding for finding in findings if finding.basis])
    notices = tuple([finding for finding in findings if not finding.basis])
    denying = [violation for violation in violations if violation.action is Action.DENY]
    facts: dict[str, Any] = {
        "notices": notices,
        "warning_lines": warning_lines((*violations, *notices)),
        "rules": tuple(dict.fromkeys(rule.name for rule in rules)),
    }
    if denying:
        return Decision.deny(messages.denial(request.kind, denying), violations, **facts)
    return Decision.allow(violations, **facts)


def _permitted(policy: Policy, request: AdmissionRequest, denied: Decision) -> Decision:
    """Return a denial, or an admission that warns of its violations if the kind has no pods of its own.

    Nothing is lost: what is created from it is validated.
    """
    if (request.group, request.kind) not in policy.workloads.templates:
        return denied
    return permitted(denied)


def _together(shared: _Shared, decisions: list[Decision]) -> Decision:
    """Return one decision on an object of several pod templates."""
    if not decisions:
        return ALLOWED
    violations = tuple(violation for decision in decisions for violation in decision.violations)
    audit: dict[str, list[str]] = {}
    for decision in decisions:
        for name, text in decision.audit.items():
            audit.setdefault(name, []).append(text)
    facts: dict[str, Any] = {
        "notices": tuple(notice for decision in decisions for notice in decision.notices),
        "warning_lines": tuple(line for decision in decisions for line in decision.warning_lines),
        "audit": {name: "; ".join(texts) for name, texts in audit.items()},
        "rules": tuple(dict.fromkeys(name for decision in decisions for name in decision.rules)),
        "cuda_versions": tuple(cuda for decision in decisions for cuda in decision.cuda_versions),
        "notes": tuple(dict.fromkeys(note for decision in decisions for note in decision.notes)),
        "declared": tuple(dict.fromkeys(name for decision in decisions for name in decision.declared)),
        "not_checked": tuple(part for decision in decisions for part in decision.not_checked),
        "pods_patch": tuple(operation for decision in decisions for operation in decision.pods_patch),
        "exempted": tuple(dict.fromkeys(pair for decision in decisions for pair in decision.exempted)),
    }
    if denying := [violation for violation in violations if violation.action is Action.DENY]:
        return Decision.deny(shared.denial(denying), violations, **facts)
    return Decision.allow(violations, **facts)
