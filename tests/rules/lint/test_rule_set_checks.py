"""Lint warns, with a location, about rules that load but may not have the intended effect."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rules.lint import rule_set_checks
from rules.lint.rule_set_checks import lint, rule_set_warnings
from rules.model.rule import RuleSet
from rules.schema.config_map import LABEL_PREFIXES
from tests.support.builders import DEVICE, config_map, exemption, injection_rule, loaded, resource_rule
from tests.support.node_builders import compatibility_rule, image_catalog

NOW = 1_800_000_000.0  # 2027-01-15
OTHER = "vendor.com/other"
ALWAYS = "limits.size() > 0"


def warned(*texts: str) -> list[str]:
    """Return code, rule and path of each warning; the rules must be valid."""
    read = lint(((f"{number}.yaml", text) for number, text in enumerate(texts)), NOW)
    assert () == read.errors
    return [f"{warning.code} {warning.rule} {warning.path}" for warning in read.warnings]


def messages(*texts: str) -> list[str]:
    """Return the warnings with their locations."""
    return [
        str(warning) for warning in lint(((f"{n}.yaml", text) for n, text in enumerate(texts)), NOW).warnings
    ]


def env(name: str, value: str = "1", rule: str = "", *, override: bool = False, **match: Any) -> str:
    """Return a rule that injects a variable; its name is rule, or the value."""
    inject = {"env": [{"name": "FIRST", "value": "x"}, {"name": name, "value": value}]}
    return injection_rule(inject, name=rule or value, match=match, override=override)


def matching(**match: Any) -> list[str]:
    """Return the warnings about the match of a rule."""
    return [
        warning.partition(" injection ")[2]
        for warning in warned(injection_rule({"hostIPC": True}, match=match))
    ]


@pytest.mark.parametrize(
    ("images", "warnings"),
    [
        (
            [
                "*/paddle*",
                "registry.example.com:5000/team/*:v?",
                "*@sha256:*",
                "UPPER.example.com/x",
                "x:V1*",
                "*:*-CUDA*",
            ],
            [],
        ),
        (["https://registry.example.com/x", "*/x"], [0]),
        (["team/my image", "x "], [0, 1]),
        (["*/Paddle*", "a/*B"], [0]),
    ],
)
def test_a_pattern_that_no_image_can_match_is_a_warning(images: list[str], warnings: list[int]) -> None:
    """Schemes, spaces, capitals in a repository name."""
    assert [f"match.images[{index}]" for index in warnings] == matching(images=images)


@pytest.mark.parametrize(
    ("namespaces", "warnings"),
    [
        ({"include": ["a", "b-*"], "exclude": ["b-1"]}, []),
        ({"include": ["team-*"], "exclude": ["team-?"]}, []),
        ({"include": ["team-?", "team-1"], "exclude": ["team-*"]}, ["match.namespaces"]),
        ({"include": ["a"], "exclude": ["a", "b"]}, ["match.namespaces"]),
        ({"exclude": ["*"]}, ["match.namespaces"]),
        ({"include": ["team_a", "b"]}, ["match.namespaces.include[0]"]),
    ],
)
def test_a_namespace_selection_without_namespaces_is_a_warning(
    namespaces: dict[str, Any], warnings: list[str]
) -> None:
    """Every included namespace is excluded too, or its name is invalid."""
    assert warnings == matching(namespaces=namespaces)


@pytest.mark.parametrize(
    ("labels", "terms", "warnings"),
    [
        (
            {"a": "x"},
            [("a", "In", "x y"), ("a", "NotIn", "y"), ("a", "Exists", ""), ("b", "DoesNotExist", "")],
            False,
        ),
        ({}, [("a", "NotIn", "x"), ("a", "DoesNotExist", "")], False),
        ({}, [("not a label", "NotIn", "x")], False),
        ({"a": "x"}, [("a", "In", "y z")], True),
        ({"a": "x"}, [("a", "NotIn", "x")], True),
        ({"a": "x"}, [("a", "DoesNotExist", "")], True),
        ({}, [("a", "Exists", ""), ("a", "DoesNotExist", "")], True),
        ({"a": "no value!"}, [], True),
        ({}, [("not a label", "Exists", "")], True),
    ],
)
def test_a_contradictory_selector_is_a_warning(
    labels: dict[str, str], terms: list[tuple[str, str, str]], warnings: bool
) -> None:
    """No valid labels satisfy it."""
    expressions = [
        {"key": key, "operator": operator} | ({"values": values.split()} if values else {})
        for key, operator, values in terms
    ]
    selector = {"matchLabels": labels, "matchExpressions": expressions}

    assert (["match.podSelector"] if warnings else []) == matching(podSelector=selector)


@pytest.mark.parametrize(
    ("expression", "warnings"),
    [
        ("pod.labels['team'] == 'ml'", 1),
        ("'team' in pod.labels && pod.labels['team'] == 'ml'", 0),
        ("has(pod.labels.team) && pod.labels.team == 'ml'", 0),
        (f"limits['{OTHER}'] > 1", 1),
        (f"limits['{DEVICE}'] > 1", 0),
    ],
)
def test_a_key_that_is_looked_up_and_not_tested_is_a_warning(expression: str, warnings: int) -> None:
    """The expression cannot be evaluated for a pod without it."""
    rule = resource_rule(DEVICE, validations=[{"expression": expression}])
    warnings_of_kinds = [
        *warned(rule),
        *warned(injection_rule({"hostIPC": True}, match={"conditions": [expression]})),
        *warned(compatibility_rule(match={"resources": [DEVICE], "conditions": [expression]})),
    ]
    expected = [
        "untested-key cf-crl-group-device data.validations[0]",
        "untested-key injection match.conditions",
        "untested-key compatibility match.conditions",
    ]

    assert expected * warnings == warnings_of_kinds


def test_a_condition_may_test_what_another_looks_up() -> None:
    """A false condition counts before one that cannot be evaluated."""
    assert [] == matching(conditions=["'a' in pod.labels", "pod.labels['a'] == 'b'"])


def test_a_condition_that_is_always_false_is_a_warning() -> None:
    """In every kind of rule with a match."""
    match = {"conditions": ["true", "1 > 2"]}

    assert ["match.conditions[1]"] == matching(**match)
    assert ["match.conditions[0]"] == matching(conditions=["1 / 0 > 1"])
    assert ["never-matches compatibility match.conditions[1]"] == warned(compatibility_rule(match=match))


@pytest.mark.parametrize(
    ("data", "warnings"),
    [
        ({"defaultValue": "20"}, []),
        ({"defaultValue": "150"}, ["never-satisfied cf-crl-group-device data.defaultValue"]),
        ({"limits": "disabled"}, []),
        ({"limits": "disabled", "defaultValue": "1"}, ["no-effect cf-crl-group-device data.defaultValue"]),
        (
            {"limits": "disabled", "requests": "required"},
            ["never-satisfied cf-crl-group-device data.requests"],
        ),
        ({"excludeResources": f"{OTHER}, {DEVICE}"}, ["no-effect cf-crl-group-device data.excludeResources"]),
        (
            {"excludeResources": f"{OTHER}; vendor.com/x, cpu"},
            ["never-matches cf-crl-group-device data.excludeResources"],
        ),
        (
            {"relatedResources": f"{OTHER}; vendor.com/x, cpu"},
            ["never-matches cf-crl-group-device data.relatedResources"],
        ),
    ],
)
def test_a_contradictory_resource_rule_is_a_warning(data: dict[str, Any], warnings: list[str]) -> None:
    """A default that violates the rule's own validation, or that is never injected."""
    validations = [
        {"expression": "value <= 100"},
        {"expression": "value < 10 || container.name == 'x'"},  # does not depend on the default alone
    ]

    assert warnings == warned(resource_rule(validations=validations, **data))


