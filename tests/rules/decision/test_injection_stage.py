"""Injection rules: what they inject, into which containers; values of the user are never overwritten."""

from __future__ import annotations

from typing import Any

import pytest

from rules.decision.injection_stage import environment_value
from rules.decision.pipeline import INJECTED_ANNOTATION
from rules.kube.quantity import parse_quantity
from rules.model.rule import EnvFromResource
from tests.support.builders import (
    DEVICE,
    admitted,
    container,
    decision,
    injection_rule,
    patched,
    pod,
    policy,
    resource_rule,
    warning_texts,
)

ENV = {"env": [{"name": "FLAG", "value": "ours"}]}
OURS = {"name": "FLAG", "value": "ours"}


def _stored(rule: str, *containers: dict[str, Any], **spec: Any) -> Any:
    return admitted(policy(rule), pod(*containers, **spec))


def _env(rule: str, **fields: Any) -> list[Any]:
    """Return the env of a container of these fields after a rule."""
    stored = _stored(rule, container({DEVICE: "1"}, **fields))
    env: list[Any] = stored["spec"]["containers"][0].get("env", [])
    return env


def test_a_variable_is_injected_if_it_is_absent() -> None:
    """After the existing ones, whose order matters."""
    assert [{"name": "A", "value": "1"}, OURS] == _env(injection_rule(ENV), env=[{"name": "A", "value": "1"}])


@pytest.mark.parametrize("env", [None, []])
def test_a_variable_is_injected_if_there_is_no_env(env: Any) -> None:
    """Null is treated as empty."""
    assert [OURS] == _env(injection_rule(ENV), env=env)


