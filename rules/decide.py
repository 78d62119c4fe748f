"""The decision: the one place where the stages meet.

Admission, preview and tests all come in here. The order is: resource defaults, injection, compatibility with
the nodes, validation of the result. Pure: the same policy, inventory and request give the same decision, and
none is changed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar

from rules import compatibility, injection, message, resources
from rules.exemption import PodExemptions
from rules.expression import ExpressionError
from rules.inventory import Inventory
from rules.model import (
    ALLOWED,
    Action,
    AdmissionRequest,
    CompatibilityRule,
    Decision,
    InjectionAction,
    InjectionRule,
    ResourceRule,
    Violation,
)
from rules.pod import Container, Pod
from rules.policy import Policy
from rules.workloads import Workloads

R = TypeVar("R", InjectionRule, CompatibilityRule)

# Short, for people who look at a pod: the injection rules that changed it.
INJECTED_ANNOTATION: Final = "gpugate.dev/injected"
# A static pod's stand-in: https://kubernetes.io/docs/reference/labels-annotations-taints/#kubernetes-io-config-mirror
_MIRROR_ANNOTATION: Final = "kubernetes.io/config.mirror"


def decide(
    policy: Policy, inventory: Inventory, request: AdmissionRequest, now: float = math.inf
) -> Decision:
    """Return the verdict on a request, with the patch where it may have one.

    Pods are completed and judged at CREATE; ephemeral containers get variables only; workloads are judged by
    their pod templates, as their pods would be completed, and never changed. Whatever is no concern of the
    rules is allowed untouched. now: seconds since the epoch, for exemptions; without it all have expired.
    Raises ObjectError where the object is not shaped as its kind is.
    """
    document = request.object
    workloads = policy.workloads
    if document is None or not workloads.holds_pods(request.group, request.kind):
        return ALLOWED
    if _unjudged(workloads, request, document):
        return ALLOWED
    is_pod = request.kind == "Pod" and not request.group
    if is_pod and request.subresource == "ephemeralcontainers" and request.operation == "UPDATE":
        stages = _Stages(policy, inventory, request, Pod(document, document), now)
        return stages.debug(request.old_object or {})
    if request.subresource or request.operation not in (("CREATE",) if is_pod else ("CREATE", "UPDATE")):
        return ALLOWED
    templates = workloads.templates_of(request.group, request.kind, document)
    if request.operation == "UPDATE" and request.old_object:
        before = workloads.templates_of(request.group, request.kind, request.old_object).values()
        templates = {path: raw for path, raw in templates.items() if raw not in before}
    decisions = [
        _Stages(policy, inventory, request, Pod(document, raw, path), now).run(is_pod=is_pod)
        for path, raw in templates.items()
    ]
    return decisions[0] if len(decisions) == 1 else _together(policy, request, decisions)


def _unjudged(workloads: Workloads, request: AdmissionRequest, document: Mapping[str, Any]) -> bool:
    """Tell whether an object is being deleted, mirrors a static pod, or is made by one that was judged."""
    metadata = document.get("metadata")
    if not isinstance(metadata, dict):
        return False
    if metadata.get("deletionTimestamp"):
        return True
    if request.kind == "Pod":
        annotations = metadata.get("annotations")
        return isinstance(annotations, dict) and _MIRROR_ANNOTATION in annotations
    owners = metadata.get("ownerReferences")
    return isinstance(owners, list) and any(
        isinstance(owner, dict)
        and owner.get("controller") is True
        and workloads.holds_pods(str(owner.get("apiVersion")).rpartition("/")[0], str(owner.get("kind")))
        for owner in owners
    )


class _Stages:
    """One pod's way through the stages, and what is found on it."""

    def __init__(
        self, policy: Policy, inventory: Inventory, request: AdmissionRequest, pod: Pod, now: float
    ) -> None:
        self._exemptions = PodExemptions(policy.exemptions, pod, request.namespace, now)
        self._policy = policy
        self._inventory = inventory
        self._request = request
        self._pod = pod
        self._warnings: list[str] = []
        self._violations: list[Violation] = []
        self._matched: dict[str, None] = {}
        self._defaulted: list[str] = []
        self._injected: dict[str, list[str]] = {}
        self._would_inject: dict[str, list[str]] = {}
        self._steered = False
        self._cuda_sources: list[str] = []

    def run(self, *, is_pod: bool) -> Decision:
        """Complete where the request may be answered by a patch or stands for pods to come, then judge."""
        users = [container for container in self._pod.containers if container.limits or container.requests]
        if self._request.mutating or not is_pod:
            for container in users:
                self._complete(container)
            self._inject(users)
        self._fit(users)
        for container in users:
            self._judge(container)
        return self._decision(patch=is_pod and self._request.mutating)

    def debug(self, before: Mapping[str, Any]) -> Decision:
        """Give new ephemeral containers the variables of the container that they were started for."""
        started = (
            {container.name for container in Pod(before, before).ephemeral_containers} if before else set()
        )
        targets = {container.name: container for container in self._pod.containers}
        if self._request.mutating:
            for container in self._pod.ephemeral_containers:
                target = targets.get(container.target)
                if target is None or container.name in started:
                    continue
                for rule in self._rules_for(target):
                    self._note(rule, injection.inject_environment(rule, container, target), [container])
        return self._decision(patch=self._request.mutating)

    def _complete(self, container: Container) -> None:
        changed = True
        while changed:  # a default may bring in another group, by a glob
            changed = False
            for rule in self._ruling(container):
                self._matched[rule.name] = None
                for what in resources.complete(rule, container):
                    self._defaulted.append(f"{container.name}: {what}")
                    changed = True
                if rule.runtime_class and resources.asks(rule, container):
                    self._run_with(rule.runtime_class)

    def _ruling(self, container: Container) -> Iterator[ResourceRule]:
        """Yield the resource rules that hold for a container."""
        for rule in self._policy.groups_of((*container.limits, *container.requests)):
            if not self._exemptions.hold(rule.name):
                yield rule

    def _run_with(self, runtime_class: str) -> None:
        if not self._pod.get("spec", "runtimeClassName"):
            self._pod.set("spec", "runtimeClassName", value=runtime_class)
            self._defaulted.append(f"runtimeClassName {runtime_class}")

    def _inject(self, users: list[Container]) -> None:
        done: set[tuple[str, Container]] = set()
        while applying := self._to_inject(users, done):  # a label put in may be what the next rule selects by
            for _, (rule, containers) in sorted(applying.items()):
                self._note(rule, injection.inject(rule, self._pod, containers), containers)
        if self._injected:
            standing = self._pod.annotations.get(INJECTED_ANNOTATION, "")
            names = sorted({*filter(None, standing.split(", ")), *self._injected})
            self._pod.set("metadata", "annotations", INJECTED_ANNOTATION, value=", ".join(names))

    def _to_inject(
        self, users: list[Container], done: set[tuple[str, Container]]
    ) -> dict[str, tuple[InjectionRule, list[Container]]]:
        """Return the rules that apply, by name, each with its containers, but for the pairs done before."""
        applying: dict[str, tuple[InjectionRule, list[Container]]] = {}
        for container in users:
            for rule in self._rules_for(container):
                if (rule.name, container) not in done:
                    done.add((rule.name, container))
                    applying.setdefault(rule.name, (rule, []))[1].append(container)
        return applying

    def _fit(self, users: list[Container]) -> None:
        demands = []
        for container in users:
            rules = self._policy.compatibility_of((*container.limits, *container.requests))
            for rule in self._applying(rules, container):
                self._matched[rule.name] = None
                demand = compatibility.demand_of(container, rule, self._pod, self._policy.images)
                demands.append(demand)
                self._cuda_sources.append(demand.needs.cuda.found if demand.needs.cuda else "unknown")
        if not demands:
            return
        verdict = compatibility.judge(demands, self._pod, self._inventory, self._policy.language)
        self._violations += verdict.violations
        self._warnings += verdict.warnings
        if self._request.mutating and verdict.requirement is not None:
            self._steered = compatibility.steer(verdict, self._pod)

    def _rules_for(self, container: Container) -> list[InjectionRule]:
        return self._applying(self._policy.injections_of((*container.limits, *container.requests)), container)

    def _applying(self, rules: Iterable[R], container: Container) -> list[R]:
        """Return the rules that apply to a container; one that cannot be evaluated warns and does not."""
        found = []
        for rule in rules:
            try:
                applies = injection.applies(rule.match, container, self._pod, self._request.namespace)
                if applies and not self._exemptions.hold(rule.name):
                    found.append(rule)
            except ExpressionError as error:
                if self._exemptions.hold(rule.name):
                    continue
                facts = {"rule": rule.name, "container": container.name, "error": str(error)}
                self._warnings.append(message.sentence(self._policy.language, message.UNDECIDED, facts))
        return found

    def _note(self, rule: InjectionRule, done: list[str], containers: list[Container]) -> None:
        self._matched[rule.name] = None
        if not done:
            return
        if rule.action is InjectionAction.DRYRUN:
            self._would_inject.setdefault(rule.name, []).extend(done)
            return
        self._injected.setdefault(rule.name, []).extend(done)
        put_in = set(done)
        for container in containers:
            self._warnings += injection.hidden_sources(rule, container, put_in, self._policy.language)

    def _judge(self, container: Container) -> None:
        for rule in self._ruling(container):
            self._matched[rule.name] = None
            found, warnings = resources.judge(rule, container, self._policy.language)
            self._violations += found
            self._warnings += warnings

    def _decision(self, *, patch: bool) -> Decision:
        exemptions = self._exemptions
        expired = exemptions.expired((found.rule for found in self._violations), self._policy.language)
        denied = any(violation.action is Action.DENY for violation in self._violations)
        audit = {
            "rules": ", ".join(self._matched),
            "defaulted": "; ".join(self._defaulted),
            "injected": _listing(self._injected),
            "would-inject": _listing(self._would_inject),
            "steered": "node affinity" if self._steered else "",
            "exempted": _listing({rule: [exemption] for rule, exemption in exemptions.taken.items()}),
            "violations": _lines(self._violations, Action.DENY, Action.WARN),
            "dryrun": _lines(self._violations, Action.DRYRUN),
        }
        return Decision(
            allowed=not denied,
            message=_denial(self._policy, self._request, self._violations) if denied else "",
            violations=tuple(self._violations),
            warnings=tuple(dict.fromkeys([*_warnings(self._violations), *self._warnings, *expired])),
            patch=tuple(self._pod.recorder.operations) if patch and not denied else (),
            audit={name: text for name, text in audit.items() if text},
            rules=tuple(self._matched),
            cuda_sources=tuple(self._cuda_sources),
        )


