"""Declarations of a pod that replace what is known of its images: visible, and forbidden by a rule."""

from __future__ import annotations

from typing import Any

import pytest

from rules.decision.policy import compile_policy
from rules.model.finding import Basis
from rules.schema.loader import load_rules
from tests.support.builders import warning_texts
from tests.support.node_builders import (
    A100,
    COMPAT,
    CUDA,
    annotated,
    compatibility_rule,
    gfd,
    gpu_pod,
    inventory,
    judged,
    node,
    shipped,
)

CLUSTER = inventory(node("new", gfd("12.4", A100)))


def with_variable(name: str, value: str) -> Any:
    """Return a pod of an unknown image with a variable."""
    document = gpu_pod("team/app:v1")
    document["spec"]["containers"][0]["env"] = [{"name": name, "value": value}]
    return document


@pytest.mark.parametrize(
    ("document", "declared"),
    [
        (annotated({CUDA: "12.2"}), (CUDA,)),
        (annotated({CUDA: "12.2", COMPAT: "true"}), (CUDA, COMPAT)),
        (with_variable("CUDA_VERSION", "12.2.2"), ("CUDA_VERSION",)),
        (with_variable("NVIDIA_REQUIRE_CUDA", "cuda>=12.0"), ()),
        (gpu_pod("nvidia/cuda:12.2.2-base-ubuntu22.04"), ()),
    ],
)
def test_the_audit_annotation_and_the_decision_name_the_source_of_a_declaration(
    document: Any, declared: tuple[str, ...]
) -> None:
    """A variable NVIDIA_REQUIRE_* is no declaration: the container runtime reads it."""
    decision = judged(shipped(), CLUSTER, document)

    assert decision.allowed
    assert declared == decision.declared
    expected = f"main ({', '.join(declared)})" if declared else None
    assert expected == decision.audit.get("declared")


@pytest.mark.parametrize(
    ("setting", "allowed", "warnings", "violations"),
    [("allow", True, 0, 0), ("warn", True, 1, 1), ("deny", False, 0, 1)],
)
def test_a_rule_allows_warns_of_or_denies_declarations(
    setting: str, allowed: bool, warnings: int, violations: int
) -> None:
    """With the place, the fix, and the key that changes it."""
    policy = compile_policy(load_rules([("r.yaml", compatibility_rule(declarations=setting))]).rules)
    decision = judged(policy, CLUSTER, annotated({CUDA: "12.2"}))

    assert (allowed, warnings, violations) == (
        decision.allowed,
        len(warning_texts(decision)),
        len(decision.violations),
    )
    for violation in decision.violations:
        assert (f"metadata.annotations[{CUDA}]", Basis.POLICY) == (violation.path, violation.basis)
        assert f"container 'main': {CUDA} replaces what is known of the image" == violation.reason.en
        assert f"remove {CUDA}; policy: the owner of the rule can change declarations" == violation.fix.en


def test_a_variable_that_is_forbidden_is_cited_in_the_env_of_its_container() -> None:
    """Not as an annotation."""
    policy = compile_policy(load_rules([("r.yaml", compatibility_rule(declarations="deny"))]).rules)
    (violation,) = judged(policy, CLUSTER, with_variable("CUDA_VERSION", "12.2.2")).violations

    assert "spec.containers[0].env" == violation.path