@pytest.mark.parametrize(
    "env",
    [
        [{"name": "FLAG", "value": "theirs"}],
        [{"name": "FLAG", "value": ""}],
        [{"name": "FLAG"}],
        [{"name": "FLAG", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        [{"name": "FLAG", "value": "1"}, {"name": "FLAG", "value": "2"}],
        [OURS],
    ],
)
def test_a_variable_of_the_user_is_never_overwritten(env: list[dict[str, Any]]) -> None:
    """With value, with valueFrom, or twice."""
    document = pod(container({DEVICE: "1"}, env=env))

    assert document == admitted(policy(injection_rule(ENV)), document)


@pytest.mark.parametrize(
    ("env", "stored"),
    [
        ([], [OURS]),
        ([{"name": "FLAG", "value": "theirs"}], [OURS]),
        (
            [{"name": "FLAG", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}, {"name": "B"}],
            [OURS, {"name": "B"}],
        ),
        (
            [{"name": "FLAG", "value": "1"}, {"name": "FLAG", "value": "2"}],
            [{"name": "FLAG", "value": "1"}, OURS],
        ),
        ([{"name": "FLAG", "value": "1"}, OURS], [{"name": "FLAG", "value": "1"}, OURS]),
        ([OURS], [OURS]),
    ],
)
def test_override_replaces_the_value_of_the_user(env: list[Any], stored: list[Any]) -> None:
    """Of duplicate names the last one is used, as in Kubernetes."""
    assert stored == _env(injection_rule(ENV, override=True), env=env)


@pytest.mark.parametrize(
    ("entry", "stored"),
    [
        ({"name": "A", "value": ""}, {"name": "A"}),
        (
            {"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            {"name": "A", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "spec.nodeName"}}},
        ),
    ],
    ids=["empty value", "fieldRef"],
)
def test_override_does_not_replace_its_own_value_as_the_api_server_stores_it(
    entry: dict[str, Any], stored: dict[str, Any]
) -> None:
    """The API server drops empty values and sets versions; a second call injects nothing."""
    assert [stored] == _env(injection_rule({"env": [entry]}, override=True), env=[stored])


@pytest.mark.parametrize(
    "existing",
    [
        {"name": "A", "value": "users"},
        {"name": "A", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "spec.nodeName"}}},
    ],
    ids=["value", "valueFrom"],
)
def test_override_with_an_empty_value_replaces_the_value(existing: dict[str, Any]) -> None:
    """The empty text is a value."""
    entry = {"name": "A", "value": ""}

    assert [entry] == _env(injection_rule({"env": [entry]}, override=True), env=[existing])


def test_override_replaces_a_variable_that_has_a_value_beside_its_own_value_from() -> None:
    """The API server denies both: only one of them can be what the rule has injected."""
    entry = {"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
    rule = injection_rule({"env": [entry]}, override=True)

    assert [entry] == _env(rule, env=[entry | {"value": "users"}])


def test_a_variable_may_have_value_from() -> None:
    """valueFrom is injected as the rule has it."""
    entry = {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}

    assert [entry] == _env(injection_rule({"env": [entry]}))


@pytest.mark.parametrize(
    ("quantity", "unit", "template", "value"),
    [
        ("30", "1", "{value}", "30"),
        ("1k", "1", "{value}", "1000"),
        ("500m", "1", "{value}", "0.5"),
        ("1.50", "1", "{value}", "1.5"),
        ("4", "1Gi", "0={value}G", "0=4G"),
        ("4", "1Gi", "{bytes}", "4294967296"),
        ("4", "1Gi", "{MiB}M", "4096M"),
        ("4", "1Gi", "{GiB}", "4"),
        ("8", "256Mi", "0={GiB}G", "0=2G"),
        ("7", "256Mi", "{GiB}", "1"),
        ("2.9", "1Gi", "{GiB}", "2"),
        ("1.9", "1", "{bytes}", "1"),
        ("1999m", "1Ki", "{bytes}:{MiB}", "2046:0"),
        ("7", "256Mi", "{MiB}", "1792"),
        ("1.5", "1Gi", "{MiB}", "1536"),
        ("2", "1Mi", "{value}:{bytes}:{value}", "2:2097152:2"),
        ("0", "1Gi", "{GiB}", "0"),
        ("9223372036854775807", "1Ki", "{MiB}", "9007199254740991"),
        ("1", "1", "plain", "plain"),
    ],
)
def test_a_value_is_computed_from_a_quantity(quantity: str, unit: str, template: str, value: str) -> None:
    """In units of the resource; sizes are rounded down, so that no container gets more than it requests."""
    size = parse_quantity(unit)
    assert isinstance(size, int)

    assert value == environment_value(EnvFromResource(DEVICE, size, template), parse_quantity(quantity))


FROM_RESOURCE = {"env": [{"name": "SHARE", "fromResource": {"name": DEVICE, "format": "{value}%"}}]}


@pytest.mark.parametrize(
    ("limits", "requests", "env"),
    [
        ({DEVICE: "3"}, {}, [{"name": "SHARE", "value": "3%"}]),
        ({DEVICE: "3k"}, {DEVICE: "3000"}, [{"name": "SHARE", "value": "3000%"}]),
        ({DEVICE: 3}, {}, [{"name": "SHARE", "value": "3%"}]),
        ({DEVICE: "x"}, {}, []),
        ({"vendor.com/other": "1"}, {}, []),
    ],
)
def test_a_variable_is_computed_from_the_request_of_its_container(
    limits: dict[str, Any], requests: dict[str, Any], env: list[Any]
) -> None:
    """Without a valid quantity of the resource nothing is injected."""
    rule = injection_rule(FROM_RESOURCE, match={"resources": ["vendor.com/*"]})
    stored = _stored(rule, container(limits, requests))

    assert env == stored["spec"]["containers"][0].get("env", [])


def test_a_variable_is_computed_from_a_default_of_a_resource_rule() -> None:
    """Resource rules are applied first."""
    rules = (
        resource_rule(defaultValue="7"),
        resource_rule("vendor.com/other"),
        injection_rule(FROM_RESOURCE, match={"resources": [DEVICE]}),
    )
    stored = admitted(policy(*rules), pod(container({"vendor.com/other": "1"})))

    assert [{"name": "SHARE", "value": "7%"}] == stored["spec"]["containers"][0]["env"]


@pytest.mark.parametrize(
    ("env_from", "sources"),
    [
        ([{"configMapRef": {"name": "settings"}}], ["configMap settings"]),
        ([{"secretRef": {"name": "keys"}}], ["secret keys"]),
        ([{"prefix": "FL", "configMapRef": {"name": "settings"}}], ["configMap settings"]),
        ([{"prefix": "", "secretRef": {"name": "keys"}}], ["secret keys"]),
        ([{"prefix": None, "secretRef": {"name": "keys"}}], ["secret keys"]),
        ([{"prefix": "OTHER_", "configMapRef": {"name": "settings"}}], []),
        (
            [{"configMapRef": {"name": "a"}}, {"prefix": "X", "secretRef": {}}, {"secretRef": {"name": "b"}}],
            ["configMap a", "secret b"],
        ),
        (["odd", {"prefix": 7}], []),
        ([], []),
        (None, []),
    ],
)
def test_a_variable_that_env_from_may_contain_is_injected_with_a_warning(
    env_from: Any, sources: list[str]
) -> None:
    """Its content is unknown until the container starts; env takes precedence."""
    document = pod(container({DEVICE: "1"}, envFrom=env_from))
    answer = decision(policy(injection_rule(ENV)), document)

    assert [OURS] == patched(document, answer)["spec"]["containers"][0]["env"]
    assert [
        f"gpugate: container 'main': FLAG is set and takes precedence over a value from {source};"
        " to keep your own value, list FLAG in env [rule injection]"
        for source in sources
    ] == list(warning_texts(answer))


@pytest.mark.parametrize("env", [[OURS], [{"name": "FLAG", "value": "theirs"}]])
def test_there_is_no_warning_about_env_from_for_a_variable_that_is_not_injected(env: list[Any]) -> None:
    """The user listed it in env."""
    inject = {"env": [OURS, {"name": "SECOND", "value": "2"}]}
    document = pod(container({DEVICE: "1"}, env=env, envFrom=[{"secretRef": {"name": "keys"}}]))
    answer = decision(policy(injection_rule(inject)), document)

    assert ["SECOND"] == [warning.split()[3] for warning in warning_texts(answer)]


VOLUME = {"name": "shm", "hostPath": {"path": "/cache", "type": "Directory"}}
MOUNT = {"name": "shm", "mountPath": "/cache"}


def test_a_volume_and_its_mounts_are_injected() -> None:
    """The volume once, the mount into each container that matches."""
    rule = injection_rule({"volumes": [VOLUME], "volumeMounts": [MOUNT]})
    stored = _stored(
        rule,
        container({DEVICE: "1"}, name="a"),
        container({DEVICE: "1"}, name="b", volumeMounts=[{"name": "x", "mountPath": "/x"}]),
        container(name="c"),
        volumes=[{"name": "x", "emptyDir": {}}],
    )["spec"]

    assert [{"name": "x", "emptyDir": {}}, VOLUME] == stored["volumes"]
    assert [[MOUNT], [{"name": "x", "mountPath": "/x"}, MOUNT], None] == [
        container_document.get("volumeMounts") for container_document in stored["containers"]
    ]


def test_an_existing_volume_of_that_name_and_mount_at_that_path_are_kept() -> None:
    """Even if they differ."""
    theirs = container({DEVICE: "1"}, volumeMounts=[{"name": "mine", "mountPath": "/cache"}])
    document = pod(theirs, volumes=[{"name": "shm", "emptyDir": {}}])

    assert document == admitted(
        policy(injection_rule({"volumes": [VOLUME], "volumeMounts": [MOUNT]}, override=True)), document
    )


@pytest.mark.parametrize("path", ["/cache/", "//cache", "/cache/.", "cache", "/etc/../cache"])
def test_a_mount_at_the_same_path_in_another_spelling_is_kept(path: str) -> None:
    """The runtime mounts both, and the second one hides the first."""
    theirs = container({DEVICE: "1"}, volumeMounts=[{"name": "mine", "mountPath": path}])
    document = pod(theirs, volumes=[{"name": "mine", "emptyDir": {}}])

    assert document == admitted(
        policy(injection_rule({"volumes": [VOLUME], "volumeMounts": [MOUNT]})), document
    )


def test_a_mount_of_a_rule_in_another_spelling_is_not_injected_over_one_at_the_same_path() -> None:
    """A rule may end the path with a slash."""
    ours = {"name": "pipe", "mountPath": "/tmp/nvidia-mps/"}
    theirs = container({DEVICE: "1"}, volumeMounts=[{"name": "mine", "mountPath": "/tmp/nvidia-mps"}])
    document = pod(theirs, volumes=[{"name": "mine", "emptyDir": {}}])
    inject = {"volumes": [{"name": "pipe", "emptyDir": {}}], "volumeMounts": [ours]}

    assert () == decision(policy(injection_rule(inject)), document).patch


def test_a_volume_that_no_container_mounts_is_not_injected() -> None:
    """All containers have their own mount at the path. A volume that the rule does not mount is injected."""
    theirs = container({DEVICE: "1"}, volumeMounts=[{"name": "mine", "mountPath": "/cache"}])
    other = {"name": "other", "emptyDir": {}}
    rule = injection_rule({"volumes": [VOLUME, other], "volumeMounts": [MOUNT]})

    assert [{"name": "mine", "emptyDir": {}}, other] == _stored(
        rule, theirs, volumes=[{"name": "mine", "emptyDir": {}}]
    )["spec"]["volumes"]


TOLERATION = {"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("existing", "toleration"),
    [
        ([], TOLERATION),
        ([{"key": "other", "operator": "Exists"}], TOLERATION),
        ([{"key": "gpu", "operator": "Exists", "effect": "NoExecute"}], TOLERATION),
        ([{"key": "gpu", "value": "a", "effect": "NoSchedule"}], TOLERATION),
        ([{"key": "gpu", "value": "a"}], {"key": "gpu", "value": "b"}),
        ([{"key": "gpu", "operator": "Gt", "value": "1"}], {"key": "gpu", "value": "1"}),
        (
            [{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}],
            {**TOLERATION, "effect": ""},
        ),
        (["odd"], TOLERATION),
    ],
)
def test_a_toleration_that_no_other_covers_is_injected(
    existing: list[Any], toleration: dict[str, Any]
) -> None:
    """After the existing ones."""
    stored = _stored(injection_rule({"tolerations": [toleration]}), tolerations=existing)

    assert [*existing, toleration] == stored["spec"]["tolerations"]


@pytest.mark.parametrize(
    ("existing", "toleration"),
    [
        (TOLERATION, TOLERATION),
        ({"operator": "Exists"}, TOLERATION),
        ({"key": "gpu", "operator": "Exists"}, TOLERATION),
        ({"operator": "Exists", "effect": "NoSchedule"}, TOLERATION),
        ({"key": "gpu", "operator": "Exists", "effect": ""}, {"key": "gpu", "value": "a"}),
        ({"key": "gpu", "operator": "Equal", "value": "a"}, {"key": "gpu", "value": "a"}),
        (
            {"key": "gpu", "value": "a"},
            {"key": "gpu", "operator": "Equal", "value": "a", "effect": "NoExecute"},
        ),
        (
            {"key": "gpu", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5},
            {"key": "gpu", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5},
        ),
        ({"key": "gpu", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 5}, TOLERATION),
    ],
)
def test_a_toleration_that_an_existing_one_covers_is_not_injected(
    existing: dict[str, Any], toleration: dict[str, Any]
) -> None:
    """A pod with `operator: Exists` tolerates everything."""
    document = pod(tolerations=[existing])

    assert document == admitted(policy(injection_rule({"tolerations": [toleration]})), document)


@pytest.mark.parametrize(
    ("field", "ours", "existing", "stored", "overridden"),
    [
        ("runtimeClassName", "nvidia", None, "nvidia", "nvidia"),
        ("runtimeClassName", "nvidia", "", "nvidia", "nvidia"),
        ("runtimeClassName", "nvidia", "kata", "kata", "nvidia"),
        ("schedulerName", "volcano", None, "volcano", "volcano"),
        ("schedulerName", "volcano", "", "volcano", "volcano"),
        ("schedulerName", "volcano", "default-scheduler", "volcano", "volcano"),
        ("schedulerName", "volcano", "kai", "kai", "volcano"),
        ("hostIPC", True, None, True, True),
        ("hostIPC", True, False, False, True),
    ],
)
def test_a_field_of_the_pod_is_set_if_the_user_has_not_set_it(
    field: str, ours: Any, existing: Any, stored: Any, overridden: Any
) -> None:
    """The default scheduler is set by the API server, not by the user; `override` sets it in any case."""
    spec = {} if existing is None else {field: existing}
    values = [
        _stored(injection_rule({field: ours}, override=override), **spec)["spec"][field]
        for override in (False, True)
    ]

    assert [stored, overridden] == values


@pytest.mark.parametrize("kind", ["labels", "annotations"])
@pytest.mark.parametrize(
    ("existing", "override", "stored"),
    [
        (None, False, {"a": "ours"}),
        ({}, False, {"a": "ours"}),
        ({"b": "1"}, False, {"b": "1", "a": "ours"}),
        ({"a": "theirs"}, False, {"a": "theirs"}),
        ({"a": ""}, False, {"a": ""}),
        ({"a": "theirs"}, True, {"a": "ours"}),
    ],
)
def test_labels_and_annotations_are_set_if_the_user_has_not_set_them(
    kind: str, existing: dict[str, str] | None, override: bool, stored: dict[str, str]
) -> None:
    """Or in any case, with `override`."""
    metadata = {} if existing is None else {kind: existing}
    rule = injection_rule({kind: {"a": "ours"}}, override=override)
    values = dict(admitted(policy(rule), pod(metadata=metadata))["metadata"][kind])
    values.pop(INJECTED_ANNOTATION, None)

    assert stored == values


TERM = {"matchExpressions": [{"key": "gpu", "operator": "In", "values": ["a"]}]}
REQUIRED = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [TERM]}}
PREFERRED = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 3, "preference": TERM}]}
ZONE = {"key": "zone", "operator": "Exists"}
ARM = {"key": "arch", "operator": "In", "values": ["arm64"]}


