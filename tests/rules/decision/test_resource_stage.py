"""Resource rules: limits and requests of extended resources, completed and validated per container."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from rules.decision.messages import API_SERVER_RULE
from rules.decision.pipeline import Snapshot, decide
from rules.model.finding import Basis, Certainty
from rules.model.rule import Action
from rules.nodes.inventory_document import inventory_of
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
    request,
    resource_rule,
    warning_texts,
)

# The rule's own key, and another of its group, by which a container uses the group.
OTHER = "vendor.com/other"
LIMITS, REQUESTS = (f"spec.containers[0].resources.{field}[{DEVICE}]" for field in ("limits", "requests"))

# The API server rejects a fraction of an extended resource, whatever its rule.
ALWAYS_WHOLE = "a whole number (the API server accepts nothing else of extended resources)"

# What a container has before: (limit, request); None if absent.
GIVEN = [(None, None), ("10", None), ("10", "10"), ("10", "5"), (None, "5")]
# limits, requests and defaultValue of the rule; then for each of GIVEN what the pod is stored with, as
# `limit/request`, or the fields of its violations.
TABLE = """
disabled  disabled    none | -/-              limits  limits  limits requests  requests
disabled  required    none | requests         limits  limits  limits requests  requests
disabled  fromLimits  none | -/-              limits  limits  limits           requests
required  disabled    none | limits           10/-    10/10   requests         requests
required  required    none | limits requests  10/10   10/10   requests         requests
required  fromLimits  none | limits           10/10   10/10   10/10            requests
optional  disabled    none | -/-              10/-    10/10   requests         requests
optional  required    none | requests         10/10   10/10   requests         requests
optional  fromLimits  none | -/-              10/10   10/10   10/10            requests
disabled  disabled    20   | -/-              limits  limits  limits requests  requests
disabled  required    20   | requests         limits  limits  limits requests  requests
disabled  fromLimits  20   | -/-              limits  limits  limits           requests
required  disabled    20   | 20/-             10/-    10/10   requests         requests
required  required    20   | 20/20            10/10   10/10   requests         requests
required  fromLimits  20   | 20/20            10/10   10/10   10/10            requests
optional  disabled    20   | 20/-             10/-    10/10   requests         requests
optional  required    20   | 20/20            10/10   10/10   requests         requests
optional  fromLimits  20   | 20/20            10/10   10/10   10/10            requests
"""


class Case(NamedTuple):
    """A rule, what a container requests, and the outcome."""

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
    cases = []
    for row in TABLE.strip().splitlines():
        rule, _, cells = row.partition("|")
        limits, requests, default = rule.split()
        outcomes = [cell.strip() for cell in cells.split("  ") if cell.strip()]
        for given, outcome in zip(GIVEN, outcomes, strict=True):
            cases.append(Case(limits, requests, default, *given, outcome))
    return cases


def _asking(limit: str | None, request: str | None) -> dict[str, Any]:
    """Return a pod that uses the group, with these quantities of the rule's own key."""
    limits = {OTHER: "1"} | ({} if limit is None else {DEVICE: limit})
    return pod(container(limits, {} if request is None else {DEVICE: request}))


def _outcome(texts: tuple[str, ...], limit: str | None, request: str | None) -> str:
    document = _asking(limit, request)
    answer = decision(policy(*texts), document)
    if not answer.allowed:
        assert answer.patch == ()
        return " ".join({LIMITS: "limits", REQUESTS: "requests"}[path] for path in refused_at(answer))
    resources = patched(document, answer)["spec"]["containers"][0]["resources"]
    return "/".join(resources.get(field, {}).get(DEVICE, "-") for field in ("limits", "requests"))


@pytest.mark.parametrize("case", _cases(), ids=lambda case: " ".join(str(part) for part in case))
def test_limits_and_requests_are_completed_and_validated_as_the_rule_says(case: Case) -> None:
    """Every combination, on a container that uses the group by another of its resources."""
    assert case.outcome == _outcome(case.rules(), case.limit, case.request)


@pytest.mark.parametrize("enforcement", ["warn", "dryrun"])
@pytest.mark.parametrize("case", _cases())
def test_a_rule_that_does_not_deny_allows_every_pod_that_the_api_server_accepts(
    enforcement: str, case: Case
) -> None:
    """With the same violations. A request alone, or one that is not the limit, is rejected without rules."""
    rules = case.rules(enforcementAction=enforcement)
    answer = decision(policy(*rules), _asking(case.limit, case.request))
    fields = [] if "/" in case.outcome else case.outcome.split()
    rejected = "requests" in fields and (case.request is not None or case.default != "none")

    assert (not rejected, [{"limits": LIMITS, "requests": REQUESTS}[field] for field in fields]) == (
        answer.allowed,
        [*dict.fromkeys(refused_at(answer))],
    )
    assert [API_SERVER_RULE] * rejected == [
        violation.rule for violation in answer.violations if violation.action is Action.DENY
    ]


def _texts(**data: Any) -> tuple[str, str]:
    return resource_rule(**data), resource_rule(OTHER)


@pytest.mark.parametrize("written", ["1k", "1000", "1e3", "1000000m", "1.0k"])
def test_a_request_equal_to_the_limit_is_equal_as_a_number(written: str) -> None:
    """`1k` is 1000."""
    assert f"1k/{written}" == _outcome(_texts(requests="disabled"), "1k", written)