def test_a_glob_may_exclude_itself() -> None:
    """Different resources that it matches exclude each other."""
    assert [] == warned(resource_rule("vendor.com/mig-*", excludeResources="vendor.com/mig-*"))


def test_a_default_for_which_its_validation_fails_is_a_warning_with_the_reason() -> None:
    """A division by zero is found before a pod causes it."""
    (warning,) = messages(resource_rule(defaultValue="0", validations=[{"expression": "100 / value > 1"}]))

    assert warning.startswith("0.yaml:15:17: data.defaultValue: the rule's own validation fails (")


def test_a_partially_enabled_group_is_a_warning() -> None:
    """Not if another rule has the resource, and not if the whole group is disabled."""
    off = resource_rule(OTHER, enabled=False)
    substitute = resource_rule(OTHER, group="another", name="cf-crl-another-other")

    assert ["half-group cf-crl-group-other metadata.labels"] == warned(resource_rule(), off)
    assert [] == warned(resource_rule(), off, substitute)
    assert [] == warned(resource_rule(enabled=False), off)


@pytest.mark.parametrize(
    ("other", "warnings"),
    [
        ({}, False),
        ({"limits": "required"}, True),
        ({"defaultValue": "1"}, True),
        ({"requests": "required"}, True),
        ({"limits": "required", "group": "another"}, False),
    ],
)
def test_a_self_excluding_group_is_a_warning(other: dict[str, Any], warnings: bool) -> None:
    """No container can use the resource; optional resources that exclude each other are alternatives."""
    warnings_of_group = warned(resource_rule(excludeResources="vendor.com/*"), resource_rule(OTHER, **other))

    assert (
        ["never-satisfied cf-crl-group-device data.excludeResources"] if warnings else []
    ) == warnings_of_group