def _affinity(rule: str, existing: Any) -> Any:
    spec = {} if existing is None else {"affinity": {"nodeAffinity": existing}}
    return _stored(rule, **spec)["spec"]["affinity"]["nodeAffinity"]


def test_node_affinity_is_injected_if_there_is_none() -> None:
    """Required and preferred."""
    assert REQUIRED | PREFERRED == _affinity(injection_rule({"nodeAffinity": REQUIRED | PREFERRED}), None)


def test_required_node_affinity_is_added_to_each_term_of_the_user() -> None:
    """Terms are ORed, so each of them requires it."""
    theirs = {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [ZONE]}, {"matchExpressions": [ARM], "new": 1}]
        }
    }

    assert {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [
                {"matchExpressions": [ZONE, *TERM["matchExpressions"]]},
                {"matchExpressions": [ARM, *TERM["matchExpressions"]], "new": 1},
            ]
        }
    } == _affinity(injection_rule({"nodeAffinity": REQUIRED}), theirs)


def test_required_node_affinity_is_not_injected_twice() -> None:
    """Set by the user or by an earlier call."""
    document = pod(affinity={"nodeAffinity": REQUIRED})

    assert document == admitted(policy(injection_rule({"nodeAffinity": REQUIRED})), document)


def test_preferred_node_affinity_is_appended_once() -> None:
    """After the preferences of the user."""
    theirs = {"weight": 1, "preference": {"matchExpressions": [ZONE]}}
    field = "preferredDuringSchedulingIgnoredDuringExecution"
    rule = injection_rule({"nodeAffinity": PREFERRED})

    assert [theirs, *PREFERRED[field]] == _affinity(rule, {field: [theirs]})[field]
    assert [theirs, *PREFERRED[field]] == _affinity(rule, {field: [theirs, *PREFERRED[field]]})[field]


