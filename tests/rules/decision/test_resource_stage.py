"""Resource rules: limits and requests of extended resources, completed and judged container by container."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from rules.model.rule import Action
from rules.text.i18n import Language
from tests.support.builders import (
    DEVICE,
    LEGACY,
    admitted,
    container,
    decision,
    defaulted,
    exemption,
    patched,
    pod,
    policy,
    refused_at,
    resource_rule,
)

# The rule's own key, and another of its group, by which a container uses the group.
OTHER = "vendor.com/other"
LIMITS, REQUESTS = (f"spec.containers[0].resources.{field}[{DEVICE}]" for field in ("limits", "requests"))

# What a container may ask for before: (limit, request); None where absent.
GIVEN = [(None, None), ("10", None), ("10", "10"), ("10", "5"), (None, "5")]
# limits, requests and defaultValue of the rule; then for each of GIVEN what the pod is stored with, as
# `limit/request`, or the fields that it is refused at.
TABLE = """
disabled  disabled    none | -/-              limits  limits  limits requests  requests
disabled  required    none | requests         limits  limits  limits           -/5
disabled  fromLimits  none | -/-              limits  limits  limits           requests
required  disabled    none | limits           10/-    10/10   requests         limits requests
required  required    none | limits requests  10/10   10/10   10/5             limits
required  fromLimits  none | limits           10/10   10/10   10/10            limits requests
optional  disabled    none | -/-              10/-    10/10   requests         requests
optional  required    none | requests         10/10   10/10   10/5             -/5
optional  fromLimits  none | -/-              10/10   10/10   10/10            requests
disabled  disabled    20   | -/-              limits  limits  limits requests  requests
disabled  required    20   | -/20             limits  limits  limits           -/5
disabled  fromLimits  20   | -/-              limits  limits  limits           requests
required  disabled    20   | 20/-             10/-    10/10   requests         requests
required  required    20   | 20/20            10/10   10/10   10/5             20/5
required  fromLimits  20   | 20/20            10/10   10/10   10/10            20/20
optional  disabled    20   | 20/-             10/-    10/10   requests         requests
optional  required    20   | 20/20            10/10   10/10   10/5             20/5
optional  fromLimits  20   | 20/20            10/10   10/10   10/10            20/20
"""


class Case(NamedTuple):
    """What a rule says, what a container asks for, and what becomes of it."""

    limits: str
    requests: str
    default: str
    limit: str | None
    request: str | None
    outcome: str

    def rules(self, **data: str) -> tuple[str, str]:
        """Return the texts of the rule and of another of its group; data: more of the former."""
        default = {} if self.default == "none" else {"defaultValue": self.default}
        return _texts(limits=self.limits, requests=self.requests, **default, **data)


def _cases() -> list[Case]:
    found = []
    for row in TABLE.strip().splitlines():
        rule, _, cells = row.partition("|")
        limits, requests, default = rule.split()
        outcomes = [cell.strip() for cell in cells.split("  ") if cell.strip()]
        for (limit, request), outcome in zip(GIVEN, outcomes, strict=True):
            found.append(Case(limits, requests, default, limit, request, outcome))
    return found


def _asking(limit: str | None, request: str | None) -> dict[str, Any]:
    """Return a pod that uses the group, with these quantities of the rule's own key."""
    limits = {OTHER: "1"} | ({} if limit is None else {DEVICE: limit})
    return pod(container(limits, {} if request is None else {DEVICE: request}))


def _outcome(texts: tuple[str, ...], limit: str | None, request: str | None) -> str:
    document = _asking(limit, request)
    found = decision(policy(*texts), document)
    if not found.allowed:
        assert found.patch == ()
        return " ".join({LIMITS: "limits", REQUESTS: "requests"}[path] for path in refused_at(found))
    resources = patched(document, found)["spec"]["containers"][0]["resources"]
    return "/".join(resources.get(field, {}).get(DEVICE, "-") for field in ("limits", "requests"))


@pytest.mark.parametrize("case", _cases(), ids=lambda case: " ".join(str(part) for part in case))
def test_limits_and_requests_are_held_to_what_the_rule_says(case: Case) -> None:
    """Every combination, on a container that uses the group by another of its resources."""
    assert case.outcome == _outcome(case.rules(), case.limit, case.request)