def test_a_misspelt_resource_is_a_warning() -> None:
    """In every field; a name that is not similar may belong to another cluster."""
    known = resource_rule("vendor.com/vcuda-core")
    names = {
        "vendor.com/vcuda-cor",
        "vendro.com/vcuda-core",
        "vendor.com/vcuda",
        "amd.com/gpu",
        "vendor.com/vcuda-*",
    }
    inject = {"env": [{"name": "A", "fromResource": {"name": "vendor.com/vcuda-cores"}}]}

    assert [
        "misspelt-resource cf-crl-group-device data.excludeResources",
        "misspelt-resource cf-crl-group-device data.relatedResources",
        "misspelt-resource injection match.resources[0]",
        "misspelt-resource injection inject.env[0].fromResource.name",
    ] == warned(
        known,
        resource_rule(excludeResources="vendor.com/vcuda-cor, cpu", relatedResources="vendor.com/vcuda-cor"),
        injection_rule(inject, match={"resources": ["vendro.com/vcuda-core"]}),
    )
    assert ["vendor.com/vcuda-cor", "vendro.com/vcuda-core"] == [
        name for name in sorted(names) if warned(known, compatibility_rule(match={"resources": [name]}))
    ]


def test_a_misspelt_resource_inside_cel_is_a_warning() -> None:
    """In a condition it would make the rule apply to no container, or fail for all."""
    known = resource_rule("vendor.com/vcuda-core")
    conditions = ["'vendor.com/vcuda-core' in limits", "'vendor.com/vcuda-cor' in limits"]
    validations = [{"expression": "value < 2 || 'vendro.com/vcuda-core' in limits"}]

    assert [
        "misspelt-resource cf-crl-group-device data.validations",
        "misspelt-resource injection match.conditions[1]",
    ] == warned(
        known,
        resource_rule(validations=validations),
        injection_rule({"env": [{"name": "A", "value": "1"}]}, match={"conditions": conditions}),
    )


@pytest.mark.parametrize(("resource", "warnings"), [("nvidia.com/vgpu", 0), ("nvidia.com/gpus", 1)])
def test_a_resource_of_a_built_in_rule_is_not_misspelt(resource: str, warnings: int) -> None:
    """Rules are restored one by one, and a cluster may leave some out."""
    rule = resource_rule(
        "nvidia.com/gpu", group="nvidia", name="cf-crl-nvidia-gpu", excludeResources=resource
    )

    assert ["misspelt-resource cf-crl-nvidia-gpu data.excludeResources"] * warnings == warned(
        rule, injection_rule({"hostIPC": True}, match={"resources": ["a.com/b"]})
    )


