"""Templates of rules of each kind, with their tests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from rules import load_rules
from rules.cuda.versions import CudaVersion
from rules.decision.pipeline import INJECTED_ANNOTATION
from rules.decision.recorder import DecidingRule
from rules.decision.resource_stage import API_SERVER
from rules.kube.json_patch import pointer
from rules.model.rule import InjectionRule, ResourceRule
from rules.schema.errors import reason_of
from rules.schema.exemption import instant
from rules.schema.loader import LABEL_PREFIXES, RESOURCE_RULE_TYPE
from rules.text.glob import glob, glob_text
from webhook.cli.test.draft import (
    IMAGE,
    Draft,
    DraftError,
    Json,
    allowed,
    cuda_image,
    denied,
    image_like,
    node_of,
    pod_of,
    run,
    without_globs,
    word_of,
)
from webhook.cli.test.runner import BUILT_IN
from webhook.yaml_output import dump_yaml

# Common quantities, then uncommon ones, to find quantities that a check allows and denies.
_LIKELY: Final = (1, 2, 4, 8, 10, 16, 20, 50, 100, 200, 256, 512, 1000, 1024, 4096, 10_000)
_QUANTITIES: Final = (*_LIKELY, 3, 9, 11, 33, 101, 150, 257, 1025, 10_001, 1_000_000_000)
# The default CUDA version of a test, and that of a driver which is older than the images in use.
_CUDA: Final = CudaVersion(12, 4)
_OLD_CUDA: Final = CudaVersion(11, 0)
# File, name and resource of the compatibility rule in the test of an image catalog.
_COMPATIBILITY: Final = (f"{BUILT_IN}pgpu/compatibility.yaml", "compatibility-pgpu", "nvidia.com/gpu")


def group_of(key: str) -> str:
    """Return the default group of a resource, its vendor: `vendor` for `vendor.com/device`."""
    domain = key.partition("/")[0]
    return word_of(domain.rpartition(".")[0] or domain)


def resource(
    key: str,
    *,
    name: str = "",
    group: str = "",
    limits: str = "optional",
    requests: str = "disabled",
    default: str = "",
    data_type: str = "integer",
    checks: Sequence[str] = (),
    excludes: Sequence[str] = (),
    runtime_class: str = "",
    description: str = "",
    description_zh: str = "",
) -> Draft:
    """Return a resource rule. checks: CEL validations. excludes: names or globs. Raises DraftError."""
    group, device, prefix = group or group_of(key), without_globs(key), LABEL_PREFIXES[1]
    data = {
        "key": key,
        "dataType": data_type,
        "descriptionEn": description,
        "descriptionZh": description_zh,
        "group": group,
        "limits": limits,
        "requests": requests,
        "defaultValue": default,
        "excludeResources": ", ".join(excludes),
        "runtimeClassName": runtime_class,
        "validations": dump_yaml([{"expression": check} for check in checks]) if checks else "",
    }
    draft = Draft(
        name or f"cf-crl-{group}-{word_of(key.partition('/')[2])}",
        {f"{prefix}type": RESOURCE_RULE_TYPE, f"{prefix}group": group, f"{prefix}enabled": "true"},
        {field: text for field, text in data.items() if text},
    )
    quantities: list[int | str] = [*([default] if default else ()), *_QUANTITIES]
    trials = [allowed(f"{quantity!r}", pod_of({device: quantity})) for quantity in quantities]
    results = run([(draft.file, draft.rule)], trials)
    valid = [each for each, result in zip(quantities, results, strict=True) if result.decision.allowed]
    if not valid:
        raise DraftError(f"the rule denies {', '.join(map(str, quantities))}; write its test manually")
    fields: Json = {f"/spec/containers/0{pointer(('resources', 'limits', device))}": valid[0]}
    fields |= {"/spec/runtimeClassName": runtime_class} if runtime_class else {}
    cases = [allowed(f"{valid[0]} is allowed", pod_of({device: valid[0]}), {"fields": fields})]
    wrong, expected = ("500m", "a whole number") if data_type == "integer" else ("-1", "zero or more")
    cases.append(denied(f"{wrong} is denied", pod_of({device: wrong}), draft.name, expected))
    cases += [
        denied(f"{invalid} is denied", pod_of({device: invalid}), draft.name, f"found {invalid}")
        for invalid in [quantity for quantity in quantities if quantity not in valid][:1]
    ]
    cases += [
        denied(f"{other} must not be used together with it", pod_of({device: valid[0], other: 1}), draft.name)
        for other in map(without_globs, excludes)
    ]
    return draft.with_cases(*cases)


def injection(
    key: str,
    *,
    name: str = "",
    env: Mapping[str, str] | None = None,
    quantities: Sequence[str] = (),
    images: Sequence[str] = (),
    tolerations: Sequence[str] = (),
    runtime_class: str = "",
    description: str = "",
    description_zh: str = "",
) -> Draft:
    """Return an injection rule. Raises DraftError.

    quantities: variables set to the quantity of key. tolerations: as kubectl writes taints.
    """
    device, image = without_globs(key), image_like(images)
    entries: list[Json] = [{"name": variable, "value": value} for variable, value in (env or {}).items()]
    expected = [*entries, *({"name": variable, "value": "1"} for variable in quantities)]
    entries += [{"name": variable, "fromResource": {"name": key}} for variable in quantities]
    tolerated = [_toleration(text) for text in tolerations]
    inject = {"env": entries, "tolerations": tolerated, "runtimeClassName": runtime_class}
    inject = {field: value for field, value in inject.items() if value}
    if not inject:
        raise DraftError(
            "nothing to inject: set --env NAME=VALUE, --env-quantity NAME, --toleration KEY "
            "or --runtime-class NAME"
        )
    match = {"resources": [key]} | ({"images": [*images]} if images else {})
    path = "/spec/containers/0/env"
    paths = {"env": path, "tolerations": "/spec/tolerations", "runtimeClassName": "/spec/runtimeClassName"}
    fields = {paths[field]: expected if field == "env" else value for field, value in inject.items()}
    draft = Draft.of_document(
        name or f"inject-{word_of(key.partition('/')[2])}",
        "InjectionRule",
        _described(description, description_zh) | {"match": match, "inject": inject},
        allowed("the values are injected", pod_of({device: 1}, image=image), {"fields": fields}),
        allowed("a pod without the resource is unchanged", pod_of({"cpu": 1}, image=image), {"patch": []}),
    )
    if expected:
        own = {"name": expected[0]["name"], "value": "mine"}
        set_by_user = pod_of({device: 1}, image=image, env=[own])
        kept = allowed("a variable set by the user is kept", set_by_user, {"fields": {f"{path}/0": own}})
        draft = draft.with_cases(kept)
    if _are_specific(images):
        draft = draft.with_cases(allowed("another image is unchanged", pod_of({device: 1}), {"patch": []}))
    return draft


def compatibility(
    key: str,
    *,
    name: str = "",
    sharing: str = "physical",
    baseline: str = "",
    description: str = "",
    description_zh: str = "",
) -> Draft:
    """Return a compatibility rule. baseline: the highest CUDA version that the virtualization supports."""
    device, cuda = without_globs(key), _version(baseline) if baseline else _CUDA
    newer = CudaVersion(cuda.major + 1, 0)
    terms = {"match": {"resources": [key]}, "sharing": sharing} | ({"baseline": baseline} if baseline else {})
    fits, fails = (pod_of({device: 1}, image=cuda_image(version)) for version in (cuda, newer))
    nodes = [node_of(cuda, device)]
    name = name or f"compatibility-{group_of(key)}"
    return Draft.of_document(
        name,
        "CompatibilityRule",
        _described(description, description_zh) | terms,
        allowed(f"CUDA {cuda} is compatible with a driver of CUDA {cuda}", fits, nodes=nodes),
        denied(f"CUDA {newer} is incompatible", fails, name, f"CUDA {newer}", nodes=nodes),
    )


def image_catalog(images: Sequence[str], cuda: str, *, name: str = "") -> Draft:
    """Return an image catalog for one CUDA version; its test uses the built-in rule for NVIDIA GPUs."""
    version = _version(cuda)
    older = CudaVersion(version.major - 1, 0)
    file, rule, device = _COMPATIBILITY
    pod, old = pod_of({device: 1}, image=image_like(images)), [node_of(older, device)]
    draft = Draft.of_document(
        name or "images",
        "ImageCatalog",
        {"images": [{"image": image, "cuda": cuda} for image in images]},
        allowed(f"a driver of CUDA {version} is compatible", pod, nodes=[node_of(version, device)]),
        denied(f"a driver of CUDA {older} is incompatible", pod, rule, f"CUDA {version}", nodes=old),
    ).with_rules(file)
    if _are_specific(images):
        draft = draft.with_cases(allowed("another image is not checked", pod_of({device: 1}), nodes=old))
    return draft


def exemption(
    rules: Sequence[str],
    namespaces: Sequence[str],
    *,
    reason: str,
    expires: str,
    known: Iterable[tuple[str, str]],
    name: str = "",
) -> Draft:
    """Return an exemption from rules in namespaces until a day. known: rule files by their names in a test.

    The test covers the first known rule. Raises DraftError if no rule is known or the day is invalid.
    """
    try:
        instant(expires)
    except ValueError as error:
        raise DraftError(f"--expires: {reason_of(error).en}") from None
    file, text, rule = _exempted(rules, known)
    inside = without_globs(namespaces[0])
    pods, nodes = _subjects(rule)
    trials = run([(file, text)], [allowed(f"{at}", pod, nodes=nodes) for at, pod in enumerate(pods)])
    pod, trial = next(
        (
            (pod, trial)
            for pod, trial in zip(pods, trials, strict=True)
            if [rule.name] == [violation.rule for violation in trial.decision.violations]
        ),
        (pods[-1], trials[-1]),
    )
    (left,) = run([], [allowed("without rules", pod, nodes=nodes)])
    path = pointer(("metadata", "annotations", INJECTED_ANNOTATION))

    def case(title: str, namespace: str, year: int, *, exempt: bool) -> Json:
        given: Json = {"namespace": namespace, "now": f"{year}-01-01T00:00:00Z", "nodes": nodes}
        if trial.decision.allowed:  # the rule patches the pod
            return allowed(title, pod, {"fields": {path: None if exempt else rule.name}}, **given)
        if exempt and left.decision.allowed:
            return allowed(title, pod, **given)
        return denied(title, pod, API_SERVER if exempt else rule.name, **given)

    after = int(expires[:4]) + 1
    return Draft.of_document(
        name or f"exempt-{word_of(namespaces[0])}",
        "Exemption",
        {"reason": reason, "expires": expires, "rules": [*rules], "namespaces": {"include": [*namespaces]}},
        case(f"namespace {inside} is exempt from {rule.name}", inside, 2000, exempt=True),
        case("another namespace is not", "elsewhere", 2000, exempt=False),
        case(f"{inside} is not exempt after {expires}", inside, after, exempt=False),
    ).with_rules(file)


def node_profile(
    labels: Mapping[str, str],
    product: str,
    cuda: str,
    *,
    name: str = "",
    gpus: int = 1,
    description: str = "",
    description_zh: str = "",
) -> Draft:
    """Return the profile of nodes that have these labels when they are created. gpus: of one node.

    Its test uses the built-in rule for NVIDIA GPUs, in a cluster with an older node. Raises DraftError.
    """
    version = _version(cuda)
    newer = CudaVersion(version.major + 1, 0)
    file, rule, device = _COMPATIBILITY
    nodes = [node_of(CudaVersion(version.major - 1, 0), device)]
    fits, fails = (pod_of({device: 1}, image=cuda_image(each)) for each in (version, newer))
    document = {
        "match": {"nodeLabels": dict(labels)},
        "labelsAtCreation": dict(labels),
        "offers": {"resources": {device: gpus}, "product": product, "cuda": cuda},
    }
    return Draft.of_document(
        name or f"profile-{word_of(next(iter(labels.values())))}",
        "NodeProfile",
        _described(description, description_zh) | document,
        allowed(f"a new node runs CUDA {version}", fits, nodes=nodes),
        denied(f"no node runs CUDA {newer}", fails, rule, f"CUDA {newer}", nodes=nodes),
    ).with_rules(file)


def _exempted(names: Sequence[str], known: Iterable[tuple[str, str]]) -> tuple[str, str, DecidingRule]:
    """Return file, text and rule of the first enabled rule with one of the names."""
    patterns = [glob(name) for name in names]
    for file, text in known:
        found = load_rules([(file, text)]).rules
        candidates: list[DecidingRule] = [*found.resources, *found.injections, *found.compatibility]
        for rule in candidates:
            if rule.enabled and any(pattern.fullmatch(rule.name) for pattern in patterns):
                return file, text, rule
    raise DraftError(
        f"no enabled rule is named {' or '.join(names)}; `gpugate rules` lists the built-in rules"
    )


def _subjects(rule: DecidingRule) -> tuple[list[Json], list[Json]]:
    """Return pods of which a rule of this kind denies or patches one in most cases, and their nodes.

    The last pod of a resource rule is denied in any case, by the API server if the rule does not.
    """
    if isinstance(rule, ResourceRule):
        return [pod_of({without_globs(rule.key): quantity}) for quantity in (*_QUANTITIES, -1)], []
    device = without_globs(rule.match.resources[0])
    if isinstance(rule, InjectionRule):
        images = [glob_text(pattern) for pattern in rule.match.images]
        return [pod_of({device: 1}, image=image_like(images))], []
    return [pod_of({device: 1}, image=cuda_image(_CUDA))], [node_of(_OLD_CUDA, device)]


def _are_specific(images: Sequence[str]) -> bool:
    """Return whether there are globs, and none matches any image."""
    return bool(images) and not any(glob(pattern).fullmatch(IMAGE) for pattern in images)


def _version(text: str) -> CudaVersion:
    version = CudaVersion.parse(text)
    if version is None:
        raise DraftError(f"expected a CUDA version such as 12.4, got {text!r}")
    return version


def _described(description: str, description_zh: str) -> dict[str, Any]:
    texts = {"en": description, "zh": description_zh}
    return {"description": found} if (found := {key: text for key, text in texts.items() if text}) else {}


def _toleration(text: str) -> Json:
    """Return a toleration of a taint as kubectl writes it: KEY, KEY=VALUE, KEY:EFFECT, KEY=VALUE:EFFECT."""
    taint, _, effect = text.partition(":")
    key, equals, value = taint.partition("=")
    found = {"key": key} | ({"operator": "Equal", "value": value} if equals else {"operator": "Exists"})
    return found | ({"effect": effect} if effect else {})
