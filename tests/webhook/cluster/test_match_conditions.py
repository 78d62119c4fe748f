"""The API server asks about what a rule may have a say in, and about nothing else."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

import cel
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from rules.decision.pipeline import decide
from rules.model.request import AdmissionRequest
from rules.model.workload_kinds import EVERY, Steps, Workloads, built_in_workloads
from rules.schema.loader import DEFAULT_NAMESPACE
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
)
from tests.support.paths import ROOT
from webhook.cli.input.files import RuleSource
from webhook.cluster.match_conditions import (
    CONDITION,
    EVERY_RESOURCE,
    MAX_NAMES_LENGTH,
    MAX_PATTERN_LENGTH,
    PODS,
    expression,
    resources_in,
    resources_of,
)

MANIFEST = ROOT / "manifests/base/webhooks.yaml"
KINDS = sorted((kind, steps) for kind, paths in built_in_workloads().paths.items() for steps in paths)
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
    """Return an expression as a program."""
    return cel.compile(text)


def asked(
    text: str, kind: tuple[str, str], document: Any, before: Any = None, *, with_others: bool = False
) -> bool:
    """Tell whether the API server asks about an object; with_others: by all conditions that ship."""
    others = shipped_webhooks()["validate.gpugate.dev"]["matchConditions"] if with_others else []
    texts = [text, *(each["expression"] for each in others if each["name"] != CONDITION)]
    values = {
        "object": document,
        "oldObject": before,
        "request": {"kind": {"group": kind[0], "kind": kind[1]}},
    }
    return all(compiled(each).execute(values) for each in texts)


def placed(steps: Steps, template: Any, member: str | int) -> Any:
    """Return an object that has a template where its kind has it; member: of what `*` stands for."""
    return nested(tuple(member if step == EVERY else step for step in steps), template)


@st.composite
def templates(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a pod template, or a pod spec."""
    main = draw(st.lists(containers("main") | st.just(container({"cpu": "1"})), max_size=2))
    spec = {"containers": main, "initContainers": draw(st.lists(containers("init"), max_size=1))}
    return spec if draw(st.integers(0, 4)) == 0 else {"metadata": {}, "spec": spec}


@given(policies(), st.sampled_from(KINDS), st.data())
def test_nothing_is_decided_about_what_is_not_asked_about(
    texts: tuple[str, ...], kind: tuple[tuple[str, str], Steps], data: st.DataObject
) -> None:
    """Whatever the rules and the kind, at creation and update: no patch, no refusal, no warning."""
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
        found = decide(policy(*texts), NO_NODES, asking)

        assert (True, (), (), ()) == (found.allowed, found.patch, found.violations, found.warnings)


@given(policies(), st.sampled_from(KINDS), templates())
def test_a_new_object_is_asked_about_where_a_container_asks_for_what_a_rule_names(
    texts: tuple[str, ...], kind: tuple[tuple[str, str], Steps], template: dict[str, Any]
) -> None:
    """And only there: then and only then."""
    resources = resources_of(loaded(*texts).rules)
    spec = template.get("spec", template)
    keys = {
        key
        for each in (*spec["containers"], *spec["initContainers"])
        for quantities in each.get("resources", {}).values()
        for key in quantities or {}
    }
    named = any(fnmatchcase(key, pattern) for key in keys for pattern in resources)
    text = expression(resources, built_in_workloads())

    assert named == asked(text, kind[0], placed(kind[1], template, "w"))


@given(st.sampled_from(KINDS), JSON, st.none() | JSON, st.lists(st.sampled_from("abc"), max_size=3))
def test_any_json_is_asked_about_or_not(
    kind: tuple[tuple[str, str], Steps], document: Any, before: Any, path: list[str]
) -> None:
    """There is always an answer: none would be a refusal."""
    text = expression([DEVICE], built_in_workloads())
    below = kind[1][: len(path)] if EVERY not in kind[1][: len(path)] else ()

    assert asked(text, kind[0], nested(below, document), before) in (True, False)
    assert asked(text, kind[0], placed(kind[1], {"spec": document}, "w")) in (True, False)
    assert asked(text, kind[0], placed(kind[1], {"spec": {"containers": document}}, 0)) in (True, False)


def test_scaling_a_workload_asks_nothing() -> None:
    """Its template stood there before, and goes on while the gate is away."""
    text = expression([DEVICE], built_in_workloads())
    before, after = ({"spec": {"replicas": count, "template": pod()}} for count in (1, 2))
    changed = {"spec": {"replicas": 1, "template": pod(container({DEVICE: "2"}))}}
    deployment = ("apps", "Deployment")

    assert [False, True, True] == [
        asked(text, deployment, after, before),
        asked(text, deployment, changed, before),
        asked(text, deployment, before),
    ]