def test_a_mount_without_its_volume_is_a_warning() -> None:
    """Unless another rule injects the volume."""
    mount = injection_rule({"volumeMounts": [{"name": "mps", "mountPath": "/mps"}]}, name="mount")
    volume = injection_rule({"volumes": [{"name": "mps", "emptyDir": {}}]}, name="volume")
    misspelt = volume.replace("name: mps", "name: mp")

    assert ["missing-volume mount inject.volumeMounts[0].name"] == warned(mount)
    assert [] == warned(mount, volume)
    assert "did you mean 'mp'?" in messages(mount, misspelt)[0]


@pytest.mark.parametrize("kind", ["volumes", "volumeMounts"])
def test_a_duplicate_name_in_a_rule_is_an_error(kind: str) -> None:
    """The API server would deny every pod."""
    entries = [{"name": name, "mountPath": "/mps", "emptyDir": {}} for name in ("a", "a")]
    (error,) = lint([("f", injection_rule({kind: entries}))], NOW).errors

    assert error.message.endswith("is listed 2 times; keep one")


@pytest.mark.parametrize(
    ("first", "second", "unused"),
    [
        ({}, {}, "b"),
        ({}, {"override": True}, "a"),
        ({"images": ["*/x*"]}, {"namespaces": {"include": ["t"]}}, "b"),
        ({}, {"images": ["*/paddle*"]}, "b"),
        ({"images": ["*/paddle*"]}, {}, ""),
        ({"resources": [DEVICE]}, {"resources": ["vendor.com/*"]}, ""),
        ({}, {"images": ["*/paddle*"], "override": True}, ""),
        ({"images": ["*/pad*"]}, {"images": ["*/paddle*"]}, "b"),
        ({"images": ["*/paddle*"]}, {"images": ["*/torch:*"]}, ""),
        ({"images": ["*/paddle*"]}, {"images": ["*:2.6"]}, ""),
        ({"resources": [OTHER]}, {}, ""),
        ({"resources": ["vendor.com/*"]}, {"resources": ["*.com/device"]}, "b"),
        ({"namespaces": {"include": ["a-*"]}}, {"namespaces": {"include": ["b-*"]}}, ""),
        ({"namespaces": {"include": ["a-1"]}}, {"namespaces": {"exclude": ["a-*"]}}, ""),
        ({"namespaces": {"exclude": ["a-*"]}}, {"namespaces": {"include": ["a-?"]}}, ""),
        ({"podSelector": {"matchLabels": {"app": "x"}}}, {"podSelector": {"matchLabels": {"app": "y"}}}, ""),
        (
            {"podSelector": {"matchLabels": {"app": "x"}}},
            {"podSelector": {"matchLabels": {"tier": "y"}}},
            "b",
        ),
        ({"conditions": [ALWAYS]}, {"conditions": [f"!({ALWAYS})"]}, ""),
        ({}, {"conditions": [ALWAYS]}, "b"),
        ({"conditions": [ALWAYS]}, {}, ""),
    ],
)
def test_conflicting_env_values_are_a_warning_at_the_unused_one(
    first: dict[str, Any], second: dict[str, Any], unused: str
) -> None:
    """If a pod can match both rules, and the used one is not narrower."""
    warnings = warned(env("SECOND", "a", **first), env("SECOND", "b", **second))

    assert ([f"competing-values {unused} inject.env[1].name"] if unused else []) == warnings


def test_a_conflicting_env_value_has_a_message_with_a_fix() -> None:
    """And with the location of the other rule."""
    message = (
        "1.yaml:10:14: inject.env[1].name: conflicting values: env A has another value in a (0.yaml:1:1), "
    )
    message += "which comes first by name; this value is not used if both match; narrow one of the matches"

    assert [message] == messages(env("A", "a"), env("A", "b"))


