"""What rules read of a pod, as far as the rules tell: pods that are alike in that are alike to them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from rules.facts import telling
from rules.model import EnvFromResource

if TYPE_CHECKING:
    from rules.expression import Expression
    from rules.model import CompatibilityRule, Exemption, InjectionRule, ResourceRule

# What of a spec tells where a pod may go, and in whose name it comes.
_PLACING: Final = ("nodeName", "nodeSelector", "affinity")
_ACCOUNT: Final = ("serviceAccountName", "serviceAccount")
# How an expression reads a pod: one label or annotation of it, as `pod.labels['a']` does, or more.
_READ: Final = re.compile(
    r"""\bpod\b(?:\.(?P<member>labels|annotations|namespace)\b(?:\[(["'])(?P<key>[^"'\\]*)\2\])?)?"""
)
# `'a' in pod.labels`, where neither operand is part of something longer.
_IN: Final = re.compile(
    r"""(?:^|[(&|?:])\s*(["'])(?P<key>[^"'\\]*)\1\s+in\s+(?P<pod>pod)\.(?:labels|annotations)\s*(?=$|[)&|?:])"""
)

# A member of a pod's metadata, and which of its keys; None for all.
_Read = tuple[str, str | None]


@dataclass(frozen=True, slots=True)
class Reads:
    """What some rules read of a pod, beside the names, images and resources of its containers.

    namespace: whether they do. labels, annotations: keys, or None for all. fields: of the spec. volumes,
    mounts, variables: names and mount paths that they look for, as they would put them in or are told by
    them. overridden, tellers: the variables that they replace, and that tell what a container needs of a
    node. needs, env_from: whether they look for such needs, and at envFrom. expiries: of exemptions, in
    seconds since the epoch.
    """

    namespace: bool
    labels: tuple[str, ...] | None
    annotations: tuple[str, ...] | None
    fields: tuple[str, ...]
    volumes: frozenset[str]
    mounts: frozenset[str]
    variables: frozenset[str]
    overridden: frozenset[str]
    tellers: frozenset[str]
    needs: bool
    env_from: bool
    expiries: tuple[float, ...]


def reads_of(
    resources: Collection[ResourceRule],
    injections: Collection[InjectionRule],
    compatibility: Collection[CompatibilityRule],
    exemptions: Collection[Exemption],
) -> Reads | None:
    """Return what these rules read; None where they put in a variable that refers to others.

    Those may tell what a container needs, whatever their names.
    """
    puts = [rule.inject for rule in injections]
    variables = [entry for put in puts for entry in put.env]
    if compatibility and any("$" in _text(source) for _, source in variables):
        return None
    rules: list[InjectionRule | CompatibilityRule | Exemption] = [*injections, *compatibility, *exemptions]
    matches = [rule.match for rule in rules]
    metadata = {read for match in matches for condition in match.conditions for read in _read(condition)}
    metadata |= {("labels", term.key) for match in matches for term in match.selector}
    metadata |= {("labels", key) for put in puts for key in put.labels}
    metadata |= {("annotations", key) for put in puts for key in put.annotations}
    metadata |= {("namespace", None) for match in matches if match.include or match.exclude}
    fields = {
        "runtimeClassName": any(rule.runtime_class for rule in resources)
        or any(put.runtime_class for put in puts),
        "schedulerName": any(put.scheduler for put in puts),
        "hostIPC": any(put.host_ipc for put in puts),
        "tolerations": any(put.tolerations for put in puts),
        "affinity": any(put.required_terms or put.preferred_terms for put in puts),
        **dict.fromkeys(_PLACING if compatibility else (), True),
        **dict.fromkeys(_ACCOUNT if exemptions else (), True),
    }
    tellers = telling() if compatibility else frozenset()
    return Reads(
        namespace=("namespace", None) in metadata,
        labels=_keys(metadata, "labels"),
        annotations=_keys(metadata, "annotations"),
        fields=tuple([name for name, looked_at in fields.items() if looked_at]),
        volumes=frozenset(volume["name"] for put in puts for volume in put.volumes),
        mounts=frozenset(mount["mountPath"] for put in puts for mount in put.volume_mounts),
        variables=tellers.union(name for name, _ in variables),
        overridden=frozenset(name for rule in injections if rule.override for name, _ in rule.inject.env),
        tellers=tellers,
        needs=bool(compatibility),
        env_from=bool(variables),
        expiries=tuple(exemption.expires for exemption in exemptions),
    )


def _read(condition: Expression) -> Iterator[_Read]:
    """Yield what an expression reads of a pod, or more than that."""
    if "pod" not in condition.variables:
        return
    keys = {found.start("pod"): found["key"] for found in _IN.finditer(condition.source)}
    for found in _READ.finditer(condition.source):
        if found["member"]:
            yield found["member"], found["key"] or keys.get(found.start())
        else:
            yield from (("labels", None), ("annotations", None), ("namespace", None))


def _keys(metadata: Iterable[_Read], member: str) -> tuple[str, ...] | None:
    keys = [key for of, key in metadata if of == member]
    return None if None in keys else tuple(sorted(filter(None, keys)))


def _text(source: EnvFromResource | Mapping[str, Any]) -> str:
    """Return the value that a rule gives a variable, as far as it is a text."""
    return source.template if isinstance(source, EnvFromResource) else str(source.get("value", ""))