def test_a_request_that_the_api_server_copied_from_the_limit_is_allowed() -> None:
    """Every pod of a cluster has requests."""
    document = defaulted(pod(container({DEVICE: "2"})))

    assert document == admitted(policy(resource_rule(requests="disabled")), document)


def test_a_request_that_equals_the_limit_as_a_number_is_not_rewritten() -> None:
    """fromLimits changes only a request that differs."""
    assert "1k/1000" == _outcome(_texts(requests="fromLimits"), "1k", "1000")


def test_a_null_quantity_is_treated_as_absent() -> None:
    """Some clients write null for an absent value."""
    document = pod(container({OTHER: "1", DEVICE: None}, {DEVICE: None}))
    stored = admitted(policy(*_texts(defaultValue="3", requests="fromLimits")), document)

    assert {
        "limits": {OTHER: "1", DEVICE: "3"},
        "requests": {DEVICE: "3"},
    } == stored["spec"]["containers"][0]["resources"]


@pytest.mark.parametrize(
    ("data_type", "value", "expected"),
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
        ("float", "1.5", ALWAYS_WHOLE),
        ("float", "500m", ALWAYS_WHOLE),
        ("string", "500m", ALWAYS_WHOLE),
        ("integer", "-1", "zero or more"),
        ("float", "-500m", "zero or more"),
        ("integer", "two", "a quantity, such as 2, 500m or 8Gi"),
        ("string", "two", "a quantity, such as 2, 500m or 8Gi"),
        ("integer", "", "a quantity, such as 2, 500m or 8Gi"),
        ("integer", [1], "a quantity, such as 2, 500m or 8Gi"),
        ("integer", True, "a quantity, such as 2, 500m or 8Gi"),
    ],
)
def test_a_value_is_a_quantity_of_the_type_of_the_rule(
    data_type: str, value: Any, expected: str | None
) -> None:
    """A whole number if the rule says so, never negative."""
    answer = decision(
        policy(resource_rule(dataType=data_type)), pod(container({DEVICE: value}, {DEVICE: value}))
    )
    reason = f"container 'main', {LIMITS}: found {value}, expected {expected}"

    assert [reason] * (expected is not None) == [violation.reason.en for violation in answer.violations]


def test_a_request_that_may_differ_from_the_limit_is_validated_too() -> None:
    """`requests: required` allows it to differ, of a resource that is not extended."""
    native = "a.kubernetes.io/device"
    rules = policy(resource_rule(native, requests="required"))

    assert decision(rules, pod(container({native: "2"}, {native: "1"}))).allowed
    assert [f"spec.containers[0].resources.requests[{native}]"] == refused_at(
        decision(rules, pod(container({native: "2"}, {native: "0.5"})))
    )


def test_a_request_that_is_not_a_quantity_differs_from_the_limit() -> None:
    """Both violations are reported."""
    answer = decision(policy(resource_rule()), pod(container({DEVICE: "1"}, {DEVICE: "one"})))

    assert ["a request equal to the limit, 1", "a quantity, such as 2, 500m or 8Gi"] == [
        violation.reason.en.partition("expected ")[2] for violation in answer.violations
    ]


def test_a_request_that_is_not_the_limit_is_not_validated() -> None:
    """The request is denied as such, and nothing more is said of it."""
    rules = policy(resource_rule(validations=[{"expression": "value > 1"}]))

    assert [f"spec.containers[0].resources.requests[{DEVICE}]"] == refused_at(
        decision(rules, pod(container({DEVICE: "2"}, {DEVICE: "1"})))
    )


def test_a_default_is_validated_like_a_value_of_the_user() -> None:
    """It may violate the validations of its rule."""
    rule = resource_rule(defaultValue="7", validations=[{"expression": "value <= 5"}])
    answer = decision(policy(rule, resource_rule(OTHER)), pod(container({OTHER: "1"})))

    assert ([LIMITS], ()) == (refused_at(answer), answer.patch)


@pytest.mark.parametrize(
    ("other", "denied"),
    [
        ("nvidia.com/gpu", True),
        ("nvidia.com/mig-1g.10gb", True),
        ("amd.com/gpu", False),
        ("nvidia.com/gpu.shared", False),
        ("cpu", False),
    ],
)
@pytest.mark.parametrize("field", ["limits", "requests"])
def test_an_excluded_resource_is_not_allowed_together_with_the_key(
    field: str, other: str, denied: bool
) -> None:
    """By name or glob, in limits or requests."""
    rule = resource_rule(excludeResources="nvidia.com/gpu, nvidia.com/mig-*")
    given: dict[str, dict[str, str]] = {"limits": {DEVICE: "1"}, "requests": {}}
    given[field] |= {other: "1"}
    answer = decision(policy(rule), pod(container(**given)))

    assert [LIMITS] * denied == [
        violation.path for violation in answer.violations if violation.rule != API_SERVER_RULE
    ]


@pytest.mark.parametrize("zero", ["0", "0m", 0, "0e3", "-0", ".0Gi"])
@pytest.mark.parametrize("other", ["nvidia.com/gpu", DEVICE])
def test_a_resource_of_which_none_is_requested_excludes_nothing(other: str, zero: Any) -> None:
    """A quantity of 0 is how a default of a chart is switched off: nothing is allocated."""
    rule = resource_rule(excludeResources="nvidia.com/gpu")
    document = pod(container({DEVICE: "1", "nvidia.com/gpu": "1"} | {other: zero}))

    assert document == admitted(policy(rule), document)