@pytest.mark.parametrize("enforcement", ["warn", "dryrun"])
@pytest.mark.parametrize("case", _cases())
def test_a_rule_that_does_not_deny_lets_everything_pass(enforcement: str, case: Case) -> None:
    """And finds the same violations."""
    rules = case.rules(enforcementAction=enforcement)
    found = decision(policy(*rules), _asking(case.limit, case.request))
    refused = [] if "/" in case.outcome else case.outcome.split()

    assert (True, [{"limits": LIMITS, "requests": REQUESTS}[field] for field in refused]) == (
        found.allowed,
        refused_at(found),
    )


def _texts(**data: Any) -> tuple[str, str]:
    return resource_rule(**data), resource_rule(OTHER)


@pytest.mark.parametrize("written", ["1k", "1000", "1e3", "1000000m", "1.0k"])
def test_a_request_equal_to_the_limit_is_equal_as_a_number(written: str) -> None:
    """`1k` is 1000, however it is written."""
    assert f"1k/{written}" == _outcome(_texts(requests="disabled"), "1k", written)


def test_a_request_that_the_api_server_copied_from_the_limit_is_no_request_of_ones_own() -> None:
    """Every real pod arrives with requests."""
    document = defaulted(pod(container({DEVICE: "2"})))

    assert document == admitted(policy(resource_rule(requests="disabled")), document)


def test_a_request_that_is_the_limit_as_a_number_is_left_as_it_is_written() -> None:
    """fromLimits changes what differs, and nothing else."""
    assert "1k/1000" == _outcome(_texts(requests="fromLimits"), "1k", "1000")


def test_a_null_quantity_is_an_absent_one() -> None:
    """Some clients write null for nothing."""
    document = pod(container({OTHER: "1", DEVICE: None}, {DEVICE: None}))
    stored = admitted(policy(*_texts(defaultValue="3", requests="fromLimits")), document)

    assert {
        "limits": {OTHER: "1", DEVICE: "3"},
        "requests": {DEVICE: "3"},
    } == stored["spec"]["containers"][0]["resources"]


@pytest.mark.parametrize(
    ("data_type", "value", "wanted"),
    [
        ("integer", "2", None),
        ("integer", "2000m", None),
        ("integer", "1k", None),
        ("integer", 2, None),
        ("integer", "0", None),
        ("integer", "1.5", "a whole number"),
        ("integer", "500m", "a whole number"),
        ("integer", "1n", "a whole number"),
        ("integer", 0.5, "a whole number"),
        ("float", "1.5", None),
        ("float", "500m", None),
        ("string", "500m", None),
        ("integer", "-1", "zero or more"),
        ("float", "-500m", "zero or more"),
        ("integer", "two", "a quantity, such as 2, 500m or 8Gi"),
        ("string", "two", "a quantity, such as 2, 500m or 8Gi"),
        ("integer", "", "a quantity, such as 2, 500m or 8Gi"),
        ("integer", [1], "a quantity, such as 2, 500m or 8Gi"),
        ("integer", True, "a quantity, such as 2, 500m or 8Gi"),
    ],
)
def test_a_value_is_a_quantity_of_the_rules_type(data_type: str, value: Any, wanted: str | None) -> None:
    """Whole where the rule says so, never negative."""
    found = decision(
        policy(resource_rule(dataType=data_type)), pod(container({DEVICE: value}, {DEVICE: value}))
    )
    expected = [] if wanted is None else [f"container 'main', {LIMITS}: found {value}, wanted {wanted};"]

    assert expected == [violation.message.partition(";")[0] + ";" for violation in found.violations]


def test_a_request_of_ones_own_is_judged_as_a_value_too() -> None:
    """Where the rule lets it differ from the limit."""
    found = decision(
        policy(resource_rule(requests="required")), pod(container({DEVICE: "1"}, {DEVICE: "0.5"}))
    )

    assert [REQUESTS] == refused_at(found)


def test_a_request_that_is_no_quantity_is_not_the_limit() -> None:
    """Nor does it hide what else is wrong."""
    found = decision(policy(resource_rule()), pod(container({DEVICE: "1"}, {DEVICE: "one"})))

    assert ["no request of its own: the limit, 1", "a quantity, such as 2, 500m or 8Gi"] == [
        violation.message.partition("wanted ")[2].partition(";")[0] for violation in found.violations
    ]