@pytest.mark.parametrize(
    ("own", "warnings"),
    [
        ({}, 1),
        ({"resources": ["vendor.com/*"]}, 1),
        ({"images": ["*/paddle*"]}, 0),
        ({"namespaces": {"include": ["ml"]}}, 0),
        ({"override": True}, 0),
    ],
)
def test_a_value_that_displaces_that_of_an_equal_match_in_force_is_a_warning(
    own: dict[str, Any], warnings: int
) -> None:
    """A more specific match, or `override`, says that this is intended."""
    source = {"name": "A", "fromResource": {"name": DEVICE}}
    in_force = injection_rule({"env": [source]}, name="b", match={"resources": [DEVICE, OTHER]})
    override = own.get("override", False)
    rule = env("A", "50", "a", override=override, **{key: own[key] for key in own if key != "override"})
    loaded_others = loaded(in_force).rules
    message = (
        "a.yaml:10:14: inject.env[1].name: conflicting values: env A has another value in b (0.yaml:1:1), "
        "which is not used if both match, because this rule applies first; narrow this match, or disable b"
    )

    result = lint([("a.yaml", rule)], NOW, others=loaded_others)
    assert [message] * warnings == [str(warning) for warning in result.warnings]


@pytest.mark.parametrize(
    ("source", "own", "unit"),
    [
        ({"format": "{GiB}"}, None, "1Gi"),
        ({"format": "m={MiB}", "unit": "1"}, None, "1Gi"),
        ({"format": "{GiB}"}, {"resourceUnit": "256Mi"}, "256Mi"),
        ({"format": "{GiB}", "unit": "1Gi"}, None, ""),
        ({"format": "{bytes}"}, None, ""),
        ({"format": "{value}"}, None, ""),
        ({"format": "{GiB}"}, {"defaultValue": "8Gi"}, ""),
        ({"format": "{GiB}"}, {"validations": [{"expression": "value > 1000"}]}, ""),
        ({"name": "koordinator.sh/gpu-memory", "format": "{GiB}"}, None, ""),
        ({"name": "tencent.com/vcuda-memory", "format": "{GiB}"}, None, "256Mi"),
    ],
)
def test_a_size_of_a_count_without_its_unit_is_a_warning(
    source: dict[str, Any], own: dict[str, Any] | None, unit: str
) -> None:
    """It would be 0; an amount in bytes is none, by its rule or by facts."""
    inject = {"env": [{"name": "A", "fromResource": {"name": DEVICE} | source}]}
    size_warnings = [
        message
        for message in messages(injection_rule(inject), *([resource_rule(**own)] if own is not None else []))
        if "no-effect" in message or "is 0 for" in message
    ]

    assert ([True] if unit else []) == [f"write unit: {unit} if" in message for message in size_warnings]


@pytest.mark.parametrize(
    ("first", "second", "path"),
    [
        ({"runtimeClassName": "a"}, {"runtimeClassName": "b"}, "inject.runtimeClassName"),
        ({"schedulerName": "a"}, {"schedulerName": "b"}, "inject.schedulerName"),
        ({"labels": {"x": "a"}}, {"labels": {"x": "b"}}, "inject.labels.x"),
        ({"annotations": {"x/y": "a"}}, {"annotations": {"x/y": "b"}}, "inject.annotations[x/y]"),
        (
            {"volumes": [{"name": "v", "emptyDir": {}}]},
            {"volumes": [{"name": "v", "hostPath": {"path": "/"}}]},
            "inject.volumes[0].name",
        ),
        (
            {"volumeMounts": [{"name": "v", "mountPath": "/v"}], "volumes": [{"name": "v"}, {"name": "w"}]},
            {"volumeMounts": [{"name": "w", "mountPath": "/v/"}]},
            "inject.volumeMounts[0].mountPath",
        ),
        (
            {"tolerations": [{"key": "a", "operator": "Exists"}]},
            {"tolerations": [{"key": "b", "operator": "Exists"}]},
            "",
        ),
    ],
)
def test_conflicting_values_of_a_setting_are_a_warning_at_the_unused_one(
    first: dict[str, Any], second: dict[str, Any], path: str
) -> None:
    """Volumes and mounts are never overridden; tolerations of several rules are added up."""
    rules = injection_rule(first, name="a"), injection_rule(second, name="b")
    overriding = injection_rule(second, name="b", override=True)
    unused = "b" if "volume" in path else "a"

    assert ([f"competing-values b {path}"] if path else []) == warned(*rules)
    assert ([f"competing-values {unused} {path}"] if path else []) == warned(rules[0], overriding)
    assert [] == warned(rules[0], injection_rule(first, name="b"))


