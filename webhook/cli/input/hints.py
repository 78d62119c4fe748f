"""What admission does not tell whoever asks beforehand: slips of the pen, nodes that were not looked at."""

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

# How alike a slip of the pen is to what was meant, at least: nvidia.com/gpus is to nvidia.com/gpu by 0.97,
# while a vendor's own example.com/gpu is to amd.com/gpu by 0.77.
_ALIKE: Final = 0.9
_MISSPELT: Final = Text(
    "container {container!r} asks for {resource}, which no rule here is for – did you mean {meant!r}?",
    "容器 {container!r} 申请了 {resource}，没有规则针对该资源；是否应为 {meant!r}？",
)
_NO_NODES: Final = Text(
    "CUDA was not judged, as no nodes were named: --nodes FILE, or --context NAME",
    "未判断 CUDA 是否适合，因为没有指定节点：请使用 --nodes FILE 或 --context NAME",
)


class Hints:
    """Tells what may be wrong with objects, or with the question, by the rules that a policy is made of."""

    def __init__(self, rules: RuleSet, policy: Policy) -> None:
        self._policy = policy
        self._keys = [rule.key for rule in rules.resources]
        self._known = ResourceIndex((key, key) for key in self._keys)
        matches = [rule.match for rule in rules.injections] + [rule.match for rule in rules.compatibility]
        self._named = frozenset(name for match in matches for name in match.resources)
        self._meant = cache(self._find)

    def of(self, request: AdmissionRequest) -> tuple[str, ...]:
        """Return what may be misspelt in an object: resources that are almost those of a rule."""
        words = _MISSPELT.in_language(self._policy.language)
        return tuple(
            words.format(container=container.name, resource=name, meant=meant)
            for container in self._users(request)
            for name in dict.fromkeys(container.names)
            if (meant := self._meant(name))
        )

    def without_nodes(self, requests: Iterable[AdmissionRequest]) -> str:
        """Return what is not judged of objects where there are no nodes, or nothing."""
        users = (container for request in requests for container in self._users(request))
        if any(self._policy.compatibility_of(container.names) for container in users):
            return _NO_NODES.in_language(self._policy.language)
        return ""

    def _users(self, request: AdmissionRequest) -> list[Container]:
        """Return the containers that ask for extended resources; none of what is shaped otherwise."""
        document, workloads = request.object or {}, self._policy.workloads
        with suppress(ObjectError):
            templates = workloads.templates_of(request.group, request.kind, document)
            return [user for path, raw in templates.items() for user in Pod(document, raw, path).users]
        return []

    def _find(self, name: str) -> str:
        """Return what a resource of a misspelt name may be, or nothing."""
        if "/" not in name or name in self._named or self._known.find(name):
            return ""
        likeness, meant = max(((_likeness(name, key), key) for key in self._keys), default=(0.0, ""))
        return meant if likeness >= _ALIKE else ""


def _likeness(name: str, key: str) -> float:
    """Return how alike a name is to a key, 0 to 1; to a glob, by what stands before its star."""
    fixed, star, _ = key.partition("*")
    start = name[: len(fixed)] if star else name
    return SequenceMatcher(None, start.lower(), fixed.lower()).ratio()