def test_a_default_is_judged_as_what_people_wrote() -> None:
    """It may break the rule's own validations."""
    rule = resource_rule(defaultValue="7", validations=[{"expression": "value <= 5"}])
    found = decision(policy(rule, resource_rule(OTHER)), pod(container({OTHER: "1"})))

    assert ([LIMITS], ()) == (refused_at(found), found.patch)


@pytest.mark.parametrize(
    ("other", "refused"),
    [
        ("nvidia.com/gpu", True),
        ("nvidia.com/mig-1g.10gb", True),
        ("amd.com/gpu", False),
        ("nvidia.com/gpu.shared", False),
        ("cpu", False),
    ],
)
@pytest.mark.parametrize("field", ["limits", "requests"])
def test_an_excluded_resource_may_not_stand_beside_the_key(field: str, other: str, refused: bool) -> None:
    """By name or glob, in limits or requests."""
    rule = resource_rule(excludeResources="nvidia.com/gpu, nvidia.com/mig-*")
    given: dict[str, dict[str, str]] = {"limits": {DEVICE: "1"}, "requests": {}}
    given[field] |= {other: "1"}
    found = decision(policy(rule), pod(container(**given)))

    assert [LIMITS] * refused == refused_at(found)


def test_a_glob_of_excluded_resources_may_match_the_key_itself() -> None:
    """It is about what stands beside it."""
    rule = resource_rule(excludeResources="vendor.com/*")

    assert [] == refused_at(decision(policy(rule), pod(container({DEVICE: "1"}))))


def test_an_excluded_resource_in_another_container_is_no_matter() -> None:
    """Containers are judged one by one."""
    rule = resource_rule(excludeResources="nvidia.com/gpu")
    document = pod(container({DEVICE: "1"}), container({"nvidia.com/gpu": "1"}, name="b"))

    assert document == admitted(policy(rule), document)


def test_a_rule_excludes_nothing_where_its_key_is_not_asked_for() -> None:
    """It is the key that must not stand beside the other."""
    rule = resource_rule(excludeResources="nvidia.com/gpu")
    document = pod(container({OTHER: "1", "nvidia.com/gpu": "1"}))

    assert document == admitted(policy(rule, resource_rule(OTHER)), document)


def test_resources_that_exclude_each_other_are_told_at_both() -> None:
    """Each rule names its own."""
    rules = (
        resource_rule(excludeResources=OTHER),
        resource_rule(OTHER, group="others", excludeResources=DEVICE),
    )
    found = decision(policy(*rules), pod(container({DEVICE: "1", OTHER: "2"})))

    assert [
        (
            "cf-crl-group-device",
            (
                f"container 'main', {LIMITS}: found 1 beside {OTHER}, wanted one of the two:"
                f" {DEVICE} and {OTHER}"
                " exclude each other; remove one of them"
            ),
        ),
        (
            "cf-crl-others-other",
            (
                f"container 'main', {LIMITS.replace(DEVICE, OTHER)}: found 2 beside {DEVICE}, wanted"
                " one of the"
                f" two: {OTHER} and {DEVICE} exclude each other; remove one of them"
            ),
        ),
    ] == [(violation.rule, violation.message) for violation in found.violations]


@pytest.mark.parametrize(("group", "used"), [("group", True), ("another", False)])
def test_rules_of_one_group_go_together(group: str, used: bool) -> None:
    """A container that asks for any of its resources is held to all its rules."""
    rules = (resource_rule(), resource_rule(OTHER, group=group, limits="required"))
    found = decision(policy(*rules), pod(container({DEVICE: "1"})))

    assert [LIMITS.replace(DEVICE, OTHER)] * used == refused_at(found)


def test_a_group_is_used_by_a_request_too() -> None:
    """Limits or requests."""
    found = decision(
        policy(*_texts(limits="required")), pod(container(requests={OTHER: "1"}, limits={OTHER: "1"}))
    )

    assert [LIMITS] == refused_at(found)