def test_conflicting_runtime_classes_of_resource_rules_are_a_warning() -> None:
    """They apply before injection rules; those of one group are used together."""
    resource = resource_rule(runtimeClassName="vendor")
    injection = injection_rule({"runtimeClassName": "other"})
    of_group = resource_rule(OTHER, runtimeClassName="other")
    elsewhere = resource_rule(OTHER, group="another", runtimeClassName="other")

    assert ["competing-values injection inject.runtimeClassName"] == warned(resource, injection)
    assert "which applies first, as a resource rule;" in messages(resource, injection)[0]
    assert ["competing-values cf-crl-group-other data.runtimeClassName"] == warned(resource, of_group)
    assert [] == warned(resource, elsewhere)


def test_equal_values_and_inactive_rules_do_not_conflict() -> None:
    """Disabled rules and dry runs."""
    off = injection_rule({"env": [{"name": "A", "value": "c"}]}, name="c", enabled=False)
    dry = injection_rule({"env": [{"name": "A", "value": "d"}]}, name="d", enforcementAction="dryrun")

    assert [] == warned(env("A", "1", "a"), env("A", "1", "b"), off, dry)


def test_conflicting_labels_are_a_warning_with_the_ignored_one() -> None:
    """Both spellings are valid, also mixed."""
    old, new = LABEL_PREFIXES
    labels = {"type": "CustomResourceLimitation", "group": "g"}
    older = {f"{old}{name}": value for name, value in (labels | {"enabled": "true"}).items()}
    newer = {f"{new}{name}": value for name, value in (labels | {"enabled": "false"}).items()}
    data = {"key": DEVICE, "dataType": "integer", "limits": "optional", "requests": "disabled"}
    both = config_map("cf-crl-g-device", older | newer, data)
    mixed = {name: value for name, value in older.items() if not name.endswith("group")}
    mixed |= {f"{new}group": "g", f"{new}other": "x"}
    message = "0.yaml:12:32: metadata.labels[features.cpaas.io/enabled]: 'false' is ignored, because "
    message += "features.alauda.io/enabled is 'true'; remove one of them"

    assert [message] == messages(both)
    assert [True, True] == [
        lint([("f", text)], NOW).rules.resources[0].enabled
        for text in (both, config_map("cf-crl-g-device", mixed, data))
    ]


def test_an_expired_exemption_is_a_warning() -> None:
    """It has no effect."""
    scope: dict[str, Any] = {"namespaces": {"include": ["a"]}}

    assert ["1.yaml:10:14: expires: expired at 2026-12-31 and has no effect; renew or remove it"] == messages(
        resource_rule(), exemption("cf-crl-*", **scope)
    )
    assert [] == warned(resource_rule(), exemption("cf-crl-*", expires="2027-01-15", **scope))
    assert [] == warned(resource_rule(), exemption("cf-crl-*", enabled=False))


