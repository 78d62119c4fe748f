"""The decision: the one place where the stages meet.

Admission, preview and tests all come in here. The order is: resource defaults, injection, compatibility with
the nodes, validation of the result. Pure: the same policy, inventory and request give the same decision, and
none is changed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, Final, TypeVar

from rules.cel.expression import ExpressionError
from rules.compatibility import evaluate as compatibility
from rules.compatibility.report import RuleRequirement
from rules.cuda.facts import facts_of
from rules.decision import injection_stage as injection
from rules.decision import messages as message
from rules.decision import resource_stage as resources
from rules.decision.exemptions import PodExemptions
from rules.decision.gist import gist_of
from rules.decision.policy import Policy
from rules.decision.precedent import Precedents
from rules.decision.recorder import DecisionRecorder, Obstacle
from rules.decision.scope import unjudged
from rules.decision.size_limit import oversize
from rules.kube.pod import Container, Pod
from rules.model.decision import ALLOWED, Decision, Violation
from rules.model.request import AdmissionRequest
from rules.model.rule import Action, CompatibilityRule, InjectionAction, InjectionRule, ResourceRule
from rules.nodes.inventory import Inventory

R = TypeVar("R", InjectionRule, CompatibilityRule)

# Short, for people who look at a pod: the injection rules that changed it.
INJECTED_ANNOTATION: Final = "gpugate.dev/injected"


def decide(
    policy: Policy,
    inventory: Inventory,
    request: AdmissionRequest,
    now: float = math.inf,
    notes: Callable[[Pod], DecisionRecorder] | None = None,
) -> Decision:
    """Return the verdict on a request, with the patch where it may have one.

    Pods are completed and judged at CREATE; ephemeral containers get variables only; workloads are judged by
    their pod templates, as their pods would be completed, and never changed. Whatever is no concern of the
    rules is allowed untouched. now: seconds since the epoch, for exemptions; without it all have expired.
    notes: makes for each pod what keeps the notes on it, where somebody wants to read them.
    Raises ObjectError where the object is not shaped as its kind is.
    """
    document = request.object
    workloads = policy.workloads
    if document is None or unjudged(workloads, request):
        return ALLOWED
    if request.subresource:
        pod = Pod(document, document)
        stages = Pipeline(policy, inventory, request, pod, now, notes and notes(pod))
        return oversize([pod], request.kind, policy.language) or stages.debug(request.old_object or {})
    templates = workloads.templates_of(request.group, request.kind, document)
    pods = {path: Pod(document, raw, path) for path, raw in templates.items()}
    # Rules come in by extended resources: whatever asks for none costs this look and no more.
    users = [pod for pod in pods.values() if pod.users]
    if users and (refused := oversize(users, request.kind, policy.language)) is not None:
        return refused
    if request.operation == "UPDATE" and request.old_object:
        before = workloads.templates_of(request.group, request.kind, request.old_object).values()
        pods = {path: pod for path, pod in pods.items() if templates[path] not in before}
    if notes:
        decisions = [
            Pipeline(policy, inventory, request, pod, now, notes(pod)).run() for pod in pods.values()
        ]
    else:
        decisions = [_decided(policy, inventory, request, pod, now) for pod in pods.values()]
    return decisions[0] if len(decisions) == 1 else _together(policy, request, decisions)


def _decided(
    policy: Policy, inventory: Inventory, request: AdmissionRequest, pod: Pod, now: float
) -> Decision:
    """Return the decision on a pod: by its gist, where it has one."""
    if not pod.users:
        return ALLOWED
    gist = gist_of(policy, request, pod, now)
    found = None if gist is None else _precedents(policy, inventory)(gist)
    return found or Pipeline(policy, inventory, request, pod, now).run()


@lru_cache(maxsize=1)  # one policy and one inventory are in force at a time
def _precedents(policy: Policy, inventory: Inventory) -> Precedents:
    return Precedents(lambda request, pod, now: Pipeline(policy, inventory, request, pod, now).run())


class Pipeline:
    """One pod's way through the stages; all that happens on it is noted."""

    def __init__(  # noqa: PLR0913, PLR0917 - what a decision depends on
        self,
        policy: Policy,
        inventory: Inventory,
        request: AdmissionRequest,
        pod: Pod,
        now: float,
        notes: DecisionRecorder | None = None,
    ) -> None:
        self._exemptions = PodExemptions(policy.exemptions, pod, request.namespace, now)
        self._policy = policy
        self._inventory = inventory
        self._request = request
        self._pod = pod
        self._notes = notes or DecisionRecorder(pod)

    def run(self) -> Decision:
        """Complete where the request may be answered by a patch or stands for pods to come, then judge."""
        users = self._pod.users
        if not users:
            return ALLOWED
        is_pod = self._request.kind == "Pod" and not self._request.group
        ruling: dict[Container, list[ResourceRule]] = {}
        if self._request.mutating or not is_pod:
            ruling = {container: self._complete(container) for container in users}
            self._inject(users)
        self._fit(users)
        for container in users:
            self._judge(container, ruling[container] if ruling else self._ruling(container))
        return self._decision(patch=is_pod and self._request.mutating)

    def debug(self, before: Mapping[str, Any]) -> Decision:
        """Give new ephemeral containers the variables of the container that they were started for."""
        started = {container.name for container in Pod(before, before).ephemeral_containers}
        targets = {container.name: container for container in self._pod.containers}
        if self._request.mutating:
            for container in self._pod.ephemeral_containers:
                target = targets.get(container.target)
                if target is None or container.name in started:
                    continue
                for rule in self._rules_for(target):
                    self._note(rule, injection.inject_environment(rule, container, target), [container])
        return self._decision(patch=self._request.mutating)

    def _complete(self, container: Container) -> list[ResourceRule]:
        """Put in what resource rules say; return those that hold for the container in the end."""
        while True:
            changed = False
            rules = self._ruling(container)
            for rule in rules:
                if done := resources.complete(rule, container):
                    self._notes.put_in(rule, done)
                    changed = True
                if rule.runtime_class and resources.asks(rule, container):
                    self._run_with(rule)
            if not changed:  # a default may bring in another group, by a glob
                return rules

    def _ruling(self, container: Container) -> list[ResourceRule]:
        """Return the resource rules that hold for a container."""
        found = []
        for rule in self._policy.groups_of(container.names):
            exemption = self._exemptions.of(rule.name)
            self._notes.looked_at(rule, container, exemption)
            if exemption is None:
                found.append(rule)
        return found

    def _run_with(self, rule: ResourceRule) -> None:
        if not self._pod.get("spec", "runtimeClassName"):
            self._pod.set("spec", "runtimeClassName", value=rule.runtime_class)
            self._notes.put_in(rule, (f"runtimeClassName {rule.runtime_class}",))

    def _inject(self, users: list[Container]) -> None:
        done: set[tuple[str, Container]] = set()
        again = True
        while again and (applying := self._to_inject(users, done)):
            again = False
            for _, (rule, containers) in sorted(applying.items()):
                self._note(rule, injection.inject(rule, self._pod, containers), containers)
                # What is put in there may be what the next rule selects by.
                again |= bool(rule.inject.labels or rule.inject.annotations)
        if injected := self._notes.injected:
            standing = self._pod.get("metadata", "annotations", INJECTED_ANNOTATION)
            before = standing.split(", ") if isinstance(standing, str) and standing else ()
            names = sorted({*filter(None, before), *injected})
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
        demands: list[tuple[Container, RuleRequirement]] = []
        for container in users:
            if rules := self._applying(self._policy.compatibility_of(container.names), container):
                needs = self._policy.requirements_of(facts_of(container, self._pod.annotations))
                for rule in rules:
                    demand = RuleRequirement(rule, needs)
                    demands.append((container, demand))
                    self._notes.needs(container, demand)
        if not demands:
            return
        verdict = compatibility.judge(demands, self._pod, self._inventory, self._policy.language)
        self._notes.found(verdict.violations, verdict.warnings)
        if self._request.mutating and compatibility.steer(verdict, self._pod):
            self._notes.steered()

    def _rules_for(self, container: Container) -> list[InjectionRule]:
        return self._applying(self._policy.injections_of(container.names), container)

    def _applying(self, rules: Iterable[R], container: Container) -> list[R]:
        """Return the rules that apply to a container; one that cannot be evaluated warns and does not."""
        found = []
        for rule in rules:
            obstacle: Obstacle | None
            try:
                obstacle = injection.unmet(rule.match, container, self._pod, self._request.namespace)
            except ExpressionError as error:
                obstacle = error
            if obstacle is None or isinstance(obstacle, ExpressionError):
                obstacle = self._exemptions.of(rule.name) or obstacle
            self._notes.looked_at(rule, container, obstacle)
            if obstacle is None:
                found.append(rule)
            elif isinstance(obstacle, ExpressionError):
                facts = {"rule": rule.name, "container": container.name, "error": str(obstacle)}
                words = message.sentence(self._policy.language, message.UNDECIDED, facts)
                self._notes.found((), (words,), rule, container)
        return found

    def _note(self, rule: InjectionRule, done: list[str], containers: list[Container]) -> None:
        self._notes.put_in(rule, done)
        if rule.action is InjectionAction.DRYRUN or not done:
            return
        put_in = set(done)
        for container in containers:
            if hidden := injection.hidden_sources(rule, container, put_in, self._policy.language):
                self._notes.found((), hidden, rule, container)

    def _judge(self, container: Container, rules: list[ResourceRule]) -> None:
        for rule, found, warnings in resources.judge(rules, container, self._policy.language):
            self._notes.found(found, warnings, rule, container)

    def _decision(self, *, patch: bool) -> Decision:
        notes, language = self._notes, self._policy.language
        violations = notes.violations
        expired = self._exemptions.expired([found.rule for found in violations], language)
        denied = Action.DENY in [violation.action for violation in violations]
        return Decision(
            allowed=not denied,
            message=_denial(self._policy, self._request, violations) if denied else "",
            violations=tuple(violations),
            warnings=tuple(dict.fromkeys([*_warnings(violations), *notes.warnings, *expired])),
            patch=tuple(self._pod.recorder.operations) if patch and not denied else (),
            audit=notes.audit(self._exemptions.taken),
            rules=tuple(notes.rules),
            cuda_sources=tuple(notes.cuda_sources),
        )


def _denial(policy: Policy, request: AdmissionRequest, violations: list[Violation]) -> str:
    reasons = [(found.rule, found.message) for found in violations if found.action is Action.DENY]
    return message.denial(policy.language, request.kind, reasons)


def _warnings(violations: list[Violation]) -> list[str]:
    return [f"{found.message} [{found.rule}]" for found in violations if found.action is Action.WARN]


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