def test_the_group_is_the_labels_not_the_datas() -> None:
    """The label is what people see with kubectl."""
    rules = (resource_rule(OTHER), resource_rule(group="another").replace("data:", "data:\n  group: group"))
    found = decision(policy(rules[0], rules[1].replace("optional", "required")), pod(container({OTHER: "1"})))

    assert (True, ("cf-crl-group-other",)) == (found.allowed, found.rules)


def test_rules_of_both_label_spellings_go_together() -> None:
    """A cluster in transition has both."""
    rules = (resource_rule(prefix=LEGACY), resource_rule(OTHER, limits="required"))
    found = decision(policy(*rules), pod(container({DEVICE: "1"})))

    assert [LIMITS.replace(DEVICE, OTHER)] == refused_at(found)


def test_a_container_that_does_not_use_the_group_is_left_alone() -> None:
    """A required key is required of its users only."""
    rules = _texts(limits="required", defaultValue="1")
    document = pod(container({DEVICE: "1"}), container({"cpu": "1"}, name="b"), container(name="c"))

    assert document == admitted(policy(*rules), document)


@pytest.mark.parametrize(
    "fields",
    [
        {"initContainers": [container({DEVICE: "0.5"}, name="setup")]},
        {"initContainers": [container({DEVICE: "0.5"}, name="proxy", restartPolicy="Always")]},
    ],
)
def test_init_containers_and_sidecars_are_held_to_the_rules(fields: dict[str, Any]) -> None:
    """They use the same devices."""
    found = decision(policy(resource_rule()), pod(container({DEVICE: "1"}), **fields))

    assert [f"spec.initContainers[0].resources.limits[{DEVICE}]"] == refused_at(found)


def test_init_containers_and_sidecars_are_completed() -> None:
    """At their own place."""
    document = pod(
        container(name="main"),
        initContainers=[
            container({OTHER: "1"}, name="setup"),
            container({OTHER: "1"}, name="proxy", restartPolicy="Always"),
        ],
    )
    found = decision(policy(*_texts(defaultValue="2")), document)

    assert [
        {"op": "add", "path": "/spec/initContainers/0/resources/limits/vendor.com~1device", "value": "2"},
        {"op": "add", "path": "/spec/initContainers/1/resources/limits/vendor.com~1device", "value": "2"},
    ] == list(found.patch)


VALIDATIONS = [
    {
        "expression": "value <= 100 || value % 100 == 0",
        "messageEn": "up to 100, or a multiple of it",
        "messageZh": "不超过 100，或为 100 的整数倍",
    }
]


@pytest.mark.parametrize(
    ("language", "message"),
    [
        (
            Language.EN,
            (
                f"container 'main', {LIMITS}: found 150, wanted up to 100, or a multiple of it (cores);"
                " write a value that suits"
            ),
        ),
        (
            Language.ZH,
            (
                f"容器 'main'，{LIMITS}：当前为 150，要求 不超过 100，或为 100 的整数倍（核心数）；"
                "请改为符合要求的值"
            ),
        ),
    ],
)
def test_a_value_that_breaks_a_validation_is_told_in_the_rules_own_words(
    language: Language, message: str
) -> None:
    """In the language of the cluster."""
    rule = resource_rule(validations=VALIDATIONS, descriptionEn="cores", descriptionZh="核心数")
    found = decision(policy(rule, language=language), pod(container({DEVICE: "150"})))

    assert [message] == [violation.message for violation in found.violations]


@pytest.mark.parametrize(
    ("value", "refused"), [("100", False), ("101", True), ("300", False), ("3e2", False)]
)
def test_a_validation_judges_the_number(value: str, refused: bool) -> None:
    """Vendor arithmetic is data."""
    found = decision(policy(resource_rule(validations=VALIDATIONS)), pod(container({DEVICE: value})))

    assert [LIMITS] * refused == refused_at(found)


@pytest.mark.parametrize(
    ("expression", "remedy"),
    [
        ("value < 5", "write a value that suits"),
        (f"value < 5 || '{OTHER}' in limits", "write a value that suits, or change what stands beside it"),
        (f"'{OTHER}' in limits", f"change what stands beside it, or remove {LIMITS}"),
    ],
)
def test_what_to_do_about_a_validation_is_about_what_it_reads(expression: str, remedy: str) -> None:
    """Another value helps nobody who lacks another resource."""
    found = decision(
        policy(resource_rule(validations=[{"expression": expression}])), pod(container({DEVICE: "7"}))
    )

    assert [f"found 7, wanted {expression}; {remedy}"] == [
        violation.message.partition(f"{LIMITS}: ")[2] for violation in found.violations
    ]


