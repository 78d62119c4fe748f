"""Rule files: valid rules are loaded, each error has its location, and does not affect other rules."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from rules.decision.policy import compile_policy
from rules.model.rule import Action, EnvFromResource, InjectionAction, LimitsPolicy, RequestsPolicy
from rules.schema.loader import load_rules
from rules.text.i18n import Text
from tests.support.builders import (
    DEVICE,
    LEGACY,
    NEWER,
    container,
    decision,
    injection_rule,
    loaded,
    pod,
    policy,
    resource_rule,
)
from tests.support.invalid_documents import invalid_documents
from tests.support.similarity_count import comparisons

RESOURCE = """\
apiVersion: v1
kind: ConfigMap
metadata:
  name: cf-crl-team-device
  namespace: kube-public
  labels:
    features.cpaas.io/type: CustomResourceLimitation
    features.cpaas.io/group: team
    features.cpaas.io/enabled: "true"
data:
  key: vendor.com/device
  dataType: integer
  limits: optional
  requests: disabled
"""
INJECTION = """\
apiVersion: v1
kind: ConfigMap
metadata:
  name: flags
  namespace: kube-public
  labels:
    gpugate.dev/type: InjectionRule
    gpugate.dev/enabled: "true"
data:
  rule.yaml: |
    match:
      resources: [vendor.com/device]
    inject:
      env:
        - {name: A, value: "1"}
"""
INVALID = Path(__file__).parent / "invalid"
TERM = {"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}
TOLERATION = {"key": "gpu", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}
NAME = {"key": "metadata.name", "operator": "In", "values": ["a"]}


def _errors(*texts: str) -> list[str]:
    return [str(error) for error in loaded(*texts).errors]


def _names(*texts: str) -> list[str]:
    return [rule.name for rule in loaded(*texts).rules]


def _changed(text: str, old: str, new: str) -> str:
    assert old in text
    return text.replace(old, new)


def test_a_resource_rule_is_read_in_its_existing_format() -> None:
    """Clusters use this format today; keys that are not used in admission are valid."""
    text = """\
apiVersion: v1
kind: ConfigMap
metadata:
  name: cf-crl-gpu-manager-vcuda-core
  namespace: kube-public
  labels:
    features.alauda.io/type: CustomResourceLimitation
    features.alauda.io/group: gpu-manager
    features.alauda.io/enabled: "true"
data:
  key: "tencent.com/vcuda-core"
  dataType: "integer"
  defaultValue: "20"
  descriptionZh: "GPU 虚拟核心数"
  descriptionEn: "GPU vcore count"
  group: "gpu-manager"
  limits: "required"
  requests: "fromLimits"
  excludeResources: "nvidia.com/gpu, nvidia.com/mig-*,"
  groupI18n: "{}"
  labelEn: "vGPU"
  labelZh: "虚拟 GPU"
  resourceUnit: "core"
  relatedResources: "tencent.com/vcuda-memory"
  runtimeClassName: "nvidia"
  ignoreNodeCheck: "true"
  enforcementAction: warn
  validations: |
    - expression: value <= 100
      messageEn: up to 100
      messageZh: 最多 100