def _denial(policy: Policy, request: AdmissionRequest, violations: list[Violation]) -> str:
    reasons = [(found.rule, found.message) for found in violations if found.action is Action.DENY]
    return message.denial(policy.language, request.kind, reasons)


def _warnings(violations: list[Violation]) -> list[str]:
    return [f"{found.message} [{found.rule}]" for found in violations if found.action is Action.WARN]


def _listing(done: Mapping[str, list[str]]) -> str:
    return "; ".join(f"{rule} ({', '.join(what)})" for rule, what in done.items())


def _lines(violations: list[Violation], *actions: Action) -> str:
    return "; ".join(f"{found.rule}: {found.path}" for found in violations if found.action in actions)


def _together(policy: Policy, request: AdmissionRequest, decisions: list[Decision]) -> Decision:
    """Return one decision on an object of several pod templates."""
    if not decisions:
        return ALLOWED
    violations = [found for decision in decisions for found in decision.violations]
    allowed = all(decision.allowed for decision in decisions)
    audit: dict[str, str] = {}
    for decision in decisions:
        for name, text in decision.audit.items():
            audit[name] = f"{audit[name]}; {text}" if name in audit else text
    return Decision(
        allowed=allowed,
        message="" if allowed else _denial(policy, request, violations),
        violations=tuple(violations),
        warnings=tuple(warning for decision in decisions for warning in decision.warnings),
        audit=audit,
        cuda_sources=tuple(source for decision in decisions for source in decision.cuda_sources),
        rules=tuple(dict.fromkeys(name for decision in decisions for name in decision.rules)),
    )