def test_a_validation_without_words_shows_its_expression() -> None:
    """Better than nothing."""
    rule = resource_rule(validations=[{"expression": "value < 5"}])
    found = decision(policy(rule), pod(container({DEVICE: "7"})))

    assert f"container 'main', {LIMITS}: found 7, wanted value < 5; write a value that suits" == (
        found.violations[0].message
    )


@pytest.mark.parametrize(
    "expression",
    [
        f"limits['{OTHER}'] >= value",
        f"requests['{OTHER}'] >= value",
        "container.name != 'main'",
        "!container.image.startsWith('registry.example.com/')",
        "requests['cpu'] > 0.5",
        "!('memory' in limits)",
    ],
)
def test_a_validation_may_look_at_the_container(expression: str) -> None:
    """Its limits and requests, its name and image; requests are the limits where they are absent."""
    limits = {DEVICE: "2", OTHER: "1", "cpu": "500m", "memory": "8Gi", "odd": "x"}
    rule = resource_rule(validations=[{"expression": expression}])

    assert [LIMITS] == refused_at(decision(policy(rule), pod(container(limits))))


@pytest.mark.parametrize(
    ("expression", "error"),
    [
        ("100 % value == 0", "modulo by zero in CEL expression"),
        ("limits['absent.com/x'] > value", "no such key: 'absent.com/x'"),
    ],
)
@pytest.mark.parametrize(
    ("language", "words"),
    [
        (
            Language.EN,
            (
                "rule cf-crl-group-device: {expression} could not be evaluated for vendor.com/device"
                " of container"
                " 'main' and was passed over; the rule needs repair: {error}"
            ),
        ),
        (
            Language.ZH,
            (
                "规则 cf-crl-group-device：无法对容器 'main' 的 vendor.com/device 计算表达式"
                " {expression}，已跳过；"
                "请修复该规则：{error}"
            ),
        ),
    ],
)
def test_an_expression_that_cannot_be_evaluated_warns_and_does_not_deny(
    language: Language, words: str, expression: str, error: str
) -> None:
    """The pod's author cannot mend a rule."""
    rule = resource_rule(validations=[{"expression": expression}])
    found = decision(policy(rule, language=language), pod(container({DEVICE: "0"})))

    assert (True, (words.format(expression=expression, error=error),)) == (found.allowed, found.warnings)


def test_after_an_expression_that_cannot_be_evaluated_the_others_are() -> None:
    """One broken line does not switch off a rule."""
    rule = resource_rule(validations=[{"expression": "1 / value > 0"}, {"expression": "value > 0"}])
    found = decision(policy(rule), pod(container({DEVICE: "0"})))

    assert ([LIMITS], 1) == (refused_at(found), len(found.warnings))


@pytest.mark.parametrize(
    ("enforcement", "allowed", "warned", "audit"),
    [
        ("deny", False, False, "violations"),
        ("warn", True, True, "violations"),
        ("dryrun", True, False, "dryrun"),
    ],
)
def test_what_follows_from_a_violation_is_the_rules_to_say(
    enforcement: str, allowed: bool, warned: bool, audit: str
) -> None:
    """Deny, warn whoever applies it, or note it for the audit only."""
    rule = resource_rule(limits="disabled", enforcementAction=enforcement)
    found = decision(policy(rule), pod(container({DEVICE: "1"})))
    line = (
        f"container 'main', {LIMITS}: found 1, wanted no limit of {DEVICE}; remove {LIMITS}"
        " [cf-crl-group-device]"
    )

    assert (allowed, (line,) * warned, f"cf-crl-group-device: {LIMITS}", [Action(enforcement)]) == (
        found.allowed,
        found.warnings,
        found.audit[audit],
        [violation.action for violation in found.violations],
    )


GLOB = "vendor.com/mig-*"