def _matches(match: dict[str, Any], document: Any, **request: Any) -> bool:
    answer = decision(policy(injection_rule(ENV, match=match)), document, **request)
    return answer.rules == ("injection",)


@pytest.mark.parametrize(
    ("resources", "limits", "requests", "matches"),
    [
        ([DEVICE], {DEVICE: "1"}, {}, True),
        ([DEVICE], {}, {DEVICE: "1"}, True),
        ([DEVICE], {"vendor.com/other": "1"}, {}, False),
        (["vendor.com/*"], {"vendor.com/other": "1"}, {}, True),
        (["vendor.com/mig-*"], {"vendor.com/mig-1g": "1"}, {}, True),
        (["a.com/x", "vendor.com/other"], {"vendor.com/other": "1"}, {}, True),
        (["*/device"], {DEVICE: "1"}, {}, True),
        (["vendor.com/*"], {"cpu": "1"}, {}, False),
    ],
)
def test_a_rule_applies_to_containers_that_request_any_of_its_resources(
    resources: list[str], limits: dict[str, str], requests: dict[str, str], matches: bool
) -> None:
    """By name or glob, in limits or requests."""
    assert matches == _matches({"resources": resources}, pod(container(limits, requests)))


DIGEST = "sha256:" + "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("pattern", "image", "matches"),
    [
        ("*/paddle*", "paddlepaddle/paddle:2.6.1-gpu-cuda11.7", True),
        ("*/paddle*", "docker.io/paddlepaddle/paddle", True),
        ("*/paddle*", "registry.example.com:5000/team/paddle:2.6", True),
        ("*/paddle*", f"registry.example.com:5000/team/paddle@{DIGEST}", True),
        ("*/paddle*", f"team/paddle:2.6@{DIGEST}", True),
        ("*/paddle*", "paddle", True),
        ("*/paddle*", "paddle:2.6", True),
        ("*/paddle*", "registry.example.com/padle", False),
        ("*/paddle*", "", False),
        ("docker.io/library/nginx*", "nginx", True),
        ("docker.io/library/nginx", "nginx:1.27", True),
        ("docker.io/library/nginx:1.*", "index.docker.io/library/nginx:1.27", True),
        ("nginx:*", "nginx:1.27", True),
        ("nginx", "registry.example.com/nginx", False),
        ("registry.example.com:5000/*", "registry.example.com:5000/a:1", True),
        ("registry.example.com/*", "registry.example.com:5000/a:1", False),
        ("*@sha256:0123*", f"a/b@{DIGEST}", True),
        ("Not A Reference*", "Not A Reference!", True),
    ],
)
def test_a_rule_applies_to_images_by_glob(pattern: str, image: str, matches: bool) -> None:
    """As written, or in full: `nginx` is docker.io/library/nginx."""
    assert matches == _matches({"images": [pattern]}, pod(container({DEVICE: "1"}, image=image)))