def test_a_quantity_of_0_is_no_use_of_its_group() -> None:
    """Nothing is required or set."""
    rules = resource_rule(OTHER, validations=[{"expression": "value >= 1"}]), resource_rule(defaultValue="20")
    for quantities in ({OTHER: "0"}, {OTHER: "0", DEVICE: "0"}):
        document = pod(container(quantities))
        assert document == admitted(policy(*rules), document)


def test_a_default_is_not_set_where_a_quantity_of_0_is_written() -> None:
    """The user has decided."""
    document = pod(container({OTHER: "1", DEVICE: "0"}))

    assert document == admitted(policy(*_texts(defaultValue="20")), document)


def test_a_glob_of_excluded_resources_may_match_the_key_itself() -> None:
    """The key is not excluded."""
    rule = resource_rule(excludeResources="vendor.com/*")

    assert [] == refused_at(decision(policy(rule), pod(container({DEVICE: "1"}))))


def test_an_excluded_resource_in_another_container_is_allowed() -> None:
    """Each container is validated separately."""
    rule = resource_rule(excludeResources="nvidia.com/gpu")
    document = pod(container({DEVICE: "1"}), container({"nvidia.com/gpu": "1"}, name="b"))

    assert document == admitted(policy(rule), document)


def test_a_rule_excludes_nothing_if_its_key_is_not_requested() -> None:
    """Other resources of the group are not concerned."""
    rule = resource_rule(excludeResources="nvidia.com/gpu")
    document = pod(container({OTHER: "1", "nvidia.com/gpu": "1"}))

    assert document == admitted(policy(rule, resource_rule(OTHER)), document)


def test_resources_that_exclude_each_other_are_reported_for_both() -> None:
    """Each rule names its own key first."""
    rules = (
        resource_rule(excludeResources=OTHER),
        resource_rule(OTHER, group="others", excludeResources=DEVICE),
    )
    answer = decision(policy(*rules), pod(container({DEVICE: "1", OTHER: "2"})))
    other_limits = LIMITS.replace(DEVICE, OTHER)

    assert [
        (
            "cf-crl-group-device",
            (
                f"container 'main', {LIMITS}: found 1 together with {OTHER},"
                f" expected only one of {DEVICE} and {OTHER}; remove one of them"
            ),
        ),
        (
            "cf-crl-others-other",
            (
                f"container 'main', {other_limits}: found 2 together with {DEVICE},"
                f" expected only one of {OTHER} and {DEVICE}; remove one of them"
            ),
        ),
    ] == [(violation.rule, violation.message.en) for violation in answer.violations]


@pytest.mark.parametrize(("group", "used"), [("group", True), ("another", False)])
def test_all_rules_of_a_group_apply_together(group: str, used: bool) -> None:
    """To a container that requests any of its resources."""
    rules = (resource_rule(), resource_rule(OTHER, group=group, limits="required"))
    answer = decision(policy(*rules), pod(container({DEVICE: "1"})))

    assert [LIMITS.replace(DEVICE, OTHER)] * used == refused_at(answer)


def test_a_container_uses_a_group_by_a_request_too() -> None:
    """By limits or requests."""
    answer = decision(
        policy(*_texts(limits="required")), pod(container(requests={OTHER: "1"}, limits={OTHER: "1"}))
    )

    assert [LIMITS] == refused_at(answer)


def test_the_group_is_that_of_the_label_not_of_the_data() -> None:
    """The label is shown by kubectl."""
    rules = (resource_rule(OTHER), resource_rule(group="another").replace("data:", "data:\n  group: group"))
    answer = decision(
        policy(rules[0], rules[1].replace("optional", "required")), pod(container({OTHER: "1"}))
    )

    assert (True, ("cf-crl-group-other",)) == (answer.allowed, answer.rules)


def test_rules_of_both_label_prefixes_are_in_one_group() -> None:
    """A cluster in transition has both."""
    rules = (resource_rule(prefix=LEGACY), resource_rule(OTHER, limits="required"))
    answer = decision(policy(*rules), pod(container({DEVICE: "1"})))

    assert [LIMITS.replace(DEVICE, OTHER)] == refused_at(answer)


def test_a_container_that_does_not_use_the_group_is_unchanged() -> None:
    """A key is required only in containers that use its group."""
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
def test_init_containers_and_sidecars_are_validated(fields: dict[str, Any]) -> None:
    """They use the same devices."""
    answer = decision(policy(resource_rule()), pod(container({DEVICE: "1"}), **fields))

    assert [f"spec.initContainers[0].resources.limits[{DEVICE}]"] == refused_at(answer)


def test_init_containers_and_sidecars_are_completed() -> None:
    """At their paths."""
    document = pod(
        container(name="main"),
        initContainers=[
            container({OTHER: "1"}, name="setup"),
            container({OTHER: "1"}, name="proxy", restartPolicy="Always"),
        ],
    )
    answer = decision(policy(*_texts(defaultValue="2")), document)

    assert [
        {"op": "add", "path": "/spec/initContainers/0/resources/limits/vendor.com~1device", "value": "2"},
        {"op": "add", "path": "/spec/initContainers/1/resources/limits/vendor.com~1device", "value": "2"},
    ] == list(answer.patch)


VALIDATIONS = [
    {
        "expression": "value <= 100 || value % 100 == 0",
        "messageEn": "up to 100, or a multiple of it",
        "messageZh": "不超过 100，或为 100 的整数倍",
    }
]