@pytest.mark.parametrize(
    ("limits", "requests", "refused"),
    [
        ({"vendor.com/mig-1g": "1"}, {"vendor.com/mig-1g": "1"}, []),
        ({"vendor.com/mig-1g": "1", "vendor.com/mig-2g": "0.5"}, {}, ["limits[vendor.com/mig-2g]"]),
        ({"vendor.com/mig-1g": "1", "vendor.com/gpu": "0.5"}, {}, []),
        ({"vendor.com/mig-1g": "1"}, {"vendor.com/mig-1g": "2"}, ["requests[vendor.com/mig-1g]"]),
        ({}, {"vendor.com/mig-2g": "1"}, ["requests[vendor.com/mig-2g]"]),
        ({"other.com/mig-1g": "0.5"}, {}, []),
    ],
)
def test_a_glob_key_holds_each_name_that_it_matches(
    limits: dict[str, str], requests: dict[str, str], refused: list[str]
) -> None:
    """One rule for resources whose names carry a profile."""
    found = decision(policy(resource_rule(GLOB)), pod(container(limits, requests)))

    assert [f"spec.containers[0].resources.{place}" for place in refused] == refused_at(found)


def test_a_glob_key_sets_requests_from_limits_name_by_name() -> None:
    """It has no default, but it may say where requests come from."""
    document = pod(
        container({"vendor.com/mig-1g": "1", "vendor.com/mig-2g": "2"}, {"vendor.com/mig-2g": "1"})
    )
    found = decision(policy(resource_rule(GLOB, requests="fromLimits")), document)

    assert {"vendor.com/mig-1g": "1", "vendor.com/mig-2g": "2"} == (
        patched(document, found)["spec"]["containers"][0]["resources"]["requests"]
    )
    assert "main: requests vendor.com/mig-1g; main: requests vendor.com/mig-2g" == found.audit["defaulted"]


@pytest.mark.parametrize(
    ("standing", "stored"), [(None, "vendor"), ("", "vendor"), ("vendor", "vendor"), ("kata", "kata")]
)
def test_the_runtime_class_of_a_rule_is_for_pods_that_name_none(standing: str | None, stored: str) -> None:
    """Never in place of the user's own."""
    spec: dict[str, Any] = {} if standing is None else {"runtimeClassName": standing}
    rule = resource_rule(runtimeClassName="vendor")

    assert stored == admitted(policy(rule), pod(**spec))["spec"]["runtimeClassName"]


@pytest.mark.parametrize(("limits", "runs"), [({OTHER: "1"}, False), ({DEVICE: "1"}, True)])
def test_the_runtime_class_of_a_rule_is_for_those_who_ask_for_its_key(
    limits: dict[str, str], runs: bool
) -> None:
    """Not for all of its group."""
    stored = admitted(policy(*_texts(runtimeClassName="vendor")), pod(container(limits)))

    assert runs == ("runtimeClassName" in stored["spec"])


def test_the_runtime_class_of_a_glob_key_is_for_those_whom_it_matches() -> None:
    """A profile is one of its key's names."""
    stored = admitted(
        policy(resource_rule(GLOB, runtimeClassName="vendor")), pod(container({"vendor.com/mig-1g": "1"}))
    )

    assert "vendor" == stored["spec"]["runtimeClassName"]


