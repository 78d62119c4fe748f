"""Match conditions: CEL expressions that select the objects to review.

There are two in each webhook, and the API server sends an object that both select. The manifests contain the
static one, which selects all extended resources, and objects of kinds that it does not know. gpugate adds its
own one, generated from the rules in force, as an item that no manifest contains, so that no tool that applies
manifests resets it. If it is missing, more objects are reviewed, never fewer.

All other objects never wait for the webhook and are not denied while it is unavailable. An object is selected
if a container in one of its pods or templates requests a resource that a rule names, or devices by a claim if
a rule names those, or if it has an annotation that a rule names, unless the template is unchanged: every rule
matches a resource or an annotation, so without one there is nothing to decide. Images, labels and namespaces
of rules are left to the webhook: an unnecessary review of a pod with a GPU costs a millisecond.

Pods are updated all the time, by the kubelet and controllers. In an update of a pod, each container is a
template: the API server allows only changes of its image, and of its resources by the subresource `resize`.

An expression never fails: with failurePolicy Fail, an error denies the object. A malformed pod or template
is skipped; the API server or a controller reports it.
Source: https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#matching-
requests-matchconditions
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from rules import RuleSet, Workloads
from rules.kube.names import ANNOTATION, DEFAULT_SCHEDULERS, requesting_annotation
from rules.model.rule import CompatibilityRule, InjectionRule, ResourceRule
from rules.model.workload_kinds import EVERY, Steps
from rules.nodes.devices.device_classes import IMPLICIT_PREFIX
from rules.text.glob import glob, is_glob, overlap

# Name of gpugate's condition in each webhook; conditions with other names belong to the operator.
CONDITION: Final = "asks-for-accelerators"
# Name of the condition in the manifests.
STATIC_CONDITION: Final = "asks-for-extended-resources"
# The mutating webhook selects only pods.
_POD: Final = ("", "Pod")
PODS: Final = Workloads({_POD: ((),)})
# An update of a pod, not of one of its subresources, such as its ephemeral containers.
_POD_UPDATE: Final = (
    'request.kind.group + "/" + request.kind.kind == "/Pod" && request.operation == "UPDATE" &&'
    " !has(request.subResource)"
)
_KIND: Final = 'request.kind.group + "/" + request.kind.kind'
_MEMBERS: Final = "(type(all) == list ? all : type(all) == map ? all.map(name, all[name]) : [])"
_CONTAINERS: Final = (("spec", "containers", EVERY), ("spec", "initContainers", EVERY))
_IMAGES: Final = tuple((*steps, "image") for steps in _CONTAINERS)
# All extended resources; `cpu`, `memory` and the like have no domain.
EVERY_RESOURCE: Final = frozenset({"*/*"})
# The resources that stand for device classes, as claims name them.
_OF_CLASSES: Final = glob(f"{IMPLICIT_PREFIX}*")
# Characters of the list of about 700 names. The API server looks up a name in a list by its hash, and rejects
# expressions of more than 100,000 characters.
MAX_NAMES_LENGTH: Final = 20_000
# Characters of the pattern of about 100 globs. The API server limits the cost of matching it with each
# resource, and denies a pod that exceeds it: at this length a pod of 400 containers, each with a resource
# that no rule names, but not one of 200.
MAX_PATTERN_LENGTH: Final = 3_000

_GLOB: Final = {".": "[.]", "*": ".*", "?": "."}
_TEXT: Final = {text: character for character, text in _GLOB.items()}
_DOMAIN: Final = 'key.contains("/")'
_ANY: Final = f"exists(key, {_DOMAIN})"
_NAME: Final = re.compile(r'"([^"]*)"')
_IN: Final = re.compile(r"key in (\[[^]]*\])")
_ANNOTATIONS: Final = re.compile(r"(\[[^]]*\])\.exists\(name, name in holder")
# A pod whose annotations a scheduler may read as requests.
_DEFAULT_SCHEDULERS: Final = json.dumps([name for name in DEFAULT_SCHEDULERS if name is not None])
_OTHER_SCHEDULER: Final = f'"schedulerName" in spec && !(spec["schedulerName"] in {_DEFAULT_SCHEDULERS})'
_EVERY_ANNOTATION: Final = f"{ANNOTATION}*"
_MATCHES: Final = re.compile(r'key\.matches\("\(\?s\)\^\(([^"]*)\)\$"\)')


def resources_of(rules: RuleSet) -> frozenset[str]:
    """Return the names and globs of the resources of enabled rules.

    If they are too many for an expression, returns `vendor.com/*` for each vendor; if those are too many, one
    glob for all.
    """
    names = frozenset(name for rule in rules if rule.enabled for name in _resources_of_rule(rule))
    domains = frozenset(f"{name.partition('/')[0]}/*" for name in names)
    for chosen in (names, domains):
        names_list, pattern = _split(chosen)
        if len(names_list) <= MAX_NAMES_LENGTH and len(pattern) <= MAX_PATTERN_LENGTH:
            return chosen
    return EVERY_RESOURCE


def _resources_of_rule(rule: object) -> Iterator[str]:
    if isinstance(rule, ResourceRule):
        yield rule.key
    elif isinstance(rule, InjectionRule | CompatibilityRule):
        yield from rule.match.resources


def expression(resources: Collection[str], workloads: Workloads) -> str:
    """Return the CEL expression that selects objects for the webhook; the same text for the same input.

    resources: names and globs; with none the expression is false.
    """
    annotations, resources = _annotations_test(resources), _without_annotations(resources)
    of_update = _annotations_of_update(annotations, workloads)
    return f"""\
{_images_test(workloads)}{of_update}[[object, oldObject].map(o,
  {_templates(workloads)}
)].exists(both, both[0].exists(templates, templates.exists(template,
  type(template) == map &&
  ("spec" in template ? [template["spec"]] : [template]).exists(spec, type(spec) == map && ({annotations}
    ["containers", "initContainers"].exists(field, field in spec && type(spec[field]) == list &&
      spec[field].exists(container, type(container) == map &&
        "resources" in container && type(container["resources"]) == map && ({_claims_test(resources)}
        ["limits", "requests"].exists(part,
          part in container["resources"] && type(container["resources"][part]) == map &&
          container["resources"][part].exists(key, {_key_test(resources)}))))))) &&
  !both[1].exists(before, template in before)))){")" if of_update else ""}"""


def static_expression(workloads: Workloads) -> str:
    """Return the CEL expression of the manifests, which selects a superset for any rules.

    It contains the paths of `workloads`, the built-in ones. gpugate may be configured with other kinds: all
    objects of these are selected.
    """
    kinds = json.dumps(sorted(f"{group}/{kind}" for group, kind in workloads.paths))
    return f"!({_KIND} in {kinds}) ||\n{expression(EVERY_RESOURCE, workloads)}"


def resources_in(text: str) -> frozenset[str]:
    """Return the resources in an expression that `expression` returned."""
    if _ANY in text:
        return EVERY_RESOURCE
    names, globs = _IN.search(text), _MATCHES.search(text)
    resources = set(_NAME.findall(names[1])) if names else set()
    if annotations := _ANNOTATIONS.search(text):
        resources |= {ANNOTATION + name for name in _NAME.findall(annotations[1])}
    elif _OTHER_SCHEDULER in text:
        resources.add(_EVERY_ANNOTATION)
    if globs:
        resources |= {
            re.sub(r"\[\.\]|\.\*|\.", lambda part: _TEXT[part[0]], pattern) for pattern in globs[1].split("|")
        }
    return frozenset(resources)


def _split(resources: Collection[str]) -> tuple[str, str]:
    """Return the names as a CEL list, and the globs as a regular expression; empty for none."""
    names = sorted(name for name in resources if not is_glob(name))
    globs = sorted(name for name in resources if is_glob(name))
    pattern = "|".join(re.sub("[.*?]", lambda part: _GLOB[part[0]], name) for name in globs)
    return json.dumps(names) if names else "", pattern


def _key_test(resources: Collection[str]) -> str:
    """Return the CEL test of a resource key; a key without a domain fails its first, cheap part."""
    if resources == EVERY_RESOURCE:
        return _DOMAIN
    names, pattern = _split(resources)
    parts = [f"key in {names}"] * bool(names) + [f'key.matches("(?s)^({pattern})$")'] * bool(pattern)
    return f"{_DOMAIN} && ({' || '.join(parts)})" if parts else "false"


def _claims_test(resources: Collection[str]) -> str:
    """Return the CEL test for claims, if a rule matches a device class; the pod does not name the class."""
    matched = any(overlap(glob(name), _OF_CLASSES) for name in resources)
    return '"claims" in container["resources"] ||' if matched else ""


def _without_annotations(resources: Collection[str]) -> frozenset[str]:
    return frozenset(name for name in resources if not name.startswith(ANNOTATION))


def _annotations_test(resources: Collection[str]) -> str:
    """Return the CEL test that a template has annotations that request something, with its operator.

    A pod spec without a template contains its annotations.
    """
    names = sorted(requesting_annotation(name) for name in resources if name.startswith(ANNOTATION))
    if resources == EVERY_RESOURCE or _EVERY_ANNOTATION in resources:
        test = f'size(holder["annotations"]) > 0 && {_OTHER_SCHEDULER}'
    elif names:
        test = f'{json.dumps(names)}.exists(name, name in holder["annotations"]) && {_OTHER_SCHEDULER}'
    else:
        return ""
    return (
        '([template].map(n, "metadata" in n, n["metadata"]) + [spec]).exists(holder, type(holder) == map &&\n'
        f'      "annotations" in holder && type(holder["annotations"]) == map && {test}) ||'
    )


def _annotations_of_update(annotations: str, workloads: Workloads) -> str:
    """Return the start of a CEL test to which an update of a pod with such annotations is an alternative."""
    if not annotations or _POD not in workloads.paths:
        return ""
    return (
        f"({_POD_UPDATE} &&\n"
        '  [object].exists(template, type(template) == map && "spec" in template &&\n'
        f'    [template["spec"]].exists(spec, type(spec) == map && ({annotations} false))) ||\n'
    )


def _images_test(workloads: Workloads) -> str:
    """Return the CEL test that an update of a pod changes an image, with the operator that follows it."""
    if _POD not in workloads.paths:
        return ""
    images = f"[object, oldObject].map(o, {_lists(_IMAGES)})"
    return f"!({_POD_UPDATE} &&\n  [{images}].exists(both, both[0] == both[1])) &&\n"


def _templates(workloads: Workloads) -> str:
    """Return the CEL list of lists of templates in `o`, by its kind.

    The paths are data, and each step is written once: to compile an expression that has the steps of each
    kind takes the API server longer than a request may.
    """
    updates = ""
    if _POD in workloads.paths:
        updates = (
            f'{_POD_UPDATE} ?\n    ({_lists(_CONTAINERS)}).map(all, all.map(n, {{"containers": [n]}})) :\n  '
        )
    rows_by_kind = {
        f"{group}/{kind}": _rows(workloads, (group, kind)) for group, kind in sorted(workloads.paths)
    }
    rows = {kind: kind_rows for kind, kind_rows in rows_by_kind.items() if kind_rows}
    first, second = (
        "".join(_step(f"p[{part}]", at) for at in range(_longest(rows, part))) for part in (0, 1)
    )
    kinds = f"[{_table(rows)}].filter(m, {_KIND} in m).map(m, m[{_KIND}])"
    return f"""{updates}({kinds} + [[]])[0].map(p,
    ([o]{first}.map(all, (size(p[2]) == 0 ? [all] : {_MEMBERS}){second}{_others(rows)}) + [[]])[0])"""


def _rows(workloads: Workloads, kind: tuple[str, str]) -> list[list[Steps]]:
    """Return a row for each path of a kind: the steps before `*`, the steps after it, and `*` itself.

    A row for a container at another place has three more parts: the steps before and after `*` to it, and the
    key of its resources. A path with two `*` is left out, because CEL cannot join its lists: only the objects
    that are created from it are reviewed.
    """
    others = workloads.others.get(kind, {})
    rows = []
    for steps in workloads.paths[kind]:
        if steps.count(EVERY) < 2:
            rows.append(_split_at_every(steps))
            rows += [
                [*rows[-1][:3], *_split_at_every(place.steps)[::2], (place.resources,)]
                for place in others.get(steps, ())
            ]
    return rows


def _split_at_every(steps: Steps) -> list[Steps]:
    if EVERY not in steps:
        return [steps, (), ()]
    place = steps.index(EVERY)
    return [steps[:place], steps[place + 1 :], (EVERY,)]


def _longest(rows: Mapping[str, list[list[Steps]]], part: int) -> int:
    """Return the largest number of steps in a part of the rows."""
    return max(
        (len(row[part]) for kind_rows in rows.values() for row in kind_rows if part < len(row)), default=0
    )


def _table(rows: Mapping[str, list[list[Steps]]]) -> str:
    """Return the CEL map of the rows of each kind, a line each."""
    lines = [
        f"{json.dumps(kind)}: {json.dumps(kind_rows, separators=(',', ':'))}"
        for kind, kind_rows in rows.items()
    ]
    return "{\n    " + ",\n    ".join(lines) + "}"


def _step(steps: str, at: int) -> str:
    """Return the CEL step from each object of a list to a member that is named in a list of steps, if any."""
    end, name = f"size({steps}) <= {at}", f"{steps}[{at}]"
    return f".map(n, {end} || (type(n) == map && {name} in n), {end} ? n : n[{name}])"


def _others(rows: Mapping[str, list[list[Steps]]]) -> str:
    """Return the CEL step from each pod of a list to a pod spec with the container at another place.

    The result contains the pod, so that a change of the pod is a change of the template.
    """
    steps = "".join(_step("p[3]", at) for at in range(_longest(rows, 3)))
    if not any(len(row) > 3 for kind_rows in rows.values() for row in kind_rows):
        return ""
    every = "all.filter(each, type(each) == list)"
    # The API server rejects a map whose values have different types, except `dyn`.
    return (
        f'.map(n, size(p) == 3 ? n : {{"pod": n, "containers": dyn([[n]{steps}].map(all,'
        f" size(p[4]) == 0 ? all : ({every} + [[]])[0])[0]"
        '.map(c, type(c) == map && p[5][0] in c, {"resources": c[p[5][0]]}))})'
    )


def _lists(paths: tuple[Steps, ...]) -> str:
    """Return the CEL lists of the values at paths with one `*`."""
    rows = map(_split_at_every, paths)
    return " + ".join(
        f"[o]{_member_steps(row[0])}.map(all, {_MEMBERS}{_member_steps(row[1])})" for row in rows
    )


def _member_steps(steps: Steps) -> str:
    """Return the CEL steps from each object of a list to a member, if it has it."""
    return "".join(
        f".map(n, type(n) == map && {json.dumps(step)} in n, n[{json.dumps(step)}])" for step in steps
    )
