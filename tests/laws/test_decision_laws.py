"""Laws of the decision: they hold for any rules and any pods."""

from __future__ import annotations

import re
from collections.abc import Iterator
from copy import deepcopy
from decimal import Decimal
from fractions import Fraction
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonpatch
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rules.decision.messages import THE_DEFAULT
from rules.decision.pipeline import INJECTED_ANNOTATION, Snapshot, decide
from rules.decision.policy import Policy, compile_policy
from rules.kube.json_patch import ObjectError, Recorder
from rules.kube.quantity import QuantityError, parse_quantity
from rules.model.decision import AdmissionRequest, Decision, Effect
from rules.model.rule import POD_FIELDS, Action, RuleSet
from rules.nodes.inventory_document import inventory_of
from rules.schema.loader import load_rules
from rules.text.i18n import Language
from tests.support.builders import (
    DEVICE,
    container,
    decision,
    defaulted,
    injection_rule,
    loaded,
    patched,
    pod,
    policy,
    resource_rule,
    warning_texts,
)
from tests.support.laws import EXAMPLES
from tests.support.reference_quantity import quantity

RESOURCES = [DEVICE, "vendor.com/other", "vendor.com/mig-1g", "vendor.com/mig-2g"]
GLOBS = ["vendor.com/mig-*", "vendor.com/*"]
QUANTITIES = ["0", "1", "2", "10", "100", "1k", "1000", "500m", "1.0"]
VARIABLES = ["A", "B", "C"]

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda children: (
        st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=5), children, max_size=3)
    ),
    max_leaves=8,
)


@st.composite
def resource_rules(draw: st.DrawFn, keys: list[str] = RESOURCES + GLOBS, *, only_deny: bool = False) -> str:
    """Draw a resource rule; with only_deny one that sets nothing."""
    key = draw(st.sampled_from(keys))
    one = "*" not in key
    may_require = ["required"] * one
    data: dict[str, Any] = {
        "limits": draw(st.sampled_from(["disabled", "optional", *may_require])),
        "requests": "disabled"
        if only_deny
        else draw(st.sampled_from(["disabled", "fromLimits", *may_require])),
        "dataType": draw(st.sampled_from(["integer", "float"])),
        "enforcementAction": "deny" if only_deny else draw(st.sampled_from(["deny", "warn", "dryrun"])),
    }
    if one and not only_deny and draw(st.booleans()):
        data["defaultValue"] = draw(st.sampled_from(["1", "2", "100"]))
    if draw(st.booleans()):
        data["excludeResources"] = draw(st.sampled_from(RESOURCES + GLOBS))
    if not only_deny and draw(st.booleans()):
        data["runtimeClassName"] = "vendor"
    validations = [
        {"expression": draw(st.sampled_from(["value <= 10", "100 % value == 0", "size(limits) < 3"]))}
    ]
    group = "denying" if only_deny else draw(st.sampled_from(["one", "two"]))
    return resource_rule(key, group=group, validations=validations if draw(st.booleans()) else None, **data)


@st.composite
def injection_rules(draw: st.DrawFn) -> str:
    """Draw an injection rule, which may select by what others inject."""
    label = st.sampled_from(VARIABLES)
    value = st.sampled_from(["1", "2"])
    source: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
        {"value": value}
    ) | st.fixed_dictionaries({"fromResource": st.fixed_dictionaries({"name": st.sampled_from(RESOURCES)})})
    parts: dict[str, st.SearchStrategy[Any]] = {
        "env": st.dictionaries(label, source, min_size=1, max_size=2).map(
            lambda entries: [{"name": name} | entry for name, entry in entries.items()]
        ),
        "volumes": st.just([{"name": "v", "emptyDir": {}}]),
        "volumeMounts": st.just([{"name": "v", "mountPath": "/v"}]),
        "tolerations": st.just([{"key": "gpu", "operator": "Exists"}]),
        **{
            pod_field.name: st.sampled_from(["r", "s"])
            if pod_field.kind is str
            else st.just(pod_field.kind(1))
            for pod_field in POD_FIELDS
        },
        "securityContext": st.just({"capabilities": {"add": ["IPC_LOCK"]}}),
        "labels": st.dictionaries(label, value, min_size=1, max_size=2),
        "annotations": st.dictionaries(label, value, min_size=1, max_size=2),
        "nodeAffinity": value.map(
            lambda first_value: {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "k", "operator": "In", "values": [first_value, "3"]}]}
                    ]
                }
            }
        ),
    }
    chosen = draw(st.lists(st.sampled_from(sorted(parts)), min_size=1, max_size=3, unique=True))
    match: dict[str, Any] = {"resources": [draw(st.sampled_from([*RESOURCES, *GLOBS, *GLOBS]))]}
    if draw(st.integers(0, 2)) == 2:
        match["podSelector"] = {"matchLabels": {draw(label): draw(value)}}
    return injection_rule(
        {name: draw(parts[name]) for name in chosen},
        name=f"i{draw(st.integers(0, 3))}",
        match=match,
        override=draw(st.booleans()),
    )