@pytest.mark.parametrize(
    ("namespaces", "matches"),
    [
        ({}, True),
        ({"include": ["team"]}, True),
        ({"include": ["te*", "x"]}, True),
        ({"include": ["other"]}, False),
        ({"exclude": ["team"]}, False),
        ({"exclude": ["kube-*"]}, True),
        ({"include": ["*"], "exclude": ["te?m"]}, False),
    ],
)
def test_a_rule_applies_in_namespaces(namespaces: dict[str, list[str]], matches: bool) -> None:
    """Exclusion takes precedence over inclusion."""
    assert matches == _matches({"namespaces": namespaces}, pod())


def test_the_namespace_is_that_of_the_request() -> None:
    """The object may have none, or another."""
    document = pod(metadata={"namespace": "elsewhere"})

    assert [True, False] == [
        _matches({"namespaces": {"include": ["here"]}}, document, namespace=namespace)
        for namespace in ("here", "elsewhere")
    ]


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        ({"matchLabels": {"app": "a"}}, True),
        ({"matchLabels": {"app": "b"}}, False),
        ({"matchLabels": {"app": "a", "x": "y"}}, False),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["a", "b"]}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["a", "b"]}]}, False),
        ({"matchExpressions": [{"key": "x", "operator": "NotIn", "values": ["a"]}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "Exists"}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}, False),
        ({"matchLabels": {"app": "a"}, "matchExpressions": [{"key": "x", "operator": "Exists"}]}, False),
    ],
)
def test_a_rule_applies_to_pods_by_label(selector: dict[str, Any], matches: bool) -> None:
    """All requirements of a selector must be satisfied."""
    assert matches == _matches({"podSelector": selector}, pod(metadata={"labels": {"app": "a"}}))