@pytest.mark.parametrize(
    ("language", "reason"),
    [
        (
            Language.EN,
            f"container 'main', {LIMITS}: found 150, expected up to 100, or a multiple of it (cores)",
        ),
        (Language("zh"), f"容器 'main'，{LIMITS}：当前为 150，要求 不超过 100，或为 100 的整数倍（核心数）"),
    ],
)
def test_a_violated_validation_is_reported_with_the_message_of_the_rule(
    language: Language, reason: str
) -> None:
    """In the language of the cluster."""
    rule = resource_rule(validations=VALIDATIONS, descriptionEn="cores", descriptionZh="核心数")
    answer = decision(policy(rule), pod(container({DEVICE: "150"})))

    assert [(reason, "")] == [
        (violation.reason.in_language(language), violation.fix.en) for violation in answer.violations
    ]


@pytest.mark.parametrize(
    ("expression", "fields", "denied"),
    [
        ("pod.nodeName == ''", {}, False),
        ("pod.nodeName == ''", {"nodeName": "a"}, True),
        ("pod.schedulerName == 'default-scheduler'", {}, False),
        ("pod.schedulerName == 'default-scheduler'", {"schedulerName": "x"}, True),
        (
            "pod.labels['app'] == 'a' && pod.namespace != ''",
            {"metadata": {"labels": {"app": "a"}}},
            False,
        ),
        ("!('A' in container.env) || int(container.env['A']) <= value", {}, True),
    ],
)
def test_a_validation_can_name_the_pod_and_the_variables_of_the_container(
    expression: str, fields: dict[str, Any], denied: bool
) -> None:
    """The pod as the API server will have it."""
    rules = policy(resource_rule(validations=[{"expression": expression}]))
    document = pod(container({DEVICE: "7"}, env=[{"name": "A", "value": "8"}]), **fields)

    assert [LIMITS] * denied == refused_at(decision(rules, document))


def test_a_pod_that_a_scheduler_has_bound_names_no_node() -> None:
    """An audit reads pods that run."""
    rules = policy(resource_rule(validations=[{"expression": "pod.nodeName == ''"}]))
    document = pod(container({DEVICE: "7"}), nodeName="a") | {
        "status": {"conditions": [{"type": "PodScheduled", "status": "True"}]}
    }

    assert [] == refused_at(decision(rules, document))


@pytest.mark.parametrize(("language", "fix"), [(Language.EN, "remove {it}"), (Language("zh"), "请删除 {it}")])
def test_a_violated_validation_has_the_fix_of_the_rule(language: Language, fix: str) -> None:
    """As it is written, in the language of the cluster."""
    validation = {"expression": "value < 5", "fixEn": "remove {it}", "fixZh": "请删除 {it}"}
    answer = decision(
        policy(resource_rule(validations=[validation]), language=language), pod(container({DEVICE: "7"}))
    )

    assert [fix] == [violation.fix.in_language(language) for violation in answer.violations]


@pytest.mark.parametrize(("value", "denied"), [("100", False), ("101", True), ("300", False), ("3e2", False)])
def test_a_validation_is_of_the_number(value: str, denied: bool) -> None:
    """`3e2` is 300."""
    answer = decision(policy(resource_rule(validations=VALIDATIONS)), pod(container({DEVICE: value})))

    assert [LIMITS] * denied == refused_at(answer)


@pytest.mark.parametrize(
    ("expression", "fix"),
    [
        ("value < 5", ""),
        (f"value < 5 || '{OTHER}' in limits", ""),
        (f"'{OTHER}' in limits", f"change the other resource it depends on, or remove {LIMITS}"),
    ],
)
def test_a_validation_without_a_message_shows_its_expression_and_a_fix(expression: str, fix: str) -> None:
    """The fix names what the expression depends on; of a value alone, the expression says it all."""
    answer = decision(
        policy(resource_rule(validations=[{"expression": expression}])), pod(container({DEVICE: "7"}))
    )

    assert [(f"container 'main', {LIMITS}: found 7, expected {expression}", fix)] == [
        (violation.reason.en, violation.fix.en) for violation in answer.violations
    ]


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
def test_a_validation_may_name_the_fields_of_the_container(expression: str) -> None:
    """Its limits and requests, its name and image; an absent request is the limit."""
    limits = {DEVICE: "2", OTHER: "1", "cpu": "500m", "memory": "8Gi", "odd": "x"}
    rule = resource_rule(validations=[{"expression": expression}])

    assert [LIMITS] == refused_at(decision(policy(rule), pod(container(limits))))


def test_a_validation_of_a_variable_names_its_value_and_place() -> None:
    """Of several variables of one name, those of the last, which counts."""
    validation = {
        "expression": "!('PERCENT' in container.env) || int(container.env['PERCENT']) <= value",
        "messageEn": "at most value",
        "variable": "PERCENT",
    }
    env = [{"name": "PERCENT", "value": "10"}, {"name": "PERCENT", "value": "150"}]
    rule = resource_rule(validations=[validation])
    answer = decision(policy(rule), pod(container({DEVICE: "50"}, env=env)))
    path = "spec.containers[0].env[1].value"
    reason = f"container 'main', {path}: found PERCENT=150, expected at most value"

    assert [(path, reason, "change PERCENT, or remove it")] == [
        (violation.path, violation.reason.en, violation.fix.en) for violation in answer.violations
    ]


def test_a_variable_that_the_container_does_not_have_leaves_the_quantity() -> None:
    """There is no other place."""
    validation = {"expression": "'PERCENT' in container.env", "variable": "PERCENT"}
    answer = decision(policy(resource_rule(validations=[validation])), pod(container({DEVICE: "50"})))

    assert [LIMITS] == refused_at(answer)


