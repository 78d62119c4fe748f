"""What loads and may not do what was meant is told, with its place; what is meant so is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rules.lint import rule_set_checks
from rules.lint.rule_set_checks import lint, rule_set_warnings
from rules.model.rule import RuleSet
from rules.schema.loader import LABEL_PREFIXES
from tests.support.builders import DEVICE, config_map, exemption, injection_rule, loaded, resource_rule
from tests.support.node_builders import compatibility_rule, image_catalog

NOW = 1_800_000_000.0  # 2027-01-15
OTHER = "vendor.com/other"
ALWAYS = "limits['a.com/b'] > 0"


def warned(*texts: str) -> list[str]:
    """Return code, rule and path of each warning; the rules have to be sound."""
    read = lint(((f"{number}.yaml", text) for number, text in enumerate(texts)), NOW)
    assert () == read.errors
    return [f"{warning.code} {warning.rule} {warning.path}" for warning in read.warnings]


def messages(*texts: str) -> list[str]:
    """Return the warnings with their places."""
    return [
        str(warning) for warning in lint(((f"{n}.yaml", text) for n, text in enumerate(texts)), NOW).warnings
    ]


def env(name: str, value: str = "1", rule: str = "", *, override: bool = False, **match: Any) -> str:
    """Return a rule that injects a variable, named by what it injects unless rule says otherwise."""
    inject = {"env": [{"name": "FIRST", "value": "x"}, {"name": name, "value": value}]}
    return injection_rule(inject, name=rule or value, match=match, override=override)


def matching(**match: Any) -> list[str]:
    """Return what is doubtful about the match of a rule."""
    return [
        warning.partition(" injection ")[2]
        for warning in warned(injection_rule({"hostIPC": True}, match=match))
    ]


@pytest.mark.parametrize(
    ("images", "doubtful"),
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
def test_an_image_pattern_that_is_no_image_matches_none(images: list[str], doubtful: list[int]) -> None:
    """Schemes, blanks, capitals in a repository's name."""
    assert [f"match.images[{index}]" for index in doubtful] == matching(images=images)


@pytest.mark.parametrize(
    ("namespaces", "doubtful"),
    [
        ({"include": ["a", "b-*"], "exclude": ["b-1"]}, []),
        ({"include": ["team-*"], "exclude": ["team-?"]}, []),
        ({"include": ["team-?", "team-1"], "exclude": ["team-*"]}, ["match.namespaces"]),
        ({"include": ["a"], "exclude": ["a", "b"]}, ["match.namespaces"]),
        ({"exclude": ["*"]}, ["match.namespaces"]),
        ({"include": ["team_a", "b"]}, ["match.namespaces.include[0]"]),
    ],
)
def test_namespaces_that_leave_none_are_told(namespaces: dict[str, Any], doubtful: list[str]) -> None:
    """All that is included is excluded too, or cannot be a name."""
    assert doubtful == matching(namespaces=namespaces)


@pytest.mark.parametrize(
    ("labels", "terms", "doubtful"),
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
def test_a_selector_that_contradicts_itself_is_told(
    labels: dict[str, str], terms: list[tuple[str, str, str]], doubtful: bool
) -> None:
    """No labels that Kubernetes takes satisfy it."""
    expressions = [
        {"key": key, "operator": operator} | ({"values": values.split()} if values else {})
        for key, operator, values in terms
    ]
    selector = {"matchLabels": labels, "matchExpressions": expressions}

    assert (["match.podSelector"] if doubtful else []) == matching(podSelector=selector)


def test_a_condition_that_is_false_for_everyone_is_told() -> None:
    """In rules of any kind that match."""
    match = {"conditions": ["true", "1 > 2"]}

    assert ["match.conditions[1]"] == matching(**match)
    assert ["match.conditions[0]"] == matching(conditions=["1 / 0 > 1"])
    assert ["never-matches compatibility match.conditions[1]"] == warned(compatibility_rule(match=match))


@pytest.mark.parametrize(
    ("data", "doubtful"),
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
    ],
)
def test_a_resource_rule_at_odds_with_itself_is_told(data: dict[str, Any], doubtful: list[str]) -> None:
    """A default that its own validation refuses, or that is never put in."""
    validations = [
        {"expression": "value <= 100"},
        {"expression": "value < 10 || container.name == 'x'"},  # of which the default alone tells nothing
    ]

    assert doubtful == warned(resource_rule(validations=validations, **data))