@pytest.mark.parametrize(
    ("conditions", "matches"),
    [
        (["container.name == 'main'"], True),
        (["container.image.contains('train')", "container.name == 'other'"], False),
        ([f"limits['{DEVICE}'] >= 1"], True),
        ([f"requests['{DEVICE}'] > 1"], False),
        (["pod.labels['app'] == 'a'"], True),
        (["'x' in pod.annotations"], True),
        (["pod.namespace == 'team'"], True),
        (["pod.hostIPC"], False),
        (["pod.labels.exists(name, pod.labels[name].matches('(?i)A'))"], True),
    ],
)
def test_a_rule_applies_by_conditions(conditions: list[str], matches: bool) -> None:
    """CEL over the container and its pod; all must be true."""
    document = pod(metadata={"labels": {"app": "a"}, "annotations": {"x": "y"}})

    assert matches == _matches({"conditions": conditions}, document)


@pytest.mark.parametrize(("given", "matches"), [({"hostIPC": True}, True), ({"hostIPC": False}, False)])
def test_a_condition_reads_whether_the_pod_uses_the_ipc_namespace_of_its_node(
    given: dict[str, Any], matches: bool
) -> None:
    """Such a pod has /dev/shm of the node, for example for MPS."""
    assert matches == _matches({"conditions": ["pod.hostIPC"]}, pod(**given))


def test_a_condition_that_cannot_be_evaluated_warns_and_injects_nothing() -> None:
    """The pod is admitted."""
    rule = injection_rule(ENV, match={"conditions": ["pod.labels['app'] == 'a'"]})
    answer = decision(policy(rule), pod())
    warning = (
        "gpugate: container 'main': a condition of the rule could not be evaluated, nothing was"
        " injected: no such key: 'app'; the rule is at fault: ask its owner to fix the expression"
        " [rule injection]"
    )

    assert (True, (), (warning,)) == (answer.allowed, answer.patch, warning_texts(answer))


@pytest.mark.parametrize(
    "conditions", [["limits['a.com/x'] > 1", "1 == 2"], ["1 == 2", "limits['a.com/x'] > 1"]]
)
def test_a_false_condition_takes_precedence_over_one_that_cannot_be_evaluated(conditions: list[str]) -> None:
    """The rule does not match, and there is no warning."""
    answer = decision(policy(injection_rule(ENV, match={"conditions": conditions})), pod())

    assert ((), ()) == (answer.patch, warning_texts(answer))


def test_a_dryrun_rule_reports_what_it_would_inject_and_injects_nothing() -> None:
    """In the audit annotation, not on the pod."""
    inject = ENV | {"hostIPC": True, "volumes": [VOLUME], "volumeMounts": [MOUNT], "labels": {"a": "b"}}
    answer = decision(policy(injection_rule(inject, enforcementAction="dryrun")), pod())

    assert (
        (),
        ("injection",),
        "injection (main: env FLAG, main: volumeMount /cache, volume shm, hostIPC True, label a)",
    ) == (answer.patch, answer.rules, answer.audit["would-inject"])
    assert "injected" not in answer.audit


def test_a_dryrun_rule_does_not_warn_of_what_env_from_may_contain() -> None:
    """Nothing is injected that would take precedence."""
    document = pod(container({DEVICE: "1"}, envFrom=[{"secretRef": {"name": "keys"}}]))
    answer = decision(policy(injection_rule(ENV, enforcementAction="dryrun")), document)

    assert ("injection (main: env FLAG)", ()) == (answer.audit["would-inject"], warning_texts(answer))


def test_what_was_injected_is_in_the_audit_annotation() -> None:
    """By rule, in the order of application."""
    rules = (
        injection_rule(ENV, name="b"),
        injection_rule(
            {
                "tolerations": [TOLERATION, {"operator": "Exists", "effect": "NoExecute"}],
                "schedulerName": "volcano",
                "nodeAffinity": REQUIRED | PREFERRED,
                "annotations": {"x": "y"},
            },
            name="a",
        ),
    )

    assert (
        "a (toleration gpu, toleration *, required node affinity, preferred node affinity,"
        " schedulerName volcano, annotation x); b (main: env FLAG)"
    ) == decision(policy(*rules), pod()).audit["injected"]