def test_a_kind_of_the_configuration_is_asked_about() -> None:
    """By the path to its template, of whichever group it is."""
    workloads = Workloads({("example.com", "Job"): (("spec", "parts", EVERY, "pod"),)})
    text = expression([DEVICE], built_in_workloads() | workloads)
    document = {"spec": {"parts": [{}, {"pod": pod()}]}}

    assert (True, False) == (
        asked(text, ("example.com", "Job"), document),
        asked(text, ("batch", "Job"), document),
    )


def test_the_mutating_webhook_is_asked_about_pods_alone() -> None:
    """A started debugging container is an update of its pod."""
    text = expression([DEVICE], PODS)
    debugged = pod(ephemeralContainers=[container(name="debug")])

    assert [True, True, False] == [
        asked(text, ("", "Pod"), pod()),
        asked(text, ("", "Pod"), debugged, pod()),
        asked(text, ("apps", "Deployment"), {"spec": {"template": pod()}}),
    ]


def test_rules_that_are_switched_off_name_nothing() -> None:
    """Those that only report do; without any rule, nothing is asked about."""
    rules = loaded(
        resource_rule("vendor.com/off", name="cf-crl-off-off", enabled=False),
        resource_rule("vendor.com/dry", name="cf-crl-dry-dry", enforcementAction="dryrun"),
        injection_rule(
            {"hostIPC": True}, match={"resources": ["vendor.com/mig-*"]}, enforcementAction="dryrun"
        ),
    ).rules

    assert {"vendor.com/dry", "vendor.com/mig-*"} == resources_of(rules)
    assert not asked(expression([], PODS), ("", "Pod"), pod())


NAMES = st.from_regex(r"[a-z*?.-]{1,6}/[A-Za-z*?._-]{1,6}", fullmatch=True)


@given(st.frozensets(NAMES))
def test_an_expression_tells_which_resources_it_names(resources: frozenset[str]) -> None:
    """So that a replica can leave in what another has put there."""
    assert resources == resources_in(expression(resources, built_in_workloads()))


@pytest.mark.parametrize(
    ("text", "named"),
    [("key in ['a.com/b']", set()), ('key in ["a.com/b", variables.c]', {"a.com/b"}), ("false", set())],
)
def test_an_expression_that_somebody_wrote_by_hand_is_read_as_far_as_it_goes(
    text: str, named: set[str]
) -> None:
    """It is about to be replaced, and must not keep us from that."""
    assert named == resources_in(text)


@given(NAMES, st.from_regex(r"[a-z.-]{1,4}/[A-Z.-]{1,4}", fullmatch=True))
def test_a_glob_is_read_as_rules_read_it(pattern: str, key: str) -> None:
    """In whatever part of the name."""
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
    """The expression stays in bounds, and is true for no less."""
    keys = [f"d{number % domains}.com/resource-{number}{end}" for number in range(names)]
    rules = loaded(injection_rule({"hostIPC": True}, match={"resources": keys})).rules
    found = resources_of(rules)

    assert (wider or set(keys)) == found
    assert len(expression(found, PODS)) < MAX_NAMES_LENGTH + MAX_PATTERN_LENGTH


def shipped_expression(webhook: str) -> str:
    """Return the expression of the rules that ship."""
    workloads = PODS if webhook.startswith("mutate") else built_in_workloads()
    return expression(resources_of(RuleSource(DEFAULT_NAMESPACE).load([]).rules), workloads)


@pytest.mark.parametrize("webhook", ["mutate.gpugate.dev", "validate.gpugate.dev"])
def test_the_manifest_asks_about_what_the_shipped_rules_name(
    webhook: str, request: pytest.FixtureRequest
) -> None:
    """`--update-golden` writes it anew."""
    if request.config.getoption("--update-golden"):
        _write(webhook)
        shipped_webhooks.cache_clear()
    conditions = shipped_webhooks()[webhook]["matchConditions"]

    assert shipped_expression(webhook) in [
        each["expression"] for each in conditions if each["name"] == CONDITION
    ]


def _write(webhook: str) -> None:
    """Write the expression of a webhook in the manifest, whose other lines stay as they are."""
    before, name, after = MANIFEST.read_text("utf-8").partition(f"- name: {webhook}\n")
    block = re.compile(rf"(- name: {CONDITION}\n( +)expression: \|-\n)(?:\2 +.*\n)+")
    lines = "".join(f"          {line}\n" for line in shipped_expression(webhook).splitlines())
    MANIFEST.write_text(before + name + block.sub(lambda found: found[1] + lines, after, count=1), "utf-8")


def test_the_manifest_names_the_kinds_that_ship() -> None:
    """The API server asks about no other. Their plurals are as Kubernetes makes them."""
    rules = shipped_webhooks()["validate.gpugate.dev"]["rules"]
    named = {
        (group, resource) for rule in rules for group in rule["apiGroups"] for resource in rule["resources"]
    }

    assert {(group, f"{kind.lower()}s") for group, kind in built_in_workloads().paths} == named
