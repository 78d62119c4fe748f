"""Match conditions select every object that a rule may affect, and no other."""

from __future__ import annotations

import json
import re
from fnmatch import fnmatchcase
from functools import cache
from operator import add
from typing import Any

import cel
import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from rules.decision.messages import API_SERVER_RULE
from rules.decision.pipeline import Snapshot, decide
from rules.kube.names import DEFAULT_SCHEDULERS
from rules.model.decision import ALLOWED, AdmissionRequest
from rules.model.workload_kinds import EVERY, Steps, Workloads, built_in_workloads
from tests.laws.test_decision_laws import JSON, containers, policies
from tests.support.builders import (
    DEVICE,
    NO_NODES,
    container,
    injection_rule,
    loaded,
    nested,
    pod,
    policy,
    resource_rule,
    warning_texts,
)
from tests.support.node_builders import GPU, cuda_image, gfd, inventory, nodes, shipped
from tests.support.paths import ROOT
from webhook.cluster.match_conditions import (
    CONDITION,
    EVERY_RESOURCE,
    MAX_NAMES_LENGTH,
    MAX_PATTERN_LENGTH,
    PODS,
    STATIC_CONDITION,
    expression,
    resources_in,
    resources_of,
    static_expression,
)

MANIFEST = ROOT / "manifests/base/webhooks.yaml"
# CEL cannot express a path with two `*`.
KINDS = sorted(
    (kind, steps)
    for kind, paths in built_in_workloads().paths.items()
    for steps in paths
    if steps.count(EVERY) < 2
)
SETTINGS = [
    {},
    {"deletionTimestamp": "2030-01-01T00:00:00Z"},
    {"annotations": {"kubernetes.io/config.mirror": "x"}},
    {"annotations": {"a": "b"}, "ownerReferences": [{"kind": "Job", "apiVersion": "batch/v1"}]},
]


@cache
def shipped_webhooks() -> dict[str, dict[str, Any]]:
    """Return the webhooks of the shipped configurations by their names."""
    documents = yaml.safe_load_all(MANIFEST.read_text("utf-8"))
    return {webhook["name"]: webhook for document in documents for webhook in document["webhooks"]}


@cache
def compiled(text: str) -> Any:
    """Return the program of an expression."""
    return cel.compile(text)


def asked(
    text: str,
    kind: tuple[str, str],
    document: Any,
    before: Any = None,
    subresource: str = "",
    *,
    with_others: bool = False,
) -> bool:
    """Return whether an expression selects an object; with_others: and all conditions of the manifest.

    It omits an empty subResource.
    """
    others = shipped_webhooks()["validate.gpugate.dev"]["matchConditions"] if with_others else []
    texts = [text, *(other["expression"] for other in others)]
    values = {
        "object": document,
        "oldObject": before,
        "request": {
            "kind": {"group": kind[0], "kind": kind[1]},
            "operation": "CREATE" if before is None else "UPDATE",
        }
        | ({"subResource": subresource} if subresource else {}),
    }
    return all(compiled(text).execute(values) for text in texts)


def placed(steps: Steps, template: Any, member: str | int) -> Any:
    """Return an object with a template at the path of its kind; member: the key for `*`."""
    return nested(tuple(member if step == EVERY else step for step in steps), template)