def test_an_exemption_from_no_rule_or_for_every_pod_is_a_warning() -> None:
    """Unknown names, catalogues, which cannot be exempted, and no scope."""
    names = ["cf-crl-group-devices", "images", "cf-crl-*"]
    scope: dict[str, Any] = {"serviceAccounts": ["trainer"]}
    rules = [resource_rule(), image_catalog({"image": "x", "cuda": "12.4"})]

    assert [
        "exempts-nothing exemption rules[0]",
        "exempts-nothing exemption rules[1]",
        "exempts-any-tenant exemption serviceAccounts",
    ] == warned(*rules, exemption(*names, expires="2030-01-01", **scope))
    assert ["exempts-everyone exemption rules"] == warned(*rules, exemption("cf-*", expires="2030-01-01"))
    assert "did you mean 'cf-crl-group-device'?" in messages(*rules, exemption(names[0], **scope))[1]


@pytest.mark.parametrize(
    ("scope", "path"),
    [
        ({"podSelector": {"matchLabels": {"app": "x"}}}, "podSelector"),
        ({"serviceAccounts": ["trainer"]}, "serviceAccounts"),
        ({"serviceAccounts": ["trainer"], "namespaces": {"include": ["*"]}}, "serviceAccounts"),
        ({"serviceAccounts": ["trainer"], "namespaces": {"include": ["ml"]}}, ""),
        ({"podSelector": {"matchLabels": {"app": "x"}}, "namespaces": {"exclude": ["ml"]}}, "podSelector"),
        ({"namespaces": {"exclude": ["ml"]}}, ""),
    ],
)
def test_an_exemption_that_any_tenant_can_claim_is_a_warning(scope: dict[str, Any], path: str) -> None:
    """Who creates a pod chooses its labels and its service account, but not its namespace."""
    warnings = warned(resource_rule(), exemption("cf-*", expires="2030-01-01", **scope))

    assert ([f"exempts-any-tenant exemption {path}"] if path else []) == warnings


@pytest.mark.parametrize(
    ("message", "expression", "passes"),
    [
        ("1 to 8", "value <= 8", "0"),
        ("1 to 8", "value >= 1", "9"),
        ("1 到 8", "value <= 8", "0"),
        ("1 to 8", "value >= 1 && value <= 8", ""),
        ("0 to 8", "value <= 8", ""),
        ("1 to 8, or a multiple of 8", "value % 8 == 0 || value < 8", ""),
        ("at most 8", "value <= 8", ""),
        ("1 to 8", "value <= 8 && limits['vendor.com/device'] > 0", ""),
    ],
)
def test_a_validation_that_does_not_check_the_range_of_its_message_is_a_warning(
    message: str, expression: str, passes: str
) -> None:
    """Most often nobody thought of 0."""
    rule = resource_rule(validations=[{"expression": expression, "messageEn": message}])
    texts = messages(rule)

    assert bool(passes) == bool(texts)
    assert all(
        f"the message says {message}, but {passes} passes: {expression}; write" in text for text in texts
    )


@pytest.mark.parametrize(
    ("message", "expression", "denied"),
    [
        ("1 to 80", "value >= 1 && value <= 8", "80"),
        ("1 to 80", "value <= 8", "80"),
        ("0 to 8", "value > 0 && value < 9", "0"),
    ],
)
def test_a_validation_that_denies_an_end_of_the_range_of_its_message_is_a_warning(
    message: str, expression: str, denied: str
) -> None:
    """The message or the expression is wrong."""
    rule = resource_rule(validations=[{"expression": expression, "messageEn": message}])
    (text,) = messages(rule)

    assert f"the message says {message}, but {denied} is denied: {expression}; write" in text


@pytest.mark.parametrize(("cuda", "warnings"), [("15.9", 1), ("12.14", 1), ("12.4", 0), ("9.2", 0)])
def test_a_cuda_version_of_an_image_that_no_known_toolkit_has_is_a_warning(cuda: str, warnings: int) -> None:
    """Older ones than the oldest known are not all known."""
    read = lint([("f", image_catalog({"image": "a:*", "cuda": cuda}))], NOW)

    assert ["unknown-version"] * warnings == [warning.code for warning in read.warnings]
    assert all(
        f"no CUDA toolkit {cuda} is known, the newest is " in str(warning) for warning in read.warnings
    )