NOT_EVALUATED = [
    ("100 % (value - 3) == 0", "modulo by zero in CEL expression"),
    ("limits['absent.com/x'] > value", "no such key: 'absent.com/x'"),
]


@pytest.mark.parametrize(("expression", "error"), NOT_EVALUATED)
@pytest.mark.parametrize("data", [{}, {"failurePolicy": "Fail"}])
def test_a_validation_that_cannot_be_evaluated_is_a_violation(
    data: dict[str, Any], expression: str, error: str
) -> None:
    """By default, and with `failurePolicy: Fail`: nothing in a pod can disable a validation."""
    rule = resource_rule(validations=[{"expression": expression}], **data)
    answer = decision(policy(rule), pod(container({DEVICE: "3"})))
    expected = f"expected a value for which {expression} can be evaluated, but: {error}"
    reason = f"container 'main', {LIMITS}: found 3, {expected}"

    assert (False, ()) == (answer.allowed, warning_texts(answer))
    assert [(LIMITS, reason, "the rule is at fault: ask its owner to fix the expression")] == [
        (violation.path, violation.reason.en, violation.fix.en) for violation in answer.violations
    ]


@pytest.mark.parametrize(("expression", "error"), NOT_EVALUATED)
def test_with_failure_policy_ignore_a_validation_that_cannot_be_evaluated_is_a_warning(
    expression: str, error: str
) -> None:
    """The pod is admitted."""
    rule = resource_rule(validations=[{"expression": expression}], failurePolicy="Ignore")
    answer = decision(policy(rule), pod(container({DEVICE: "3"})))
    line = (
        f"gpugate: container 'main': {expression} could not be evaluated for vendor.com/device and was"
        f" skipped: {error}; the rule is at fault: ask its owner to fix the expression"
        " [rule cf-crl-group-device]"
    )

    assert (True, (), (line,)) == (answer.allowed, answer.violations, warning_texts(answer))


@pytest.mark.parametrize("failure_policy", ["Fail", "Ignore"])
def test_the_other_validations_of_a_rule_are_evaluated_after_a_failed_one(failure_policy: str) -> None:
    """One broken expression does not disable a rule."""
    rule = resource_rule(
        validations=[{"expression": "1 / (value - 3) > 0"}, {"expression": "value > 3"}],
        failurePolicy=failure_policy,
    )
    answer = decision(policy(rule), pod(container({DEVICE: "3"})))
    ignored = failure_policy == "Ignore"

    assert ([LIMITS] * (2 - ignored), ignored) == (refused_at(answer), len(warning_texts(answer)))


@pytest.mark.parametrize(("enforcement", "allowed"), [("deny", False), ("warn", True), ("dryrun", True)])
def test_a_validation_that_cannot_be_evaluated_has_its_own_enforcement_action(
    enforcement: str, allowed: bool
) -> None:
    """As if it were evaluated and violated."""
    validation = {"expression": "1 / (value - 3) > 0", "enforcementAction": enforcement}
    answer = decision(policy(resource_rule(validations=[validation])), pod(container({DEVICE: "3"})))

    assert (allowed, [Action(enforcement)]) == (
        answer.allowed,
        [violation.action for violation in answer.violations],
    )


@pytest.mark.parametrize(
    ("data", "value", "fix"),
    [
        ({"resourceUnit": "256Mi"}, "8Gi", "use 32: 8Gi is 32 units of 256Mi"),
        ({"unit": "256Mi"}, "8Gi", "use 32: 8Gi is 32 units of 256Mi"),
        ({"unit": "256Mi", "resourceUnit": "blocks"}, "8Gi", "use 32: 8Gi is 32 units of 256Mi"),
        ({"unit": "1Gi", "resourceUnit": "256Mi"}, "8Gi", "use 8: 8Gi is 8 units of 1Gi"),
        ({"unit": "10m"}, "0.5", "use 50: 0.5 is 50 units of 10m"),
        ({"unit": "10m"}, "500m", "use 50: 500m is 50 units of 10m"),
        # no unit
        ({}, "8Gi", ""),
        ({"resourceUnit": "blocks"}, "8Gi", ""),
        ({"resourceUnit": "0"}, "8Gi", ""),
        ({}, "0.5", "use a whole number"),
        # not a whole number of units, or one that violates the rule
        ({"unit": "256Mi"}, "300Mi", ""),
        ({"unit": "1Mi"}, "8Gi", ""),
        ({"unit": "1"}, "1000", ""),
        ({"unit": "10m"}, "0.005", "use a whole number"),
        # less than nothing
        ({"unit": "256Mi"}, "-8Gi", "use a positive number, or remove it"),
        # a number of units already
        ({"unit": "1Ki"}, "65536", ""),
    ],
)
def test_a_value_is_suggested_in_the_unit_of_the_resource(data: dict[str, Any], value: str, fix: str) -> None:
    """If the unit is a quantity, and the suggested value satisfies the rule."""
    rule = resource_rule(validations=[{"expression": "value <= 64"}], **data)
    answer = decision(policy(rule), pod(container({DEVICE: value})))

    assert [fix] == [violation.fix.en for violation in answer.violations]


def test_no_value_is_suggested_if_a_validation_of_it_cannot_be_evaluated() -> None:
    """It may violate the rule."""
    validations = [{"expression": "value <= 64"}, {"expression": "1 / (value - 32) >= 0"}]
    rule = resource_rule(validations=validations, unit="256Mi")
    answer = decision(policy(rule), pod(container({DEVICE: "8Gi"})))

    assert [""] == [violation.fix.en for violation in answer.violations]


