"""Compatibility rules in the pipeline: when they apply, and the messages of denials and warnings."""

from __future__ import annotations

import math
from typing import Any

import pytest

from rules.cuda.tables import BUILT_IN, OLD_S, looked_up
from rules.decision.pipeline import Snapshot, decide
from rules.model.decision import Decision
from rules.nodes.inventory import Inventory
from tests.support.builders import DEVICE, container, pod, policy, request, resource_rule, warning_texts
from tests.support.node_builders import (
    compatibility_rule,
    cuda_image,
    gpu_container,
    inventory,
    judged,
    nodes,
    plain,
)

BROKEN, FALSE = "limits['a.com/x'] > 1", "1 == 2"


def _cluster(*counts: int) -> Inventory:
    """Return kinds of nodes with CUDA 11.7, each with this number of nodes."""
    groups = ((count, f"Card-{at}") for at, count in enumerate(counts))
    return inventory(
        *(nodes(count, name, plain("11.7") | {"nvidia.com/gpu.product": name}) for count, name in groups)
    )


def _decided(images: dict[str, str], **rule: Any) -> Decision:
    """Return the decision on a pod with an image per container, of which no node has the CUDA version."""
    containers = [gpu_container(cuda_image(cuda), name=name) for name, cuda in images.items()]
    compiled = policy(compatibility_rule(**rule))
    return judged(compiled, _cluster(4, 3, 2, 1, 1), pod(*containers))


FIX = "suggested fixes: use an image with CUDA 11.7 or older, or a driver with CUDA 13.0 or newer"


def test_the_first_line_of_a_denial_has_reason_fix_and_rule_and_the_table_follows() -> None:
    """Containers with equal requirements share a violation; a table has three rows at most."""
    decision = _decided({"a": "13.0", "b": "13.0"})

    assert ["spec.containers[0].image"] == [violation.path for violation in decision.violations]
    assert [
        (
            "Pod denied by gpugate: no schedulable node is compatible with containers 'a', 'b'"
            " (11 nodes checked): image tag `cuda13.0`, base unknown, says CUDA 13.0; the driver has"
            " CUDA 11.7, below 13.0; cuda-compat of CUDA 13.0 does not support driver branch 515;"
            f" {FIX} [rule compatibility]"
        ),
        "    nodes  GPU     driver  CUDA  compute  reason",
        *(
            f"    {count}      Card-{at}  ?       11.7  ?        the driver has CUDA 11.7, below 13.0;"
            " cuda-compat of CUDA 13.0 does not support driver branch 515"
            for at, count in enumerate((4, 3, 2))
        ),
        "    … and 2 more",
    ] == decision.denial.en.splitlines()


@pytest.mark.parametrize(
    ("images", "containers"),
    [
        ({"a": "13.0"}, "container 'a' (11"),
        ({"a": "13.0", "b": "11.4"}, "container 'a' (11"),
        ({"a": "13.0", "b": "12.8"}, "containers 'a', 'b' together (11"),
        (dict.fromkeys("abcde", "13.0"), "containers 'a', 'b', 'c', … and 2 more (11"),
    ],
)
def test_a_denial_names_the_containers_that_are_not_compatible(
    images: dict[str, str], containers: str
) -> None:
    """At most three of them."""
    decision = _decided(images)

    assert 1 == len(decision.violations)
    assert decision.denial.en.startswith(
        f"Pod denied by gpugate: no schedulable node is compatible with {containers} nodes checked): "
    )


def test_a_warning_that_no_node_is_compatible_is_one_line_with_fix_and_rule() -> None:
    """At most 256 characters, without a table."""
    decision = _decided(dict.fromkeys("abcde", "13.0"), noFittingNode="warn")
    (line,) = warning_texts(decision)

    assert (True, True, 1) == (decision.allowed, len(line) <= 256, len(line.splitlines()))
    assert line.startswith("gpugate: ")
    assert line.endswith(f"…; {FIX} [rule compatibility]")


def test_a_rule_whose_condition_cannot_be_evaluated_applies() -> None:
    """With a warning: nothing in a pod can disable a compatibility rule."""
    decision = _decided({"a": "13.0"}, match={"conditions": [BROKEN]})
    line = (
        "gpugate: container 'a': a condition of the rule could not be evaluated, so the rule applies:"
        " no such key: 'a.com/x'; the rule is at fault: ask its owner to fix the expression"
        " [rule compatibility]"
    )

    assert (False, ("compatibility",), (line,)) == (decision.allowed, decision.rules, warning_texts(decision))


@pytest.mark.parametrize("conditions", [[BROKEN, FALSE], [FALSE, BROKEN]])
def test_a_rule_with_a_false_condition_does_not_apply(conditions: list[str]) -> None:
    """Even if another condition cannot be evaluated."""
    decision = _decided({"a": "13.0"}, match={"conditions": conditions})

    assert (True, (), ()) == (decision.allowed, decision.rules, warning_texts(decision))


@pytest.mark.parametrize(("age_s", "is_said"), [(OLD_S, False), (OLD_S + 1, True), (math.inf, False)])
def test_a_denial_that_rests_on_old_facts_says_so_once_in_its_last_line(age_s: float, is_said: bool) -> None:
    """Without a time, no facts are old."""
    template = pod(
        *(gpu_container(cuda_image(cuda), name=name) for name, cuda in [("a", "13.0"), ("b", "12.8")])
    )
    tasks = [{"template": template}, {"template": template}]
    job = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "spec": {"tasks": tasks}}
    snapshot = Snapshot(policy(compatibility_rule()), _cluster(1))
    old = f"the facts about CUDA, drivers and GPUs are of {BUILT_IN.date}; newer ones may give another result"
    for document in (template, job):
        lines = decide(snapshot, request(document), looked_up(BUILT_IN) + age_s).denial.en.splitlines()

        assert [False] * (len(lines) - 1) + [is_said] == [line.startswith(old) for line in lines]


@pytest.mark.parametrize(("limits", "amount"), [("disabled", "1"), ("optional", "0.5")])
def test_a_denial_by_a_rule_or_the_api_server_does_not_name_old_facts(limits: str, amount: str) -> None:
    snapshot = Snapshot(policy(resource_rule(limits=limits)), _cluster(1))
    denied = decide(snapshot, request(pod(container({DEVICE: amount}))), looked_up(BUILT_IN) + 2 * OLD_S)

    assert not denied.allowed
    assert "the facts about" not in denied.denial.en