def test_a_glob_may_exclude_itself() -> None:
    """Two resources of different names that it matches exclude each other."""
    assert [] == warned(resource_rule("vendor.com/mig-*", excludeResources="vendor.com/mig-*"))


def test_a_default_on_which_its_validation_fails_is_told_with_the_reason() -> None:
    """A quotient by zero is found before a pod meets it."""
    (warning,) = messages(resource_rule(defaultValue="0", validations=[{"expression": "100 / value > 1"}]))

    assert warning.startswith(
        "0.yaml:15:17: data.defaultValue: '0' is put in, for which the rule's own validation fails ("
    )


def test_a_group_of_which_a_part_is_off_is_told() -> None:
    """Not where the part has a substitute, and not where all of the group is off."""
    off = resource_rule(OTHER, enabled=False)
    substitute = resource_rule(OTHER, group="another", name="cf-crl-another-other")

    assert ["half-group cf-crl-group-other metadata.labels"] == warned(resource_rule(), off)
    assert [] == warned(resource_rule(), off, substitute)
    assert [] == warned(resource_rule(enabled=False), off)


@pytest.mark.parametrize(
    ("other", "doubtful"),
    [
        ({}, False),
        ({"limits": "required"}, True),
        ({"defaultValue": "1"}, True),
        ({"requests": "required"}, True),
        ({"limits": "required", "group": "another"}, False),
    ],
)
def test_a_rule_that_excludes_what_its_group_always_has_is_told(
    other: dict[str, Any], doubtful: bool
) -> None:
    """No container could use it; two of a group that merely exclude each other are alternatives."""
    found = warned(resource_rule(excludeResources="vendor.com/*"), resource_rule(OTHER, **other))

    assert (["never-satisfied cf-crl-group-device data.excludeResources"] if doubtful else []) == found


def test_a_resource_that_is_nearly_one_of_a_rules_is_taken_for_misspelt() -> None:
    """Wherever a rule names one; what is merely unknown may be another cluster's."""
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
        "misspelt-resource injection match.resources[0]",
        "misspelt-resource injection inject.env[0].fromResource.name",
    ] == warned(
        known,
        resource_rule(excludeResources="vendor.com/vcuda-cor, cpu"),
        injection_rule(inject, match={"resources": ["vendro.com/vcuda-core"]}),
    )
    assert ["vendor.com/vcuda-cor", "vendro.com/vcuda-core"] == [
        name for name in sorted(names) if warned(known, compatibility_rule(match={"resources": [name]}))
    ]


def test_a_mount_without_its_volume_is_told() -> None:
    """Unless another rule brings it."""
    mount = injection_rule({"volumeMounts": [{"name": "mps", "mountPath": "/mps"}]}, name="mount")
    volume = injection_rule({"volumes": [{"name": "mps", "emptyDir": {}}]}, name="volume")
    misspelt = volume.replace("name: mps", "name: mp")

    assert ["missing-volume mount inject.volumeMounts[0].name"] == warned(mount)
    assert [] == warned(mount, volume)
    assert "did you mean 'mp'?" in messages(mount, misspelt)[0]


@pytest.mark.parametrize("kind", ["volumes", "volumeMounts"])
def test_a_name_that_stands_twice_in_a_rule_is_a_mistake(kind: str) -> None:
    """The API server would refuse every pod that it is put into."""
    entries = [{"name": name, "mountPath": "/mps", "emptyDir": {}} for name in ("a", "a")]
    (error,) = lint([("f", injection_rule({kind: entries}))], NOW).errors

    assert error.message.endswith("stands 2 times; keep one")