def test_a_suggested_value_satisfies_the_rule() -> None:
    """A pod with it is allowed."""
    compiled = policy(resource_rule(validations=[{"expression": "value <= 64"}], unit="256Mi"))

    assert decision(compiled, pod(container({DEVICE: "32"}))).allowed


@pytest.mark.parametrize(
    ("enforcement", "allowed", "warned", "audit"),
    [
        ("deny", False, False, "violations"),
        ("warn", True, True, "violations"),
        ("dryrun", True, False, "dryrun"),
    ],
)
def test_the_effect_of_a_violation_is_the_enforcement_action_of_the_rule(
    enforcement: str, allowed: bool, warned: bool, audit: str
) -> None:
    """Deny, warn, or only add it to the audit event."""
    rule = resource_rule(limits="disabled", enforcementAction=enforcement)
    answer = decision(policy(rule), pod(container({DEVICE: "1"})))
    line = (
        f"gpugate: container 'main', {LIMITS}: found 1, expected no limit of {DEVICE}; remove {LIMITS}"
        " [rule cf-crl-group-device]"
    )

    recorded = f"cf-crl-group-device (policy): {LIMITS}"
    assert (allowed, (line,) * warned, recorded, [Action(enforcement)]) == (
        answer.allowed,
        warning_texts(answer),
        answer.audit[audit],
        [violation.action for violation in answer.violations],
    )


GLOB = "vendor.com/mig-*"


@pytest.mark.parametrize(
    ("limits", "requests", "places"),
    [
        ({"vendor.com/mig-1g": "1"}, {"vendor.com/mig-1g": "1"}, []),
        ({"vendor.com/mig-1g": "1", "vendor.com/mig-2g": "0.5"}, {}, ["limits[vendor.com/mig-2g]"]),
        ({"vendor.com/mig-1g": "1", "vendor.com/gpu": "2"}, {}, []),
        ({"vendor.com/mig-1g": "1"}, {"vendor.com/mig-1g": "2"}, ["requests[vendor.com/mig-1g]"]),
        ({}, {"vendor.com/mig-2g": "1"}, ["requests[vendor.com/mig-2g]"]),
        ({"other.com/mig-1g": "2"}, {}, []),
    ],
)
def test_a_rule_with_a_glob_applies_to_each_name_that_it_matches(
    limits: dict[str, str], requests: dict[str, str], places: list[str]
) -> None:
    """One rule for resources whose names carry a profile."""
    answer = decision(policy(resource_rule(GLOB)), pod(container(limits, requests)))

    assert [f"spec.containers[0].resources.{place}" for place in places] == refused_at(answer)


def test_a_rule_with_a_glob_sets_the_request_of_each_name_from_its_limit() -> None:
    """It has no default, but it may have `requests: fromLimits`."""
    document = pod(
        container({"vendor.com/mig-1g": "1", "vendor.com/mig-2g": "2"}, {"vendor.com/mig-2g": "1"})
    )
    answer = decision(policy(resource_rule(GLOB, requests="fromLimits")), document)

    assert {"vendor.com/mig-1g": "1", "vendor.com/mig-2g": "2"} == (
        patched(document, answer)["spec"]["containers"][0]["resources"]["requests"]
    )
    assert "main: requests vendor.com/mig-1g; main: requests vendor.com/mig-2g" == answer.audit["defaulted"]


@pytest.mark.parametrize(
    ("existing", "stored"), [(None, "vendor"), ("", "vendor"), ("vendor", "vendor"), ("kata", "kata")]
)
def test_the_runtime_class_of_a_rule_is_set_in_pods_without_one(existing: str | None, stored: str) -> None:
    """A value of the user is never replaced."""
    spec: dict[str, Any] = {} if existing is None else {"runtimeClassName": existing}
    rule = resource_rule(runtimeClassName="vendor")

    assert stored == admitted(policy(rule), pod(**spec))["spec"]["runtimeClassName"]


@pytest.mark.parametrize(("limits", "runs"), [({OTHER: "1"}, False), ({DEVICE: "1"}, True)])
def test_the_runtime_class_of_a_rule_is_set_in_pods_that_request_its_key(
    limits: dict[str, str], runs: bool
) -> None:
    """Another resource of the group is not enough."""
    stored = admitted(policy(*_texts(runtimeClassName="vendor")), pod(container(limits)))

    assert runs == ("runtimeClassName" in stored["spec"])


def test_the_runtime_class_of_a_rule_with_a_glob_is_set_in_pods_that_request_a_match() -> None:
    """A profile is a part of the name."""
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
            f"{LIMITS}: found nothing, expected a quantity of {DEVICE}; set {LIMITS}",
        ),
        (
            {"limits": "disabled"},
            {DEVICE: "3"},
            {},
            f"{LIMITS}: found 3, expected no limit of {DEVICE}; remove {LIMITS}",
        ),
        (
            {"requests": "required"},
            {OTHER: "1"},
            {},
            f"{REQUESTS}: found nothing, expected a quantity of {DEVICE}; set {REQUESTS}",
        ),
        (
            {"requests": "disabled"},
            {DEVICE: "3"},
            {DEVICE: "2"},
            (
                f"{REQUESTS}: found 2, expected a request equal to the limit, 3; remove {REQUESTS},"
                " or set it to the limit"
            ),
        ),
        (
            {"requests": "disabled"},
            {},
            {DEVICE: "2"},
            (
                f"{REQUESTS}: found 2 and no limit, expected a limit, which the request follows;"
                f" move it to limits: set {LIMITS}"
            ),
        ),
        (
            {"requests": "disabled", "limits": "disabled"},
            {},
            {DEVICE: "2"},
            f"{REQUESTS}: found 2 and no limit, expected no request of {DEVICE}; remove {REQUESTS}",
        ),
        (
            {"requests": "fromLimits"},
            {},
            {DEVICE: "2"},
            (
                f"{REQUESTS}: found 2 and no limit, expected a limit, which the request follows;"
                f" move it to limits: set {LIMITS}"
            ),
        ),
    ],
)
def test_a_violation_has_found_expected_and_fix(
    data: dict[str, str], limits: dict[str, str], requests: dict[str, str], message: str
) -> None:
    """On one line, after container and path."""
    answer = decision(policy(*_texts(**data)), pod(container(limits, requests)))

    assert [f"container 'main', {message}"] == [violation.message.en for violation in answer.violations]