@st.composite
def policies(draw: st.DrawFn) -> tuple[str, ...]:
    """Draw the texts of rules with different names and keys."""
    texts = draw(st.lists(resource_rules(), min_size=1, max_size=4))
    texts += draw(st.lists(injection_rules(), min_size=1, max_size=3))
    named = {(rule := yaml.safe_load(text))["metadata"]["name"]: (rule, text) for text in texts}
    keys = {rule["data"].get("key", name): text for name, (rule, text) in named.items()}
    return tuple(keys.values())


@st.composite
def containers(draw: st.DrawFn, name: str) -> dict[str, Any]:
    """Draw a container that an API server accepts."""
    keys = st.sampled_from([*RESOURCES, "cpu"])
    limits = st.dictionaries(keys, st.sampled_from(QUANTITIES), min_size=1, max_size=2)
    requests = st.none() | st.dictionaries(keys, st.sampled_from(QUANTITIES), max_size=1)
    entries = st.lists(
        st.fixed_dictionaries({"name": st.sampled_from(VARIABLES), "value": st.sampled_from(["1", "2"])}),
        max_size=3,
    )
    return container(draw(st.none() | limits), draw(requests), name=name, env=draw(entries), new={"a": [1]})


@st.composite
def pods(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a pod that an API server accepts."""
    labels = st.dictionaries(st.sampled_from(VARIABLES), st.sampled_from(["1", "2"]), max_size=2)
    spec: dict[str, Any] = draw(
        st.fixed_dictionaries(
            {"initContainers": st.lists(containers("init"), max_size=1)},
            optional={
                "runtimeClassName": st.sampled_from(["r", "t"]),
                "schedulerName": st.sampled_from(["default-scheduler", "t"]),
                "tolerations": st.just([{"key": "gpu", "value": "x"}]),
                "volumes": st.just([{"name": "v", "hostPath": {"path": "/x"}}]),
                "newField": st.just([{"x": None}]),
            },
        )
    )
    metadata = draw(st.fixed_dictionaries({}, optional={"labels": labels, "annotations": labels}))
    names = ["a", "b"][: draw(st.integers(1, 2))]
    return pod(*(draw(containers(name)) for name in names), metadata=metadata, **spec)


def _found(decision: Decision) -> tuple[bool, list[tuple[Any, ...]]]:
    """Return what a decision finds; that a value is the default of a rule is known in the first one only."""
    default = THE_DEFAULT.having(actual="").en
    return decision.allowed, [
        (violation.rule, violation.action, violation.path, violation.basis, text.en.replace(default, ""))
        for violation in decision.violations
        for text in (violation.reason, violation.fix)
    ]


@given(policies(), pods(), st.booleans())
def test_the_request_is_never_changed(
    texts: tuple[str, ...], document: dict[str, Any], mutating: bool
) -> None:
    """It may be read by others at the same time."""
    before = deepcopy(document)
    decision(policy(*texts), document, mutating=mutating)

    assert before == document


@given(policies(), pods())
def test_the_patched_pod_gets_no_patch_and_the_same_decision(
    texts: tuple[str, ...], document: dict[str, Any]
) -> None:
    """The API server may call again, and copies limits into absent requests before and after."""
    compiled = policy(*texts)
    for arriving in (document, defaulted(document)):
        first = decision(compiled, arriving)
        stored = patched(arriving, first)
        for again in (stored, defaulted(stored)) if first.allowed else ():
            second = decision(compiled, again)

            assert ((), *_found(first)) == (second.patch, *_found(second))


@given(policies(), pods())
def test_the_validating_endpoint_agrees_with_the_mutating_one(
    texts: tuple[str, ...], document: dict[str, Any]
) -> None:
    """On the pods that the other has admitted."""
    compiled = policy(*texts)
    first = decision(compiled, document)
    if first.allowed:
        final = decision(compiled, patched(document, first), mutating=False)

        assert ((), *_found(first)) == (final.patch, *_found(final))


@given(policies(), pods())
def test_a_decision_does_not_depend_on_whether_limits_are_copied_into_requests(
    texts: tuple[str, ...], document: dict[str, Any]
) -> None:
    """The CLI reads files; admission reads what the API server made of them."""
    compiled = policy(*texts)
    direct, copied = decision(compiled, document), decision(compiled, defaulted(document))

    assert _found(direct) == _found(copied)
    assert defaulted(patched(document, direct)) == defaulted(patched(defaulted(document), copied))


@given(policies(), resource_rules(["deny.com/x", *RESOURCES], only_deny=True), pods())
def test_another_denying_rule_never_admits_more(
    texts: tuple[str, ...], denying: str, document: dict[str, Any]
) -> None:
    """Rules never allow what others deny."""
    key = yaml.safe_load(denying)["data"]["key"]
    others = [text for text in texts if yaml.safe_load(text)["data"].get("key") != key]

    assert decision(policy(*others, denying), document).allowed <= decision(policy(*others), document).allowed


@given(policies(), pods())
def test_the_language_changes_only_words(texts: tuple[str, ...], document: dict[str, Any]) -> None:
    """Decision, patch and audit annotations are the same."""
    english, chinese = (decision(policy(*texts, language=language), document) for language in Language)

    assert (english.allowed, english.patch, english.audit, len(warning_texts(english))) == (
        chinese.allowed,
        chinese.patch,
        chinese.audit,
        len(warning_texts(chinese)),
    )


def _container_changes(before: dict[str, Any], after: dict[str, Any]) -> Iterator[str]:
    """Yield the changes of fields that rules can change, in the words of the audit, and remove the fields."""
    for field in ("limits", "requests"):
        old = before.get("resources", {}).get(field, {})
        new = after.get("resources", {}).get(field, {})
        yield from (f"{after['name']}: {field} {key}" for key in new if new[key] != old.get(key))
    old_env, new_env = before.get("env", []), after.get("env", [])
    for index, entry in enumerate(new_env):
        if index >= len(old_env) or old_env[index] != entry:
            yield f"{after['name']}: env {entry['name']}"
    mounts = after.get("volumeMounts", [])[len(before.get("volumeMounts", [])) :]
    yield from (f"{after['name']}: volumeMount {mount['mountPath']}" for mount in mounts)
    old, new = (
        pod_container.get("securityContext", {}).get("capabilities", {}).get("add", [])
        for pod_container in (before, after)
    )
    yield from (f"{after['name']}: capability {name}" for name in new[len(old) :])
    for field in ("resources", "env", "volumeMounts", "securityContext"):
        before.pop(field, None)
        after.pop(field, None)


def _pod_changes(before: dict[str, Any], after: dict[str, Any]) -> Iterator[str]:
    for kind in ("labels", "annotations"):
        old, new = (document["metadata"].pop(kind, {}) for document in (before, after))
        yield from (f"{kind[:-1]} {key}" for key in new if new[key] != old.get(key))
    old, new = before["spec"], after["spec"]
    for name in (pod_field.name for pod_field in POD_FIELDS):
        existing, value = old.pop(name, None), new.pop(name, None)
        yield from [f"{name} {value}"] * (existing != value)
    for field, word, key in (("volumes", "volume", "name"), ("tolerations", "toleration", "key")):
        existing, entries = old.pop(field, []), new.pop(field, [])
        yield from (f"{word} {entry[key]}" for entry in entries[len(existing) :])
    yield from ["required node affinity"] * (old.pop("affinity", None) != new.pop("affinity", None))
    for field in ("containers", "initContainers"):
        for one, other in zip(old[field], new[field], strict=True):
            yield from _container_changes(one, other)


@given(policies(), pods())
def test_a_patch_changes_only_what_the_audit_lists(texts: tuple[str, ...], document: dict[str, Any]) -> None:
    """It removes nothing."""
    answer = decision(policy(*texts), document)
    before, after = deepcopy(document), deepcopy(patched(document, answer))
    listed = set(answer.audit.get("defaulted", "").split("; "))
    for rule in re.findall(r"\(([^)]*)\)", answer.audit.get("injected", "")):
        listed |= set(rule.split(", "))
    changed = set(_pod_changes(before, after)) - {f"annotation {INJECTED_ANNOTATION}"}

    assert set() == changed - listed
    assert before == after


def _replaced(document: Any, path: list[Any], value: Any) -> Any:
    """Return a document with another value somewhere in it; each step is taken modulo the members."""
    if not path or not isinstance(document, dict | list) or not document:
        return value
    keys = sorted(document) if isinstance(document, dict) else range(len(document))
    key = keys[path[0] % len(keys)]
    copy = document.copy()
    copy[key] = _replaced(document[key], path[1:], value)
    return copy


@cache
def _everything() -> Policy:
    """Return the built-in rules and one that injects everything that can be injected."""
    catalog = Path(str(files("rules"))) / "catalog"
    shipped = load_rules(
        (str(path), path.read_text("utf-8")) for path in sorted(catalog.rglob("*.yaml"))
    ).rules
    term = {"matchExpressions": [{"key": "k", "operator": "Exists"}]}
    ours = loaded(
        resource_rule(
            defaultValue="1",
            requests="fromLimits",
            runtimeClassName="r",
            validations=[{"expression": "value < 9"}],
        ),
        resource_rule("nvidia.com/x", group="pgpu", defaultValue="1"),
        injection_rule(
            {
                "env": [
                    {"name": "A", "value": "1"},
                    {"name": "B", "fromResource": {"name": "nvidia.com/gpu"}},
                ],
                "volumes": [{"name": "v"}],
                "volumeMounts": [{"name": "v", "mountPath": "/v"}],
                "tolerations": [{"key": "a"}],
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]},
                    "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": term}],
                },
                "runtimeClassName": "r",
                "schedulerName": "s",
                "hostIPC": True,
                "labels": {"a": "1"},
                "annotations": {"b": "2"},
            },
            match={
                "resources": ["*/*"],
                "images": ["*"],
                "podSelector": {"matchExpressions": [{"key": "z", "operator": "DoesNotExist"}]},
                "conditions": ["size(limits) >= 0", "pod.namespace == 'team'"],
            },
        ),
    ).rules
    return compile_policy(
        RuleSet(
            shipped.resources + ours.resources,
            shipped.injections + ours.injections,
            shipped.compatibility,
            shipped.images,
        )
    )


NODES = inventory_of(
    [
        {
            "metadata": {
                "name": f"n{major}",
                "labels": {"a": "b", "k": "1", "cuda-major-version": str(major), "cuda-minor-version": "4"},
            },
            "status": {"allocatable": {"nvidia.com/gpu": "8"}},
        }
        for major in (11, 12)
    ]
)
FULL = pod(
    container(
        {"nvidia.com/gpu": "1", DEVICE: "2"},
        {"nvidia.com/gpu": "1"},
        image="nvidia/cuda:12.1.0-base",
        env=[{"name": "B", "value": "1"}, {"name": "NVIDIA_REQUIRE_CUDA", "value": "cuda>=12.1"}],
        envFrom=[{"prefix": "A", "configMapRef": {"name": "c"}}],
        volumeMounts=[{"name": "x", "mountPath": "/x"}],
        args=["--dtype=half"],
        command=["x"],
    ),
    metadata={
        "labels": {"a": "b"},
        "annotations": {INJECTED_ANNOTATION: "x", "gpugate.dev/cuda-version": "12"},
    },
    initContainers=[container({"nvidia.com/gpu": "1"}, name="init", restartPolicy="Always")],
    ephemeralContainers=[container(name="debug", targetContainerName="main", env=[])],
    volumes=[{"name": "x"}],
    tolerations=[{"key": "a", "operator": "Exists"}],
    nodeSelector={"a": "b"},
    affinity={
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "k", "operator": "In", "values": ["1"]}]}]
            },
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": {}}],
        }
    },
)
KINDS = [
    ("", "Pod", FULL, ""),
    ("", "Pod", FULL, "ephemeralcontainers"),
    (
        "apps",
        "Deployment",
        {"metadata": {"ownerReferences": [{"kind": "x"}]}, "spec": {"template": FULL}},
        "",
    ),
    ("kubeflow.org", "TFJob", {"spec": {"tfReplicaSpecs": {"a": {"template": FULL}, "b": {}}}}, ""),
    ("batch.volcano.sh", "Job", {"spec": {"tasks": [{"template": FULL}]}}, ""),
]
SOMEWHERE = st.lists(st.integers(0, 30), min_size=2, max_size=9)


def _is_decided(request: AdmissionRequest) -> bool:
    try:
        decide(Snapshot(_everything(), NODES), request)
    except ObjectError as error:
        return bool(str(error))
    return True


@settings(max_examples=2 * EXAMPLES)
@given(st.sampled_from(KINDS), st.lists(st.tuples(SOMEWHERE, JSON), min_size=1, max_size=3), st.booleans())
def test_an_object_with_wrong_values_is_decided_or_malformed(
    kind: tuple[str, str, Any, str], edits: list[tuple[list[int], Any]], update: bool
) -> None:
    """Nothing else is raised: custom resources are not validated before."""
    group, name, document, subresource = kind
    wrong = document
    for path, value in edits:
        wrong = _replaced(wrong, path, value)
    wrong = wrong if isinstance(wrong, dict) else {"spec": wrong}
    operation = "UPDATE" if update or subresource else "CREATE"

    assert _is_decided(
        AdmissionRequest(operation, group, name, "team", wrong, document if update else None, subresource)
    )


@given(st.sampled_from(KINDS), st.dictionaries(st.sampled_from(["spec", "metadata", "x"]), JSON))
def test_any_object_is_decided_or_malformed(
    kind: tuple[str, str, Any, str], document: dict[str, Any]
) -> None:
    """Whatever JSON it is."""
    group, name, before, subresource = kind

    assert _is_decided(AdmissionRequest("UPDATE", group, name, "team", document, before, subresource))
    assert _is_decided(AdmissionRequest("UPDATE", group, name, "team", before, document, subresource))


NUMBER = st.from_regex(r"[+-]?([0-9]{1,22}(\.[0-9]{0,12})?|\.[0-9]{1,12})", fullmatch=True)
SUFFIX = st.sampled_from(["", *"numkMGTPE", *(f"{power}i" for power in "KMGTPE")]) | st.integers(-70, 70).map(
    "e{}".format
)


def _slowly(number: str, suffix: str) -> Fraction:
    """Return the number of a quantity as Kubernetes documents it."""
    amount = quantity(number + suffix)
    assert amount is not None
    return amount


@settings(max_examples=3 * EXAMPLES)
@given(NUMBER, SUFFIX)
@example("9223372036854775807.9999999999", "")
@example("0.0000000001", "Ei")
def test_a_quantity_equals_its_exact_fraction(number: str, suffix: str) -> None:
    """No float is involved."""
    amount = parse_quantity(number + suffix)

    assert (_slowly(number, suffix), isinstance(amount, int)) == (
        Fraction(amount),
        Fraction(amount).denominator == 1,
    )


@given(st.lists(st.tuples(NUMBER, SUFFIX), min_size=2, max_size=5))
def test_quantities_are_in_the_order_of_their_numbers(texts: list[tuple[str, str]]) -> None:
    """Whatever their suffixes."""
    by_fraction = sorted(texts, key=lambda text: _slowly(*text))
    values = [parse_quantity(number + suffix) for number, suffix in by_fraction]

    assert sorted(values) == values


@given(st.text() | st.text("0123456789.eEinumkKMGTP+- ") | JSON)
def test_any_value_is_a_quantity_or_none(value: Any) -> None:
    """Nothing else is raised."""
    try:
        outcome: object = parse_quantity(value)
    except QuantityError as error:
        outcome = error

    assert isinstance(outcome, int | Decimal | QuantityError)


SOUND = resource_rule()
RULES = [
    SOUND.replace("device", "another"),
    resource_rule(GLOBS[0], validations=[{"expression": "value > 1", "messageEn": "x"}]),
    injection_rule({"env": [{"name": "A", "value": "1"}], "hostIPC": True}),
]
PIECES = st.text(max_size=6) | st.sampled_from(
    [
        "\t",
        "\n",
        "\n---\n",
        ": ",
        "- ",
        "[",
        "{",
        "}",
        "*a",
        "&a ",
        "<<: ",
        "|\n",
        ">",
        "'",
        '"',
        "!!int ",
        "? ",
        "#",
        "\x00",
        "\ud800",
        "%",
    ]
)


@settings(max_examples=2 * EXAMPLES)
@given(
    st.sampled_from(RULES), st.lists(st.tuples(st.integers(0, 600), st.integers(0, 8), PIECES), max_size=3)
)
def test_any_text_is_loaded_or_has_errors(text: str, edits: list[tuple[int, int, str]]) -> None:
    """The rule in the next file is loaded in any case."""
    for position, length, piece in edits:
        text = text[:position] + piece + text[position + length :]
    read = load_rules([("a", text), ("b", SOUND)])

    assert "cf-crl-group-device" in [rule.name for rule in read.rules]
    assert [] == [error for error in read.errors if error.location.file != "a"]


@settings(max_examples=2 * EXAMPLES)
@given(st.sampled_from(RULES), st.lists(st.tuples(SOMEWHERE, JSON), min_size=1, max_size=2), st.booleans())
def test_any_object_is_loaded_or_has_errors(
    text: str, edits: list[tuple[list[int], Any]], inside: bool
) -> None:
    """Also with errors in the embedded rule document."""
    document = yaml.safe_load(text)
    for path, value in edits:
        if inside and "rule.yaml" in document["data"]:
            inner = _replaced(yaml.safe_load(document["data"]["rule.yaml"]), path, value)
            document["data"]["rule.yaml"] = yaml.safe_dump(inner)
        else:
            document = {"data": {}, "items": _replaced(document, path, value)}
            document |= document["items"] if isinstance(document["items"], dict) else {"kind": "List"}
    read = load_rules([("a", yaml.safe_dump(document)), ("b", SOUND)])

    assert "cf-crl-group-device" in [rule.name for rule in read.rules]


@st.composite
def edited(draw: st.DrawFn) -> tuple[dict[str, Any], Recorder]:
    """Draw a document and a recorder that has made some edits of it."""
    document = draw(st.dictionaries(st.sampled_from("abc"), JSON, max_size=3))
    recorder = Recorder(document)
    for _ in range(draw(st.integers(1, 6))):
        path: list[str | int] = []
        node: Any = recorder.get(())
        while isinstance(node, dict | list) and draw(st.integers(0, 3)):
            if isinstance(node, dict):
                path.append(draw(st.sampled_from([*sorted(node), *"abc"])))
            elif node:
                path.append(draw(st.integers(0, len(node) - 1)))
            else:
                break
            node = recorder.get(tuple(path))
        value = draw(JSON)
        try:
            if isinstance(node, list) and draw(st.booleans()):
                recorder.append(tuple(path), value)
            elif path:
                recorder.set(tuple(path), value)
        except ObjectError:
            continue
    return document, recorder


@settings(max_examples=2 * EXAMPLES)
@given(st.data())
def test_the_operations_produce_what_the_recorder_shows(data: st.DataObject) -> None:
    """The document itself is not modified."""
    document, recorder = data.draw(edited())
    before = deepcopy(document)
    made = jsonpatch.apply_patch(document, deepcopy(recorder.operations))

    assert (before, recorder.get(())) == (document, made)


@given(st.data())
def test_operations_only_add_and_replace(data: st.DataObject) -> None:
    """No rule removes a field."""
    _, recorder = data.draw(edited())

    assert {operation["op"] for operation in recorder.operations} <= {"add", "replace"}


def _uncapped(decision: Decision) -> list[tuple[str, Any, str]]:
    return [
        (violation.rule, violation.rule_action or violation.action, violation.path)
        for violation in decision.violations
    ]


@given(policies(), pods(), st.booleans())
def test_a_cap_reports_what_enforcement_does_and_never_denies(
    texts: tuple[str, ...], document: dict[str, Any], patched_before: bool
) -> None:
    """At both endpoints: also where a pod comes unpatched to the second, as in a dry run."""
    rules = loaded(*texts).rules
    enforced, warned, dry = (decision(compile_policy(rules, enforcement=cap), document) for cap in Action)
    if patched_before and enforced.allowed:
        document = patched(document, enforced)
    validated = decision(compile_policy(rules, enforcement=Action.DRYRUN), document, mutating=False)

    for capped in (warned, dry, validated):
        assert capped.allowed
        assert _uncapped(enforced) == _uncapped(capped)
        assert (capped.withheld is Effect.DENY) is not enforced.allowed
    assert warned.patch[: len(enforced.patch)] == enforced.patch
    assert set(warning_texts(enforced)) <= set(warning_texts(warned))
    assert ((), (), (), ()) == (dry.patch, warning_texts(dry), validated.patch, warning_texts(validated))
    assert (dry.withheld is Effect.PATCH) is bool(enforced.allowed and enforced.patch)