@st.composite
def templates(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a pod template, or a pod spec."""
    main = draw(st.lists(containers("main") | st.just(container({"cpu": "1"})), max_size=2))
    spec: dict[str, Any] = {
        "containers": main,
        "initContainers": draw(st.lists(containers("init"), max_size=1)),
    }
    spec |= draw(st.sampled_from([{}, {"schedulerName": "default-scheduler"}, {"schedulerName": "gang"}]))
    metadata: dict[str, Any] = draw(
        st.sampled_from([{}, {"annotations": {}}, {"annotations": {"share": "half"}}])
    )
    return spec | metadata if draw(st.integers(0, 4)) == 0 else {"metadata": metadata, "spec": spec}


# An annotation that requests something, and is wrong in `templates`.
OF_ANNOTATION = resource_rule("annotation/share", schedulers="gang", sharesOf=GPU)


def rule_sets() -> st.SearchStrategy[tuple[str, ...]]:
    """Draw rules, in half of the cases with one of an annotation."""
    return st.builds(add, policies(), st.sampled_from([(), (OF_ANNOTATION,)]))


@given(rule_sets(), st.sampled_from(KINDS), st.data())
def test_no_rule_affects_an_object_that_is_not_selected(
    texts: tuple[str, ...], kind: tuple[tuple[str, str], Steps], data: st.DataObject
) -> None:
    """For any rules and kind, at creation and update: no patch, no denial, no warning.

    What the API server rejects itself is no effect of a rule.
    """
    (group, name), steps = kind
    document, before = (
        placed(steps, data.draw(templates()), data.draw(st.just("w") | st.integers(0, 1)))
        | {"metadata": data.draw(st.sampled_from(SETTINGS))}
        for _ in range(2)
    )
    before = data.draw(st.sampled_from([None, before, document]))
    text = expression(resources_of(loaded(*texts).rules), built_in_workloads())
    operation = "CREATE" if before is None else "UPDATE"
    if asked(text, (group, name), document, before, with_others=True):
        return
    for mutating in (True, False):
        asking = AdmissionRequest(operation, group, name, "team", document, before, mutating=mutating)
        decision = decide(Snapshot(policy(*texts), NO_NODES), asking)

        violations = [violation for violation in decision.violations if violation.rule != API_SERVER_RULE]
        assert ((), [], ()) == (decision.patch, violations, warning_texts(decision))


@given(rule_sets(), st.sampled_from(KINDS), templates())
def test_a_new_object_is_selected_if_a_container_requests_a_resource_of_a_rule(
    texts: tuple[str, ...], kind: tuple[tuple[str, str], Steps], template: dict[str, Any]
) -> None:
    """If and only if; or if it has an annotation of a rule, and names another scheduler than the default."""
    resources = resources_of(loaded(*texts).rules)
    spec = template.get("spec", template)
    keys = {
        key
        for spec_container in (*spec["containers"], *spec["initContainers"])
        for quantities in spec_container.get("resources", {}).values()
        for key in quantities or {}
    }
    named = any(fnmatchcase(key, pattern) for key in keys for pattern in resources)
    annotations = (template.get("metadata", template)).get("annotations", {})
    by_annotation = "share" in annotations and "annotation/share" in resources
    named |= by_annotation and spec.get("schedulerName") not in DEFAULT_SCHEDULERS
    text = expression(resources, built_in_workloads())

    assert named == asked(text, kind[0], placed(kind[1], template, "w"))


@given(st.sampled_from(KINDS), JSON, st.none() | JSON, st.lists(st.sampled_from("abc"), max_size=3))
def test_the_expression_never_fails_on_any_json(
    kind: tuple[tuple[str, str], Steps], document: Any, before: Any, path: list[str]
) -> None:
    """An error would deny the object."""
    text = expression([DEVICE], built_in_workloads())
    below = kind[1][: len(path)] if EVERY not in kind[1][: len(path)] else ()

    assert asked(text, kind[0], nested(below, document), before) in (True, False)
    assert asked(text, kind[0], placed(kind[1], {"spec": document}, "w")) in (True, False)
    assert asked(text, kind[0], placed(kind[1], {"spec": {"containers": document}}, 0)) in (True, False)


def test_scaling_a_workload_is_not_selected() -> None:
    """Its template is unchanged, so scaling works while the webhook is unavailable."""
    text = expression([DEVICE], built_in_workloads())
    before, after = ({"spec": {"replicas": count, "template": pod()}} for count in (1, 2))
    changed = {"spec": {"replicas": 1, "template": pod(container({DEVICE: "2"}))}}
    deployment = ("apps", "Deployment")

    assert [False, True, True] == [
        asked(text, deployment, after, before),
        asked(text, deployment, changed, before),
        asked(text, deployment, before),
    ]


def image_of(image: str, *others: dict[str, Any], **fields: Any) -> Any:
    """Return a pod of a container that requests DEVICE, and others."""
    return pod(container({DEVICE: "1"}, image=image), *others, **fields)


PROXY = container({"cpu": "1"}, name="proxy")
INIT = container({DEVICE: "1"}, name="init", image="a")


@pytest.mark.parametrize(
    ("before", "after", "selected"),
    [
        (image_of("a"), image_of("b"), True),
        (image_of("a"), image_of("a") | {"metadata": {"labels": {"a": "b"}, "finalizers": ["a/b"]}}, False),
        (image_of("a"), image_of("a") | {"status": {"phase": "Running"}}, False),
        (image_of("a"), image_of("a", tolerations=[{"operator": "Exists"}]), False),
        (image_of("a"), image_of("a", nodeName="n", activeDeadlineSeconds=1), False),
        (image_of("a"), image_of("a", ephemeralContainers=[container(name="debug")]), False),
        (image_of("a", PROXY), image_of("a", PROXY | {"image": "b"}), False),
        (image_of("a", PROXY), image_of("b", PROXY), True),
        (pod(PROXY), pod(PROXY | {"image": "b"}), False),
        (pod(PROXY, initContainers=[INIT]), pod(PROXY, initContainers=[INIT | {"image": "b"}]), True),
        (pod(PROXY, initContainers=[INIT]), pod(PROXY | {"image": "b"}, initContainers=[INIT]), False),
        (image_of("a"), image_of("b", metadata={"deletionTimestamp": "2030-01-01T00:00:00Z"}), False),
        (image_of("a"), image_of("b", metadata={"annotations": {"kubernetes.io/config.mirror": "x"}}), False),
        (image_of("a"), image_of("b") | {"spec": None}, False),
    ],
)
def test_of_the_updates_of_a_pod_only_those_of_an_image_are_selected(
    before: Any, after: Any, *, selected: bool
) -> None:
    """Of a container that requests an accelerator."""
    text = expression([DEVICE], built_in_workloads())

    assert selected == asked(text, ("", "Pod"), after, before, with_others=True)


@pytest.mark.parametrize(("image", "selected"), [("a", False), ("b", True)])
def test_an_update_of_a_pod_that_requests_by_annotation_is_selected_if_an_image_changes(
    image: str, *, selected: bool
) -> None:
    """Of any container: the condition does not know which one the annotation is for."""
    text = expression(["annotation/share"], built_in_workloads())
    before, after = (
        pod(PROXY | {"image": changed_image}, metadata={"annotations": {"share": "1"}}, schedulerName="gang")
        for changed_image in ("a", image)
    )

    assert selected == asked(text, ("", "Pod"), after, before, with_others=True)


IMAGES = [cuda_image("12.2"), cuda_image("13.0"), "busybox"]
OLD_NODE = inventory(nodes(1, "old", gfd("12.2")))


@st.composite
def bound_pods(draw: st.DrawFn, limits: list[dict[str, str]]) -> Any:
    """Draw a pod on the old node; limits: of its containers, the last one is an init container."""
    drawn = [
        container(limit, limit, name=f"c{at}", image=draw(st.sampled_from(IMAGES)))
        for at, limit in enumerate(limits)
    ]
    metadata = {"labels": draw(st.sampled_from([{}, {"a": "b"}]))}
    return pod(*drawn[:-1], initContainers=drawn[-1:], nodeName="old-0", metadata=metadata)


@given(st.lists(st.sampled_from([{GPU: "1"}, {"cpu": "1"}]), min_size=2, max_size=4), st.data())
def test_an_update_of_a_pod_is_selected_if_the_image_of_a_gpu_container_changes(
    limits: list[dict[str, str]], data: st.DataObject
) -> None:
    """If and only if; one that is not selected would be allowed as it is."""
    before, after = (data.draw(bound_pods(limits)) for _ in range(2))
    changed = {
        GPU
        for field in ("containers", "initContainers")
        for old, new in zip(before["spec"][field], after["spec"][field], strict=True)
        if old["image"] != new["image"] and GPU in new["resources"]["limits"]
    }
    asking = AdmissionRequest("UPDATE", "", "Pod", "team", after, before, mutating=False)
    selected = asked(expression([GPU], built_in_workloads()), ("", "Pod"), after, before)

    assert bool(changed) == selected
    assert selected or decide(Snapshot(shipped(), OLD_NODE), asking) == ALLOWED


def test_a_configured_workload_kind_is_selected() -> None:
    """By the path to its template, in any API group."""
    workloads = Workloads({("example.com", "Job"): (("spec", "parts", EVERY, "pod"),)})
    text = expression([DEVICE], built_in_workloads() | workloads)
    document = {"spec": {"parts": [{}, {"pod": pod()}]}}

    assert (True, False) == (
        asked(text, ("example.com", "Job"), document),
        asked(text, ("batch", "Job"), document),
    )


@pytest.mark.parametrize(
    ("group", "kind", "document"),
    [
        ("argoproj.io", "Workflow", {"templates": [{"container": container({DEVICE: "1"})}]}),
        ("argoproj.io", "Workflow", {"templates": [{"sidecars": [container({DEVICE: "1"})]}]}),
        ("argoproj.io", "Workflow", {"templates": [{"containerSet": pod(container({DEVICE: "1"}))["spec"]}]}),
        ("serving.kserve.io", "InferenceService", {"predictor": {"model": container({DEVICE: "1"})}}),
        ("trainer.kubeflow.org", "TrainJob", {"trainer": {"resourcesPerNode": {"limits": {DEVICE: "1"}}}}),
        ("apps.nvidia.com", "NIMService", container({DEVICE: "1"})),
    ],
)
def test_a_container_of_its_own_place_is_selected(group: str, kind: str, document: dict[str, Any]) -> None:
    """Unless neither it nor its pod changes."""
    text = expression([DEVICE], built_in_workloads())
    after = {"spec": document}
    empty = json.loads(json.dumps(after).replace(DEVICE, "cpu"))

    assert [True, False, False, True] == [
        asked(text, (group, kind), after),
        asked(text, (group, kind), empty),
        asked(text, (group, kind), after, after),
        asked(text, (group, kind), after, empty),
    ]


@pytest.mark.parametrize("sidecars", [None, 1, "x", {"a": 1}, [1], [None], [[]]])
def test_a_malformed_list_of_containers_is_no_error(sidecars: object) -> None:
    """The API server of the kind reports it."""
    text = expression([DEVICE], built_in_workloads())
    document = {"spec": {"templates": [{"sidecars": sidecars}]}}

    assert not asked(text, ("argoproj.io", "Workflow"), document)


def test_the_mutating_webhook_selects_only_pods() -> None:
    """A new ephemeral container is an update of its pod."""
    text = expression([DEVICE], PODS)
    debugged = pod(ephemeralContainers=[container(name="debug")])

    assert [True, True, False] == [
        asked(text, ("", "Pod"), pod()),
        asked(text, ("", "Pod"), debugged, pod(), "ephemeralcontainers"),
        asked(text, ("apps", "Deployment"), {"spec": {"template": pod()}}),
    ]


def test_disabled_rules_select_nothing() -> None:
    """Rules with enforcementAction dryrun do; without any rule, nothing is selected."""
    rules = loaded(
        resource_rule("vendor.com/off", name="cf-crl-off-off", enabled=False),
        resource_rule("vendor.com/dry", name="cf-crl-dry-dry", enforcementAction="dryrun"),
        injection_rule(
            {"hostIPC": True}, match={"resources": ["vendor.com/mig-*"]}, enforcementAction="dryrun"
        ),
    ).rules

    assert {"vendor.com/dry", "vendor.com/mig-*"} == resources_of(rules)
    assert not asked(expression([], PODS), ("", "Pod"), pod())


NAMES = st.from_regex(r"[a-z*?.-]{1,6}/[A-Za-z*?._-]{1,6}", fullmatch=True) | st.sampled_from(
    ["annotation/share", "annotation/example.com/share"]
)


@example(EVERY_RESOURCE)
@example(frozenset({"annotation/*"}))
@given(st.frozensets(NAMES))
def test_the_resources_of_an_expression_can_be_read_back(resources: frozenset[str]) -> None:
    """So that a replica can keep what another has written."""
    assert resources == resources_in(expression(resources, built_in_workloads()))


@pytest.mark.parametrize(
    ("text", "named"),
    [("key in ['a.com/b']", set()), ('key in ["a.com/b", variables.c]', {"a.com/b"}), ("false", set())],
)
def test_reading_a_foreign_expression_never_fails(text: str, named: set[str]) -> None:
    """It is about to be replaced."""
    assert named == resources_in(text)


@given(NAMES, st.from_regex(r"[a-z.-]{1,4}/[A-Z.-]{1,4}", fullmatch=True))
def test_a_glob_matches_as_in_rules(pattern: str, key: str) -> None:
    """In any part of the name."""
    text = expression([pattern], PODS)

    assert fnmatchcase(key, pattern) == asked(text, ("", "Pod"), pod(container({key: "1"})))


@pytest.mark.parametrize(
    ("domains", "names", "end", "wider"),
    [
        (10, 300, "", None),
        (10, 1000, "", {f"d{number}.com/*" for number in range(10)}),
        (2, 200, "*", {"d0.com/*", "d1.com/*"}),
        (1500, 1500, "", EVERY_RESOURCE),
    ],
)
def test_too_many_names_become_their_vendors_and_too_many_vendors_all(
    domains: int, names: int, end: str, wider: set[str] | None
) -> None:
    """The expression stays within the limits, and selects no less."""
    keys = [f"d{number % domains}.com/resource-{number}{end}" for number in range(names)]
    rules = loaded(
        *(
            injection_rule({"hostIPC": True}, name=f"rule-{at}", match={"resources": keys[at : at + 50]})
            for at in range(0, names, 50)
        )
    ).rules
    resources = resources_of(rules)

    assert (wider or set(keys)) == resources
    assert len(expression(resources, PODS)) < MAX_NAMES_LENGTH + MAX_PATTERN_LENGTH


TRAINS = Workloads({("example.com", "Train"): (("spec", "pod"),)})


@given(rule_sets(), st.sampled_from([*KINDS, (("example.com", "Train"), ("spec", "pod"))]), st.data())
def test_the_static_condition_selects_whatever_the_rules_select(
    texts: tuple[str, ...], kind: tuple[tuple[str, str], Steps], data: st.DataObject
) -> None:
    """For any rules and kind, also one that is only configured; at creation and update."""
    document, before = (placed(kind[1], data.draw(templates()), "w") for _ in range(2))
    before = data.draw(st.sampled_from([None, before, document]))
    text = expression(resources_of(loaded(*texts).rules), built_in_workloads() | TRAINS)
    if asked(text, kind[0], document, before):
        assert asked(static_expression(built_in_workloads()), kind[0], document, before)


@pytest.mark.parametrize(
    ("document", "selected"),
    [
        (pod(container({"cpu": "1", "memory": "1Gi", "hugepages-2Mi": "2Mi"})), False),
        (pod(container({"vendor.com/unknown": "1"})), True),
        (pod(container() | {"resources": {"claims": [{"name": "gpu"}]}}), True),
        (pod(container({"cpu": "1"}), initContainers=[container({"a/b": "1"}, name="init")]), True),
        (pod(container(), metadata={"annotations": {"a": "b"}}), False),
        (pod(container(), metadata={"annotations": {"a": "b"}}, schedulerName="default-scheduler"), False),
        (pod(container(), metadata={"annotations": {"a": "b"}}, schedulerName="gang"), True),
        (pod(container(), metadata={"annotations": {}}, schedulerName="gang"), False),
    ],
)
def test_the_static_condition_selects_extended_resources_claims_and_annotations_for_other_schedulers(
    document: dict[str, Any], *, selected: bool
) -> None:
    """In pods and templates, unless the template is unchanged."""
    text = static_expression(built_in_workloads())
    deployment = {"spec": {"template": document}}

    assert [selected, selected, False] == [
        asked(text, ("", "Pod"), document),
        asked(text, ("apps", "Deployment"), deployment),
        asked(text, ("apps", "Deployment"), deployment, deployment),
    ]


@pytest.mark.parametrize(
    ("resource", "selected"),
    [
        ("deviceclass.resource.kubernetes.io/gpu.nvidia.com", True),
        ("deviceclass.resource.kubernetes.io/*", True),
        ("deviceclass.*/gpu.nvidia.com", True),
        ("*.kubernetes.io/*", True),
        ("device*/*", True),
        ("*/gpu*", True),
        ("*/*", True),
        ("nvidia.com/*", False),
        ("nvidia.com/gpu", False),
    ],
)
def test_claims_are_selected_if_a_rule_may_match_a_device_class(resource: str, *, selected: bool) -> None:
    """By name or by any glob: which class a claim has is in another object."""
    rules = loaded(injection_rule({"hostIPC": True}, match={"resources": [resource]})).rules
    document = pod(container() | {"resources": {"claims": [{"name": "gpu"}]}})

    assert selected == asked(expression(resources_of(rules), PODS), ("", "Pod"), document)


@given(JSON, st.none() | JSON)
def test_the_static_condition_selects_every_object_of_a_kind_that_it_does_not_know(
    document: Any, before: Any
) -> None:
    """gpugate may be configured with any kinds; its own condition is for these."""
    assert asked(static_expression(built_in_workloads()), ("example.com", "Train"), document, before)


@pytest.mark.parametrize("webhook", ["mutate.gpugate.dev", "validate.gpugate.dev"])
def test_the_manifest_contains_the_static_condition_and_not_the_one_of_gpugate(
    webhook: str, request: pytest.FixtureRequest
) -> None:
    """Whatever applies the manifests never resets what they do not contain. `--update-golden` rewrites it."""
    text = static_expression(PODS if webhook.startswith("mutate") else built_in_workloads())
    if request.config.getoption("--update-golden"):
        _write(webhook, text)
        shipped_webhooks.cache_clear()
    conditions = {
        condition["name"]: condition["expression"]
        for condition in shipped_webhooks()[webhook]["matchConditions"]
    }

    assert text == conditions[STATIC_CONDITION]
    assert CONDITION not in conditions


def _write(webhook: str, text: str) -> None:
    """Write the expression of a webhook in the manifest without changing other lines."""
    before, name, after = MANIFEST.read_text("utf-8").partition(f"- name: {webhook}\n")
    block = re.compile(rf"(- name: {STATIC_CONDITION}\n( +)expression: \|-\n)(?:\2 +.*\n)+")
    lines = "".join(f"          {line}\n" for line in text.splitlines())
    MANIFEST.write_text(before + name + block.sub(lambda match: match[1] + lines, after, count=1), "utf-8")


def test_the_manifest_names_the_built_in_kinds() -> None:
    """The API server sends no others. Their plurals are the usual ones of Kubernetes.

    Without kinds of no namespace, of old API servers, and those that no condition can select.
    """
    rules = shipped_webhooks()["validate.gpugate.dev"]["rules"]
    named = {
        (group, resource) for rule in rules for group in rule["apiGroups"] for resource in rule["resources"]
    }

    sent = {
        (group, kind)
        for (group, kind), _ in KINDS
        if group != "extensions" and not kind.startswith("Cluster")
    }

    assert {(group, f"{kind.lower()}s") for group, kind in sent} == named
