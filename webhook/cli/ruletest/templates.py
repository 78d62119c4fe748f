"""Rules of each kind to start from, with tests that hold them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from rules import load_rules
from rules.cuda.versions import CudaVersion
from rules.decision.pipeline import INJECTED_ANNOTATION
from rules.decision.recorder import JudgingRule
from rules.kube.json_patch import pointer
from rules.model.rule import InjectionRule, ResourceRule
from rules.schema.exemption import instant
from rules.schema.loader import LABEL_PREFIXES, RESOURCE_RULE_TYPE
from rules.text.glob import glob, glob_text
from webhook.cli.ruletest.draft import (
    IMAGE,
    Draft,
    DraftError,
    Json,
    allowed,
    cuda_image,
    image_like,
    node_of,
    pod_of,
    refused,
    run,
    without_globs,
    word_of,
)
from webhook.yaml_output import dump_yaml

# Quantities that people write, then some beside them, for a check that lets some pass and others not.
_LIKELY: Final = (1, 2, 4, 8, 10, 16, 20, 50, 100, 200, 256, 512, 1000, 1024, 4096, 10_000)
_QUANTITIES: Final = (*_LIKELY, 0, 3, 9, 11, 33, 101, 150, 257, 1025, 10_001, 1_000_000_000)
# What a test is about where nothing says another, and a driver that is older than any image in use.
_CUDA: Final = CudaVersion(12, 4)
_OLD_CUDA: Final = CudaVersion(11, 0)
# The rule that a test of what images carry is judged by, as a test names it.
_JUDGE: Final = ("shipped:pgpu/compatibility.yaml", "compatibility-pgpu", "nvidia.com/gpu")


def group_of(key: str) -> str:
    """Return the group that a resource belongs to, by its vendor: `vendor` for `vendor.com/device`."""
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
    description: str = "",
) -> Draft:
    """Return a resource rule. checks: CEL that a value has to satisfy. Raises DraftError."""
    group, device, prefix = group or group_of(key), without_globs(key), LABEL_PREFIXES[1]
    data = {
        "key": key,
        "dataType": data_type,
        "descriptionEn": description,
        "group": group,
        "limits": limits,
        "requests": requests,
        "defaultValue": default,
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
    fine = [each for each, result in zip(quantities, results, strict=True) if result.decision.allowed]
    if not fine:
        raise DraftError(f"the rule refuses {', '.join(map(str, quantities))}; write its test by hand")
    place = f"/spec/containers/0{pointer(('resources', 'limits', device))}"
    cases = [allowed(f"{fine[0]} is fine", pod_of({device: fine[0]}), {"fields": {place: fine[0]}})]
    wrong, wanted = ("500m", "a whole number") if data_type == "integer" else ("-1", "zero or more")
    cases.append(refused(f"{wrong} is refused", pod_of({device: wrong}), draft.name, f"wanted {wanted}"))
    cases += [
        refused(f"{odd} is refused", pod_of({device: odd}), draft.name, f"found {odd}")
        for odd in [quantity for quantity in quantities if quantity not in fine][:1]
    ]
    return draft.with_cases(*cases)


def injection(
    key: str,
    *,
    name: str = "",
    env: Mapping[str, str] | None = None,
    quantities: Sequence[str] = (),
    images: Sequence[str] = (),
    description: str = "",
) -> Draft:
    """Return an injection rule of variables; quantities: those that hold how much of key is asked for."""
    device, image = without_globs(key), image_like(images)
    entries: list[Json] = [{"name": variable, "value": value} for variable, value in (env or {}).items()]
    expected = [*entries, *({"name": variable, "value": "1"} for variable in quantities)]
    entries += [{"name": variable, "fromResource": {"name": key}} for variable in quantities]
    if not entries:
        raise DraftError("an injection rule needs a variable: --env NAME=VALUE or --env-quantity NAME")
    match = {"resources": [key]} | ({"images": [*images]} if images else {})
    own, place = {"name": expected[0]["name"], "value": "mine"}, "/spec/containers/0/env"
    set_by_user = pod_of({device: 1}, image=image, env=[own])
    draft = Draft.of_document(
        name or f"inject-{word_of(key.partition('/')[2])}",
        "InjectionRule",
        _described(description) | {"match": match, "inject": {"env": entries}},
        allowed("who asks for it gets them", pod_of({device: 1}, image=image), {"fields": {place: expected}}),
        allowed("what the user has set wins", set_by_user, {"fields": {f"{place}/0": own}}),
        allowed("who asks for something else gets none", pod_of({"cpu": 1}, image=image), {"patch": []}),
    )
    if _tells(images):
        draft = draft.with_cases(allowed("another image gets none", pod_of({device: 1}), {"patch": []}))
    return draft


def compatibility(
    key: str, *, name: str = "", sharing: str = "physical", baseline: str = "", description: str = ""
) -> Draft:
    """Return a compatibility rule. baseline: the highest CUDA version that a virtualisation knows."""
    device, cuda = without_globs(key), _version(baseline) if baseline else _CUDA
    newer = CudaVersion(cuda.major + 1, 0)
    terms = {"match": {"resources": [key]}, "sharing": sharing} | ({"baseline": baseline} if baseline else {})
    fits, fails = (pod_of({device: 1}, image=cuda_image(version)) for version in (cuda, newer))
    nodes = [node_of(cuda, device)]
    name = name or f"compatibility-{group_of(key)}"
    return Draft.of_document(
        name,
        "CompatibilityRule",
        _described(description) | terms,
        allowed(f"CUDA {cuda} runs on a driver of CUDA {cuda}", fits, nodes=nodes),
        refused(f"CUDA {newer} does not", fails, name, f"CUDA {newer}", nodes=nodes),
    )


def image_catalog(images: Sequence[str], cuda: str, *, name: str = "") -> Draft:
    """Return a catalogue of images of one version; its test is about whole NVIDIA cards, as shipped."""
    version = _version(cuda)
    older = CudaVersion(version.major - 1, 0)
    judge, rule, device = _JUDGE
    pod, old = pod_of({device: 1}, image=image_like(images)), [node_of(older, device)]
    draft = Draft.of_document(
        name or "images",
        "ImageCatalog",
        {"images": [{"image": image, "cuda": cuda} for image in images]},
        allowed(f"it runs on a driver of CUDA {version}", pod, nodes=[node_of(version, device)]),
        refused(f"it does not on one of CUDA {older}", pod, rule, f"CUDA {version}", nodes=old),
    ).about(judge)
    if _tells(images):
        draft = draft.with_cases(allowed("nothing is known of another", pod_of({device: 1}), nodes=old))
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
    """Return an exemption from rules in namespaces until a day. known: rule files, as a test names them.

    The test is about the first of the rules that is known. Raises DraftError where none is, or no such day.
    """
    try:
        instant(expires)
    except ValueError as error:
        raise DraftError(f"--expires: {error}") from None
    file, text, rule = _exempted(rules, known)
    inside = without_globs(namespaces[0])
    pod, nodes = _subject(rule)
    (trial,) = run([(file, text)], [allowed("without it", pod, nodes=nodes)])
    place = pointer(("metadata", "annotations", INJECTED_ANNOTATION))

    def case(what: str, namespace: str, year: int, *, spared: bool) -> Json:
        given: Json = {"namespace": namespace, "now": f"{year}-01-01T00:00:00Z", "nodes": nodes}
        if trial.decision.allowed:  # what it spares from is to be changed
            return allowed(what, pod, {"fields": {place: None if spared else rule.name}}, **given)
        return allowed(what, pod, **given) if spared else refused(what, pod, rule.name, **given)

    after = int(expires[:4]) + 1
    return Draft.of_document(
        name or f"exempt-{word_of(namespaces[0])}",
        "Exemption",
        {"reason": reason, "expires": expires, "rules": [*rules], "namespaces": {"include": [*namespaces]}},
        case(f"{rule.name} has no effect in {inside}", inside, 2000, spared=True),
        case("it has elsewhere", "elsewhere", 2000, spared=False),
        case(f"it has in {inside} after {expires}", inside, after, spared=False),
    ).about(file)


def _exempted(names: Sequence[str], known: Iterable[tuple[str, str]]) -> tuple[str, str, JudgingRule]:
    """Return the first rule that has one of the names, behind its file."""
    patterns = [glob(name) for name in names]
    for file, text in known:
        found = load_rules([(file, text)]).rules
        those: list[JudgingRule] = [*found.resources, *found.injections, *found.compatibility]
        for rule in those:
            if rule.enabled and any(pattern.fullmatch(rule.name) for pattern in patterns):
                return file, text, rule
    raise DraftError(f"no enabled rule is named {' or '.join(names)}; `gpugate rules` lists those that ship")


def _subject(rule: JudgingRule) -> tuple[Json, list[Json]]:
    """Return a pod that most rules of the kind have an effect on, and the nodes of its cluster."""
    if isinstance(rule, ResourceRule):
        return pod_of({without_globs(rule.key): "-1"}), []
    device = without_globs(rule.match.resources[0])
    if isinstance(rule, InjectionRule):
        images = [glob_text(pattern) for pattern in rule.match.images]
        return pod_of({device: 1}, image=image_like(images)), []
    return pod_of({device: 1}, image=cuda_image(_CUDA)), [node_of(_OLD_CUDA, device)]


def _tells(images: Sequence[str]) -> bool:
    """Tell whether there are globs that do not match just any image."""
    return bool(images) and not any(glob(pattern).fullmatch(IMAGE) for pattern in images)


def _version(text: str) -> CudaVersion:
    version = CudaVersion.parse(text)
    if version is None:
        raise DraftError(f"expected a CUDA version such as 12.4, got {text!r}")
    return version


def _described(description: str) -> dict[str, Any]:
    return {"description": {"en": description}} if description else {}
