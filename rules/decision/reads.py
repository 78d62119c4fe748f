"""What rules read of a pod, as far as the rules tell: pods that are alike in that are alike to them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from rules.cuda.facts import telling
from rules.cuda.requirements import ANNOTATIONS
from rules.model.rule import EnvFromResource

if TYPE_CHECKING:
    from rules.cel.expression import Expression
    from rules.model.rule import CompatibilityRule, Exemption, InjectionRule, ResourceRule

# What of a spec tells where a pod may go, and in whose name it comes.
_PLACING: Final = ("nodeName", "nodeSelector", "affinity")
_ACCOUNT: Final = ("serviceAccountName", "serviceAccount")
# How an expression reads a pod: one label or annotation of it, as `pod.labels['a']` does, or more.
_READ: Final = re.compile(
    r"""\bpod\b(?:\.(?P<member>labels|annotations|namespace)\b(?:\[(["'])(?P<key>[^"'\\]*)\2\])?)?"""
)
# How one reads a container.
_OF_CONTAINER: Final = re.compile(r"\bcontainer\b(?:\.(name|image)\b)?")
# `'a' in pod.labels`, where neither operand is part of something longer.
_IN: Final = re.compile(
    r"""(?:^|[(&|?:])\s*(["'])(?P<key>[^"'\\]*)\1\s+in\s+(?P<pod>pod)\.(?:labels|annotations)\s*(?=$|[)&|?:])"""
)

# A member of a pod's metadata, and which of its keys; None for all.
_Read = tuple[str, str | None]


@dataclass(frozen=True, slots=True)
class Reads:
    """What rules read of a pod, beside the names and resources of its containers.

    names: of the resources that bring them in. called: whether they read what containers are called. images:
    whether they read them as written. globs, image_terms: else what an image may match, and conditions on
    one. label_terms: conditions on all labels together. namespace: whether they read it. labels, annotations:
    keys, or None for all. fields: of the spec. volumes, mounts, variables: names and mount paths that they
    look for, as they would put them in or are told by them. overridden, tellers: the variables that they
    replace, and that tell what a container needs of a node. needs, env_from: whether they look for such
    needs, and at envFrom. asks: whether they put in what asks something of one server and not of another.
    expiries: of exemptions, in seconds since the epoch.
    """

    names: tuple[str, ...]
    called: bool
    images: bool
    globs: tuple[tuple[re.Pattern[str], ...], ...]
    image_terms: tuple[Expression, ...]
    label_terms: tuple[Expression, ...]
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
    asks: bool
    env_from: bool
    expiries: tuple[float, ...]


def reads_of(
    names: tuple[str, ...],
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
    terms = [term for match in matches for term in match.terms]
    on_images = [term for term in terms if _is_on_image(term)]
    # What labels come to together is told as they came, which has to be what they come to in the end.
    on_labels = [] if any(put.labels for put in puts) else [term for term in terms if _is_on_labels(term)]
    others = [term for term in terms if term not in on_images]
    others += [each.expression for rule in resources for each in rule.validations]
    of_containers = {part for each in others for part in _of_container(each)}
    metadata = {read for term in terms if term not in on_labels for read in _read(term)}
    metadata |= {("labels", term.key) for match in matches for term in match.selector}
    metadata |= {("labels", key) for put in puts for key in put.labels}
    annotations = {key for put in puts for key in put.annotations}
    metadata |= {("annotations", key) for key in annotations}
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
        names=names,
        called=not of_containers <= {"image"} or any(key.startswith(ANNOTATIONS) for key in annotations),
        images=not of_containers <= {"name"},
        globs=tuple(match.images for match in matches if match.images),
        image_terms=tuple(on_images),
        label_terms=tuple(on_labels),
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
        asks=any(name in tellers for name, _ in variables),
        env_from=bool(variables),
        expiries=tuple(exemption.expires for exemption in exemptions),
    )


def _is_on_image(term: Expression) -> bool:
    """Tell whether an expression is about the image of a container and nothing else."""
    return term.variables == ("container",) and _of_container(term) == {"image"}


def _is_on_labels(term: Expression) -> bool:
    """Tell whether an expression is about the labels of a pod, more than some that it names, and no more."""
    return term.variables == ("pod",) and {*_read(term)} == {("labels", None)}


def _of_container(expression: Expression) -> set[str]:
    """Return what an expression reads of a container: `name`, `image`, or more, which is an empty text."""
    return {*_OF_CONTAINER.findall(expression.source)} if "container" in expression.variables else set()


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