@pytest.mark.parametrize(
    ("data", "limits", "requests", "message"),
    [
        (
            {"limits": "required"},
            {OTHER: "1"},
            {},
            f"{LIMITS}: found nothing, wanted a quantity of {DEVICE}; set {LIMITS}",
        ),
        (
            {"limits": "disabled"},
            {DEVICE: "3"},
            {},
            f"{LIMITS}: found 3, wanted no limit of {DEVICE}; remove {LIMITS}",
        ),
        (
            {"requests": "required"},
            {OTHER: "1"},
            {},
            f"{REQUESTS}: found nothing, wanted a quantity of {DEVICE}; set {REQUESTS}",
        ),
        (
            {"requests": "disabled"},
            {DEVICE: "3"},
            {DEVICE: "2"},
            (
                f"{REQUESTS}: found 2, wanted no request of its own: the limit, 3; remove"
                f" {REQUESTS}, or set it to"
                " the limit"
            ),
        ),
        (
            {"requests": "disabled"},
            {},
            {DEVICE: "2"},
            (
                f"{REQUESTS}: found 2 and no limit, wanted the request to follow the limit; move it"
                " to limits: set"
                f" {LIMITS}"
            ),
        ),
        (
            {"requests": "disabled", "limits": "disabled"},
            {},
            {DEVICE: "2"},
            f"{REQUESTS}: found 2 and no limit, wanted no request of {DEVICE}; remove {REQUESTS}",
        ),
        (
            {"requests": "fromLimits"},
            {},
            {DEVICE: "2"},
            (
                f"{REQUESTS}: found 2 and no limit, wanted the request to follow the limit; move it"
                " to limits: set"
                f" {LIMITS}"
            ),
        ),
    ],
)
def test_a_violation_says_what_was_found_what_was_wanted_and_what_to_do(
    data: dict[str, str], limits: dict[str, str], requests: dict[str, str], message: str
) -> None:
    """On one line, with the container and the path."""
    found = decision(policy(*_texts(**data)), pod(container(limits, requests)))

    assert [f"container 'main', {message}"] == [violation.message for violation in found.violations]


def test_all_violations_of_all_containers_are_told_together() -> None:
    """Nobody has to try again and again."""
    document = pod(
        container({DEVICE: "0.5"}, name="a"),
        container({DEVICE: "-1"}, name="b"),
        initContainers=[container({DEVICE: "x"}, name="c")],
    )

    assert [
        f"spec.containers[0].resources.limits[{DEVICE}]",
        f"spec.containers[1].resources.limits[{DEVICE}]",
        f"spec.initContainers[0].resources.limits[{DEVICE}]",
    ] == refused_at(decision(policy(resource_rule()), document))


def test_what_a_rule_finds_is_told_of_each_container_by_its_name_and_place() -> None:
    """What was found of one that asks for the same is not said of this one."""
    rules = policy(resource_rule(validations=[{"expression": "value <= 2", "messageEn": "two"}]))
    containers = [container({DEVICE: "3"}, name=name) for name in ("a", "b", "a")]
    found = [decision(rules, pod(containers[0], *containers[1:at])).violations[-1] for at in (1, 2, 3, 1)]

    assert [f"spec.containers[{at}].resources.limits[{DEVICE}]" for at in (0, 1, 2, 0)] == [
        each.path for each in found
    ]
    assert ["'a'", "'b'", "'a'", "'a'"] == [each.message.split()[1].rstrip(",") for each in found]


def test_a_rule_that_names_the_image_judges_each_image() -> None:
    """All else may be the same."""
    rules = policy(resource_rule(validations=[{"expression": "container.image != 'bad'"}]))
    images = ("good", "bad", "good")

    assert [True, False, True] == [
        decision(rules, pod(container({DEVICE: "1"}, image=image))).allowed for image in images
    ]


@pytest.mark.parametrize(
    ("quantities", "allowed"),
    [
        (("1", True, "1"), [True, False, True]),
        ((1, True, 1.0), [True, False, True]),
        (("1", ["1"], {}, "1"), [True, False, False, True]),
    ],
)
def test_a_quantity_is_not_mistaken_for_another_that_is_equal(
    quantities: tuple[Any, ...], allowed: list[bool]
) -> None:
    """In Python true is 1; the API server refuses it, and what is no text at all."""
    rules = policy(resource_rule())

    assert allowed == [decision(rules, pod(container({DEVICE: each}))).allowed for each in quantities]


def test_a_rule_that_changes_or_is_exempted_judges_the_same_container_anew() -> None:
    """Each policy remembers for itself, each pod for the rules that hold for it."""
    rule = resource_rule(validations=[{"expression": "value <= 2"}])
    wider = resource_rule(validations=[{"expression": "value <= 3"}])
    exempting = policy(rule, exemption("cf-crl-group-device", namespaces={"include": ["spared"]}))
    asked = [(policy(rule), "team"), (policy(wider), "team")]
    asked += [(exempting, namespace) for namespace in ("team", "spared", "team")]

    assert [False, True, False, True, False] == [
        decision(rules, pod(container({DEVICE: "3"})), 0.0, namespace=namespace).allowed
        for rules, namespace in asked
    ]