def test_all_violations_of_all_containers_are_reported_at_once() -> None:
    """The user corrects them in one step."""
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


def test_a_violation_names_its_own_container_and_path() -> None:
    """Even if another container has the same resources."""
    rules = policy(resource_rule(validations=[{"expression": "value <= 2", "messageEn": "two"}]))
    containers = [container({DEVICE: "3"}, name=name) for name in ("a", "b", "a")]
    violations = [
        decision(rules, pod(containers[0], *containers[1:at])).violations[-1] for at in (1, 2, 3, 1)
    ]

    assert [f"spec.containers[{at}].resources.limits[{DEVICE}]" for at in (0, 1, 2, 0)] == [
        violation.path for violation in violations
    ]
    assert ["'a'", "'b'", "'a'", "'a'"] == [
        violation.message.en.split()[1].rstrip(",") for violation in violations
    ]


def test_a_validation_of_the_image_is_evaluated_for_each_image() -> None:
    """Even if nothing else differs."""
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
def test_a_quantity_is_not_confused_with_an_equal_value_of_another_type(
    quantities: tuple[Any, ...], allowed: list[bool]
) -> None:
    """In Python True equals 1; the API server rejects both a boolean and a list."""
    rules = policy(resource_rule())

    assert allowed == [decision(rules, pod(container({DEVICE: quantity}))).allowed for quantity in quantities]


def test_a_changed_or_exempted_rule_changes_the_decision_on_the_same_container() -> None:
    """No result of another policy or namespace is used."""
    rule = resource_rule(validations=[{"expression": "value <= 2"}])
    wider = resource_rule(validations=[{"expression": "value <= 3"}])
    exempting = policy(rule, exemption("cf-crl-group-device", namespaces={"include": ["exempt"]}))
    reviews = [(policy(rule), "team"), (policy(wider), "team")]
    reviews += [(exempting, namespace) for namespace in ("team", "exempt", "team")]

    assert [False, True, False, True, False] == [
        decision(rules, pod(container({DEVICE: "3"})), 0.0, namespace=namespace).allowed
        for rules, namespace in reviews
    ]


@pytest.mark.parametrize(
    ("limits", "found"),
    [({OTHER: "2"}, "found 20 (the default of the rule)"), ({OTHER: "2", DEVICE: "30"}, "found 30,")],
)
def test_a_violation_by_the_default_says_where_the_value_comes_from(
    limits: dict[str, str], found: str
) -> None:
    """The user may not have written it."""
    validations = [{"expression": f"value <= limits['{OTHER}']"}]
    rules = policy(resource_rule(defaultValue="20", validations=validations), resource_rule(OTHER))

    assert found in decision(rules, pod(container(limits))).denial.en


@pytest.mark.parametrize("requests", ["fromLimits", "required", "disabled"])
def test_no_default_is_set_where_the_user_wrote_a_request(requests: str) -> None:
    """The API server rejects it, and the limit to write is the user's own, not the default."""
    rules = policy(*_texts(limits="optional", requests=requests, defaultValue="20"))
    answer = decision(rules, _asking(None, "50"))

    assert [REQUESTS] == refused_at(answer)
    assert "found 50 and no limit" in answer.denial.en
    assert f"move it to limits: set {LIMITS}" in answer.denial.en
    assert "20" not in answer.denial.en


def test_a_value_that_the_user_wrote_is_not_said_to_be_the_default() -> None:
    """Although it is the same number."""
    rule = resource_rule(defaultValue="20", validations=[{"expression": "value < 20"}])
    answer = decision(policy(rule), pod(container({DEVICE: "20"})))

    assert "found 20, expected value < 20" in answer.denial.en


@pytest.mark.parametrize(
    ("limits", "requests", "action", "expected"),
    [
        ({DEVICE: "0.5"}, {}, "deny", [("cf-crl-group-device", Basis.FACT)]),
        ({DEVICE: "3"}, {DEVICE: "2"}, "deny", [("cf-crl-group-device", Basis.FACT)]),
        ({DEVICE: "0.5"}, {}, "warn", [("cf-crl-group-device", Basis.POLICY), (API_SERVER_RULE, Basis.FACT)]),
    ],
)
def test_what_a_rule_denies_and_the_api_server_rejects_too_is_a_fact(
    limits: dict[str, str], requests: dict[str, str], action: str, expected: list[tuple[str, Basis]]
) -> None:
    """No setting of the rule admits it; a rule that only warns leaves the denial to the API server's own."""
    answer = decision(
        policy(resource_rule(enforcementAction=action)),
        pod(container(limits, requests)),
    )

    assert expected == [(violation.rule, violation.basis) for violation in answer.violations]


