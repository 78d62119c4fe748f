"""Messages about nodes: suggested fixes in order, names of containers, texts as they are written."""

from __future__ import annotations

import pytest

from rules.compatibility.report import MessageWriter
from rules.compatibility.result import NodeClassResult, NodeSetResult, RuleRequirement
from rules.cuda.requirements import GpuRequirements
from rules.kube.pod import Pod
from rules.model.check_result import CheckResult, Level
from rules.model.rule import Action
from rules.nodes.node_capabilities import NodeCapabilities
from rules.text.i18n import Text
from tests.support.builders import (
    DEVICE,
    container,
    decision,
    loaded,
    pod,
    policy,
    resource_rule,
    warning_texts,
)
from tests.support.node_builders import (
    compatibility_rule,
    cuda_image,
    decided,
    gfd,
    gpu_container,
    inventory,
    judged,
    nodes,
)

OLD = nodes(1, "old", gfd("11.4"))


def result(origin: str, remedy: str) -> CheckResult:
    """Return a result that excludes a node."""
    return CheckResult(Level.INCOMPATIBLE, Text("why"), Text(remedy), origin=Text(origin))


def test_of_several_fixes_for_one_requirement_the_one_for_the_newest_driver_is_suggested() -> None:
    """In the place of the first; among nodes of equal drivers the last one counts."""
    (rule,) = loaded(compatibility_rule()).rules.compatibility
    required = RuleRequirement(rule, GpuRequirements())
    both = result("a flag", "drop the flag"), result("an image", "take that one")
    one = (result("an image", "take this one"),)
    classes = tuple(
        NodeClassResult(NodeCapabilities(cuda=(11, 4)), 1 << at, Level.INCOMPATIBLE, ((required, results),))
        for at, results in enumerate((both, one, both))
    )
    writer = MessageWriter()
    (main,) = Pod(document := pod(container({})), document).containers
    writer.containers = {required: [main]}
    fixes = [
        writer.none_fits(rule, NodeSetResult(required, Action.DENY, some)).fix.en
        for some in (classes, classes[:2])
    ]

    assert [
        "suggested fixes: drop the flag; take that one",
        "suggested fixes: drop the flag; take this one",
    ] == fixes


@pytest.mark.parametrize("name", ["null-x", "⟪0⟫", "{0}", "{name}", "%s", "a, b"])
def test_the_name_of_a_container_changes_nothing_in_a_denial_but_the_name(name: str) -> None:
    """No name has a meaning of its own."""
    plain, odd = (decided(OLD, pod(gpu_container(cuda_image("12.4"), name=own))) for own in ("main", name))

    assert not odd.allowed
    assert plain.denial.en.replace("'main'", repr(name)) == odd.denial.en


@pytest.mark.parametrize("text", ["⟪0⟫", "{value}", "{0}", "{", "%s"])
def test_the_text_of_a_rule_stays_as_it_is(text: str) -> None:
    """In a message about a value, and in a warning."""
    for action in ("deny", "warn"):
        rules = policy(
            resource_rule(
                validations=[{"expression": "value > 1", "messageEn": f"more than {text}"}],
                enforcementAction=action,
            )
        )
        answer = decision(rules, pod(container({DEVICE: "1"})))
        assert f"expected more than {text} [rule" in "\n".join([answer.denial.en, *warning_texts(answer)])


def test_containers_with_equal_requirements_are_named_together() -> None:
    """Those with different requirements are named with their reasons."""
    rules, cluster = policy(compatibility_rule()), inventory(OLD)
    image = cuda_image("12.4")
    pods = [
        [("a", image)],
        [("a", image), ("b", image)],
        [("a", image), ("b", cuda_image("12.6"))],
    ]
    messages = [
        judged(
            rules, cluster, pod(*[gpu_container(image, name=name) for name, image in pod_object])
        ).denial.en
        for pod_object in pods
    ]

    assert ["container 'a'", "containers 'a', 'b'", "containers 'a', 'b' together"] == [
        message.partition("compatible with ")[2].partition(" (1 node")[0] for message in messages
    ]
    assert [False, False, True] == ["container 'b': the driver" in message for message in messages]