@pytest.mark.parametrize(
    ("first", "second", "loser"),
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
def test_two_values_of_one_variable_are_told_where_the_loser_stands(
    first: dict[str, Any], second: dict[str, Any], loser: str
) -> None:
    """Where some pod matches both, and the one that stands is not plainly the narrower one."""
    found = warned(env("SECOND", "a", **first), env("SECOND", "b", **second))

    assert ([f"competing-values {loser} inject.env[1].name"] if loser else []) == found


def test_a_competing_value_is_told_with_what_to_do() -> None:
    """And where the other one stands."""
    told = (
        "1.yaml:10:14: inject.env[1].name: A has another value in a (0.yaml:1:1), which comes first by name: "
    )
    told += "for pods that both match, this one is not used; narrow one of the matches"

    assert [told] == messages(env("A", "a"), env("A", "b"))


def test_equal_values_and_rules_that_inject_nothing_do_not_compete() -> None:
    """Switched off, or for a dry run."""
    off = injection_rule({"env": [{"name": "A", "value": "c"}]}, name="c", enabled=False)
    dry = injection_rule({"env": [{"name": "A", "value": "d"}]}, name="d", enforcementAction="dryrun")

    assert [] == warned(env("A", "1", "a"), env("A", "1", "b"), off, dry)


def test_labels_that_disagree_are_told_with_the_one_that_counts() -> None:
    """Both spellings may stand there, and each label in its own."""
    old, new = LABEL_PREFIXES
    labels = {"type": "CustomResourceLimitation", "group": "g"}
    older = {f"{old}{name}": value for name, value in (labels | {"enabled": "true"}).items()}
    newer = {f"{new}{name}": value for name, value in (labels | {"enabled": "false"}).items()}
    data = {"key": DEVICE, "dataType": "integer", "limits": "optional", "requests": "disabled"}
    both = config_map("cf-crl-g-device", older | newer, data)
    mixed = {name: value for name, value in older.items() if not name.endswith("group")}
    mixed |= {f"{new}group": "g", f"{new}other": "x"}
    told = (
        "0.yaml:12:32: metadata.labels[features.cpaas.io/enabled]: 'false', but features.alauda.io/enabled "
    )
    told += "says 'true', which counts; remove one of them"

    assert [told] == messages(both)
    assert [True, True] == [
        lint([("f", text)], NOW).rules.resources[0].enabled
        for text in (both, config_map("cf-crl-g-device", mixed, data))
    ]


def test_an_exemption_that_has_expired_is_told() -> None:
    """It has no effect."""
    scope: dict[str, Any] = {"namespaces": {"include": ["a"]}}

    assert ["1.yaml:10:14: expires: expired at 2026-12-31 and has no effect; renew or remove it"] == messages(
        resource_rule(), exemption("cf-crl-*", **scope)
    )
    assert [] == warned(resource_rule(), exemption("cf-crl-*", expires="2027-01-15", **scope))
    assert [] == warned(resource_rule(), exemption("cf-crl-*", enabled=False))


def test_an_exemption_from_nothing_or_for_everyone_is_told() -> None:
    """Names that no rule has, catalogues that decide nothing, and no bounds."""
    names = ["cf-crl-group-devices", "images", "cf-crl-*"]
    scope: dict[str, Any] = {"serviceAccounts": ["trainer"]}
    rules = [resource_rule(), image_catalog({"image": "x", "cuda": "12.4"})]

    assert [
        "exempts-nothing exemption rules[0]",
        "exempts-nothing exemption rules[1]",
    ] == warned(*rules, exemption(*names, expires="2030-01-01", **scope))
    assert ["exempts-everyone exemption rules"] == warned(*rules, exemption("cf-*", expires="2030-01-01"))
    assert "did you mean 'cf-crl-group-device'?" in messages(*rules, exemption(names[0], **scope))[1]


def test_an_exemption_for_no_pod_is_told() -> None:
    """As with any rule that matches none."""
    scope: dict[str, Any] = {"namespaces": {"include": ["a"], "exclude": ["*"]}}

    assert ["never-matches exemption namespaces"] == warned(
        resource_rule(), exemption("cf-*", expires="2030-01-01", **scope)
    )


def every_kind() -> list[str]:
    """Return the texts of rules between which there is every doubt about rules together."""
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
def test_of_one_rule_the_same_is_told_as_of_it_among_all(kept: int) -> None:
    """At admission only the rule that comes is of interest."""
    known = RuleSet.of(rule for text in every_kind() for rule in loaded(text).rules)
    everything = list(rule_set_warnings(known, NOW))
    name = list(known)[kept].name

    assert [doubt for doubt in everything if doubt.rule == name] == list(
        rule_set_warnings(known, NOW, {name})
    )
    assert len({doubt.rule for doubt in everything}) > 4


def test_what_is_told_of_one_rule_takes_no_comparison_of_all_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule among a thousand is judged in milliseconds: reviews of pods wait meanwhile."""
    compared = list[object]()

    def counting(compare: Callable[..., bool]) -> Callable[..., bool]:
        def counted(*pair: object) -> bool:
            compared.append(pair)
            return compare(*pair)

        return counted

    for name in ("_may_meet", "_alike"):
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