def test_another_violation_at_the_same_place_stays_one_of_policy() -> None:
    """The API server rejects the fraction, not the size."""
    rules = policy(resource_rule(dataType="float", validations=[{"expression": "value <= 2"}]))
    answer = decision(rules, pod(container({DEVICE: "4.5"})))

    assert [Basis.POLICY] == [violation.basis for violation in answer.violations]


@pytest.mark.parametrize(
    ("limits", "requests", "faults"),
    [
        ({"a.com/x": "3"}, {"a.com/x": "2"}, [("requests[a.com/x]", "a request equal to the limit, 3")]),
        ({}, {"a.com/x": "2"}, [("requests[a.com/x]", "a limit, which the request follows")]),
        ({"a.com/x": "0.5"}, {"a.com/x": "500m"}, [("limits[a.com/x]", "a whole number")]),
        ({"a.com/x": "-1"}, {}, [("limits[a.com/x]", "zero or more")]),
        ({}, {"a.com/x": "0"}, [("requests[a.com/x]", "a limit, which the request follows")]),
        ({"a.com/x": "1"}, {"a.com/x": "1000m"}, []),
        ({"a.com/x": "1", "a.com/y": " 1 "}, {"a.com/x": " 1", "a.com/y": "1"}, []),
        (
            {"a.com/x": "one"},
            {"a.com/x": "two"},
            [("requests[a.com/x]", "a request equal to the limit, one")],
        ),
        # no extended resources: other rules of the API server
        ({"a.kubernetes.io/x": "0.5", "cpu": "2"}, {"a.kubernetes.io/x": "0.2", "cpu": "1"}, []),
        ({"requests.a.com/x": "0.5"}, {}, []),
    ],
)
def test_what_the_api_server_rejects_of_extended_resources_is_denied_without_a_rule(
    limits: dict[str, str], requests: dict[str, str], faults: list[tuple[str, str]]
) -> None:
    """As a fact, with its own rule named."""
    answer = decision(policy(), pod(container(limits, requests)))

    assert [(f"spec.containers[0].resources.{place}", text) for place, text in faults] == [
        (violation.path, violation.reason.en.partition("expected ")[2].partition(" (the API server")[0])
        for violation in answer.violations
    ]
    assert {(API_SERVER_RULE, Action.DENY, Basis.FACT)} >= {
        (violation.rule, violation.action, violation.basis) for violation in answer.violations
    }
    assert len(faults) == answer.denial.en.count("the API server accepts nothing else of extended resources")


@pytest.mark.parametrize("containers", [[], [container({})]], ids=["with a user", "without"])
def test_an_extended_resource_in_the_resources_of_the_pod_itself_is_a_warning(containers: list[Any]) -> None:
    """The API server rejects it, or without its feature gate ignores it: then the pod runs."""
    resources = {"limits": {"cpu": "2", "hugepages-2Mi": "4Mi", DEVICE: "2"}, "requests": {"memory": "1Gi"}}
    misplaced = pod(*containers, resources=resources)
    template = {"spec": misplaced["spec"]}
    workload = {"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"template": template}}

    for document, path in ((misplaced, "spec"), (workload, "spec.template.spec")):
        answer = decision(policy(), document)
        (finding,) = answer.notices
        assert answer.allowed
        assert (API_SERVER_RULE, f"{path}.resources.limits[{DEVICE}]") == (finding.rule, finding.path)
        assert Certainty.LIKELY is finding.certainty
        assert (
            f"{path}.resources.limits[{DEVICE}]: the API server accepts only cpu, memory and hugepages-* in "
            f"resources of a pod, or ignores the field; request {DEVICE} in resources of a container instead"
        ) == finding.message.en
    assert not decision(policy(), pod(*containers, resources={"limits": {"cpu": "2"}})).notices


def test_a_custom_resource_whose_controller_may_add_limits_may_have_a_request_alone() -> None:
    """The API server does not look into it."""
    predictor = {"model": {"modelFormat": {"name": "m"}, "resources": {"requests": {"a.com/x": "1"}}}}
    document = {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {"name": "m"},
    }

    assert decision(policy(), document | {"spec": {"predictor": predictor}}).allowed


def test_the_fix_of_a_fraction_names_the_resources_that_share_gpus_on_the_nodes() -> None:
    """Those of the same vendor that some node has; without any only the number."""
    gpus = {"nvidia.com/gpu": "1", "amd.com/gpu": "1", "tencent.com/vcuda-core": "100", "amd.com/gpu-x": "1"}
    node = {"kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": gpus}}
    half = pod(container({"nvidia.com/gpu": "0.5"}))
    for texts in ((), (resource_rule("nvidia.com/gpu"),)):
        answer = decide(Snapshot(policy(*texts), inventory_of([node])), request(half))
        assert (
            "use a whole number, or a resource that shares GPUs: tencent.com/vcuda-core [" in answer.denial.en
        )
        assert "; use a whole number [" in decision(policy(*texts), half).denial.en


@pytest.mark.parametrize("quantity", [[1], {"a": 1}, 1.5])
def test_a_violation_of_any_value_can_be_compared_and_hashed(quantity: Any) -> None:
    """The warning of one is listed once."""
    rule = resource_rule(enforcementAction="warn")
    one, two = (decision(policy(rule), pod(container({DEVICE: quantity}))) for _ in range(2))

    assert set(one.violations) == set(two.violations)
    assert warning_texts(one) == warning_texts(two)