"""
    read = loaded(text)
    (rule,) = read.rules.resources
    (validation,) = rule.validations

    assert () == read.errors
    assert {"ignoreNodeCheck", "groupI18n"} == {warning.path.rpartition(".")[2] for warning in read.warnings}
    assert (
        "cf-crl-gpu-manager-vcuda-core",
        "tencent.com/vcuda-core",
        "gpu-manager",
        True,
        "20",
        LimitsPolicy.REQUIRED,
        RequestsPolicy.FROM_LIMITS,
        "nvidia",
        Action.WARN,
        Text("GPU vcore count", zh="GPU 虚拟核心数"),
        True,
        "0.yaml:1:1",
    ) == (
        rule.name,
        rule.key,
        rule.group,
        rule.integer,
        rule.default,
        rule.limits,
        rule.requests,
        rule.runtime_class,
        rule.action,
        rule.description,
        rule.enabled,
        str(rule.location),
    )
    assert [True, True, False] == [
        bool(rule.excludes.find(name)) for name in ("nvidia.com/gpu", "nvidia.com/mig-1g.5gb", "amd.com/gpu")
    ]
    assert ("value <= 100", Text("up to 100", zh="最多 100")) == (
        validation.expression.source,
        validation.message,
    )


def test_optional_keys_of_a_resource_rule_default_to_no_effect() -> None:
    """No default, nothing excluded, no validations; a violation denies."""
    (rule,) = loaded(RESOURCE).rules.resources

    assert ("", (), "", Action.DENY, Text()) == (
        rule.default,
        rule.validations,
        rule.runtime_class,
        rule.action,
        rule.description,
    )


@pytest.mark.parametrize(("data_type", "default"), [("float", "500m"), ("integer", "0"), ("integer", "1k")])
def test_a_default_is_any_quantity_of_the_rules_type(data_type: str, default: str) -> None:
    """In any notation."""
    (rule,) = loaded(resource_rule(dataType=data_type, defaultValue=default)).rules.resources

    assert default == rule.default


@pytest.mark.parametrize("data", [{"limits": "required"}, {"requests": "required"}, {"defaultValue": "1"}])
def test_a_glob_key_can_neither_be_required_nor_have_a_default(data: dict[str, Any]) -> None:
    """It matches many resources."""
    assert ["'vendor.com/*' matches many resources, so they cannot be required or have a default"] == [
        error.message for error in loaded(resource_rule("vendor.com/*", **data)).errors
    ]


def test_an_injection_rule_is_read_with_all_its_keys() -> None:
    """Entries stay as written."""
    affinity = {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [TERM]},
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 5, "preference": {"matchFields": [NAME]}}
        ],
    }
    volume = {"name": "v", "hostPath": {"path": "/x"}, "unheardOf": None}
    mount = {"name": "v", "mountPath": "/x", "readOnly": True}
    document = {
        "description": {"en": "flags", "zh": "标志"},
        "enforcementAction": "dryrun",
        "override": True,
        "match": {
            "resources": ["vendor.com/*"],
            "images": ["*/paddle*"],
            "namespaces": {"include": ["a*"], "exclude": ["b"]},
            "podSelector": {
                "matchLabels": {"x": "y"},
                "matchExpressions": [{"key": "z", "operator": "NotIn", "values": ["1"]}],
            },
            "conditions": ["container.name != ''"],
        },
        "inject": {
            "env": [
                {"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                {"name": "B", "fromResource": {"name": DEVICE, "unit": "256Mi", "format": "{MiB}m"}},
            ],
            "volumes": [volume],
            "volumeMounts": [mount],
            "tolerations": [TOLERATION],
            "nodeAffinity": affinity,
            "runtimeClassName": "nvidia",
            "schedulerName": "volcano",
            "hostIPC": True,
            "priorityClassName": "gpu",
            "activeDeadlineSeconds": 3600,
            "securityContext": {"capabilities": {"add": ["IPC_LOCK"]}},
            "labels": {"l": "1"},
            "annotations": {"a": "2"},
        },
    }
    text = _changed(INJECTION, INJECTION[INJECTION.index("    match:") :], "")
    indented = "".join(f"    {line}\n" for line in yaml.safe_dump(document, allow_unicode=True).splitlines())
    read = loaded(text + indented)
    (rule,) = read.rules.injections
    (first, second), inject = rule.inject.env, rule.inject

    assert [] == [str(error) for error in read.errors]
    assert ("flags", True, True, InjectionAction.DRYRUN, Text("flags", zh="标志")) == (
        rule.name,
        rule.enabled,
        rule.override,
        rule.action,
        rule.description,
    )
    assert ("A", {"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}) == first
    assert ("B", EnvFromResource(DEVICE, 268435456, "{MiB}m")) == second
    assert ((volume,), (mount,), {"l": "1"}, {"a": "2"}) == (
        inject.volumes,
        inject.volume_mounts,
        inject.labels,
        inject.annotations,
    )
    assert {
        "runtimeClassName": "nvidia",
        "schedulerName": "volcano",
        "hostIPC": True,
        "priorityClassName": "gpu",
        "activeDeadlineSeconds": 3600,
    } == inject.pod_fields
    assert ("IPC_LOCK",) == inject.capabilities
    assert (TOLERATION,) == inject.tolerations
    assert [TERM] == list(inject.required_terms)
    assert [{"weight": 5, "preference": {"matchFields": [NAME]}}] == list(inject.preferred_terms)


@pytest.mark.parametrize(
    ("text", "errors"),
    [
        *invalid_documents(INVALID / "resource_rule.diff", RESOURCE),
        *invalid_documents(INVALID / "injection_rule.diff", INJECTION),
    ],
)
def test_an_error_in_a_rule_has_its_location(text: str, errors: list[str]) -> None:
    """And a fix; the rule is not loaded."""
    assert ([f"0.yaml:{error}" for error in errors], []) == (_errors(text), _names(text))


@pytest.mark.parametrize(
    ("rule", "own", "follows"),
    [
        ("deny", "", Action.DENY),
        ("deny", "warn", Action.WARN),
        ("warn", "deny", Action.WARN),
        ("dryrun", "warn", Action.DRYRUN),
        ("warn", "", Action.WARN),
    ],
)
def test_the_milder_action_of_rule_and_validation_is_used(rule: str, own: str, follows: Action) -> None:
    """A dryrun rule never denies, and a rule that denies can have validations that only warn."""
    validation = {"expression": "value > 0"} | ({"enforcementAction": own} if own else {})
    (read,) = loaded(resource_rule(enforcementAction=rule, validations=[validation])).rules.resources

    assert [follows] == [validation.action for validation in read.validations]


@pytest.mark.parametrize("name", ["cf-crl-Device", "cf-crl_device", f"cf-crl-{'d' * 250}-device"])
def test_an_invalid_object_name_is_an_error(name: str) -> None:
    """The API server would deny the ConfigMap."""
    text = _changed(RESOURCE, "cf-crl-team-device", name)

    assert "metadata.name: expected" in _errors(text)[0]


def test_blank_validations_are_empty() -> None:
    """As written by an empty form."""
    (rule,) = loaded(f'{RESOURCE}  validations: " "\n').rules.resources

    assert () == rule.validations


def test_a_setting_in_the_data_takes_precedence_over_the_document() -> None:
    """An overlay can patch it there."""
    text = _changed(INJECTION, "  rule.yaml: |\n", "  enforcementAction: dryrun\n  rule.yaml: |\n")
    text = _changed(text, "    match:\n", "    enforcementAction: inject\n    match:\n")
    (rule,) = loaded(text).rules.injections

    assert InjectionAction.DRYRUN is rule.action


@pytest.mark.parametrize("prefix", [LEGACY, NEWER])
def test_both_spellings_of_the_labels_are_read(prefix: str) -> None:
    """Both the older and the newer one are in use."""
    assert ["cf-crl-group-device"] == _names(resource_rule(prefix=prefix))


def test_a_rule_without_a_namespace_is_valid_with_a_warning() -> None:
    """kustomize or kubectl -n can set it; otherwise the rule is applied elsewhere and has no effect."""
    bare = INJECTION.replace("  namespace: kube-public\n", "")

    (warning,) = loaded(bare).warnings

    assert str(warning) == (
        "0.yaml:3:1: metadata.namespace: no namespace: the rule has no effect unless it is applied to "
        "'kube-public'; add namespace: kube-public"
    )
    assert ["flags"] == _names(_changed(INJECTION, "  namespace: kube-public\n", ""))


def test_rules_can_be_in_another_namespace() -> None:
    """With the namespace parameter."""
    text = _changed(INJECTION, "kube-public", "gpugate")

    assert ["flags"] == [rule.name for rule in load_rules([("f", text)], "gpugate").rules]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a: 1",
        "[1, 2]",
        "just text",
        "kind: ConfigMap",
        "{kind: ConfigMap, metadata: [], data: 7}",
        "{kind: ConfigMap, metadata: {labels: 7}}",
        "{kind: ConfigMap, metadata: {name: app, labels: {app: x}}, data: {a: 1, a: 2}}",
        "{kind: Secret, metadata: {labels: {gpugate.dev/type: InjectionRule}}}",
        "{apiVersion: kustomize.config.k8s.io/v1beta1, kind: Kustomization, resources: [a.yaml]}",
        "{kind: ConfigMapList, items: 7}",
    ],
)
def test_objects_that_are_not_rules_are_skipped(text: str) -> None:
    """A folder in Git can contain other objects."""
    read = loaded(text)

    assert ([], (), ()) == (list(read.rules), read.errors, read.warnings)


def test_a_name_that_does_not_end_in_its_key_is_a_warning() -> None:
    """It is loaded, because clusters have such rules."""
    read = loaded(_changed(RESOURCE, "name: cf-crl-team-device", "name: cf-crl-team-devices"))

    assert ["cf-crl-team-devices"] == [rule.name for rule in read.rules]
    assert [
        (
            "0.yaml:4:9: metadata.name: expected to end in -device like the key 'vendor.com/device',"
            " got 'cf-crl-team-devices'"
        )
    ] == [str(warning) for warning in read.warnings]


@pytest.mark.parametrize(
    ("old", "new", "warning"),
    [
        (
            "name: cf-crl-team-device",
            "name: cf-crl-device",
            "metadata.name: expected a word of your own before the key, as in cf-crl-WORD-device",
        ),
        (
            "features.cpaas.io/group",
            "features.alauda.io/group",
            (
                "metadata.labels: the labels of a rule have one prefix: write features.cpaas.io/group, like "
                "features.cpaas.io/type"
            ),
        ),
        (
            "  key: vendor.com/device",
            "  key: vendor.com/device\n  group: other",
            "data.group: 'other' has no effect: the group is 'team', by the label",
        ),
        (
            "  key: vendor.com/device",
            '  key: vendor.com/device\n  ignoreNodeCheck: "true"',
            (
                "data.ignoreNodeCheck: gpugate does not read it: to compare no nodes, disable the "
                "compatibility rule by its label"
            ),
        ),
        (
            "  key: vendor.com/device",
            "  key: vendor.com/device\n  groupI18n: '{}'",
            "data.groupI18n: gpugate does not read it: messages name the group by the label",
        ),
    ],
)
def test_a_key_name_or_label_that_other_systems_read_otherwise_is_a_warning(
    old: str, new: str, warning: str
) -> None:
    """The rule is loaded, because clusters have such rules."""
    read = loaded(_changed(RESOURCE, old, new))

    assert 1 == len(list(read.rules))
    assert [warning] == [str(one).partition(": ")[2] for one in read.warnings]


def test_resources_go_together_by_a_validation() -> None:
    """As a condition on one of them."""
    validation = "\n  validations: |\n    - expression: \"'vendor.com/memory' in limits\""
    read = loaded(_changed(RESOURCE, "  key: vendor.com/device", f"  key: vendor.com/device{validation}"))
    rules = compile_policy(read.rules)
    alone, both = ({"vendor.com/device": 1}, {"vendor.com/device": 1, "vendor.com/memory": 1})

    assert [False, True] == [
        decision(rules, pod(container(limits=limits))).allowed for limits in (alone, both)
    ]


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("cf-crl-team-gpu-shared", "nvidia.com/gpu.shared"),
        ("cf-crl-team-gpu.shared", "nvidia.com/gpu.shared"),
        ("cf-crl-a-b-vcuda-core", "tencent.com/vcuda-core"),
        ("cf-crl-npu-ascend310p", "huawei.com/Ascend310P"),
        ("cf-crl-mig-mig", "nvidia.com/mig-*"),
        ("cf-crl-any", "vendor.com/*"),
    ],
)
def test_a_name_is_the_key_with_special_characters_replaced(name: str, key: str) -> None:
    """Of a glob, only the literal part is compared."""
    assert () == loaded(resource_rule(key, name=name)).warnings


@pytest.mark.parametrize(
    "write",
    [
        lambda *texts: "---\n".join(texts),
        lambda *texts: "---\n" + "---\n".join(texts) + "---\n",
        lambda *texts: "\ufeff# rules\n" + "---\n".join(texts).replace("\n", "\r\n"),
        lambda *texts: json.dumps({"kind": "List", "items": [yaml.safe_load(text) for text in texts]}),
        lambda *texts: yaml.safe_dump({"kind": "ConfigMapList", "items": [*map(yaml.safe_load, texts)]}),
        lambda *texts: yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "ConfigMapList",
                "items": [
                    {"metadata": rule["metadata"], "data": rule["data"]}
                    for rule in map(yaml.safe_load, texts)
                ],
            }
        ),
        lambda *texts: yaml.safe_dump(
            {"kind": "List", "items": [{"kind": "List", "items": [*map(yaml.safe_load, texts)]}]}
        ),
    ],
)
def test_rules_are_read_from_every_format_of_kubectl(write: Callable[..., str]) -> None:
    """Many documents, lists of `kubectl get -o yaml`, JSON, other line ends."""
    read = loaded(write(RESOURCE, INJECTION))

    assert (["cf-crl-team-device", "flags"], ()) == ([rule.name for rule in read.rules], read.errors)


def test_an_error_in_a_list_has_its_location() -> None:
    """And its path starts at the item."""
    items = "".join(
        "- " + text.replace("\n", "\n  ").rstrip() + "\n"
        for text in (INJECTION, RESOURCE.replace("optional", "never"))
    )

    assert [
        "0.yaml:30:13: items[1].data.limits: expected one of disabled, required, optional, got 'never'"
    ] == _errors(f"kind: List\nitems:\n{items}")


def test_tabs_have_their_own_message() -> None:
    """A reader cannot distinguish them from spaces."""
    (error,) = _errors(RESOURCE.replace("  key", "\tkey"))

    assert error.startswith("0.yaml:11:1: not YAML: ")
    assert error.endswith("; indent with spaces, YAML does not allow tabs")


@pytest.mark.parametrize(
    ("weight", "errors"),
    [
        (0, ["input should be greater than or equal to 1"]),
        (1, []),
        (100, []),
        (101, ["input should be less than or equal to 100"]),
        ("x", ["expected a number, got a string"]),
    ],
)
def test_a_preference_has_a_weight_of_1_to_100(weight: object, errors: list[str]) -> None:
    """As in the Kubernetes API."""
    affinity = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": weight, "preference": TERM}]}
    read = loaded(injection_rule({"nodeAffinity": affinity}))

    assert errors == [error.message for error in read.errors]


LABEL = {"key": "example.com/pool"}
IN = {"operator": "In", "values": ["a"]}


@pytest.mark.parametrize(
    ("term", "error"),
    [
        ({"matchExpressions": [LABEL | IN]}, ""),
        ({"matchExpressions": [LABEL | {"operator": "Gt", "values": ["4"]}]}, ""),
        ({"matchFields": [NAME]}, ""),
        (
            {"matchExpressions": [LABEL | {"operator": "Exist"}]},
            "expected one of In, NotIn, Exists, DoesNotExist, Gt, Lt, got 'Exist' – did you mean 'Exists'?",
        ),
        ({"matchExpressions": [LABEL | {"operator": "In"}]}, "operator In requires at least one value"),
        ({"matchExpressions": [LABEL | IN | {"operator": "Exists"}]}, "operator Exists allows no values"),
        ({"matchExpressions": [LABEL | IN | {"operator": "Gt"}]}, "operator Gt requires one whole number"),
        (
            {"matchExpressions": [LABEL | {"operator": "Gt", "values": [4]}]},
            "expected a string, got a number: quote it",
        ),
        (
            {"matchExpressions": [IN | {"key": "a b"}]},
            "expected a label key such as example.com/team, got 'a b'",
        ),
        (
            {"matchExpressions": [LABEL | {"operator": "In", "values": ["a b"]}]},
            "expected at most 63 characters of A-Z, a-z, 0-9, -, _ and ., got 'a b'",
        ),
        (
            {"matchFields": [NAME | {"key": "spec.name"}]},
            "expected one of metadata.name, got 'spec.name'",
        ),
        (
            {"matchExpressions": [LABEL | IN], "matchLabels": {}},
            "unknown key 'matchLabels' – did you mean 'matchFields'?",
        ),
    ],
)
@pytest.mark.parametrize("kind", ["required", "preferred"])
def test_injected_node_affinity_is_what_the_api_server_accepts(kind: str, term: object, error: str) -> None:
    """Otherwise it would deny each pod that the rule changes, or no node would match the pod."""
    value = {
        "required": {"nodeSelectorTerms": [term]},
        "preferred": [{"weight": 1, "preference": term}],
    }[kind]
    read = loaded(injection_rule({"nodeAffinity": {f"{kind}DuringSchedulingIgnoredDuringExecution": value}}))

    assert [error] * bool(error) == [error.message for error in read.errors]


@pytest.mark.parametrize(
    ("toleration", "error"),
    [
        ({"operator": "Exists"}, ""),
        ({"key": "a", "value": "b"}, ""),
        (TOLERATION, ""),
        ({"value": "b"}, "operator Equal requires a key"),
        ({"key": "a b"}, "expected a taint key such as nvidia.com/gpu, got 'a b'"),
        ({"key": "a", "operator": "Exists", "value": "b"}, "operator Exists allows no values"),
        (
            {"key": "a", "value": "a b"},
            "expected at most 63 characters of A-Z, a-z, 0-9, -, _ and ., got 'a b'",
        ),
        (TOLERATION | {"effect": "NoSchedule"}, "tolerationSeconds requires the effect NoExecute"),
    ],
)
def test_an_injected_toleration_is_what_the_api_server_accepts(toleration: object, error: str) -> None:
    """Otherwise it would deny each pod that the rule changes."""
    read = loaded(injection_rule({"tolerations": [toleration]}))

    assert [error] * bool(error) == [error.message for error in read.errors]


@pytest.mark.parametrize(
    "bad",
    [
        "a: [",
        "a: &a [*a]",
        RESOURCE.replace("optional", "never").replace("team", "bad"),
        RESOURCE.replace("limits", "limit").replace("team", "bad"),
        RESOURCE.replace("team", "bad").replace('"true"', "true"),
        INJECTION.replace("flags", "bad").replace("env", "en"),
        INJECTION.replace("flags", "bad").replace("match:", "match: ]"),
    ],
)
def test_an_invalid_rule_does_not_affect_other_rules(bad: str) -> None:
    """Not in other files, not in other documents of its file, and not by its key."""
    texts = (f"{INJECTION}---\n{bad}", RESOURCE)

    assert ["cf-crl-team-device", "flags"] == _names(*texts)
    assert [] != _errors(*texts)


def test_a_duplicate_key_in_a_list_does_not_affect_other_items() -> None:
    """One file, one list, two rules."""
    items = [INJECTION, RESOURCE.replace("  limits: optional", "  limits: optional\n  limits: required")]
    text = "kind: List\nitems:\n" + "".join(
        "- " + item.replace("\n", "\n  ").rstrip() + "\n" for item in items
    )

    assert (["0.yaml:31:5: duplicate key 'limits': remove one of them"], ["flags"]) == (
        _errors(text),
        _names(text),
    )


def test_a_list_of_namespaces_is_an_error_with_what_to_write() -> None:
    """In exemptions and in matches."""
    match = {"resources": ["vendor.com/device"], "namespaces": ["ml", "web"]}
    (error,) = _errors(injection_rule({"hostIPC": True}, match=match))

    assert error.endswith("namespaces: expected an object, got a list: write {include: [ml, web]}")


def test_two_objects_without_a_separator_are_an_error_at_each_duplicate_key() -> None:
    """The last one would hide the rule before it, and there would be no rule at all."""
    other = "apiVersion: v1\nkind: {kind}\nmetadata: {{name: other}}\n"
    for kind in ("ConfigMap", "Secret"):
        errors = _errors(INJECTION + other.format(kind=kind))
        twice = [error.split("'")[1] for error in errors if "duplicate" in error]
        assert ["apiVersion", "kind", "metadata"] == twice


def test_the_data_of_an_object_that_is_no_rule_may_have_duplicate_keys() -> None:
    """Whatever reads it decides; duplicates in its metadata are errors."""
    text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {x: '1', x: '2'}\n"
    pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {hostIPC: true, hostIPC: false}\n"

    assert [] == _errors(text, pod)
    assert ["0.yaml:3:21: duplicate key 'name': remove one of them"] == _errors(
        text.replace("a}", "a, name: b}")
    )


def test_two_rules_with_one_key_conflict_and_both_are_reported() -> None:
    """It is unknown which one is intended, so neither is loaded."""
    texts = (RESOURCE, INJECTION, resource_rule(group="other"))

    assert [
        (
            "0.yaml:11:8: data.key: 'vendor.com/device' is also used by cf-crl-other-device"
            " (2.yaml:1:1); keep one rule, or disable the others by label"
        ),
        (
            "2.yaml:11:8: data.key: 'vendor.com/device' is also used by cf-crl-team-device"
            " (0.yaml:1:1); keep one rule, or disable the others by label"
        ),
    ] == _errors(*texts)
    assert ["flags"] == _names(*texts)


def test_one_name_in_two_files_is_a_conflict_too() -> None:
    """In a cluster, the one applied last replaces the other."""
    texts = (INJECTION, INJECTION)

    assert [
        (
            "1.yaml:4:9: metadata.name: 'flags' is also the name of the rule at 0.yaml:1:1, which it would "
            "replace; use another name, or remove one of them"
        )
    ] == _errors(*texts)
    assert [] == _names(*texts)


def test_a_copy_of_a_resource_rule_is_one_error() -> None:
    """It has the name and the key of the other rule; both are not loaded."""
    assert ["1.yaml:4:9"] == [error.partition(": ")[0] for error in _errors(RESOURCE, RESOURCE)]
    assert [] == _names(RESOURCE, RESOURCE)


def test_a_disabled_rule_does_not_conflict() -> None:
    """It is loaded, so that it can be listed."""
    texts = (RESOURCE, resource_rule(group="other", enabled=False))
    rules = loaded(*texts).rules

    assert ([], [True, False]) == (_errors(*texts), [rule.enabled for rule in rules])


def test_errors_are_in_the_order_of_the_text() -> None:
    """Including conflicts, which are found last."""
    texts = (
        RESOURCE,
        INJECTION.replace("env", "en"),
        resource_rule(group="other"),
        "a: [",
        INJECTION.replace("flags", "more").replace("env", "en"),
    )

    assert ["0.yaml", "1.yaml", "2.yaml", "3.yaml", "4.yaml"] == [
        error.location.file for error in loaded(*texts).errors
    ]


def test_an_error_has_its_rule_path_and_message() -> None:
    """For other output formats."""
    (error,) = loaded(_changed(RESOURCE, "optional", "never")).errors

    assert (
        "cf-crl-team-device",
        "data.limits",
        "expected one of disabled, required, optional, got 'never'",
        13,
        11,
    ) == (error.rule, error.path, error.message, error.location.line, error.location.column)


def test_a_rule_with_anchors_and_merges_is_read() -> None:
    """As in kubectl."""
    text = _changed(INJECTION, "data:\n  rule.yaml", "x: &data\n  rule.yaml") + "data: {<<: *data}\n"

    assert (["flags"], []) == (_names(text), _errors(text))


def test_an_error_in_a_merged_rule_is_located_at_its_anchor() -> None:
    """Where it can be fixed."""
    text = _changed(INJECTION, "data:\n  rule.yaml", "x: &data\n  rule.yaml") + "data: {<<: *data}\n"

    assert ["0.yaml:14:7: inject.en: unknown key 'en' – did you mean 'env'?"] == _errors(
        _changed(text, "      env:", "      en:")
    )


def test_two_megabytes_of_rules_are_read() -> None:
    """A platform's whole collection in one file."""
    rules = [
        _changed(RESOURCE, "device", f"device{number}") + f"  descriptionEn: {'x' * 20_000}\n"
        for number in range(100)
    ]
    read = loaded("---\n".join(rules))

    assert ((), 100) == (read.errors, len(read.rules.resources))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"descriptionZh": "显" * 349_000}, ""),
        ({"descriptionZh": "显" * 350_000}, "larger than 1 MiB, the most that Kubernetes stores"),
        ({"descriptionEn": "\n" * 41_000}, "more than 40,000 values; gpugate reads no more of one"),
    ],
)
def test_a_config_map_that_the_api_server_or_the_webhook_denies_is_an_error(
    data: dict[str, Any], message: str
) -> None:
    """The size is in bytes, as the API server counts it."""
    errors = _errors(resource_rule(**data))

    assert bool(message) == bool(errors)
    assert all(message in error for error in errors)


def test_a_rule_set_lists_rules_of_every_kind() -> None:
    """Including disabled rules."""
    texts: list[Any] = [
        INJECTION,
        RESOURCE,
        _changed(INJECTION, "flags", "spare").replace('"true"', '"false"'),
    ]

    assert ["cf-crl-team-device", "flags", "spare"] == _names(*texts)


def test_a_disabled_rule_has_no_effect() -> None:
    """Until it is enabled."""
    refusing = resource_rule(limits="disabled", enabled=False)
    answer = decision(policy(refusing), pod(container({DEVICE: "1"})))

    assert (True, ()) == (answer.allowed, answer.rules)


def test_few_labels_are_compared_with_a_missing_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """19,000 similar ones took two seconds."""
    document = yaml.safe_load(RESOURCE)
    document["metadata"]["labels"] = {f"features.cpaas.io/enable{at}": "x" for at in range(5000)}
    document["metadata"]["labels"]["features.cpaas.io/type"] = "CustomResourceLimitation"

    assert 0 < comparisons(lambda: load_rules([("rules", json.dumps(document))]), monkeypatch) < 500
