"""Hints of offline commands, which admission does not print: misspelt resource names, missing node data."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from difflib import SequenceMatcher
from functools import cache
from typing import Final

from rules import AdmissionRequest, ObjectError, Policy, RuleSet
from rules.kube.pod import Container, Pod
from rules.model.resource_index import ResourceIndex
from rules.text.i18n import Text

# Minimum similarity of a misspelt name and the correct one: nvidia.com/gpus and nvidia.com/gpu have 0.97;
# example.com/gpu and amd.com/gpu, two different vendors' resources, have 0.77.
_MIN_SIMILARITY: Final = 0.9
_MISSPELT: Final = Text(
    "container {container!r} requests {resource}, which does not match any rule – did you mean {meant!r}?",
    "容器 {container!r} 申请了 {resource}，没有规则匹配该资源；是否应为 {meant!r}？",
)
_NO_NODES: Final = Text(
    "CUDA compatibility not checked: no nodes given (use --nodes FILE or --context NAME)",
    "未检查 CUDA 兼容性：没有指定节点（请使用 --nodes FILE 或 --context NAME）",
)


class Hints:
    """Finds probable mistakes in objects and in options, based on the rules of a policy."""

    def __init__(self, rules: RuleSet, policy: Policy) -> None:
        self._policy = policy
        self._keys = [rule.key for rule in rules.resources]
        self._known = ResourceIndex((key, key) for key in self._keys)
        matches = [rule.match for rule in rules.injections] + [rule.match for rule in rules.compatibility]
        self._matched = frozenset(name for match in matches for name in match.resources)
        self._correction = cache(self._find_correction)

    def of(self, request: AdmissionRequest) -> tuple[str, ...]:
        """Return a hint for each resource name in an object that is almost that of a rule."""
        message = _MISSPELT.in_language(self._policy.language)
        return tuple(
            message.format(container=container.name, resource=name, meant=meant)
            for container in self._users(request)
            for name in dict.fromkeys(container.names)
            if (meant := self._correction(name))
        )

    def without_nodes(self, requests: Iterable[AdmissionRequest]) -> str:
        """Return the hint that CUDA is not checked without nodes; empty if no object needs that check."""
        users = (container for request in requests for container in self._users(request))
        if any(self._policy.plan_for(container.names).compatibility for container in users):
            return _NO_NODES.in_language(self._policy.language)
        return ""

    def _users(self, request: AdmissionRequest) -> list[Container]:
        """Return the containers that request extended resources; none if the object is malformed."""
        document, workloads = request.object or {}, self._policy.workloads
        with suppress(ObjectError):
            templates = workloads.templates_of(request.group, request.kind, document)
            return [user for path, raw in templates.items() for user in Pod(document, raw, path).users]
        return []

    def _find_correction(self, name: str) -> str:
        """Return the probable correct name of a misspelt resource, or an empty string."""
        if "/" not in name or name in self._matched or self._known.find(name):
            return ""
        similarity, meant = max(((_similarity(name, key), key) for key in self._keys), default=(0.0, ""))
        return meant if similarity >= _MIN_SIMILARITY else ""


def _similarity(name: str, key: str) -> float:
    """Return the similarity of a name and a key, 0 to 1; of a glob, only the part before `*` counts."""
    fixed, star, _ = key.partition("*")
    start = name[: len(fixed)] if star else name
    return SequenceMatcher(None, start.lower(), fixed.lower()).ratio()