@pytest.mark.parametrize(
    ("existing", "stored"),
    [(None, "a, b"), ("", "a, b"), ("a", "a, b"), ("z, b", "a, b, z"), ("a, b", "a, b")],
)
def test_an_injected_pod_has_an_annotation_with_the_names_of_the_rules(
    existing: str | None, stored: str
) -> None:
    """The names are added to those of an earlier call."""
    rules = (injection_rule(ENV, name="b"), injection_rule({"hostIPC": True}, name="a"))
    metadata = {} if existing is None else {"annotations": {INJECTED_ANNOTATION: existing}}

    assert (
        stored
        == admitted(policy(*rules), pod(metadata=metadata))["metadata"]["annotations"][INJECTED_ANNOTATION]
    )


@pytest.mark.parametrize("override", [False, True])
def test_a_pod_that_has_everything_already_is_not_annotated(override: bool) -> None:
    """Nothing was injected."""
    document = pod(container({DEVICE: "1"}, env=[OURS]), metadata={"labels": {"a": "b"}}, hostIPC=True)
    rule = injection_rule(ENV | {"hostIPC": True, "labels": {"a": "b"}}, override=override)

    assert document == admitted(policy(rule), document)


def test_rules_apply_in_the_order_of_their_names() -> None:
    """The first rule sets the variable; later rules do not replace it."""
    rules = (
        injection_rule({"env": [{"name": "FLAG", "value": "late"}]}, name="b"),
        injection_rule(ENV, name="a"),
    )
    stored = admitted(policy(*rules), pod())

    assert [OURS] == stored["spec"]["containers"][0]["env"]


def test_of_rules_that_override_one_variable_the_last_one_sets_it() -> None:
    """A second call changes nothing."""
    rules = (
        injection_rule({"env": [{"name": "FLAG", "value": "first"}]}, name="a", override=True),
        injection_rule({"env": [{"name": "FLAG", "value": "last"}]}, name="b", override=True),
    )
    compiled = policy(*rules)
    stored = admitted(compiled, pod(container({DEVICE: "1"}, env=[{"name": "FLAG", "value": "theirs"}])))

    assert [{"name": "FLAG", "value": "last"}] == stored["spec"]["containers"][0]["env"]
    assert stored == admitted(compiled, stored)


def test_an_injected_label_makes_the_rules_apply_that_select_by_it() -> None:
    """In the same call, for any order of their names."""
    rules = (
        injection_rule(
            {"labels": {"step": "2"}}, name="b", match={"podSelector": {"matchLabels": {"step1": "x"}}}
        ),
        injection_rule(ENV, name="a", match={"conditions": ["'step' in pod.labels"]}),
        injection_rule({"labels": {"step1": "x"}}, name="c"),
    )
    compiled = policy(*rules)
    stored = admitted(compiled, pod())

    assert [OURS] == stored["spec"]["containers"][0]["env"]
    assert stored == admitted(compiled, stored)


def test_only_matching_containers_are_changed() -> None:
    """Fields of the pod are set once."""
    stored = _stored(
        injection_rule(ENV | {"hostIPC": True}, match={"images": ["*/train:*"]}),
        container({DEVICE: "1"}, name="a"),
        container({DEVICE: "1"}, name="b", image="x/serve:1"),
        container(name="c"),
        initContainers=[
            container({DEVICE: "1"}, name="d"),
            container({DEVICE: "1"}, name="e", restartPolicy="Always"),
        ],
    )["spec"]

    assert {"a": [OURS], "b": None, "c": None, "d": [OURS], "e": [OURS]} == {
        container_document["name"]: container_document.get("env")
        for container_document in stored["containers"] + stored["initContainers"]
    }
    assert stored["hostIPC"] is True


def test_fields_of_the_pod_are_injected_once_for_two_containers() -> None:
    """One volume, one toleration, one label."""
    rule = injection_rule({"volumes": [VOLUME], "tolerations": [TOLERATION], "labels": {"a": "b"}})
    answer = decision(
        policy(rule), pod(container({DEVICE: "1"}, name="a"), container({DEVICE: "1"}, name="b"))
    )

    assert ["/spec/volumes", "/spec/tolerations", "/metadata/labels", "/metadata/annotations"] == [
        operation["path"] for operation in answer.patch
    ]


def test_two_pods_do_not_share_an_injected_object() -> None:
    """A change of one patch does not change the rule."""
    rule = policy(injection_rule({"volumes": [VOLUME]}))
    first = decision(rule, pod())
    first.patch[0]["value"][0]["hostPath"]["path"] = "/changed"

    assert [VOLUME] == decision(rule, pod()).patch[0]["value"]