def test_rules_are_checked_against_others_in_force() -> None:
    """As those of the cluster or the built-in ones; their own warnings are not reported."""
    others = loaded(
        resource_rule(name="cf-crl-built-in-device", runtimeClassName="vendor"),
        resource_rule(OTHER, group="another", limits="disabled", defaultValue="1"),
    ).rules
    texts = [
        resource_rule(name="cf-crl-mine-device"),
        injection_rule({"runtimeClassName": "other"}),
        injection_rule({"hostIPC": True}, name="typo", match={"resources": ["vendor.com/othr"]}),
        exemption("cf-crl-another-*", expires="2030-01-01", namespaces={"include": ["a"]}),
    ]
    warnings = lint([(f"{at}.yaml", text) for at, text in enumerate(texts)], NOW, others=others)

    assert ((), 4) == (warnings.errors, len(list(warnings.rules)))
    assert [
        "misspelt-resource typo match.resources[0]",
        "competing-values injection inject.runtimeClassName",
        "conflict cf-crl-mine-device data.key",
    ] == [f"{warning.code} {warning.rule} {warning.path}" for warning in warnings.warnings]


def test_a_rule_replaces_the_one_of_its_name_that_is_in_force() -> None:
    """It is its next version."""
    others = loaded(resource_rule(runtimeClassName="vendor")).rules

    assert () == lint([("mine.yaml", resource_rule(runtimeClassName="new"))], NOW, others=others).warnings


def test_an_exemption_for_no_pod_is_a_warning() -> None:
    """As for any rule that matches no pod."""
    scope: dict[str, Any] = {"namespaces": {"include": ["a"], "exclude": ["*"]}}

    assert ["never-matches exemption namespaces"] == warned(
        resource_rule(), exemption("cf-*", expires="2030-01-01", **scope)
    )


def every_kind() -> list[str]:
    """Return rules that cause every warning of a rule set."""
    return [
        resource_rule(DEVICE, group="one", limits="required"),
        resource_rule(OTHER, group="one", enabled=False),
        resource_rule("vendor.com/third", group="one", excludeResources=f"{DEVICE},vendor.com/thirds"),
        env("A", "1", "first", resources=[DEVICE]),
        env("A", "2", "second", resources=[DEVICE]),
        env("A", "3", "third", resources=["vendor.com/*"]),
        env("A", "4", "fourth", resources=["vendor.com/devices"]),
        exemption("nothing", name="exempt"),
    ]


@pytest.mark.parametrize("kept", range(len(every_kind())))
def test_the_warnings_of_one_rule_equal_those_in_the_whole_set(kept: int) -> None:
    """Admission of a ConfigMap checks only its rule."""
    known = RuleSet.of(rule for text in every_kind() for rule in loaded(text).rules)
    everything = list(rule_set_warnings(known, NOW))
    name = list(known)[kept].name

    assert [warning for warning in everything if warning.rule == name] == list(
        rule_set_warnings(known, NOW, {name})
    )
    assert len({warning.rule for warning in everything}) > 4


def test_checking_one_rule_does_not_compare_all_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule among a thousand takes milliseconds, because reviews of pods wait meanwhile."""
    compared = list[object]()

    def counting(compare: Callable[..., bool]) -> Callable[..., bool]:
        def counted(*pair: object) -> bool:
            compared.append(pair)
            return compare(*pair)

        return counted

    for name in ("_may_overlap", "_similar"):
        monkeypatch.setattr(rule_set_checks, name, counting(getattr(rule_set_checks, name)))
    known = [
        rule
        for number in range(40)
        for text in (
            resource_rule(f"v{number}.com/a", group=f"{number}", excludeResources="b.com/c"),
            env("A", f"{number}", f"rule-{number}", resources=[f"v{number}.com/a"]),
        )
        for rule in loaded(text).rules
    ]
    list(rule_set_warnings(RuleSet.of(known), NOW, {"cf-crl-7-a", "rule-7"}))

    assert 40 <= len(compared) <= 2 * 40
