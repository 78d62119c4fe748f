"""The size limit of one object, so that none delays the reviews of others.

A usual pod has some dozen of what is counted here. The API server accepts objects of 3 MiB, and checking tens
of thousands of containers would take longer than a webhook may.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from rules.cuda.nvidia_require import REQUIRE_PREFIX
from rules.decision.messages import denial
from rules.kube.pod import Container, Pod
from rules.model.decision import Basis, Decision, Violation
from rules.model.rule import Action
from rules.nodes.node_selector import required_terms
from rules.text.budget import OverBudgetError
from rules.text.i18n import Language, Text
from rules.text.paths import field_path

# The name under which an oversized object is counted.
RULE: Final = "size-limit"
# Names of resources, terms of node selectors, requirement variables, debugging containers and templates of
# one object, together. Each costs 1.2 ms at most on one core, with a hundred kinds of nodes; all
# take half of the webhook's five seconds.
MOST: Final = 2048
# Names of resources of one container; rules that exclude each other compare every pair.
MOST_NAMES: Final = 128

_TOO_MANY_NAMES: Final = Text(
    "{place} names more than {most} resources; gpugate checks no more of one container",
    "{place} 的资源超过 {most} 种，gpugate 不再检查",
)
_TOO_MANY: Final = Text(
    "{place} has more than {most} resources, node selector terms, NVIDIA_REQUIRE variables, debugging"
    " containers and pod templates; gpugate checks no more of one object. Split it",
    "{place} 的资源、节点选择条件、NVIDIA_REQUIRE 变量、调试容器与 Pod 模板超过 {most} 个，"
    "gpugate 不再检查，请拆分该对象",
)


def oversize(pods: Sequence[Pod], kind: str, language: Language) -> Decision | None:
    """Return the denial of an object whose pods exceed the limit, None for all others."""
    # To count all variables is cheaper than to look for those that count, and nearly always enough.
    if _excess(pods, kind, _variables) is None or (found := _excess(pods, kind, _requirements)) is None:
        return None
    text, place, most = found
    return _denied(place, text.in_language(language).format(place=place, most=most), kind, language)


def over_budget(error: OverBudgetError, kind: str, language: Language) -> Decision:
    """Return the denial of an object that takes more steps than it may."""
    return _denied(kind, f"{kind}: {error.text.in_language(language)}", kind, language)


def _denied(place: str, reason: str, kind: str, language: Language) -> Decision:
    violation = Violation(RULE, Action.DENY, place, reason, basis=Basis.LIMIT)
    return Decision.deny(denial(language, kind, [violation]), (violation,))


def _excess(
    pods: Sequence[Pod], kind: str, variables: Callable[[Container], int]
) -> tuple[Text, str, int] | None:
    """Return what exceeds the limit, where, and the limit. variables: how many of a container count."""
    total = 0
    for pod in pods:
        total += 1
        spec = pod.spec
        for counted in (required_terms(spec), spec.get("ephemeralContainers")):
            total += len(counted) if isinstance(counted, list) else 0
        for container in pod.containers:
            names = len(container.names)
            if names > 2 * MOST_NAMES:
                return _TOO_MANY_NAMES, field_path(container.path), MOST_NAMES
            if names:
                total += names + variables(container)
        if total > MOST:
            return _TOO_MANY, kind, MOST
    return None


def _variables(container: Container) -> int:
    env = container.raw.get("env")  # as it came; what is no list is denied by the other
    return len(env if isinstance(env, list) else container.env)


def _requirements(container: Container) -> int:
    return "\0".join(["", *container.variables]).count(f"\0{REQUIRE_PREFIX}")