@pytest.mark.parametrize(
    ("inject", "fields", "spec"),
    [
        ({"volumes": [VOLUME]}, {}, {"volumes": [{"name": ["odd"]}, "odd", 7]}),
        ({"volumeMounts": [MOUNT]}, {"volumeMounts": [{"mountPath": {"odd": 1}}, None]}, {}),
        (
            {"volumes": [VOLUME, {"name": "b", "emptyDir": {}}], "volumeMounts": [MOUNT]},
            {"volumeMounts": [{"mountPath": "/cache", "name": {}}]},
            {},
        ),
        (ENV, {"env": [{"name": {}}, "odd", None]}, {}),
    ],
)
def test_entries_of_another_type_are_ignored(
    inject: dict[str, Any], fields: dict[str, Any], spec: dict[str, Any]
) -> None:
    """The API server does not validate the pod template of a custom resource."""
    answer = decision(policy(injection_rule(inject)), pod(container({DEVICE: "1"}, **fields), **spec))

    assert (True, 2) == (answer.allowed, len(answer.patch))


def test_a_condition_is_evaluated_with_the_annotations_that_an_earlier_rule_has_injected() -> None:
    """In the same decision, as labels for a selector."""
    rules = (
        injection_rule({"annotations": {"step": "x"}}, name="b"),
        injection_rule({"hostIPC": True}, name="a", match={"conditions": ["'step' in pod.annotations"]}),
    )

    assert admitted(policy(*rules), pod())["spec"]["hostIPC"]


LOCK = injection_rule({"securityContext": {"capabilities": {"add": ["IPC_LOCK", "SYS_NICE"]}}})


@pytest.mark.parametrize(
    ("context", "capabilities"),
    [
        (None, {"add": ["IPC_LOCK", "SYS_NICE"]}),
        ({"runAsUser": 0}, {"add": ["IPC_LOCK", "SYS_NICE"]}),
        ({"capabilities": {"drop": ["ALL"]}}, {"drop": ["ALL"], "add": ["IPC_LOCK", "SYS_NICE"]}),
        ({"capabilities": {"add": ["SYS_NICE"]}}, {"add": ["SYS_NICE", "IPC_LOCK"]}),
        ({"capabilities": {"add": ["ALL"]}}, {"add": ["ALL"]}),
        ({"capabilities": {"drop": ["IPC_LOCK"]}}, {"drop": ["IPC_LOCK"], "add": ["SYS_NICE"]}),
        ({"privileged": True}, None),
    ],
)
def test_mission_6_capabilities_that_a_container_neither_has_nor_drops_by_name_are_added(
    context: Any, capabilities: Any
) -> None:
    """`drop: [ALL]` keeps what is added; a privileged container has all."""
    fields = {} if context is None else {"securityContext": context}
    (main,) = _stored(LOCK, container({DEVICE: "1"}, **fields))["spec"]["containers"]

    assert (context or {}) | ({"capabilities": capabilities} if capabilities else {}) == main[
        "securityContext"
    ]


def test_mission_6_capabilities_of_two_rules_are_added_once() -> None:
    """The audit annotation lists what each has added; expressions and checks see it."""
    once = injection_rule(
        {"securityContext": {"capabilities": {"add": ["SYS_NICE", "SYS_RESOURCE"]}}}, name="z"
    )
    seen = "'SYS_NICE' in container.securityContext.capabilities.add"
    rule = resource_rule(validations=[{"expression": seen, "messageEn": "x"}])
    answer = decision(policy(LOCK, once, rule), document := pod(container({DEVICE: "1"})))
    (main,) = patched(document, answer)["spec"]["containers"]

    assert ["IPC_LOCK", "SYS_NICE", "SYS_RESOURCE"] == main["securityContext"]["capabilities"]["add"]
    assert "main: capability IPC_LOCK, main: capability SYS_NICE" in answer.audit["injected"]
    assert "z (main: capability SYS_RESOURCE)" in answer.audit["injected"]
    assert answer.allowed


def test_mission_6_a_priority_class_is_injected_without_the_priority_of_none() -> None:
    """The API server has calculated it before any webhook, and would deny a pod with another class."""
    calculated = {"priority": 0, "preemptionPolicy": "PreemptLowerPriority"}
    rule = injection_rule({"priorityClassName": "gpu"})
    stored = _stored(rule, container({DEVICE: "1"}), **calculated)["spec"]

    assert ("gpu", None, None) == (
        stored["priorityClassName"],
        stored["priority"],
        stored["preemptionPolicy"],
    )
    assert "priority" not in _stored(rule, container({DEVICE: "1"}))["spec"]


@pytest.mark.parametrize("field", [{"priorityClassName": "gpu"}, {"activeDeadlineSeconds": 60}])
def test_mission_6_class_and_deadline_of_a_user_stay_unless_a_rule_overrides(field: dict[str, Any]) -> None:
    """The priority of the own class stays, too."""
    (name,) = field
    own = {name: {"priorityClassName": "own", "activeDeadlineSeconds": 30}[name], "priority": 7}
    kept, replaced = (
        _stored(injection_rule(field, override=override), container({DEVICE: "1"}), **own)["spec"]
        for override in (False, True)
    )

    assert (own[name], 7) == (kept[name], kept["priority"])
    assert field[name] == replaced[name]
